// One connection: the handshake, the proof of the server, and what a hostile server gets.

import assert from "node:assert/strict";
import { test } from "node:test";
import { closeStatus, WAITING_MAX } from "../../../src/waystation/console/web/sdk/session.js";
import { keysOf, native, sdk, TestClock } from "./support.mjs";

const keys = await keysOf("alice");
const node = await sdk.Keys.generate(native);
const other = await sdk.Keys.generate(native);
const NODE = node.signing.public;
const CHALLENGE = new Uint8Array(32).fill(0x80);

function begin(options = {}) {
  const clock = new TestClock();
  const sent = [];
  const events = [];
  const session = new sdk.Session({ keys, clock, pinnedKey: null, send: (data) => sent.push(data), listener: (event) => events.push(event), ...options });
  const receive = (data) => session.receive(data instanceof Uint8Array ? data.buffer : data);
  return { session, clock, sent, events, receive, last: () => events.at(-1) };
}

async function confirmed(options) {
  const run = begin(options);
  await run.receive(sdk.encodeFrame(1, CHALLENGE));
  await run.receive(sdk.encodeFrame(1, Uint8Array.of(1), NODE));
  return run;
}

const helloOf = (from = node, role = 1) => ({ type: "hello", features: 15, role, key: from.signing.public, nonce: new Uint8Array(32).fill(5), address: "" });
const info = (message) => sdk.encodeInfoFrame(message, NODE);

async function proofFor(run, hello = helloOf(), signer = node, role = 1) {
  const { nonce } = sdk.decodeInfo(sdk.decodeFrame(run.sent[1]).payload);
  return { type: "auth", signature: await signer.sign(sdk.authMessage(hello.key, keys.signing.public, hello.nonce, nonce, role, 0)) };
}

async function ready(options) {
  const run = await confirmed(options);
  await run.receive(info(helloOf()));
  await run.receive(info(await proofFor(run)));
  return run;
}

const ended = (refusal) => ({ type: "ended", refusal });
const endOf = ({ events }) => events.filter(({ type }) => type === "ended").map(({ type, refusal }) => ({ type, refusal }));

test("the challenge is signed, nothing else is sent before the confirmation, then HELLO", async () => {
  const run = begin();
  await run.receive(sdk.encodeFrame(1, CHALLENGE));
  assert.equal(run.sent.length, 1);
  const answer = sdk.decodeFrame(run.sent[0]);
  assert.deepEqual([answer.kind, answer.payload, answer.sender], [1, CHALLENGE, keys.signing.public]);
  assert.equal(await native.verify(answer.sender, CHALLENGE, answer.signature), true);
  await run.receive(sdk.encodeFrame(1, Uint8Array.of(1), NODE));

  const hello = sdk.decodeInfo(sdk.decodeFrame(run.sent[1]).payload);
  assert.deepEqual([hello.type, hello.features, hello.role, hello.key], ["hello", 55, 0, keys.signing.public]);
  assert.deepEqual(run.events, []);
});

test("a server that proves its key is authenticated, with its features", async () => {
  const run = await ready();
  assert.deepEqual(run.events, [{ type: "ready", server: NODE, authenticated: true, features: 15, frameBytesMax: 8_388_608 }]);
});

test("a server that does not answer HELLO within two seconds is an original relay", async () => {
  const run = await confirmed();
  run.clock.advance(1_999);
  assert.deepEqual(run.events, []);
  run.clock.advance(1);
  assert.deepEqual(run.events, [{ type: "ready", server: NODE, authenticated: false, features: 0, frameBytesMax: 8_388_608 }]);
});

test("a client proves itself to a server that proved its key, to this one and its nonce, and only once", async () => {
  const run = await ready();
  const proofs = run.sent.map((data) => sdk.decodeFrame(data)).filter(({ kind, payload }) => kind === 3 && payload[0] === 0x81);
  const { nonce } = sdk.decodeInfo(sdk.decodeFrame(run.sent[1]).payload);
  const signed = (server, theirs) => sdk.authMessage(keys.signing.public, server, nonce, theirs, 0, 1);
  const verify = (message) => native.verify(keys.signing.public, message, sdk.decodeInfo(proofs[0].payload).signature);
  const theirs = helloOf().nonce;

  assert.equal(proofs.length, 1);
  assert.equal(await verify(signed(NODE, theirs)), true);
  assert.equal(await verify(signed(other.signing.public, theirs)), false);
  assert.equal(await verify(signed(NODE, theirs.map((byte) => byte ^ 1))), false);
});

