// The client as applications use it: two of them over one relay.

import assert from "node:assert/strict";
import { test } from "node:test";
import { ADDRESS, bytes, collect, connected, environmentOf, hex, keysOf, native, quiet, sdk, TestChannels, TestLocks, TestRelay, until, VECTORS } from "./support.mjs";

const BOB = VECTORS.clients.bob.ed_pub;
const ALICE = VECTORS.clients.alice.ed_pub;

async function pair(overrides = {}) {
  const relay = await TestRelay.make();
  const alice = await connected(relay, "alice", overrides);
  const bob = await connected(relay, "bob", overrides);
  await until(() => relay.adverts.size === 2, "both adverts");
  return { relay, alice, bob };
}

const next = (messages, count = 1) => until(() => messages.length >= count && messages.at(-1), `message ${count}`);

for (const mode of ["encrypted", "signed", "plain"]) {
  test(`${mode}: text, JSON and bytes arrive and their outcome is told`, async () => {
    const { alice, bob } = await pair();
    const outcomes = [];
    for (const sent of [await alice.client.sendText(BOB, "héllo", { mode }), await alice.client.sendJson(BOB, { a: [1] }, { mode }), await alice.client.sendBytes(BOB, Uint8Array.of(1, 255), { mode })]) {
      outcomes.push((await sent.outcome).name);
    }
    await next(bob.messages, 3);

    const [text, json, raw] = bob.messages;
    assert.deepEqual(outcomes, ["accepted", "accepted", "accepted"]);
    assert.ok(bob.messages.every(({ sender, mode: how, auth }) => sender === ALICE && how === mode && auth === "bound"));
    assert.deepEqual([text.text, json.text, raw.data], ["héllo", '{"a":[1]}', Uint8Array.of(1, 255)]);
    assert.deepEqual([text.kind, json.kind, raw.kind], mode === "plain" ? ["raw", "raw", "raw"] : ["text", "json", "raw"]);
    assert.equal(raw.text, undefined);
    if (mode !== "plain") assert.deepEqual(json.json, { a: [1] });
    if (mode !== "plain") assert.deepEqual([text.timeMs, text.id.length], [alice.clock.now(), 32]);
  });
}

test("a recipient of ours is found in the key directory, once", async () => {
  const { relay, alice } = await pair();
  for (let count = 0; count < 3; count += 1) await (await alice.client.sendText(BOB, "hi")).outcome;
  assert.equal(relay.heard.filter(({ frame: { kind, payload } }) => kind === 3 && payload[0] === 0x85).length, 1);
  assert.deepEqual(await alice.client.findKey(BOB), { key: BOB, agreementKey: VECTORS.clients.bob.x_pub, timeMs: relay.adverts.get(BOB).timeMs });
});

test("the same signed text twice is two messages between ours, since each has its id", async () => {
  const { alice, bob } = await pair();
  for (let count = 0; count < 2; count += 1) await (await alice.client.sendText(BOB, "again", { mode: "signed" })).outcome;
  await next(bob.messages, 2);
  assert.deepEqual(bob.messages.map(({ text }) => text), ["again", "again"]);
});

test("a frame that the server delivers twice is one message", async () => {
  const { relay, alice, bob } = await pair();
  await (await alice.client.sendText(BOB, "once")).outcome;
  await next(bob.messages);
  const { data } = relay.heard.findLast(({ frame: { kind } }) => kind === 5);
  relay.clients.get(BOB).deliver(data);
  await until(() => bob.dropped.length === 1);
  assert.deepEqual([bob.messages.length, bob.dropped[0].refusal, bob.dropped[0].sender], [1, "duplicate", ALICE]);
});

test("what comes faster than it can be opened is bounded, and what was too much is told", async () => {
  const { relay, alice, bob } = await pair();
  await (await alice.client.sendBytes(BOB, new Uint8Array(8_000_000))).outcome;
  await next(bob.messages);
  const { data: frame } = relay.heard.findLast(({ frame: { kind } }) => kind === 5);
  for (let count = 0; count < 12; count += 1) {
    relay.clients.get(BOB).deliver(frame);
    await new Promise(setImmediate);
  }
  await until(() => bob.dropped.length === 12);
  const refusals = bob.dropped.map(({ refusal }) => refusal);
  assert.ok(refusals.includes("queue_full"), refusals.join());
  assert.ok(refusals.filter((refusal) => refusal !== "queue_full").length >= 8, refusals.join());
});

