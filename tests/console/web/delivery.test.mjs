// What becomes of a message: receipts, the mailbox, presence, limits and pace, two clients over one relay.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Handover, HANDED_BYTES_MAX, HANDED_MAX } from "../../../src/waystation/console/web/sdk/delivery/handover.js";
import { Mailbox } from "../../../src/waystation/console/web/sdk/delivery/mailbox.js";
import { BYTES_AT_ONCE, FRAMES_AT_ONCE, FRAMES_PER_S, Pace } from "../../../src/waystation/console/web/sdk/delivery/pace.js";
import { AWAITED_MAX, AwaitedReceipts, OWED_MAX, OwedReceipts } from "../../../src/waystation/console/web/sdk/delivery/receipts.js";
import { ADDRESS, bytes, collect, connected, environmentOf, hex, keysOf, native, quiet, sdk, TestClock, TestRelay, until, VECTORS } from "./support.mjs";

const BOB = VECTORS.clients.bob.ed_pub;
const ALICE = VECTORS.clients.alice.ed_pub;

async function pair(prepare = () => {}) {
  const relay = await TestRelay.make();
  prepare(relay);
  const alice = await connected(relay, "alice");
  const bob = await connected(relay, "bob");
  await until(() => relay.adverts.size === 2, "both adverts");
  return { relay, alice, bob };
}

/** Turns the clock on by a second whenever something is gathered for one, until Bob's mailbox is empty. */
const emptied = (relay, clock) => until(() => {
  if (clock.waits[0] <= 1_000) clock.advance(1_000);
  return relay.boxes.get(BOB).length === 0;
}, "TAKEN");

/** Content frames that somebody sent. */
const sentBy = (relay, id) => relay.heard.filter(({ frame: { kind, sender } }) => kind === 5 && hex(sender) === id);

test("a message that the recipient's program took is read, under the same id on both sides", async () => {
  const { alice, bob } = await pair();
  const receipts = collect(alice.client, "receipt");
  const sent = await alice.client.sendText(BOB, "hi");
  assert.deepEqual(await sent.outcome, { code: 0, name: "accepted", accepted: true, delivered: true, sentence: (await sent.outcome).sentence });
  await until(() => bob.messages.length === 1);
  bob.clock.advance(1_000);

  assert.equal(await sent.read, true);
  assert.equal(bob.messages[0].id, sent.id);
  assert.deepEqual(receipts, [{ sender: BOB, ids: [sent.id] }]);
  assert.equal(alice.messages.length, 0, "a receipt is no message");
});

test("many messages share a receipt, a full one leaves at once, and a receipt gets none", async () => {
  const { relay, alice, bob } = await pair();
  const sent = [];
  for (let count = 0; count < 70; count += 1) sent.push(await alice.client.sendText(BOB, `${count}`));
  await until(() => bob.messages.length === 70);
  await until(() => sentBy(relay, BOB).length === 1);
  bob.clock.advance(1_000);
  assert.deepEqual(await Promise.all(sent.map(({ read }) => read)), sent.map(() => true));
  for (const { clock } of [alice, bob]) clock.advance(5_000);
  await quiet();
  assert.deepEqual([sentBy(relay, BOB).length, sentBy(relay, ALICE).length], [2, 70]);
});

test("nobody who only signed, wrote the legacy form, or is not listened to gets a receipt", async () => {
  const { relay, alice, bob } = await pair();
  assert.equal(await (await alice.client.sendText(BOB, "signed", { mode: "signed" })).read, false);
  const carol = await sdk.Keys.generate(native);
  relay.clients.get(BOB).deliver(await sdk.encryptedFrame(carol, bytes(BOB), bytes(VECTORS.clients.bob.x_pub), { kind: "text", text: "legacy" }));
  await until(() => bob.messages.length === 2);
  bob.clock.advance(2_000);
  await quiet();
  assert.equal(sentBy(relay, BOB).length, 0);

  const deaf = await sdk.MerkClient.open({ environment: environmentOf(relay) });
  await deaf.connect(ADDRESS);
  await until(() => relay.adverts.has(deaf.id));
  await (await alice.client.sendText(deaf.id, "x")).outcome;
  await quiet();
  assert.equal(sentBy(relay, deaf.id).length, 0);
});

