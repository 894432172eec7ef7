// Files in parts: cut, paced, sent again, put together, and bounded.

import assert from "node:assert/strict";
import { test } from "node:test";
import { outcomeOf } from "../../../src/waystation/console/web/sdk/delivery/outcomes.js";
import * as transfers from "../../../src/waystation/console/web/sdk/delivery/transfers.js";
import { native, TestClock, until } from "./support.mjs";

const { cut, IncomingTransfers, PART_BYTES, sendParts, WINDOW_PARTS } = transfers;
const ID = new Uint8Array(16).fill(1);

async function file(size, name = "a.bin", transferId = ID) {
  const data = Uint8Array.from({ length: size }, (_, index) => index % 251);
  return { data, parts: cut({ data, name, digest: await native.sha256(data), transferId }) };
}

function sending(parts, send, isCancelled = () => false) {
  const clock = new TestClock();
  const progress = [];
  const done = sendParts({ parts, seal: async (part) => Uint8Array.of(part.index), send, clock, onProgress: (bytes) => progress.push(bytes), isCancelled });
  return { clock, progress, done };
}

async function takeAll(incoming, parts, { sender = "a", kind = "signed:bound", now = 0 } = {}) {
  let last;
  for (const part of parts) last = await incoming.take(sender, kind, part, now);
  return last;
}

test("a file is cut into parts of one size, the last one shorter; an empty file is one part", async () => {
  const { parts } = await file(2 * PART_BYTES + 1);
  assert.deepEqual(parts.map(({ index, count, data }) => [index, count, data.length]), [[0, 3, PART_BYTES], [1, 3, PART_BYTES], [2, 3, 1]]);
  assert.deepEqual((await file(0)).parts.map(({ count, data }) => [count, data.length]), [[1, 0]]);
});

test("parts that come in any order, some twice, make the file", async () => {
  const { data, parts } = await file(3 * PART_BYTES + 7);
  const incoming = new IncomingTransfers(native);
  const last = await takeAll(incoming, [parts[3], parts[1], parts[1], parts[0], parts[2]]);

  assert.equal(last.status, "whole");
  assert.deepEqual(last.data, data);
  assert.deepEqual([incoming.count, incoming.bytes], [0, 0]);
});

test("a part that comes after the end of its file begins nothing", async () => {
  const { parts } = await file(2 * PART_BYTES);
  const incoming = new IncomingTransfers(native);
  await takeAll(incoming, parts);
  assert.deepEqual([await incoming.take("a", "signed:bound", parts[0], 0), incoming.count], [{ status: "late" }, 0]);
});

test("an empty file arrives", async () => {
  const { parts } = await file(0);
  assert.deepEqual(await takeAll(new IncomingTransfers(native), parts), { status: "whole", data: new Uint8Array() });
});

test("parts that do not fit their file are refused: digest, name, size, count, way, and a file that is another", async () => {
  const { parts } = await file(2 * PART_BYTES);
  const changes = [{ digest: ID }, { name: "b" }, { totalBytes: 5 }, { count: 3 }];
  for (const change of changes) {
    assert.equal((await takeAll(new IncomingTransfers(native), [parts[0], { ...parts[1], ...change }])).status, "refused");
  }
  const incoming = new IncomingTransfers(native);
  await incoming.take("a", "signed:bound", parts[0], 0);
  assert.equal((await incoming.take("a", "signed:legacy", parts[1], 0)).status, "refused");
  const forged = { ...parts[1], data: new Uint8Array(PART_BYTES) };
  assert.equal((await takeAll(new IncomingTransfers(native), [parts[0], forged])).status, "refused");
});

test("more or fewer bytes than announced are refused and let go", async () => {
  const { parts } = await file(2 * PART_BYTES);
  for (const size of [PART_BYTES + 1, PART_BYTES - 1]) {
    const incoming = new IncomingTransfers(native);
    assert.equal((await takeAll(incoming, [parts[0], { ...parts[1], data: new Uint8Array(size) }])).status, "refused");
    assert.deepEqual([incoming.count, incoming.bytes], [0, 0]);
  }
});

