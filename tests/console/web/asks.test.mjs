// Questions and answers between two clients over one relay, and what is taken for no answer.

import assert from "node:assert/strict";
import { test } from "node:test";
import { ASKS_MAX, Asks } from "../../../src/waystation/console/web/sdk/delivery/asks.js";
import { bytes, collect, connected, hex, keysOf, native, quiet, sdk, TestClock, TestRelay, until, VECTORS } from "./support.mjs";

const BOB = VECTORS.clients.bob.ed_pub;
const ALICE = VECTORS.clients.alice.ed_pub;
const refused = (reason) => (error) => error instanceof sdk.NoAnswerError && error instanceof sdk.LocalError && error.reason === reason;

async function pair() {
  const relay = await TestRelay.make();
  const alice = await connected(relay, "alice");
  const bob = await connected(relay, "bob");
  await until(() => relay.adverts.size === 2, "both adverts");
  return { relay, alice, bob };
}

/** Has Alice ask, and gives the question as Bob got it; `answer` is a promise in an object, so that nobody waits for it yet. */
async function asked(options = {}) {
  const { relay, alice, bob } = await pair();
  const answer = alice.client.ask(BOB, "21 °C?", options);
  answer.catch(() => null); // each test waits for it in its own time
  await until(() => bob.messages.length === 1, "the question");
  return { relay, alice, bob, answer, question: bob.messages[0] };
}

/** Brings Alice an encrypted frame of somebody's making. */
async function bring(relay, name, content, extended = true) {
  const from = await keysOf(name);
  const alice = await keysOf("alice");
  const whole = extended ? { kind: "extended", timeMs: 1_700_000_000_000, messageId: native.randomBytes(16), content } : content;
  relay.clients.get(ALICE).deliver(await sdk.encryptedFrame(from, alice.signing.public, alice.agreement.public, whole));
}

for (const [what, content, member] of [["text", "yes", ["text", "yes"]], ["bytes", Uint8Array.of(1, 255), ["data", Uint8Array.of(1, 255)]], ["JSON", { json: { n: 1 } }, ["json", { n: 1 }]]]) {
  test(`an answer of ${what} is returned to who asked, read by its client, and no message beside that`, async () => {
    const { alice, bob, answer, question } = await asked();
    const sent = await bob.client.answer(question, content);
    const reply = await answer;
    assert.deepEqual([reply.answers, reply.id, reply.sender, reply[member[0]]], [question.id, sent.id, BOB, member[1]]);
    await until(() => alice.clock.waits[0] <= 1_000, "the receipt that is owed");
    alice.clock.advance(1_000);
    assert.equal(await sent.read, true);
    assert.deepEqual([alice.messages, question.answers], [[], undefined]);
  });
}

test("an answer of another, to another message, or not bound is none", async () => {
  const { relay, alice, bob, answer, question } = await asked();
  const to = bytes(question.id);
  const carol = await sdk.Keys.generate(native);
  const { agreement, signing } = await keysOf("alice");
  const foreign = { kind: "extended", timeMs: 1_700_000_000_000, messageId: native.randomBytes(16), content: { kind: "answer", to, content: { kind: "text", text: "mine" } } };
  relay.clients.get(ALICE).deliver(await sdk.encryptedFrame(carol, signing.public, agreement.public, foreign));
  relay.clients.get(ALICE).deliver(await sdk.signedFrame(await keysOf("bob"), signing.public, { ...foreign, messageId: native.randomBytes(16) }));
  await bring(relay, "bob", { kind: "answer", to: new Uint8Array(16), content: { kind: "text", text: "to something else" } });
  await until(() => alice.messages.length === 3);
  assert.deepEqual(alice.messages.map(({ sender, answers }) => [sender, answers]), [[hex(carol.signing.public), question.id], [BOB, undefined], [BOB, "00".repeat(16)]]);
  await bob.client.answer(question, "yes");
  assert.equal((await answer).text, "yes");
});

test("an answer that comes late is a message that says what it answers", async () => {
  const { alice, bob, answer, question } = await asked({ timeoutMs: 5_000 });
  await quiet();
  alice.clock.advance(5_000);
  await assert.rejects(answer, refused("no_answer"));
  await bob.client.answer(question, "yes");
  await until(() => alice.messages.length === 1);
  assert.deepEqual([alice.messages[0].text, alice.messages[0].answers], ["yes", question.id]);
});

test("who is not known to be able is not asked, and a question that did not arrive ends at once", async () => {
  const { relay, alice, bob } = await pair();
  const dave = await sdk.Keys.generate(native);
  await alice.client.setAgreementKey(dave.id, hex(dave.agreement.public));
  await assert.rejects(alice.client.ask(dave.id, "?"), refused("not_able"));
  assert.equal(relay.heard.filter(({ frame: { kind } }) => kind === 5).length, 0);
  await bob.client.close();
  await until(() => !relay.clients.has(BOB));
  await assert.rejects(alice.client.ask(BOB, "?"), refused("not_delivered"));
});

test("what has no answer is refused, and so is what is no content", async () => {
  const { alice, bob } = await pair();
  await alice.client.sendText(BOB, "signed", { mode: "signed" });
  await until(() => bob.messages.length === 1);
  await assert.rejects(bob.client.answer(bob.messages[0], "x"), /Only an encrypted, bound message/);
  await assert.rejects(alice.client.ask(BOB, 7), sdk.LocalError);
});

test("questions that wait are bounded, and end with the client", async () => {
  const asks = new Asks(new TestClock());
  const ends = Array.from({ length: ASKS_MAX }, (_, id) => assert.rejects(asks.expect("a", `${id}`, 1_000), /closed/));
  assert.throws(() => asks.expect("a", "beyond", 1_000), sdk.LocalError);
  asks.close();
  await Promise.all(ends);
});