for (const [rule, expected] of [["manual", [false, true]], ["never", [false, true]]]) {
  test(`with receipts "${rule}" nobody gets one unasked`, async () => {
    const relay = await TestRelay.make();
    const alice = await connected(relay, "alice");
    const environment = environmentOf(relay);
    const client = await sdk.MerkClient.open({ environment, receipts: rule });
    const messages = collect(client, "message");
    await client.connect(ADDRESS);
    await until(() => relay.adverts.has(client.id));
    const sent = await alice.client.sendText(client.id, "x");
    await until(() => messages.length === 1);
    environment.clock.advance(2_000);
    await quiet();
    const before = sentBy(relay, client.id).length > 0;
    client.confirm(messages[0]);
    environment.clock.advance(1_000);
    assert.deepEqual([before, await sent.read], expected);
  });
}

test("a receipt that is not bound, or from somebody else, makes nothing read", async () => {
  const { relay, alice, bob } = await pair((it) => (it.onContent = () => {}));
  const sent = await alice.client.sendText(BOB, "hi");
  let isRead = false;
  sent.read.then((read) => (isRead = read));
  const carol = await sdk.Keys.generate(native);
  const receipt = { kind: "extended", timeMs: alice.clock.now(), messageId: native.randomBytes(16), content: { kind: "receipt", what: 1, ids: [bytes(sent.id)] } };
  const socket = relay.clients.get(ALICE);
  socket.deliver(await sdk.signedFrame(await keysOf("bob"), bytes(ALICE), receipt));
  socket.deliver(await sdk.encryptedFrame(carol, bytes(ALICE), bytes(VECTORS.clients.alice.x_pub), receipt));
  await quiet();
  assert.deepEqual([isRead, alice.dropped.map(({ refusal }) => refusal)], [false, ["bad_content"]]);
  await alice.client.close();
  assert.equal(await sent.read, false);
  await bob.client.close();
});

test("messages that wait for a receipt and receipts that are owed are bounded", async () => {
  const awaited = new AwaitedReceipts();
  const first = awaited.expect("a", "0");
  for (let id = 1; id <= AWAITED_MAX; id += 1) awaited.expect("a", `${id}`);
  assert.equal(await first, false);
  const receipts = [];
  const owed = new OwedReceipts(new TestClock(), (peer, ids) => receipts.push(ids.length));
  for (let peer = 0; peer < OWED_MAX + 10; peer += 1) owed.owe(`${peer}`, "1");
  owed.flush();
  assert.equal(receipts.length, OWED_MAX);
});

test("a message of a sender known as able that comes in the legacy form, or signed without its target, is refused", async () => {
  const { relay, alice, bob } = await pair();
  await (await alice.client.sendText(BOB, "bound")).outcome;
  await until(() => bob.messages.length === 1);
  const keys = await keysOf("alice");
  const socket = relay.clients.get(BOB);
  socket.deliver(await sdk.encryptedFrame(keys, bytes(BOB), bytes(VECTORS.clients.bob.x_pub), { kind: "text", text: "weaker" }));
  socket.deliver(await sdk.signedFrame(keys, bytes(BOB), { kind: "text", text: "weaker" }, { headerSignature: false }));
  await until(() => bob.dropped.length === 2);
  assert.deepEqual(bob.dropped.map(({ refusal, sender }) => [refusal, sender]), [["downgraded", ALICE], ["downgraded", ALICE]]);
});

test("to a recipient known as able no legacy form is sent, not even when asked for, nor after a restart, nor with a key by hand", async () => {
  const { relay, alice } = await pair();
  await (await alice.client.sendText(BOB, "x")).outcome;
  relay.adverts.clear();
  const environment = environmentOf(relay, { storage: alice.environment.storage });
  await alice.client.close();
  const again = await sdk.MerkClient.open({ environment });
  await again.connect(ADDRESS);
  await assert.rejects(again.sendText(BOB, "x", { format: "original" }), /bound form/);
  await again.setAgreementKey(BOB, VECTORS.clients.bob.x_pub);
  await (await again.sendText(BOB, "y")).outcome;
  const opened = await Promise.all(sentBy(relay, ALICE).map(async ({ frame }) => (await sdk.openFrame(await keysOf("bob"), frame)).auth));
  assert.deepEqual(opened, ["bound", "bound"]);
});

