// The browser's cryptography: strict where the original was not, refused where it is not whole, keys that cannot be taken out.

import assert from "node:assert/strict";
import { test } from "node:test";
import { WebCrypto } from "../../../src/waystation/console/web/sdk/crypto/web_crypto.js";
import { isSoundPoint, mayVerify } from "../../../src/waystation/console/web/sdk/crypto/ed25519_checks.js";
import { bytes, hex, keysOf, native, sdk, VECTORS } from "./support.mjs";

const L = 2n ** 252n + 27742317777372353535851937790883648493n;
const P = 2n ** 255n - 19n;
const little = (value) => Uint8Array.from({ length: 32 }, (_, index) => Number((value >> BigInt(8 * index)) & 255n));
const message = new TextEncoder().encode("message");

const SMALL_ORDER = [
  little(0n),
  little(1n),
  little(P - 1n),
  little(P),
  little(P + 1n),
  bytes("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
  bytes("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
];

test("points of small order and points not written canonically are refused, with either sign", () => {
  for (const point of [...SMALL_ORDER, little(P + 5n)]) {
    const negative = Uint8Array.from(point);
    negative[31] |= 0x80;
    assert.equal(isSoundPoint(point), false, hex(point));
    assert.equal(isSoundPoint(negative), false, hex(negative));
  }
  assert.equal(isSoundPoint(bytes(VECTORS.clients.alice.ed_pub)), true);
  assert.equal(isSoundPoint(bytes(VECTORS.clients.bob.ed_pub)), true, "a key whose sign bit is set");
  assert.equal(isSoundPoint(little(P - 2n)), true);
});

test("the explicit check alone refuses S >= L, a weak key and a weak R, whatever the browser does", () => {
  const key = bytes(VECTORS.clients.alice.ed_pub);
  const signature = (r, s) => Uint8Array.from([...r, ...little(s)]);
  assert.equal(mayVerify(key, signature(key, L - 1n)), true);
  assert.equal(mayVerify(key, signature(key, L)), false);
  for (const point of SMALL_ORDER) {
    assert.equal(mayVerify(point, signature(key, 1n)), false);
    assert.equal(mayVerify(key, signature(point, 1n)), false);
  }
});

test("an all-zero agreement is refused where the browser lets it through", async () => {
  const lax = { importKey: async () => ({}), deriveBits: async () => new ArrayBuffer(32) };
  assert.equal(await new WebCrypto(lax).agree({}, new Uint8Array(32)), null);
});

test("keys and signatures of other lengths are refused", () => {
  const key = bytes(VECTORS.clients.alice.ed_pub);
  const signature = new Uint8Array(64).fill(1);
  assert.equal(mayVerify(key, signature), true);
  assert.equal(mayVerify(key.slice(1), signature), false);
  assert.equal(mayVerify(key, signature.slice(1)), false);
});

test("a signature verifies, and not when any byte of it, its message or its key changed", async () => {
  const alice = await keysOf("alice");
  const signature = await alice.sign(message);
  assert.equal(await native.verify(alice.signing.public, message, signature), true);
  for (let index = 0; index < 64; index += 7) {
    const wrong = signature.map((byte, at) => (at === index ? byte ^ 1 : byte));
    assert.equal(await native.verify(alice.signing.public, message, wrong), false, `byte ${index}`);
  }
  assert.equal(await native.verify(alice.signing.public, message.slice(1), signature), false);
  assert.equal(await native.verify(bytes(VECTORS.clients.bob.ed_pub), message, signature), false);
});

test("S + L is refused, although it solves the equation too", async () => {
  const alice = await keysOf("alice");
  const signature = await alice.sign(message);
  const s = signature.slice(32).reduceRight((sum, byte) => (sum << 8n) | BigInt(byte), 0n);
  const malleable = Uint8Array.from([...signature.slice(0, 32), ...little(s + L)]);
  assert.equal(await native.verify(alice.signing.public, message, malleable), false);
});

test("the all-zero key with the all-zero signature signs nothing", async () => {
  for (let byte = 0; byte < 16; byte += 1) {
    assert.equal(await native.verify(new Uint8Array(32), Uint8Array.of(byte), new Uint8Array(64)), false);
  }
  for (const point of SMALL_ORDER) assert.equal(await native.verify(point, message, new Uint8Array(64)), false);
});

test("a key that is on no curve is refused, not thrown", async () => {
  const off = little(2n);
  assert.equal(await native.verify(off, message, (await (await keysOf("alice")).sign(message))), false);
});

test("an agreement that would be zero gives none", async () => {
  const { secret } = await native.generateAgreement(false);
  for (const point of [little(0n), little(1n), little(P - 1n), little(P), little(P + 1n)]) assert.equal(await native.agree(secret, point), null, hex(point));
});

test("sealed bytes open with their key and nonce only", async () => {
  const key = new Uint8Array(32).fill(1);
  const nonce = new Uint8Array(12).fill(2);
  const sealed = await native.seal(key, nonce, message);
  assert.equal(sealed.length, message.length + 16);
  assert.deepEqual(await native.open(key, nonce, sealed), message);
  assert.equal(await native.open(nonce.length === 12 ? key.map((byte) => byte ^ 1) : key, nonce, sealed), null);
  assert.equal(await native.open(key, nonce, sealed.slice(1)), null);
  assert.equal(await native.open(key, nonce, new Uint8Array(15)), null);
});

test("associated data must be the same to open, and adds no byte", async () => {
  const key = new Uint8Array(32).fill(1);
  const nonce = new Uint8Array(12);
  const sealed = await native.seal(key, nonce, message, Uint8Array.of(1, 2));
  assert.equal(sealed.length, message.length + 16);
  assert.deepEqual(await native.open(key, nonce, sealed, Uint8Array.of(1, 2)), message);
  for (const other of [undefined, Uint8Array.of(1), Uint8Array.of(1, 2, 0)]) assert.equal(await native.open(key, nonce, sealed, other), null);
});

for (const [name, scope, reason] of [
  ["nothing at all", undefined, "insecure"],
  ["no crypto.subtle", {}, "insecure"],
  ["no Ed25519", { subtle: { generateKey: async () => { throw new DOMException("unknown", "NotSupportedError"); } } }, "old"],
  ["no X25519", { subtle: { generateKey: async (name) => { if (name === "X25519") throw new DOMException("unknown", "NotSupportedError"); } } }, "old"],
]) {
  test(`a page with ${name} gets one error of the SDK's own, which is a sentence`, async () => {
    await assert.rejects(sdk.loadCrypto(scope ?? null), (error) => error instanceof sdk.NoCryptoError && error instanceof sdk.LocalError && error.reason === reason && error.sentence.endsWith("."));
  });
}

test("keys, made or imported, are not exportable unless that was asked", async () => {
  const imported = await sdk.Keys.importJson(native, await (await keysOf("alice")).exportJson());
  const { subtle } = globalThis.crypto;
  for (const keys of [await sdk.Keys.generate(native), imported]) {
    for (const { secret } of [keys.signing, keys.agreement]) {
      assert.equal(secret.extractable, false);
      await assert.rejects(subtle.exportKey("pkcs8", secret));
      await assert.rejects(subtle.exportKey("jwk", secret));
    }
    await assert.rejects(keys.exportJson(), sdk.LocalError);
  }
});

test("the original's key file goes in and, for exportable keys, out again", async () => {
  const file = await (await keysOf("alice")).exportJson();
  const exportable = await sdk.Keys.importJson(native, file, { exportable: true });
  const locked = await sdk.Keys.importJson(native, file);

  assert.equal(exportable.id, VECTORS.clients.alice.ed_pub);
  assert.equal(await exportable.exportJson(), file);
  assert.deepEqual(await locked.sign(message), await exportable.sign(message));
  await assert.rejects(locked.exportJson(), sdk.LocalError);
});

test("a key file has the original's four members in base64", async () => {
  const file = JSON.parse(await (await keysOf("alice")).exportJson());
  const { alice } = VECTORS.clients;
  const expected = { publicKey: alice.ed_pub, privateKey: alice.ed_seed + alice.ed_pub, encryptionPublicKey: alice.x_pub, encryptionPrivateKey: alice.x_priv };
  assert.deepEqual(Object.fromEntries(Object.entries(file).map(([name, text]) => [name, Buffer.from(text, "base64").toString("hex")])), expected);
});

test("a damaged key file is refused with a sentence", async () => {
  const file = JSON.parse(await (await keysOf("alice")).exportJson());
  const bob = JSON.parse(await (await keysOf("bob")).exportJson());
  const broken = [
    "", "7", "null", "[]", "{}",
    ...["publicKey", "privateKey", "encryptionPublicKey", "encryptionPrivateKey"].flatMap((name) => [
      JSON.stringify({ ...file, [name]: bob[name] }),
      JSON.stringify({ ...file, [name]: `${file[name]}A` }),
      JSON.stringify({ ...file, [name]: "AAAA" }),
      JSON.stringify({ ...file, [name]: 7 }),
    ]),
  ];
  for (const text of broken) await assert.rejects(sdk.Keys.importJson(native, text), sdk.LocalError, text);
});
