// The page's memory without a browser: people, history, passphrase, backup. MemoryStore is what the page uses where there is no database.
import assert from "node:assert/strict";
import test from "node:test";

import { backupIn, NoBackup, openBackup, sealBackup } from "../../../src/waystation/console/web/page/backup.js";
import { ENTRIES_MAX, FILES_BYTES_MAX, History } from "../../../src/waystation/console/web/page/history.js";
import { announcedName, announcement, NAME_CHARS_MAX, People, PEOPLE_MAX, safetyNumber, summaries, tameName } from "../../../src/waystation/console/web/page/people.js";
import { MemoryStore } from "../../../src/waystation/console/web/page/store.js";
import { Mail } from "../../../src/waystation/console/web/page/mail.js";
import { sdk } from "./support.mjs";
import { ITERATIONS_MAX, openWithPassphrase, sealWithPassphrase, Vault, WrongPassphrase } from "../../../src/waystation/console/web/page/vault.js";

const FEW = 1_000; // rounds; the page's own number would make the tests slow
const ADA = "ad".repeat(32);
const BOB = "b0".repeat(32);
const entry = (at, change = {}) => ({ at, peer: BOB, way: "in", kind: "text", ms: Number(at), state: "new", text: `text ${at}`, ...change });

async function opened(store = new MemoryStore(), passphrase) {
  const history = new History(store);
  if (await history.isLocked()) await history.unlock(passphrase);
  await history.load();
  return history;
}

test("a name is one visible line of at most forty signs", () => {
  assert.equal(tameName("  Ada \n Lovelace "), "Ada Lovelace");
  assert.equal(tameName("\u202egnp.exe\u200b\u0000"), "gnp.exe");
  assert.equal([...tameName("🦊".repeat(500))].length, NAME_CHARS_MAX);
  for (const nothing of ["", "\u2800\u3164", undefined, null, 7, {}]) assert.equal(tameName(nothing), "");
});

test("a name is announced by an object of this one member and nothing else", () => {
  assert.equal(announcedName(announcement("Ada")), "Ada");
  for (const other of [null, [], "x", {}, { "merk.person": 1 }, { "merk.person": null, a: 1 }, { ...announcement("Ada"), more: 1 }]) assert.equal(announcedName(other), null);
});

test("both sides see one safety number, and no other pair sees it", async () => {
  const number = await safetyNumber(ADA, BOB);
  assert.deepEqual(number, await safetyNumber(BOB, ADA));
  assert.notDeepEqual(number, await safetyNumber(ADA, ADA));
  assert.ok(number.length === 12 && number.every((group) => /^\d{5}$/.test(group)));
});

test("a label wins over what a person says, and equal names are doubtful", async () => {
  const people = new People(await opened(), ADA);
  await people.set(BOB, { said: "Bob" });
  assert.equal(people.name(BOB), "Bob");
  await people.set("cc".repeat(32), { said: "BOB" });
  assert.ok(people.isDoubtful(BOB));
  await people.set(BOB, { label: "My Bob" });
  assert.equal(people.name(BOB), "My Bob");
  assert.ok(!people.isDoubtful(BOB));
});

test("strangers give way to strangers, never those one has written to or blocked", async () => {
  const history = await opened();
  const people = new People(history, ADA);
  await people.set(BOB, { isKnown: true, sinceMs: 0 });
  await people.set(ADA, { isBlocked: true, sinceMs: 0 });
  for (let number = 2; number < PEOPLE_MAX + 5; number += 1) await people.set(number.toString(16).padStart(64, "0"), { sinceMs: number });
  assert.equal(history.people.size, PEOPLE_MAX);
  assert.ok(people.has(BOB) && people.has(ADA) && !people.has("2".padStart(64, "0")));
});

test("history keeps its bound by letting the oldest go", async () => {
  const store = new MemoryStore();
  const history = await opened(store);
  for (let number = 0; number < ENTRIES_MAX + 3; number += 1) await history.put(entry(String(number)));
  assert.equal(history.entries.size, ENTRIES_MAX);
  assert.equal((await store.entries("messages")).length, ENTRIES_MAX);
  assert.ok(!history.entries.has("2") && history.entries.has("3"));
});