test("a message of before the restart is a repeat after it", async () => {
  const { relay, alice, bob } = await pair();
  await (await alice.client.sendText(BOB, "once")).outcome;
  await until(() => bob.messages.length === 1);
  const { data } = relay.heard.findLast(({ frame: { kind } }) => kind === 5);
  await bob.client.close();
  const again = await sdk.MerkClient.open({ environment: environmentOf(relay, { storage: bob.environment.storage }) });
  const [messages, dropped] = [collect(again, "message"), collect(again, "dropped")];
  await again.connect(ADDRESS);
  await again.whenReady();
  relay.clients.get(BOB).deliver(data);
  await until(() => dropped.length === 1);
  assert.deepEqual([dropped[0].refusal, messages], ["duplicate", []]);
});

test("mail waits where its owner chose, comes once, and is deleted when the program has it", async () => {
  const { relay, alice, bob } = await pair();
  const states = collect(bob.client, "mailbox");
  assert.equal((await bob.client.openMailbox()).state, "open");
  await bob.client.close();
  await until(() => !relay.clients.has(BOB));
  const sent = [await alice.client.sendText(BOB, "one"), await alice.client.sendFile(BOB, new Uint8Array(100_000), { name: "a" })];
  assert.deepEqual(await Promise.all(sent.map(async ({ outcome }) => (await outcome).name)), ["stored", "stored"]);
  assert.equal(relay.boxes.get(BOB).length, 3);

  const environment = environmentOf(relay, { storage: bob.environment.storage });
  const again = await sdk.MerkClient.open({ environment });
  const [messages, mailbox] = [collect(again, "message"), collect(again, "mailbox")];
  await again.connect(ADDRESS);
  await until(() => messages.length === 2, "mail");
  await until(async () => (await environment.storage.entries("seen")).length === 2, "both taken");
  await emptied(relay, environment.clock);
  assert.deepEqual(messages.map(({ id }) => id), sent.map(({ id }) => id));
  assert.deepEqual(await Promise.all(sent.map(({ read }) => read)), [true, true]);
  await until(() => mailbox.at(-1)?.messages === 0);
  assert.deepEqual([states[0].state, again.mailbox.state], ["open", "open"]);
  assert.equal((await again.closeMailbox()).state, "closed");
  assert.equal(relay.boxes.has(BOB), false);
});

test("mail that came before is dropped as a repeat, and deleted all the same", async () => {
  const { relay, alice, bob } = await pair();
  await bob.client.openMailbox();
  await (await alice.client.sendText(BOB, "once")).outcome;
  await until(() => bob.messages.length === 1);
  const { data } = relay.heard.findLast(({ frame: { kind } }) => kind === 5);
  relay.boxes.get(BOB).push({ hash: hex(await sdk.frameHash(native, data)), data });
  relay.clients.get(BOB).deliver(data);
  await until(() => bob.dropped.length === 1);
  await emptied(relay, bob.clock);
  assert.equal(bob.messages.length, 1);
});

test("mail that cannot be read is dropped, and deleted all the same", async () => {
  const { relay, bob } = await pair();
  await bob.client.openMailbox();
  const alice = await keysOf("alice");
  const payload = Uint8Array.from([...bytes(BOB), ...native.randomBytes(100)]);
  const data = sdk.encodeFrame(5, payload, alice.signing.public, await alice.sign(payload));
  relay.boxes.get(BOB).push({ hash: hex(await sdk.frameHash(native, data)), data });
  relay.clients.get(BOB).deliver(data);
  await until(() => bob.dropped.length === 1);
  assert.equal(bob.dropped[0].refusal, "cannot_decrypt");
  await emptied(relay, bob.clock);
  assert.deepEqual(bob.messages, []);
});

