// tests/vectors/merk.json both ways.

import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, hex, keysOf, native, sdk, VECTORS } from "./support.mjs";

const FRAMES = VECTORS.verbatim_relay;
const DETERMINISTIC = VECTORS.encrypted_deterministic;
const target = bytes(VECTORS.clients.bob.ed_pub);

/** What alice said in the vectors, by name. */
const SAID = {
  "DATA 68 B": { mode: "plain", auth: "none", content: { kind: "raw", data: new TextEncoder().encode("hello-from-alice-".repeat(4)) } },
  "DATA short": { mode: "plain", auth: "none", content: { kind: "raw", data: new TextEncoder().encode("short") } },
  "SIGNED text": { mode: "signed", auth: "legacy" },
  "SIGNED JSON": { mode: "signed", auth: "legacy" },
  "SIGNED FILE a.bin 01020304": { mode: "signed", auth: "legacy", content: { kind: "file", name: "a.bin", data: Uint8Array.of(1, 2, 3, 4) } },
};

test("every frame of the vectors is read and written back to the same bytes", () => {
  for (const { name, hex: text } of FRAMES) {
    const frame = sdk.decodeFrame(bytes(text));
    assert.equal(hex(sdk.encodeFrame(frame.kind, frame.payload, frame.sender, frame.signature)), text, name);
  }
});

test("the request for servers is the byte 02", () => {
  const { hex: text } = FRAMES.find(({ name }) => name === "REQUEST_SERVERS");
  assert.equal(hex(sdk.encodeInfoFrame({ type: "request_servers" }, bytes(VECTORS.clients.alice.ed_pub))), text);
});

test("seeds give the public keys of the vectors", async () => {
  for (const name of ["alice", "bob"]) {
    const keys = await keysOf(name);
    assert.equal(keys.id, VECTORS.clients[name].ed_pub);
    assert.equal(hex(keys.agreement.public), VECTORS.clients[name].x_pub);
  }
});

test("the answer to a challenge is the original's", async () => {
  for (const name of ["alice", "bob"]) {
    const keys = await keysOf(name);
    const [challenge, answer] = ["challenge", "answer"].map((step) => FRAMES.find((frame) => frame.name === step && frame.who === name).hex);
    const { payload } = sdk.decodeFrame(bytes(challenge));
    assert.equal(hex(sdk.encodeFrame(1, payload, keys.signing.public, await keys.sign(payload))), answer);
  }
});

test("every DATA and SIGNED_DATA frame opens, and is built again byte for byte", async () => {
  const alice = await keysOf("alice");
  const bob = await keysOf("bob");
  for (const [name, said] of Object.entries(SAID)) {
    const { hex: text } = FRAMES.find((frame) => frame.name === name);
    const opened = await sdk.openFrame(bob, sdk.decodeFrame(bytes(text)));
    assert.deepEqual({ mode: opened.mode, auth: opened.auth, sender: hex(opened.sender) }, { mode: said.mode, auth: said.auth, sender: alice.id }, name);
    if (said.content) assert.deepEqual(opened.content, said.content, name);
    const built =
      said.mode === "plain"
        ? await sdk.dataFrame(alice, target, opened.content.data, { headerSignature: false })
        : await sdk.signedFrame(alice, target, opened.content, { headerSignature: false });
    assert.equal(hex(built), text, name);
  }
});

test("ENCRYPTED frames of the original open as legacy", async () => {
  const bob = await keysOf("bob");
  const contents = [];
  for (const { name, hex: text } of FRAMES.filter((frame) => frame.name.startsWith("ENCRYPTED"))) {
    const opened = await sdk.openFrame(bob, sdk.decodeFrame(bytes(text)));
    assert.equal(opened.auth, "legacy", name);
    contents.push(opened.content.kind);
  }
  assert.deepEqual(contents, ["text", "json", "file"]);
});

test("the deterministic encrypted frame comes out, step by step", async () => {
  const alice = await keysOf("alice");
  const bob = await keysOf("bob");
  const ephemeral = await native.importAgreement(bytes(DETERMINISTIC.eph_priv), false);
  const shared = await native.agree(ephemeral.secret, bob.agreement.public);
  const fixed = { ephemeral, nonce: bytes(DETERMINISTIC.nonce) };
  const frame = await sdk.encryptedFrame(alice, target, bob.agreement.public, { kind: "text", text: "secret" }, fixed);

  assert.equal(hex(ephemeral.public), DETERMINISTIC.eph_pub);
  assert.equal(hex(shared), DETERMINISTIC.shared_secret);
  assert.equal(hex(await native.sha256(shared)), DETERMINISTIC.aes_key_sha256);
  assert.equal(hex(sdk.encodeContent({ kind: "text", text: "secret" })), DETERMINISTIC.plaintext);
  assert.equal(hex(frame), DETERMINISTIC.frame_sig_over_whole_payload);
});

test("the form without associated data is legacy, whatever its signature covers", async () => {
  const bob = await keysOf("bob");
  const bound = await sdk.openFrame(bob, sdk.decodeFrame(bytes(DETERMINISTIC.frame_sig_over_whole_payload)));
  const legacy = await sdk.openFrame(bob, sdk.decodeFrame(bytes(DETERMINISTIC.frame_sig_over_package_only_as_original_sender)));

  assert.deepEqual([bound.auth, legacy.auth], ["legacy", "legacy"]);
  assert.deepEqual([bound.content, legacy.content], [{ kind: "text", text: "secret" }, { kind: "text", text: "secret" }]);
});