test("raw bytes that an original would take for something else are refused, not altered; to ours they go as type 0x10", async () => {
  const { relay, alice } = await pair();
  const carol = await sdk.Keys.generate(native);
  const traps = [Uint8Array.of(1, 2), Uint8Array.of(16), new Uint8Array(32), new TextEncoder().encode("merk-keys/1")];
  for (const data of traps) {
    await assert.rejects(alice.client.sendBytes(carol.id, data, { mode: "signed" }), sdk.LocalError);
    await (await alice.client.sendBytes(BOB, data, { mode: "signed" })).outcome;
  }
  await (await alice.client.sendBytes(carol.id, Uint8Array.of(9), { mode: "signed" })).outcome;
  const firsts = relay.heard.filter(({ frame: { kind } }) => kind === 4).map(({ frame: { payload } }) => payload[96]);
  assert.deepEqual(firsts, [16, 16, 16, 16, 9]);
});

test("the same plain bytes may be meant twice", async () => {
  const { alice, bob } = await pair();
  for (let count = 0; count < 2; count += 1) await (await alice.client.sendText(BOB, "tick", { mode: "plain" })).outcome;
  await next(bob.messages, 2);
  assert.equal(bob.dropped.length, 0);
});

test("to a recipient that nobody knows an encrypted message is the caller's error, a signed one goes as the original's", async () => {
  const { relay, alice } = await pair();
  const carol = await sdk.Keys.generate(native);
  await assert.rejects(alice.client.sendText(carol.id, "hi"), sdk.LocalError);
  const sent = await alice.client.sendText(carol.id, "hi", { mode: "signed" });

  assert.equal((await sent.outcome).name, "unknown_target");
  const { frame } = relay.heard.findLast(({ frame: { kind } }) => kind === 4);
  assert.equal(hex(frame.payload.slice(96)), "016869");
  assert.equal(await alice.client.findKey(carol.id), null);
});

test("an encryption key set by hand is used, in the original's format", async () => {
  const { relay, alice } = await pair();
  const carol = await sdk.Keys.generate(native);
  await alice.client.setAgreementKey(carol.id, hex(carol.agreement.public));
  await (await alice.client.sendText(carol.id, "hi")).outcome;
  const { frame } = relay.heard.findLast(({ frame: { kind } }) => kind === 5);
  assert.deepEqual((await sdk.openFrame(carol, frame)).content, { kind: "text", text: "hi" });
});

test("a forged advert is not taken", async () => {
  const { relay, alice } = await pair();
  relay.adverts.get(BOB).agreementKey = bytes(VECTORS.clients.alice.x_pub);
  const asking = alice.client.findKey(BOB);
  await until(() => alice.dropped.some(({ refusal }) => refusal === "bad_advert"));
  alice.clock.advance(8_000);
  assert.equal(await asking, null);
});

test("a key of the directory is asked for again after ten minutes, and a newer one is taken unasked", async () => {
  const { relay, alice, bob } = await pair();
  const { timeMs } = await alice.client.findKey(BOB);
  const keys = await keysOf("bob");
  const next = await sdk.Keys.generate(native);
  relay.adverts.set(BOB, await sdk.makeAdvert({ signing: keys.signing, agreement: next.agreement, sign: (message) => keys.sign(message) }, timeMs + 1));
  alice.clock.ms += 599_000;
  assert.equal((await alice.client.findKey(BOB)).agreementKey, bob.client.agreementKey);
  alice.clock.ms += 2_000;
  assert.deepEqual(await alice.client.findKey(BOB), { key: BOB, agreementKey: hex(next.agreement.public), timeMs: timeMs + 1 });
});

test("an older advert does not replace a newer one", async () => {
  const { relay, alice, bob } = await pair();
  const { timeMs } = await alice.client.findKey(BOB);
  const keys = await keysOf("bob");
  relay.adverts.set(BOB, await sdk.makeAdvert({ ...keys, signing: keys.signing, agreement: { public: bytes(VECTORS.clients.alice.x_pub) }, sign: (message) => keys.sign(message) }, timeMs - 1));
  alice.clock.ms += 700_000;
  assert.equal((await alice.client.findKey(BOB)).agreementKey, bob.client.agreementKey);
});

test("a file goes in parts with progress, and arrives whole", async () => {
  const { alice, bob } = await pair();
  const data = Uint8Array.from({ length: 300_000 }, (_, index) => index % 253);
  const progress = [];
  const out = collect(alice.client, "transfer");
  const into = collect(bob.client, "transfer");
  const sent = await alice.client.sendFile(BOB, new File([data], "büro.bin"), { onProgress: (step) => progress.push(step) });

  assert.equal((await sent.outcome).name, "accepted");
  const message = await next(bob.messages);
  assert.deepEqual([message.kind, message.name, message.auth, message.bytes], ["file", "büro.bin", "bound", 300_000]);
  assert.deepEqual(message.data, data);
  assert.deepEqual([progress.at(-1), out.at(-1).done, into.at(-1).done], [{ bytesDone: 300_000, bytesTotal: 300_000 }, true, true]);
  assert.deepEqual(into.map(({ bytesDone }) => bytesDone), [1, 2, 3, 4].map((count) => count * 61_440).concat(300_000));
});