test("who cannot have a mailbox here learns why", async () => {
  const { relay, alice } = await pair();
  relay.refusesMail = true;
  await assert.rejects(alice.client.openMailbox(), /does not keep mail for you/);
  relay.onMail = () => {};
  const asked = alice.client.openMailbox();
  await until(() => alice.clock.waits.includes(10_000));
  alice.clock.advance(10_000);
  await assert.rejects(asked, /did not answer/);
  relay.features = 15;
  relay.restart();
  await until(() => alice.client.state.phase === "waiting");
  alice.clock.advance(1_000);
  await until(() => alice.client.state.phase === "ready" && alice.client.state.features === 15);
  await assert.rejects(alice.client.openMailbox(), /keeps no mail/);
  await alice.client.disconnect();
  await assert.rejects(alice.client.openMailbox(), /no connection/);
  assert.equal(new Mailbox({ keys: await keysOf("alice"), environment: alice.environment, link: {} }).info.state, "closed");
});

test("what a node says unasked of the mailbox answers neither question", async () => {
  const relay = await TestRelay.make();
  const { client } = await connected(relay, "alice");
  await quiet();
  const states = collect(client, "mailbox");
  const answer = relay.onMail.bind(relay);
  const tell = (socket, state) => relay.say(socket, { type: "mail_state", state, messages: 0, bytes: 0, untilMs: 0 });
  // As it says after AUTH how the mailbox stands, while the question is on its way.
  relay.onMail = async (socket, info) => {
    tell(socket, info.type === "mail_open" ? 0 : 1);
    await until(() => states.length % 2 === 1);
    await answer(socket, info);
  };
  assert.equal((await client.openMailbox()).state, "open");
  assert.equal((await client.closeMailbox()).state, "closed");
  assert.deepEqual(states.map(({ state }) => state), ["closed", "open", "open", "closed"]);
});

/** Bob with a mailbox, whose program says when it took what came; Alice wrote while he was away. */
async function away(send) {
  const { relay, alice, bob } = await pair();
  await bob.client.openMailbox();
  await bob.client.close();
  await until(() => !relay.clients.has(BOB));
  const sent = await send(alice.client);
  assert.equal((await sent.outcome).name, "stored");
  const comes = async () => {
    const environment = environmentOf(relay, { storage: bob.environment.storage });
    const client = await sdk.MerkClient.open({ environment });
    const handed = [];
    client.on("message", (message) => new Promise((take, refuse) => handed.push({ message, take, refuse })));
    await client.connect(ADDRESS);
    const dropped = collect(client, "dropped");
    return { client, handed, dropped, clock: environment.clock };
  };
  return { relay, alice, sent, comes, storage: bob.environment.storage };
}

const WAYS = { text: (client) => client.sendText(BOB, "x"), "file in parts": (client) => client.sendFile(BOB, new Uint8Array(100_000), { name: "a" }) };
for (const [what, send] of Object.entries(WAYS)) {
  test(`a ${what} that a program has not taken yet stays in the mailbox, is given once, and gets no receipt until then`, async () => {
    const { relay, sent, comes, storage } = await away(send);
    const kept = relay.boxes.get(BOB).length;
    const first = await comes();
    await until(() => first.handed.length === 1, "the message");
    relay.clients.get(BOB).deliver(relay.boxes.get(BOB)[0].data);
    await until(() => first.dropped.length === 1, "its repeat");
    first.clock.advance(2_000);
    await quiet();
    assert.deepEqual([relay.boxes.get(BOB).length, sentBy(relay, BOB).length, (await storage.entries("seen")).length], [kept, 0, 0]);
    await first.client.close(); // as a crash: what it has not taken comes again
    const second = await comes();
    await until(() => second.handed.length === 1, "the message again");
    second.handed[0].take();
    await emptied(relay, second.clock);
    assert.equal(await sent.read, true);
    await second.client.close();
    const third = await comes();
    await third.client.whenReady();
    await quiet();
    assert.deepEqual(third.handed, []);
  });

  test(`a ${what} that a program refuses is neither taken nor remembered, and comes again on the next connection`, async () => {
    const { relay, sent, comes } = await away(send);
    const kept = relay.boxes.get(BOB).length;
    const bob = await comes();
    await until(() => bob.handed.length === 1);
    bob.handed[0].refuse(new Error("full"));
    await until(() => bob.dropped.length === 1);
    assert.deepEqual([bob.dropped[0].refusal, bob.dropped[0].sender], ["not_taken", ALICE]);
    bob.clock.advance(2_000);
    await quiet();
    assert.deepEqual([relay.boxes.get(BOB).length, sentBy(relay, BOB).length], [kept, 0]);
    relay.restart();
    await until(() => bob.client.state.phase === "waiting");
    bob.clock.advance(1_000);
    await until(() => bob.handed.length === 2, "the message again");
    bob.handed[1].take();
    await emptied(relay, bob.clock);
    assert.equal(bob.handed[1].message.id, sent.id);
  });
}