test("the same transfer id of two senders is two files", async () => {
  const { parts } = await file(2 * PART_BYTES);
  const incoming = new IncomingTransfers(native);
  await incoming.take("a", "k", parts[0], 0);
  await incoming.take("b", "k", parts[1], 0);
  assert.equal(incoming.count, 2);
});

test("files under way are bounded: per sender, in all, by size, by parts", async () => {
  const { parts } = await file(2 * PART_BYTES);
  const [first] = parts;
  const of = (byte) => ({ ...first, transferId: new Uint8Array(16).fill(byte) });
  const incoming = new IncomingTransfers(native);
  for (let byte = 0; byte < 5; byte += 1) await incoming.take("s0", "k", of(byte), 0);
  assert.equal(incoming.count, transfers.INCOMING_PER_SENDER_MAX);
  for (let sender = 1; sender < 5; sender += 1) for (let byte = 0; byte < 5; byte += 1) await incoming.take(`s${sender}`, "k", of(byte), 0);
  assert.equal(incoming.count, transfers.INCOMING_MAX);

  const refused = async (part) => (await new IncomingTransfers(native).take("a", "k", part, 0)).status;
  assert.equal(await refused({ ...first, totalBytes: transfers.FILE_BYTES_MAX + 1 }), "refused");
  assert.equal(await refused({ ...first, totalBytes: 9, count: 10, data: new Uint8Array(1) }), "refused");
  assert.equal(await refused({ ...first, count: transfers.INCOMING_PARTS_MAX + 1, totalBytes: transfers.FILE_BYTES_MAX }), "refused");
  assert.equal(await refused({ ...first, data: new Uint8Array() }), "refused");
});

test("when every place is taken, the stalest file of whoever holds most gives way to a newcomer", async () => {
  const { parts } = await file(2 * PART_BYTES);
  const of = (byte) => ({ ...parts[0], transferId: new Uint8Array(16).fill(byte) });
  const incoming = new IncomingTransfers(native);
  for (let sender = 0; sender < 10; sender += 1) await incoming.take(`single${sender}`, "k", of(0), 0);
  for (const [at, sender] of ["pair", "pair", "most", "most", "most", "most"].entries()) await incoming.take(sender, "k", of(at), at);
  const tooSoon = await incoming.take("new", "k", of(0), transfers.INCOMING_STALLED_MS - 1);
  const taken = await incoming.take("new", "k", of(0), transfers.INCOMING_STALLED_MS + 4);

  assert.deepEqual([tooSoon.status, taken.status, incoming.count], ["refused", "more", transfers.INCOMING_MAX]);
  assert.deepEqual(incoming.takeGivenUp().map(({ sender, first }) => [sender, first.transferId[0]]), [["most", 2]]);
  assert.deepEqual([incoming.takeGivenUp(), incoming.bytes], [[], 16 * PART_BYTES]);
});

test("a file that moves keeps its place, whoever comes", async () => {
  const { parts } = await file(2 * PART_BYTES);
  const incoming = new IncomingTransfers(native);
  for (let sender = 0; sender < 16; sender += 1) await incoming.take(`s${sender}`, "k", parts[0], transfers.INCOMING_STALLED_MS);
  const late = await incoming.take("new", "k", parts[0], 2 * transfers.INCOMING_STALLED_MS - 1);

  assert.deepEqual([late.status, incoming.takeGivenUp()], ["refused", []]);
});

test("announced bytes of files that stand still make room, too", async () => {
  const { parts } = await file(2 * PART_BYTES);
  const incoming = new IncomingTransfers(native);
  const large = { ...parts[0], totalBytes: transfers.FILE_BYTES_MAX, count: 5_000 };
  for (const sender of ["a", "b"]) await incoming.take(sender, "k", large, 0);

  assert.equal((await incoming.take("c", "k", parts[0], transfers.INCOMING_STALLED_MS)).status, "more");
  assert.deepEqual(incoming.takeGivenUp().map(({ sender }) => sender), ["a"]);
});