test("a server that proves no key gets no proof", async () => {
  const run = await confirmed();
  await run.receive(info(helloOf()));
  assert.ok(run.sent.every((data) => sdk.decodeFrame(data).payload[0] !== 0x81));
});

test("what the server takes is told before and after it is ready, and never above what we take", async () => {
  const run = await confirmed();
  await run.receive(info({ type: "limits", frameBytesMax: 70_000 }));
  await run.receive(info(helloOf()));
  await run.receive(info(await proofFor(run)));
  await run.receive(info({ type: "limits", frameBytesMax: 4_294_967_295 }));
  assert.deepEqual(run.events.map(({ frameBytesMax }) => frameBytesMax), [70_000, 8_388_608]);
});

test("a late proof is told a second time", async () => {
  const run = await confirmed();
  run.clock.advance(2_000);
  await run.receive(info(helloOf()));
  await run.receive(info(await proofFor(run)));
  assert.deepEqual(run.events.map(({ authenticated }) => authenticated), [false, true]);
});

test("a challenge that could be read as typed content is refused unsigned", async () => {
  for (const first of [1, 2, 3, 16]) {
    const run = begin();
    await run.receive(sdk.encodeFrame(1, CHALLENGE.map((byte, index) => (index === 0 ? first : byte))));
    assert.deepEqual([run.sent, endOf(run)], [[], [ended("hostile_challenge")]], `first byte ${first}`);
  }
});

test("an honest first byte of any other value is answered", async () => {
  for (const first of [0, 4, 15, 17, 127, 128, 255]) {
    const run = begin();
    await run.receive(sdk.encodeFrame(1, CHALLENGE.map((byte, index) => (index === 0 ? first : byte))));
    assert.equal(run.sent.length, 1, `first byte ${first}`);
  }
});

test("a second challenge is never signed: before the confirmation, after it, and when ready", async () => {
  for (const start of [async () => { const run = begin(); await run.receive(sdk.encodeFrame(1, CHALLENGE)); return run; }, confirmed, ready]) {
    const run = await start();
    const count = run.sent.length;
    await run.receive(sdk.encodeFrame(1, new Uint8Array(32).fill(0x90)));
    assert.deepEqual([run.sent.length, endOf(run)], [count, [ended("hostile_challenge")]]);
  }
});

test("two challenges in one breath are answered once", async () => {
  const run = begin();
  await Promise.all([run.receive(sdk.encodeFrame(1, CHALLENGE)), run.receive(sdk.encodeFrame(1, CHALLENGE))]);
  assert.deepEqual([run.sent.length, endOf(run)], [1, [ended("hostile_challenge")]]);
});

test("a challenge of another length, or with a signature, is refused", async () => {
  for (const frame of [sdk.encodeFrame(1, CHALLENGE.slice(1)), sdk.encodeFrame(1, new Uint8Array(33)), sdk.encodeFrame(1, new Uint8Array()), sdk.encodeFrame(1, CHALLENGE, NODE, new Uint8Array(64).fill(1))]) {
    const run = begin();
    await run.receive(frame);
    assert.deepEqual([run.sent, endOf(run)], [[], [ended("hostile_challenge")]]);
  }
});

test("a confirmation with a signature, of another byte, or out of turn ends the connection", async () => {
  const answered = async (frame) => {
    const run = begin();
    await run.receive(sdk.encodeFrame(1, CHALLENGE));
    await run.receive(frame);
    return endOf(run);
  };
  assert.deepEqual(await answered(sdk.encodeFrame(1, Uint8Array.of(1), NODE, new Uint8Array(64).fill(1))), [ended("hostile_challenge")]);
  assert.deepEqual(await answered(sdk.encodeFrame(1, Uint8Array.of(2), NODE)), [ended("misplaced_handshake")]);
  const twice = await confirmed();
  await twice.receive(sdk.encodeFrame(1, Uint8Array.of(1), NODE));
  assert.deepEqual(endOf(twice), [ended("misplaced_handshake")]);
});