test("what a program has and does not take is bounded: beyond that messages are not taken", async () => {
  const handed = [];
  const refused = [];
  const seen = await sdk.SeenMessages.open(new sdk.MemoryStorage(), "me", 0);
  const mailbox = { hashOf: async () => null, wait: () => [], taken: () => [], leave: () => [] };
  const give = (message) => [new Promise((take) => handed.push({ message, take }))];
  const handover = new Handover({ seen, mailbox, give, onTaken: () => {}, onNotTaken: ({ id }, refusal) => refused.push([id, refusal]) });
  const come = (id, size) => handover.take(new Uint8Array(3), { message: { sender: "a", id, bytes: size, auth: "none", timeMs: null, receivedMs: 0 } });
  await come("large", HANDED_BYTES_MAX);
  await come("beyond", 1);
  handed[0].take();
  await quiet();
  for (let id = 0; id <= HANDED_MAX; id += 1) await come(`${id}`, 1);
  assert.deepEqual(refused, [["beyond", "queue_full"], [`${HANDED_MAX}`, "queue_full"]]);
});

test("a client says where it is, signed, on every connection and every five minutes, and never to a relay that does not know that", async () => {
  const { relay, alice } = await pair();
  const of = (id) => relay.presences.filter(({ client }) => hex(client) === id);
  await until(() => of(ALICE).length === 1);
  const [first] = of(ALICE);
  assert.deepEqual([first.kind, hex(first.node), first.untilMs - first.issuedMs], [0, hex(relay.key), 600_000]);
  assert.equal(await native.verify(first.client, sdk.presenceMessage(first), first.signature), true);
  for (let minute = 0; minute < 5; minute += 1) {
    alice.clock.advance(60_000);
    await quiet();
  }
  await until(() => of(ALICE).length >= 2, "renewal");
  assert.ok(of(ALICE)[1].issuedMs < first.untilMs);

  const older = await TestRelay.make();
  older.features = 15;
  await connected(older, "bob");
  await quiet();
  assert.equal(older.presences.length, 0);
});

test("what the server takes is known before sending, and files are cut to fit it", async () => {
  const { relay, alice, bob } = await pair((it) => (it.limit = 20_000));
  await assert.rejects(alice.client.sendBytes(BOB, new Uint8Array(20_000)), /20000 bytes at most/);
  const others = await Promise.all(Array.from({ length: 20 }, async (_, index) => (await alice.client.sendText(BOB, `${index}`)).outcome));
  const file = await alice.client.sendFile(BOB, new Uint8Array(100_000).fill(7), { name: "a" });
  assert.equal((await file.outcome).name, "accepted");
  await until(() => bob.messages.length === 21);

  assert.ok(others.every(({ name }) => name === "accepted"));
  assert.ok(sentBy(relay, ALICE).every(({ data }) => data.length <= 20_000));
  assert.deepEqual(bob.messages.at(-1).data, new Uint8Array(100_000).fill(7));
});

test("a server that takes next to nothing is no reason to send nothing without a word", async () => {
  const { alice } = await pair((it) => (it.limit = 500));
  await assert.rejects(alice.client.sendFile(BOB, new Uint8Array(1)), /too little for a file/);
});

test("frames leave at the server's pace: a burst at once, the rest as time goes on", () => {
  const pace = new Pace();
  for (let frame = 0; frame < FRAMES_AT_ONCE; frame += 1) assert.equal(pace.take(100, 1_000_000), 0);
  assert.equal(pace.take(100, 1_000_000), Math.ceil(1_000 / FRAMES_PER_S));
  assert.equal(pace.take(100, 1_002_000), 0);
  const heavy = new Pace();
  assert.equal(heavy.take(BYTES_AT_ONCE, 1_000_000), 0);
  assert.equal(heavy.take(15_000_000, 1_000_000), 1_000);
});