test("announced bytes count, so that three large files do not begin", async () => {
  const { parts } = await file(2 * PART_BYTES);
  const incoming = new IncomingTransfers(native);
  const take = (sender) => incoming.take(sender, "k", { ...parts[0], totalBytes: transfers.FILE_BYTES_MAX, count: 5_000 }, 0);
  assert.deepEqual([(await take("a")).status, (await take("b")).status, (await take("c")).status], ["more", "more", "refused"]);
});

test("a file on which nothing moves for ten minutes is given up", async () => {
  const { parts } = await file(3 * PART_BYTES);
  const incoming = new IncomingTransfers(native);
  await incoming.take("a", "k", parts[0], 0);
  await incoming.take("a", "k", parts[1], 500_000);
  assert.deepEqual(incoming.expire(1_099_999), []);
  assert.deepEqual(incoming.expire(1_100_000).map(({ sender, bytesDone }) => [sender, bytesDone]), [["a", 2 * PART_BYTES]]);
  assert.deepEqual([incoming.count, incoming.bytes], [0, 0]);
});

test("at most four parts wait for their outcome, and the next leaves when one is told", async () => {
  const { parts } = await file(9 * PART_BYTES);
  const waiting = [];
  let most = 0;
  const { done, progress } = sending(parts, (frame) => new Promise((resolve) => { waiting.push({ frame, resolve }); most = Math.max(most, waiting.length); }));
  for (let count = 0; count < parts.length; count += 1) {
    await until(() => waiting.length > 0 && (waiting.length === WINDOW_PARTS || count + waiting.length === parts.length));
    waiting.shift().resolve(outcomeOf("accepted"));
  }

  assert.equal((await done).name, "accepted");
  assert.deepEqual([most, progress.at(-1)], [WINDOW_PARTS, 9 * PART_BYTES]);
});

test("a part that did not arrive is sent again as it was, a little later each time", async () => {
  const { parts } = await file(1);
  const tries = [];
  const outcomes = ["lost", "queue_full", "unknown_target", "accepted"];
  const { clock, done } = sending(parts, async (frame) => { tries.push({ frame, at: clock.now() }); return outcomeOf(outcomes[tries.length - 1]); });
  for (let count = 1; count < 4; count += 1) {
    await until(() => tries.length === count && clock.waits.length === 1);
    clock.advance(clock.waits[0]);
  }

  assert.equal((await done).name, "accepted");
  assert.deepEqual(tries.map(({ at }) => at - tries[0].at), [0, 250, 750, 1_750]);
  assert.ok(tries.every(({ frame }) => frame === tries[0].frame));
});

test("a recipient that stays away for a minute ends the transfer with the last outcome", async () => {
  const { parts } = await file(6 * PART_BYTES);
  const { clock, done } = sending(parts, async () => outcomeOf("unknown_target"));
  let ended = null;
  done.then((outcome) => (ended = outcome));
  await until(() => { clock.advance(1_000); return ended; });
  assert.equal(ended.name, "unknown_target");
});

test("an outcome that will not change ends the transfer at once", async () => {
  const { parts } = await file(6 * PART_BYTES);
  let count = 0;
  const { done } = sending(parts, async () => { count += 1; return outcomeOf("too_large"); });
  assert.equal((await done).name, "too_large");
  assert.equal(count, WINDOW_PARTS);
});

test("a cancelled transfer stops", async () => {
  const { parts } = await file(20 * PART_BYTES);
  let count = 0;
  const { done } = sending(parts, async () => { count += 1; return outcomeOf("accepted"); }, () => count >= 5);
  assert.equal(await done, null);
  assert.ok(count < 20);
});