test("a file survives a server that restarts in its midst", async () => {
  const { relay, alice, bob } = await pair();
  const data = new Uint8Array(500_000).fill(7);
  let count = 0;
  const forward = relay.onContent;
  relay.onContent = async function (socket, frame, bytesOfFrame) {
    count += 1;
    if (count === 3) return relay.restart();
    return forward.call(this, socket, frame, bytesOfFrame);
  };
  const sent = await alice.client.sendFile(BOB, data, { name: "a" });
  const message = await until(() => {
    for (const { clock } of [alice, bob]) clock.advance(20);  // slower than a loaded machine computes
    return bob.messages[0];
  });

  assert.equal((await sent.outcome).name, "accepted");
  assert.deepEqual(message.data, data);
});

test("a small file, or one for an original client, goes in one frame; a large one is refused with a sentence", async () => {
  const { relay, alice, bob } = await pair();
  const carol = await sdk.Keys.generate(native);
  await (await alice.client.sendFile(BOB, Uint8Array.of(1), { name: "a", mode: "signed" })).outcome;
  await (await alice.client.sendFile(carol.id, new Uint8Array(100_000), { name: "b", mode: "signed" })).outcome;
  await next(bob.messages);

  assert.deepEqual([bob.messages[0].name, bob.messages[0].data], ["a", Uint8Array.of(1)]);
  assert.equal(relay.heard.findLast(({ frame: { kind } }) => kind === 4).frame.payload[96], 3);
  await assert.rejects(alice.client.sendFile(carol.id, new Uint8Array(9_000_000), { name: "c", mode: "signed" }), /in one piece only/);
  await assert.rejects(alice.client.sendFile(BOB, { size: 268_435_457, name: "d" }), sdk.LocalError);
  await assert.rejects(alice.client.sendFile(BOB, Uint8Array.of(1), { name: "ä".repeat(128) }), sdk.LocalError);
});

test("a file that is cancelled stops and says so", async () => {
  const { alice } = await pair();
  const stop = new AbortController();
  const out = collect(alice.client, "transfer");
  const sent = await alice.client.sendFile(BOB, new Uint8Array(2_000_000), { name: "a", signal: stop.signal, onProgress: () => stop.abort() });
  assert.equal((await sent.outcome).name, "cancelled");
  assert.equal(out.at(-1).failed, "Cancelled.");
});

test("damaged, foreign and unsigned frames are dropped with a sentence, and the connection lives", async () => {
  const { relay, alice, bob } = await pair();
  const keys = await keysOf("alice");
  const signed = await sdk.signedFrame(keys, bytes(BOB), { kind: "text", text: "x" });
  const socket = relay.clients.get(BOB);
  for (const frame of [signed.map((byte, index) => (index === signed.length - 1 ? byte ^ 1 : byte)), await sdk.dataFrame(keys, bytes(ALICE), Uint8Array.of(1)), sdk.encodeFrame(2, Uint8Array.of(1))]) socket.deliver(frame);
  await until(() => bob.dropped.length === 3);

  assert.deepEqual(bob.dropped.map(({ refusal }) => refusal), ["bad_signature", "not_for_us", "no_target"]);
  assert.ok(bob.dropped.every(({ sentence }) => /[.]$/.test(sentence)));
  assert.equal((await (await alice.client.sendText(BOB, "still here")).outcome).name, "accepted");
});

test("bad keys, modes and values are the caller's errors", async () => {
  const { alice } = await pair();
  await assert.rejects(alice.client.sendText("abc", "x"), /64 hex digits/);
  await assert.rejects(alice.client.sendText(BOB, "x", { mode: "secret" }), sdk.LocalError);
  await assert.rejects(alice.client.sendJson(BOB, undefined), sdk.LocalError);
  await assert.rejects(alice.client.connect("https://relay.test"), sdk.LocalError);
  await assert.rejects(alice.client.exportKeys().then(() => alice.client.connect("nonsense")), sdk.LocalError);
});

