// The bound form of encryption: tests/vectors/merk_bound.json, shared with the Python client, and what nobody can do with a frame.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { bytes, hex, native, sdk } from "./support.mjs";

const { keys: KEYS, frames: FRAMES, ...FIXED } = JSON.parse(readFileSync(new URL("../../vectors/merk_bound.json", import.meta.url), "utf8"));
const keysOf = (name) => sdk.Keys.fromSeeds(native, bytes(KEYS[name].ed_seed), bytes(KEYS[name].x_priv));
const [alice, bob, carol] = await Promise.all(["alice", "bob", "carol"].map(keysOf));
const SECRET = { kind: "extended", timeMs: FIXED.time_ms, messageId: bytes("000102030405060708090a0b0c0d0e0f"), content: { kind: "text", text: "secret" } };
const open = (frame, keys = bob) => sdk.openFrame(keys, sdk.decodeFrame(frame));
const refused = (refusal) => (error) => error instanceof sdk.MalformedError && error.refusal === refusal;

for (const { name, hex: frame, opens } of FRAMES) {
  test(`vector: ${name}`, async () => {
    if (opens.refusal !== undefined) return assert.rejects(open(bytes(frame)), refused(opens.refusal));
    const opened = await open(bytes(frame));
    assert.deepEqual([opened.mode, opened.auth, hex(opened.messageId), hex(sdk.encodeContent(opened.content))], ["encrypted", opens.auth, opens.message_id, opens.plaintext]);
  });
}

test("the first vector comes out byte for byte", async () => {
  const fixed = { ephemeral: await native.importAgreement(bytes(FIXED.ephemeral_secret), false), nonce: bytes(FIXED.nonce) };
  const frame = await sdk.encryptedFrame(alice, bob.signing.public, bob.agreement.public, SECRET, fixed);
  assert.equal(hex(frame), FRAMES[0].hex);
  assert.equal(hex(sdk.boundContext(alice.signing.public, bob.signing.public)), FIXED.associated_alice_bob);
});

test("the bound form takes no more bytes than the legacy one", async () => {
  const length = async (content) => (await sdk.encryptedFrame(alice, bob.signing.public, bob.agreement.public, content)).length;
  assert.equal((await length(SECRET)) - (await length({ kind: "raw", data: sdk.encodeContent(SECRET).slice(1) })), 0);
});

test("who signs a ciphertext as his own, or aims it at another identity, makes nothing that opens", async () => {
  const { payload } = sdk.decodeFrame(await sdk.encryptedFrame(alice, bob.signing.public, bob.agreement.public, SECRET));
  const resigned = sdk.encodeFrame(5, payload, carol.signing.public, await carol.sign(payload));
  await assert.rejects(open(resigned), refused("cannot_decrypt"));

  const twin = new sdk.Keys(native, carol.signing, bob.agreement, false);
  const aimed = Uint8Array.from([...carol.signing.public, ...payload.slice(32)]);
  const redirected = sdk.encodeFrame(5, aimed, alice.signing.public, await alice.sign(aimed));
  await assert.rejects(open(redirected, twin), refused("cannot_decrypt"));
});