test("a flood of people never answered pushes out no message of others, and no file", async () => {
  const store = new MemoryStore();
  const history = await opened(store);
  const people = new People(history, ADA);
  await people.set(BOB, { isKnown: true });
  await history.put(entry("0", { kind: "file", size: FILES_BYTES_MAX / 2 }), new Uint8Array(FILES_BYTES_MAX / 2));
  for (let number = 1; number < 5; number += 1) await history.put(entry(String(number)));
  const size = FILES_BYTES_MAX / 2 - 1_000;
  for (let number = 5; number < ENTRIES_MAX + 200; number += 1) {
    const peer = String(number % 50).padStart(64, "0");
    const isFile = number === 6 || number === 7;
    await history.put(entry(String(number), { peer, ...(isFile && { kind: "file", size }) }), isFile ? new Uint8Array(size) : undefined);
  }

  assert.equal(history.entries.size, ENTRIES_MAX);
  assert.equal((await store.entries("messages")).length, ENTRIES_MAX);
  assert.deepEqual(history.with(BOB).map(({ at }) => at), ["0", "1", "2", "3", "4"]);
  assert.equal((await history.file("0")).length, FILES_BYTES_MAX / 2);
});

test("who writes for the first time is kept among many messages of friends", async () => {
  const history = await opened();
  await new People(history, ADA).set(BOB, { isKnown: true });
  for (let number = 0; number < ENTRIES_MAX; number += 1) await history.put(entry(String(number)));
  await history.put(entry("new", { peer: "cc".repeat(32), ms: ENTRIES_MAX }));

  assert.ok(history.isKept("new"));
  assert.ok(!history.entries.has("0"));
});

test("bytes of the oldest files go first, their entries stay and say so", async () => {
  const history = await opened();
  const half = new Uint8Array(FILES_BYTES_MAX / 2 + 1);
  await history.put(entry("1", { kind: "file", size: half.length }), half);
  await history.put(entry("2", { kind: "file", size: half.length }), half);
  assert.equal(await history.file("1"), null);
  assert.equal((await history.file("2")).length, half.length);
  assert.equal(history.entries.get("1").hasFile, false);
});

test("unseen messages are counted by person, the newest conversation first, the blocked not at all", async () => {
  const history = await opened();
  const people = new People(history, ADA);
  const carl = "cc".repeat(32);
  await people.set(BOB, { readMs: 1 });
  await people.set(carl, {});
  for (const one of [entry("1"), entry("2"), entry("3", { way: "out" }), entry("4", { peer: carl })]) await history.put(one);
  assert.deepEqual(summaries(history, people).map(({ key, unseen }) => [key, unseen]), [[carl, 1], [BOB, 1]]);
  await people.set(carl, { isBlocked: true });
  assert.deepEqual(summaries(history, people).map(({ key }) => key), [BOB]);
});

test("a passphrase seals every row, opens all again, and can be changed and taken away", async () => {
  const store = new MemoryStore();
  const history = await opened(store);
  await history.putPerson({ key: BOB, said: "Bob" });
  await history.put(entry("1", { kind: "file", size: 3 }), Uint8Array.of(1, 2, 3));
  await history.set({ name: "Ada" });
  await history.protect("first passphrase", FEW);
  for (const table of ["people", "messages", "files"]) for (const [, row] of await store.entries(table)) assert.deepEqual(Object.keys(row), ["sealed"]);
  await history.protect("second passphrase", FEW);
  await assert.rejects(opened(store, "first passphrase"), WrongPassphrase);
  const again = await opened(store, "second passphrase");
  assert.deepEqual([again.people.get(BOB).said, again.entries.get("1").text, again.settings.name], ["Bob", "text 1", "Ada"]);
  assert.deepEqual(await again.file("1"), Uint8Array.of(1, 2, 3));
  await again.protect(null);
  assert.equal((await opened(store)).entries.get("1").text, "text 1");
});

test("a row that another tab wrote in the clear is sealed with the next opening", async () => {
  const store = new MemoryStore();
  const history = await opened(store);
  await history.protect("a passphrase", FEW);
  await store.change([{ table: "messages", key: "9", value: { clear: entry("9") } }]);
  await opened(store, "a passphrase");
  assert.ok((await store.get("messages", "9")).sealed);
});

test("a sealed row in another's place is refused", async () => {
  const { vault } = await Vault.make("a passphrase", FEW);
  const sealed = await vault.seal("messages:1", Uint8Array.of(7));
  assert.deepEqual(await vault.open("messages:1", sealed), Uint8Array.of(7));
  await assert.rejects(vault.open("messages:2", sealed), WrongPassphrase);
});

test("every changed byte of what a passphrase seals is noticed, and a hostile number of rounds is not worked off", async () => {
  const sealed = await sealWithPassphrase("a passphrase", new TextEncoder().encode("secret"), FEW);
  for (const at of [0, 4, 6, 25, 40, sealed.length - 1]) {
    const changed = sealed.slice();
    changed[at] ^= 1;
    await assert.rejects(openWithPassphrase("a passphrase", changed), WrongPassphrase, String(at));
  }
  const slow = sealed.slice();
  new DataView(slow.buffer).setUint32(1, ITERATIONS_MAX + 1);
  await assert.rejects(openWithPassphrase("a passphrase", slow), WrongPassphrase);
  for (const short of [new Uint8Array(0), sealed.slice(0, 20)]) await assert.rejects(openWithPassphrase("a passphrase", short), WrongPassphrase);
});