test("servers: the user's own first, those told after, at most 64, and their keys once proved", async () => {
  const { relay, alice } = await pair();
  relay.servers = Array.from({ length: 100 }, (_, index) => ({ key: relay.key, address: `ws://told-${index}.test/` }));
  relay.servers.push({ key: relay.key, address: "http://no.test" });
  await alice.client.askServers();
  await alice.client.addServer("wss://mine.test/merk");
  const { servers } = alice.client;

  assert.equal(servers.length, 64);
  assert.deepEqual(servers.slice(0, 2).map(({ address, origin }) => [address, origin]).sort(), [[ADDRESS, "user"], ["wss://mine.test/merk", "user"]]);
  assert.equal(servers.find(({ address }) => address === ADDRESS).key, hex(relay.key));
  assert.ok(servers.slice(2).every(({ origin, key }) => origin === "told" && key === null));
  await alice.client.removeServer("wss://mine.test/merk");
  assert.equal(alice.client.servers.length, 63);
});

test("a page of https takes wss addresses only, but for the machine itself", async () => {
  const relay = await TestRelay.make();
  const environment = environmentOf(relay, { isHttps: true });
  const client = await sdk.MerkClient.open({ environment });
  await assert.rejects(client.addServer("ws://relay.test"), /wss:/);
  await client.addServer("wss://relay.test");
  await client.addServer("ws://localhost:8080/merk");
  assert.deepEqual(client.servers.map(({ address }) => address), ["ws://localhost:8080/merk", "wss://relay.test/"]);
});

test("the chosen server is remembered, and without one connect asks for it", async () => {
  const relay = await TestRelay.make();
  const environment = environmentOf(relay);
  const client = await sdk.MerkClient.open({ environment });
  await assert.rejects(client.connect(), /Choose a server/);
  await client.connect(ADDRESS);
  await client.whenReady();
  await client.close();
  const again = await sdk.MerkClient.open({ environment });
  await again.connect();
  assert.deepEqual([(await again.whenReady()).address, again.id], [ADDRESS, client.id]);
});

test("waiting for a connection ends with a sentence", async () => {
  const relay = await TestRelay.make();
  relay.isUp = false;
  const environment = environmentOf(relay);
  const client = await sdk.MerkClient.open({ environment });
  await client.connect(ADDRESS);
  const waiting = client.whenReady(100);
  environment.clock.advance(100);
  await assert.rejects(waiting, sdk.LocalError);
});

test("what is sent at once waits for the connection and the key directory", async () => {
  const { relay, bob } = await pair();
  const environment = environmentOf(relay);
  const carol = await sdk.MerkClient.open({ environment });
  const found = collect(carol, "servers");
  await carol.connect(ADDRESS);
  assert.notEqual(carol.state.phase, "ready");
  const [key, sent, servers] = await Promise.all([carol.findKey(BOB), carol.sendText(BOB, "at once"), carol.askServers()]);

  assert.equal((await sent.outcome).name, "accepted");
  assert.deepEqual([(await next(bob.messages)).text, key.agreementKey], ["at once", VECTORS.clients.bob.x_pub]);
  assert.deepEqual(servers, found.at(-1).servers);
});

