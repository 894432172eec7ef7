// Arguments of a wrong type are refused at once, with a sentence, and nothing is sent.

import assert from "node:assert/strict";
import { test } from "node:test";
import { ADDRESS, collect, connected, environmentOf, sdk, TestRelay, until, VECTORS } from "./support.mjs";

const BOB = VECTORS.clients.bob.ed_pub;

async function pair() {
  const relay = await TestRelay.make();
  const alice = await connected(relay, "alice");
  const bob = await connected(relay, "bob");
  await until(() => relay.adverts.size === 2);
  return { relay, alice: alice.client, bob };
}

test("bytes are any memory, as it is", async () => {
  const { alice, bob } = await pair();
  const memory = Uint8Array.of(9, 1, 2, 3, 4, 9);
  for (const data of [memory.slice(1, 5), memory.subarray(1, 5), memory.slice(1, 5).buffer, new DataView(memory.buffer, 1, 4), Uint16Array.of(0x0201, 0x0403)]) {
    await (await alice.sendBytes(BOB, data)).outcome;
  }
  await until(() => bob.messages.length === 5);
  assert.ok(bob.messages.every(({ data }) => data.join() === "1,2,3,4"));
});

test("a file is a File, a Blob or bytes", async () => {
  const { alice, bob } = await pair();
  const data = Uint8Array.of(1, 2);
  for (const file of [new Blob([data]), data, data.buffer]) await (await alice.sendFile(BOB, file, { name: "n" })).outcome;
  await (await alice.sendFile(BOB, data)).outcome;
  await until(() => bob.messages.length === 4);
  assert.ok(bob.messages.every(({ kind, data: got }) => kind === "file" && got.join() === "1,2"));
  assert.deepEqual(bob.messages.map(({ name }) => name), ["n", "n", "n", "file"]);
});

test("wrong types throw at once, whatever the connection does, and nothing is sent", async () => {
  const relay = await TestRelay.make();
  const client = await sdk.MerkClient.open({ environment: environmentOf(relay) });
  const circle = {};
  circle.itself = circle;
  const calls = {
    "sendBytes text": () => client.sendBytes(BOB, "hello"),
    "sendBytes array": () => client.sendBytes(BOB, [1, 2]),
    "sendBytes nothing": () => client.sendBytes(BOB),
    "sendBytes Blob": () => client.sendBytes(BOB, new Blob(["x"])),
    "sendText number": () => client.sendText(BOB, 7),
    "sendText nothing": () => client.sendText(BOB, undefined),
    "sendText bytes": () => client.sendText(BOB, Uint8Array.of(1)),
    "sendJson circle": () => client.sendJson(BOB, circle),
    "sendJson BigInt": () => client.sendJson(BOB, 1n),
    "sendJson function": () => client.sendJson(BOB, () => 1),
    "sendFile path": () => client.sendFile(BOB, "/etc/passwd"),
    "sendFile nothing": () => client.sendFile(BOB, null),
    "sendFile name": () => client.sendFile(BOB, Uint8Array.of(1), { name: 7 }),
    "sendFile long name": () => client.sendFile(BOB, Uint8Array.of(1), { name: "n".repeat(256) }),
    "sendFile onProgress": () => client.sendFile(BOB, Uint8Array.of(1), { onProgress: true }),
    "sendFile signal": () => client.sendFile(BOB, Uint8Array.of(1), { signal: {} }),
    "key": () => client.sendText("bob", "x", { mode: "plain" }),
    "mode": () => client.sendText(BOB, "x", { mode: "secret" }),
    "format": () => client.sendText(BOB, "x", { format: "new" }),
    "options": () => client.sendText(BOB, "x", null),
    "connect": () => client.connect(7),
    "addServer": () => client.addServer(undefined),
    "findKey": () => client.findKey(7),
    "setAgreementKey": () => client.setAgreementKey(BOB, "x"),
    "setNick": () => client.setNick(7),
    "long nick": () => client.setNick("n".repeat(65)),
    "identity": () => sdk.MerkClient.createIdentity({ identity: 7, environment: environmentOf(relay) }),
    "receipts": () => sdk.MerkClient.open({ receipts: true, environment: environmentOf(relay) }),
    "listener": async () => client.on("message", undefined),
  };
  for (const [name, call] of Object.entries(calls)) {
    await assert.rejects(call(), (error) => error instanceof sdk.LocalError && /[.]$/.test(error.sentence) && !/surrogate/.test(error.sentence), name);
  }
  assert.deepEqual(relay.heard, []);
  await assert.rejects(client.sendText(BOB, "\ud800", { mode: "signed" }), sdk.LocalError);
});