test("content before the confirmation ends the connection, NODE_INFO is ignored", async () => {
  const run = begin();
  await run.receive(info({ type: "request_servers" }));
  assert.deepEqual(run.events, []);
  await run.receive(sdk.encodeFrame(2, keys.signing.public));
  assert.deepEqual([run.sent, endOf(run)], [[], [ended("frame_before_auth")]]);
});

test("no confirmation within ten seconds ends the connection", () => {
  const run = begin();
  run.clock.advance(9_999);
  assert.deepEqual(run.events, []);
  run.clock.advance(1);
  assert.deepEqual(endOf(run), [ended("auth_timeout")]);
});

test("false proofs end the connection: another signer, role, key, a second HELLO, a proof without HELLO", async () => {
  const cases = {
    signer: async (run) => [helloOf(), await proofFor(run, helloOf(), other)],
    role: async (run) => [helloOf(), await proofFor(run, helloOf(), node, 0)],
    "client's HELLO": async () => [helloOf(node, 0)],
    key: async (run) => [helloOf(other), await proofFor(run, helloOf(other), other)],
    twice: async () => [helloOf(), helloOf()],
    "no HELLO": async (run) => [await proofFor(run)],
    "proof twice": async (run) => [helloOf(), await proofFor(run), await proofFor(run)],
  };
  for (const [name, make] of Object.entries(cases)) {
    const run = await confirmed();
    for (const message of await make(run)) await run.receive(info(message));
    assert.deepEqual(endOf(run), [ended("bad_peer_auth")], name);
  }
});

test("a proof made for another client or another connection is false", async () => {
  const [first, second] = [await confirmed(), await confirmed()];
  await second.receive(info(helloOf()));
  await second.receive(info(await proofFor(first)));
  assert.deepEqual(endOf(second), [ended("bad_peer_auth")]);
});

test("a pinned server must have its key, and must prove it", async () => {
  const wrong = await confirmed({ pinnedKey: other.signing.public });
  assert.deepEqual([wrong.sent.length, endOf(wrong)], [1, [ended("wrong_server")]]);
  const silent = await confirmed({ pinnedKey: NODE });
  silent.clock.advance(2_000);
  assert.deepEqual(endOf(silent), [ended("bad_peer_auth")]);
  const right = await ready({ pinnedKey: NODE });
  assert.equal(right.last().authenticated, true);
});

test("text, a frame that is none, or one too large ends the connection with its status", async () => {
  const cases = [["hello", "unknown_type", 4401], [new Uint8Array(3), "short", 4002], [sdk.encodeFrame(1, CHALLENGE).fill(0, 0, 1), "bad_magic", 4002], [new Uint8Array(2_000), "too_big", 4009]];
  for (const [data, refusal, status] of cases) {
    const run = begin({ frameBytesMax: 1_000 });
    await run.receive(data);
    assert.deepEqual([endOf(run), closeStatus(refusal)], [[ended(refusal)], status]);
  }
});

test("malformed NODE_INFO is dropped and the connection lives; unknown subtypes are ignored", async () => {
  const run = await ready();
  await run.receive(sdk.encodeFrame(3, Uint8Array.of(0x82, 0), NODE));
  await run.receive(sdk.encodeFrame(3, Uint8Array.of(0xf0), NODE));
  await run.receive(info({ type: "request_servers" }));
  assert.deepEqual(run.events.slice(1), [{ type: "dropped", refusal: "malformed_info", sender: NODE }, { type: "info", info: { type: "request_servers" } }]);
});

test("content frames are handed on whole, in their order", async () => {
  const run = await ready();
  const frames = [1, 2, 3].map((byte) => sdk.encodeFrame(2, Uint8Array.of(byte)));
  await Promise.all(frames.map((frame) => run.receive(frame)));
  assert.deepEqual(run.events.slice(1).map(({ data }) => data), frames);
});

test("a server that sends faster than the page can check is cut off", async () => {
  const run = begin();
  const all = Array.from({ length: WAITING_MAX + 1 }, () => run.receive(sdk.encodeFrame(3, new Uint8Array())));
  assert.deepEqual(endOf(run), [ended("not_reading")]);
  await Promise.all(all);
});

test("after its end a session says nothing more", async () => {
  const run = begin();
  run.session.disconnect();
  await run.receive(sdk.encodeFrame(1, CHALLENGE));
  run.clock.advance(60_000);
  assert.deepEqual([run.sent, run.events], [[], []]);
});
