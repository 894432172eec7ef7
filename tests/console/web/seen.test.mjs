// Which messages came before: across restarts, within bounds, and without one sender's flood making another's mail too old.

import assert from "node:assert/strict";
import { test } from "node:test";
import { AHEAD_MS, REMEMBERED_MS } from "../../../src/waystation/console/web/sdk/delivery/seen.js";
import { sdk } from "./support.mjs";

const NOW = 1_800_000_000_000;
const opened = (storage, max, nowMs = NOW) => sdk.SeenMessages.open(storage, "me", nowMs, max);

test("a message counts once, also after a restart, and each sender and owner has its own", async () => {
  const storage = new sdk.MemoryStorage();
  const first = await opened(storage);
  await first.add("a", "1", NOW);
  for (const seen of [first, await opened(storage)]) {
    assert.equal(seen.judge("a", "1", NOW, NOW), "duplicate");
    assert.equal(seen.judge("b", "1", NOW, NOW), null);
    assert.equal(seen.judge("a", "2", NOW, NOW), null);
  }
  assert.equal((await sdk.SeenMessages.open(storage, "other", NOW)).count, 0);
});

test("after fourteen days a message is forgotten, and its time is too old by then", async () => {
  const storage = new sdk.MemoryStorage();
  const seen = await opened(storage);
  await seen.add("a", "1", NOW);
  const later = NOW + REMEMBERED_MS;
  assert.equal(seen.judge("a", "1", NOW, later - 1), "duplicate");
  await seen.expire(later);

  assert.deepEqual([seen.count, await storage.entries("seen")], [0, []]);
  assert.equal(seen.judge("a", "1", NOW, later), "stale");
  assert.equal(seen.judge("a", "1", NOW + 1, later), null);
  assert.equal(seen.judge("a", "1", null, later), null, "of a time that is not proved nothing can be said");
  assert.equal((await opened(storage, 9, later)).count, 0);
});

test("a time more than a day ahead is refused, for it would never be forgotten", async () => {
  const seen = await opened(new sdk.MemoryStorage());
  assert.equal(seen.judge("a", "1", NOW + 86_400_000, NOW), null);
  assert.equal(seen.judge("a", "1", NOW + 86_400_001, NOW), "stale");
});

test("what was forgotten for room is refused by its time, also after a restart", async () => {
  const storage = new sdk.MemoryStorage();
  const first = await opened(storage, 32);
  for (let id = 0; id < 33; id += 1) await first.add("a", `${id}`, NOW + id);
  for (const seen of [first, await opened(storage, 32)]) {
    assert.equal(seen.count, 31, "a sixteenth of the room is cleared at once");
    assert.deepEqual([0, 1, 2].map((id) => seen.judge("a", `${id}`, NOW + id, NOW)), ["stale", "stale", "duplicate"]);
    assert.equal(seen.judge("a", "new", NOW + 2, NOW), null);
  }
});

test("room is taken from whoever holds most of it, and a flood makes no other sender's mail too old", async () => {
  const seen = await opened(new sdk.MemoryStorage(), 64);
  await seen.add("zoe", "1", NOW - 86_400_000);
  for (let id = 0; id < 200; id += 1) await seen.add("flood", `${id}`, NOW + id);

  assert.ok(seen.count <= 64);
  assert.equal(seen.judge("zoe", "1", NOW - 86_400_000, NOW), "duplicate");
  assert.equal(seen.judge("zoe", "2", NOW - 86_400_000, NOW), null);
  assert.equal(seen.judge("flood", "0", NOW, NOW), "stale");
});

test("a flood of new keys from the future makes no friend's mail too old, also after a restart", async () => {
  const storage = new sdk.MemoryStorage();
  const first = await opened(storage, 64);
  for (let id = 0; id < 3; id += 1) await first.add("zoe", `${id}`, NOW + id);
  for (let key = 0; key < 500; key += 1) await first.add(`key${key}`, "1", NOW + AHEAD_MS);

  assert.ok((await storage.entries("floors")).length <= 64 + 1);
  const again = await opened(storage, 64);
  for (let key = 500; key < 600; key += 1) await again.add(`key${key}`, "1", NOW + AHEAD_MS);
  for (const seen of [first, again]) {
    assert.ok(seen.count <= 64);
    assert.equal(seen.judge("zoe", "9", NOW + 9, NOW), null);
    assert.deepEqual([0, 1, 2].map((id) => seen.judge("zoe", `${id}`, NOW + id, NOW)), ["duplicate", "duplicate", "duplicate"]);
    assert.equal(seen.judge("newcomer", "1", NOW, NOW), "stale");
  }
});

test("who was forgotten and writes again opens no replay, also after a restart", async () => {
  const storage = new sdk.MemoryStorage();
  const first = await opened(storage, 64);
  for (let key = 0; key < 63; key += 1) await first.add(`key${key}`, "1", NOW);
  await first.add("a", "1", NOW);
  for (let key = 63; key < 90; key += 1) await first.add(`key${key}`, "1", NOW + 1);
  await first.add("a", "2", NOW + 500);

  for (const seen of [first, await opened(storage, 64)]) assert.notEqual(seen.judge("a", "1", NOW, NOW), null);
});

test("a storage that takes nothing is told, and the message counts as seen nevertheless", async () => {
  const storage = Object.assign(new sdk.MemoryStorage(), { put: async () => { throw new DOMException("full", "QuotaExceededError"); } });
  const seen = await opened(storage);
  let told = 0;
  seen.onRefused = () => (told += 1);
  await seen.add("a", "1", NOW);
  assert.deepEqual([told, seen.judge("a", "1", NOW, NOW)], [1, "duplicate"]);
});