test("a nick is kept with its identity, and said to nobody", async () => {
  const relay = await TestRelay.make();
  const environment = environmentOf(relay);
  const client = await sdk.MerkClient.open({ environment });
  assert.equal(client.getNick(), "");
  await client.setNick("Ada of the sea");
  const messages = collect(client, "message");
  await client.connect(ADDRESS);
  await client.sendText(client.id, "by Bob", { mode: "signed" });
  await until(() => messages.length === 1);
  const said = relay.heard.map(({ data }) => Buffer.from(data).toString("latin1")).join("");
  assert.deepEqual([said.includes("by Bob"), said.includes("Ada")], [true, false]);
  await client.setNick("Ada");
  assert.equal((await sdk.MerkClient.open({ environment })).getNick(), "Ada");
  assert.equal((await sdk.MerkClient.open({ environment, identity: "second" })).getNick(), "");
  await client.setNick("");
  assert.equal(client.getNick(), "");
});

test("keys are exportable where that was asked when they were made", async () => {
  const environment = environmentOf(await TestRelay.make());
  const client = await sdk.MerkClient.open({ environment, exportable: true });
  const file = await client.exportKeys();
  const copy = environmentOf(await TestRelay.make());
  await sdk.MerkClient.importIdentity(file, { environment: copy });
  assert.equal((await sdk.MerkClient.open({ environment: copy })).id, client.id);
});

test("where there is no WebSocket the SDK says so at once, and takes another one", async () => {
  const relay = await TestRelay.make();
  const { socketFactory, ...others } = environmentOf(relay);
  const own = globalThis.WebSocket;
  delete globalThis.WebSocket;
  try {
    await assert.rejects(sdk.MerkClient.open({ environment: others }), (error) => error instanceof sdk.LocalError && /WebSocket/.test(error.sentence));
  } finally {
    if (own !== undefined) globalThis.WebSocket = own;
  }
  const client = await sdk.MerkClient.open({ environment: { ...others, socketFactory } });
  await client.connect(ADDRESS);
  assert.equal((await client.whenReady()).phase, "ready");
});

test("a server pushed by another is known by the key that the list names, and only who proves it is taken for it", async () => {
  const relay = await TestRelay.make();
  const { client, environment } = await connected(relay, "alice");
  const servers = collect(client, "servers");
  const stranger = await sdk.Keys.generate(environment.crypto);
  relay.servers = [{ key: stranger.signing.public, address: "ws://other.test/merk" }];
  for (let count = 0; count < 20; count += 1) relay.say(relay.live[0], { type: "add_server", address: "ws://other.test/merk" });
  await until(() => servers.at(-1)?.servers.some(({ named }) => named === stranger.id), "the key");
  assert.equal(relay.heard.filter(({ frame: { kind, payload } }) => kind === 3 && payload[0] === 2).length, 1, "it asks once in five seconds");

  await client.connect("ws://other.test/merk");
  await until(() => client.state.phase === "refused" || client.state.phase === "waiting");
  assert.equal(client.state.reason, "wrong_server");
  await client.forgetServerKey("ws://other.test/merk");
  await client.connect("ws://other.test/merk");
  assert.equal((await client.whenReady()).phase, "ready");
});
