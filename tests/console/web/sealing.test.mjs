// Frames between clients: what is proved about each, and what is refused.

import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, hex, keysOf, native, sdk, VECTORS } from "./support.mjs";

const alice = await keysOf("alice");
const bob = await keysOf("bob");
const TO_BOB = bob.signing.public;
const TEXT = { kind: "text", text: "hello" };
const open = (frame, keys = bob) => sdk.openFrame(keys, sdk.decodeFrame(frame));
const refused = (refusal) => (error) => error instanceof sdk.MalformedError && error.refusal === refusal;
const flipped = (frame, index) => frame.map((byte, at) => (at === index ? byte ^ 1 : byte));

test("a header signature binds sender, type and target of plain and signed frames", async () => {
  assert.equal((await open(await sdk.dataFrame(alice, TO_BOB, Uint8Array.of(1)))).auth, "bound");
  assert.equal((await open(await sdk.signedFrame(alice, TO_BOB, TEXT))).auth, "bound");
});

test("without it plain frames prove nothing and signed ones only their content", async () => {
  const none = { headerSignature: false };
  assert.equal((await open(await sdk.dataFrame(alice, TO_BOB, Uint8Array.of(1), none))).auth, "none");
  assert.equal((await open(await sdk.signedFrame(alice, TO_BOB, TEXT, none))).auth, "legacy");
});

test("32 signed bytes without a header signature are ambiguous: a hostile server may have asked for them", async () => {
  const encoded = sdk.encodeContent({ kind: "text", text: "x".repeat(31) });
  const payload = Uint8Array.from([...TO_BOB, ...(await alice.sign(encoded)), ...encoded]);
  const opened = await open(sdk.encodeFrame(4, payload, alice.signing.public));

  assert.equal(opened.auth, "ambiguous");
  await assert.rejects(sdk.signedFrame(alice, TO_BOB, { kind: "text", text: "x".repeat(31) }, { headerSignature: false }), sdk.LocalError);
  assert.equal((await open(await sdk.signedFrame(alice, TO_BOB, { kind: "text", text: "x".repeat(31) }))).auth, "bound");
});

test("a signed frame aimed anew is refused when its header is signed, and legacy when it is not", async () => {
  const carol = await sdk.Keys.generate(native);
  const aimed = async (options) => {
    const frame = await sdk.signedFrame(alice, TO_BOB, TEXT, options);
    frame.set(carol.signing.public, 120);
    return open(frame, carol);
  };
  await assert.rejects(aimed({}), refused("bad_signature"));
  assert.equal((await aimed({ headerSignature: false })).auth, "legacy");
});

test("a header signature that is wrong is refused, not ignored", async () => {
  for (const make of [() => sdk.dataFrame(alice, TO_BOB, Uint8Array.of(1)), () => sdk.signedFrame(alice, TO_BOB, TEXT)]) {
    const frame = await make();
    for (const index of [3, 10, 56, 119]) await assert.rejects(open(flipped(frame, index)), refused("bad_signature"), `byte ${index}`);
  }
});

test("any change of a signed or encrypted payload is refused", async () => {
  const frames = [await sdk.signedFrame(alice, TO_BOB, TEXT, { headerSignature: false }), await sdk.encryptedFrame(alice, TO_BOB, bob.agreement.public, TEXT)];
  for (const frame of frames) {
    for (let index = 152; index < frame.length; index += 5) await assert.rejects(open(flipped(frame, index)), refused("bad_signature"));
  }
});

test("payloads cut off at every length are refused", async () => {
  const frames = { 2: await sdk.dataFrame(alice, TO_BOB, Uint8Array.of(1)), 4: await sdk.signedFrame(alice, TO_BOB, TEXT), 5: await sdk.encryptedFrame(alice, TO_BOB, bob.agreement.public, TEXT) };
  for (const [kind, frame] of Object.entries(frames)) {
    const payload = frame.slice(120);
    for (let length = 0; length < payload.length; length += 3) {
      const cut = sdk.encodeFrame(Number(kind), payload.slice(0, length), alice.signing.public, frame.slice(56, 120));
      await assert.rejects(open(cut), (error) => error instanceof sdk.MalformedError, `type ${kind}, ${length} bytes`);
    }
  }
});

test("a frame for somebody else, of another type, or without target is refused", async () => {
  const frame = await sdk.dataFrame(alice, alice.signing.public, Uint8Array.of(1));
  await assert.rejects(open(frame), refused("not_for_us"));
  await assert.rejects(open(sdk.encodeFrame(9, TO_BOB, alice.signing.public)), refused("unknown_type"));
  await assert.rejects(open(sdk.encodeFrame(2, TO_BOB.slice(1), alice.signing.public)), refused("no_target"));
});

test("an encrypted frame goes to its recipient, whose agreement key must not be weak", async () => {
  const opened = await open(await sdk.encryptedFrame(alice, TO_BOB, bob.agreement.public, { kind: "raw", data: Uint8Array.of(1, 2) }));
  assert.deepEqual([opened.mode, opened.auth, opened.content], ["encrypted", "legacy", { kind: "raw", data: Uint8Array.of(1, 2) }]);
  await assert.rejects(sdk.encryptedFrame(alice, TO_BOB, new Uint8Array(32), TEXT), sdk.LocalError);
});

test("a valid signature over what is not encrypted for us cannot be decrypted", async () => {
  const frame = await sdk.encryptedFrame(alice, TO_BOB, alice.agreement.public, TEXT);
  await assert.rejects(open(frame), refused("cannot_decrypt"));
  const payload = Uint8Array.from([...TO_BOB, ...new Uint8Array(32), ...new Uint8Array(40)]);
  await assert.rejects(open(sdk.encodeFrame(5, payload, alice.signing.public, await alice.sign(payload))), refused("cannot_decrypt"));
});

test("a message's id is that inside, or names the payload whatever its target", async () => {
  const frame = await sdk.signedFrame(alice, TO_BOB, TEXT);
  assert.equal(hex((await open(frame)).messageId), hex((await native.sha256(frame.slice(152))).slice(0, 16)));
  const messageId = new Uint8Array(16).fill(7);
  assert.deepEqual((await open(await sdk.signedFrame(alice, TO_BOB, { kind: "extended", timeMs: 1, messageId, content: TEXT }))).messageId, messageId);
});

test("messages that are signed have the specified layout", () => {
  const [key, other, nonce, otherNonce] = [1, 2, 3, 4].map((byte) => new Uint8Array(32).fill(byte));
  const text = (message) => Buffer.from(message).toString("hex");
  assert.equal(hex(sdk.authMessage(key, other, nonce, otherNonce, 1, 0)), text("merk-ext-auth/1") + [1, 2, 3, 4].map((byte) => `0${byte}`.repeat(32)).join("") + "0100");
  assert.equal(hex(sdk.advertMessage(key, other, 258)), `${text("merk-keys/1")}${"01".repeat(32)}${"02".repeat(32)}0000000000000102`);
  assert.equal(hex(sdk.headerMessage(bytes("aa"), bytes("bb"))), `${text("merk-frame/1")}aabb`);
});

test("an advert is valid when its key signed it, and not when any part changed", async () => {
  const advert = await sdk.makeAdvert(alice, 1_700_000_000_000);
  assert.equal(await sdk.isAdvertValid(native, advert), true);
  for (const change of [{ timeMs: advert.timeMs + 1 }, { agreementKey: bob.agreement.public }, { key: TO_BOB }]) {
    assert.equal(await sdk.isAdvertValid(native, { ...advert, ...change }), false);
  }
});