test("a backup brings back keys, name and people, from a file and from a link", async () => {
  const secret = Buffer.from(Array.from({ length: 64 }, (_, index) => index));
  const keys = JSON.stringify({ publicKey: secret.subarray(32).toString("base64"), privateKey: secret.toString("base64"), encryptionPublicKey: "AA==", encryptionPrivateKey: "AQ==" });
  const people = [{ key: BOB, said: "Bob", label: "B.", isBlocked: true, isVerified: false, isKnown: true }];
  const text = await sealBackup("a passphrase", { keys, name: "Ada", people }, FEW);
  for (const form of [text, `${text}\n`, `https://relay.example/#backup=${text}`]) {
    const restored = await openBackup("a passphrase", form);
    assert.deepEqual([JSON.parse(restored.keys), restored.name, restored.people], [JSON.parse(keys), "Ada", people]);
  }
  await assert.rejects(openBackup("another one", text), WrongPassphrase);
  assert.deepEqual((await openBackup("a passphrase", await sealBackup("a passphrase", { keys, name: "Ada" }, FEW))).people, []);
});

test("what is no backup is refused with a sentence", async () => {
  const toText = async (value) => Buffer.from(await sealWithPassphrase("p", new TextEncoder().encode(value), FEW)).toString("base64url");
  for (const text of ["", "hello there", "ab$", await toText("not json"), await toText('["other/1","a","b","c","d"]'), await toText('["merk-backup/1",1,2,3,4]'), await toText('["merk-backup/1","%","b","c","d"]')]) {
    await assert.rejects(openBackup("p", text), NoBackup);
  }
  assert.equal(backupIn(" abc "), "abc");
});

test("a store that takes nothing more is reported, loses nothing of before, and stays readable", async () => {
  const store = new MemoryStore();
  const history = await opened(store);
  await history.put(entry("1"));
  const refused = [];
  history.onRefused = (problem) => refused.push(problem.name);
  const take = store.change;
  store.change = () => Promise.reject(new DOMException("full", "QuotaExceededError"));
  await history.put(entry("2"));
  await history.protect("a passphrase", FEW);
  assert.deepEqual([refused, history.isKeeping, history.isSealed], [["QuotaExceededError", "QuotaExceededError"], false, false]);
  store.change = take;
  await history.put(entry("3"));
  assert.ok(history.isKeeping);
  assert.deepEqual([...(await opened(store)).entries.keys()], ["1", "3"]);
});

test("a message that the browser does not keep is not taken, and is written when it comes again", async () => {
  const store = new MemoryStore();
  const change = store.change.bind(store);
  const [history, listeners, confirmed] = [await opened(store), {}, []];
  const client = { id: ADA, state: { phase: "ready", tab: "owner" }, on: (type, listener) => (listeners[type] = listener), confirm: ({ id }) => confirmed.push(id) };
  new Mail({ sdk, client, history, people: new People(history, ADA), show: () => {}, tabs: null });
  const message = { sender: BOB, kind: "text", text: "hi", mode: "encrypted", auth: "bound", id: "1d".repeat(16), timeMs: 1, bytes: 2 };
  store.change = async () => { throw new DOMException("full", "QuotaExceededError"); };
  await assert.rejects(listeners.message(message), sdk.LocalError);
  await assert.rejects(listeners.message(message), sdk.LocalError);
  store.change = change;
  assert.deepEqual([confirmed, (await opened(store)).entries.size], [[], 0]);

  await listeners.message(message);
  assert.deepEqual([confirmed, [...(await opened(store)).entries.values()].map(({ text }) => text)], [[message.id], ["hi"]]);
});

test("a message that another tab wrote first is written and confirmed by the tab that holds the connection", async () => {
  const [history, listeners, confirmed] = [await opened(), {}, []];
  const client = { id: ADA, state: { phase: "ready", tab: "follower" }, on: (type, listener) => (listeners[type] = listener), confirm: ({ id }) => confirmed.push(id) };
  new Mail({ sdk, client, history, people: new People(history, ADA), show: () => {}, tabs: null });
  const message = { sender: BOB, kind: "text", text: "hi", mode: "encrypted", auth: "bound", id: "1d".repeat(16), timeMs: 1, bytes: 2 };
  await listeners.message(message);
  client.state = { phase: "ready", tab: "owner" };
  await listeners.message(message);
  assert.deepEqual([confirmed, history.entries.size], [[message.id], 1]);
});