test("what is sent while the server is away waits half a minute, and is not sent then", async () => {
  const relay = await TestRelay.make();
  relay.isUp = false;
  const environment = environmentOf(relay);
  const client = await sdk.MerkClient.open({ environment });
  await client.connect(ADDRESS);
  const sending = client.sendText(BOB, "x", { mode: "signed" });
  const secret = client.sendText(BOB, "x");
  const finding = client.findKey(BOB);
  const asking = client.askServers();
  await quiet();
  const wants = Promise.all([assert.rejects(secret, /Not connected: the recipient's encryption key/), assert.rejects(finding, /no connection/), assert.rejects(asking, /no connection/)]);
  environment.clock.advance(30_000);
  await wants;

  const { name, sentence } = await (await sending).outcome;
  assert.deepEqual([name, sentence], ["not_connected", "Not sent: there is no connection to a server."]);
});

test("what is sent without a server that is wanted does not wait", async () => {
  const { alice } = await pair();
  await alice.client.findKey(BOB);
  await alice.client.disconnect();
  assert.equal((await (await alice.client.sendText(BOB, "x")).outcome).name, "not_connected");
  assert.equal((await alice.client.findKey(BOB)).key, BOB);
  await assert.rejects(alice.client.askServers(), sdk.LocalError);
});

for (const end of ["disconnect", "close"]) {
  test(`${end} ends what waits for a connection`, async () => {
    const relay = await TestRelay.make();
    relay.isUp = false;
    const client = await sdk.MerkClient.open({ environment: environmentOf(relay) });
    await client.connect(ADDRESS);
    const sending = client.sendText(BOB, "x", { mode: "plain" });
    await quiet();
    await client[end]();
    assert.equal((await (await sending).outcome).name, "not_connected");
  });
}

test("a server without a key directory is named as the reason", async () => {
  const relay = await TestRelay.make();
  relay.features = 1;
  const alice = await connected(relay, "alice");
  await assert.rejects(alice.client.sendText(BOB, "x"), /keeps no key directory/);
});

test("a file that stands still gives its place to another, and says so", async () => {
  const { relay, alice } = await pair();
  const into = collect(alice.client, "transfer");
  const digest = new Uint8Array(32);
  const partOf = async (keys, byte) => {
    const content = { kind: "file_part", transferId: new Uint8Array(16).fill(byte), digest, index: 0, count: 2, totalBytes: 9, name: "a", data: new Uint8Array(4) };
    const extended = { kind: "extended", timeMs: alice.clock.now(), messageId: native.randomBytes(16), content };
    relay.clients.get(ALICE).deliver(await sdk.signedFrame(keys, bytes(ALICE), extended));
  };
  for (let sender = 0; sender < 4; sender += 1) {
    const keys = await sdk.Keys.generate(native);
    for (let byte = 0; byte < 4; byte += 1) await partOf(keys, byte);
  }
  await until(() => into.length === 16);
  alice.clock.advance(30_000);
  await partOf(await sdk.Keys.generate(native), 9);
  await until(() => into.length === 18);

  assert.deepEqual(into.slice(16).map(({ failed }) => failed), ["It stood still, and its place was needed.", null]);
});

test("identities are made, listed, imported and forgotten by name, and none is overwritten", async () => {
  const environment = environmentOf(await TestRelay.make());
  const file = await (await keysOf("alice")).exportJson();
  await sdk.MerkClient.createIdentity({ identity: "one", environment });
  await sdk.MerkClient.importIdentity(file, { identity: "two", exportable: true, environment });
  const listed = await sdk.MerkClient.listIdentities({ environment });

  assert.deepEqual(listed.map(({ identity, exportable }) => [identity, exportable]), [["one", false], ["two", true]]);
  assert.deepEqual([listed[1].id, listed[1].agreementKey], [ALICE, VECTORS.clients.alice.x_pub]);
  await assert.rejects(sdk.MerkClient.importIdentity(file, { identity: "two", environment }), sdk.LocalError);
  await assert.rejects(sdk.MerkClient.createIdentity({ identity: "", environment }), sdk.LocalError);
  assert.equal(await (await sdk.MerkClient.open({ identity: "two", environment })).exportKeys(), file);
  await assert.rejects((await sdk.MerkClient.open({ identity: "one", environment })).exportKeys(), sdk.LocalError);
  await sdk.MerkClient.forgetIdentity("two", { environment });
  assert.equal((await sdk.MerkClient.listIdentities({ environment })).length, 1);
});

test("two tabs of one identity are one client: both receive, each sends, adverts go out once", async () => {
  const relay = await TestRelay.make();
  const shared = { locks: new TestLocks(), broadcastChannel: new TestChannels().make, storage: new sdk.MemoryStorage() };
  const first = await connected(relay, "alice", shared);
  const second = await sdk.MerkClient.open({ environment: environmentOf(relay, shared) });
  const seen = collect(second, "message");
  const bob = await connected(relay, "bob");
  await until(() => second.state.phase === "ready" && relay.adverts.size === 2);
  await (await bob.client.sendText(ALICE, "to all tabs")).outcome;
  await until(() => seen.length === 1 && first.messages.length === 1);
  await (await second.sendText(BOB, "from the second")).outcome;
  await next(bob.messages);

  assert.deepEqual([second.state.tab, second.id, bob.messages[0].text], ["follower", ALICE, "from the second"]);
  assert.equal(relay.heard.filter(({ frame: { kind, payload, sender } }) => kind === 3 && payload[0] === 0x84 && hex(sender) === ALICE).length, 1);
  await first.client.close();
  await until(() => second.state.tab === "owner" && second.state.phase === "ready");
  await second.addServer("ws://other.test");
  await quiet();
});

test("a listener can be taken away, and events are plain ones too", async () => {
  const { alice, bob } = await pair();
  const plain = [];
  const taken = [];
  bob.client.addEventListener("message", ({ detail }) => plain.push(detail.text));
  bob.client.on("message", ({ text }) => taken.push(text))();
  await (await alice.client.sendText(BOB, "x")).outcome;
  await next(bob.messages);
  assert.deepEqual([plain, taken], [["x"], []]);
});
