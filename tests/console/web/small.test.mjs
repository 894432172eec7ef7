// Parts too small for a file of their own: what is remembered, storage, events.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Emitter } from "../../../src/waystation/console/web/sdk/emitter.js";
import { PendingOutcomes, PENDING_MAX } from "../../../src/waystation/console/web/sdk/delivery/outcomes.js";
import { sentenceOf } from "../../../src/waystation/console/web/sdk/state.js";
import { sdk, TestClock } from "./support.mjs";

test("memory keeps values by table and key, in the order of the keys", async () => {
  const storage = new sdk.MemoryStorage();
  await storage.put("servers", "b", 2);
  await storage.put("servers", "a", 1);
  await storage.put("settings", "a", 3);
  await storage.remove("settings", "a");
  assert.deepEqual([await storage.entries("servers"), await storage.get("servers", "b"), await storage.get("settings", "a")], [[["a", 1], ["b", 2]], 2, undefined]);
});

test("without a database, or where the browser forbids it, memory serves and says it is not persistent", async () => {
  const forbidden = { open: () => { throw new DOMException("no", "SecurityError"); } };
  for (const factory of [undefined, forbidden]) assert.equal((await sdk.openStorage(factory)).isPersistent, false);
});

test("frames that wait for their outcome are bounded, and all end together when the connection does", async () => {
  const pending = new PendingOutcomes(new TestClock());
  const outcomes = Array.from({ length: PENDING_MAX }, (_, index) => pending.expect(`${index % 100}`));
  assert.equal(pending.isFull, true);
  pending.settleAll("lost");
  assert.ok((await Promise.all(outcomes)).every(({ name, accepted, delivered, code }) => name === "lost" && !accepted && !delivered && code === null));
  assert.equal(pending.isFull, false);
});

test("a notice that nobody waits for is ignored", () => {
  new PendingOutcomes(new TestClock()).settle("nobody", { code: 0, name: "accepted", accepted: true, delivered: true, sentence: "" });
});

test("every state has a sentence, whatever its reason", () => {
  const base = { address: "ws://a/", serverKey: null, features: 0, attempt: 0, retryAtMs: null, tab: "alone", sentence: "" };
  for (const phase of ["idle", "connecting", "handshaking", "ready", "waiting", "refused"]) {
    for (const reason of [null, "no_connection", "wrong_server", "hostile_challenge", "unheard of"]) {
      for (const authenticated of [true, false]) assert.match(sentenceOf({ ...base, phase, reason, authenticated }), /^[A-Z].*[.]$/);
    }
  }
});

test("a listener that was taken away hears nothing more", () => {
  const emitter = new Emitter();
  const heard = [];
  const off = emitter.on("x", (detail) => heard.push(detail));
  emitter.emit("x", 1);
  off();
  emitter.emit("x", 2);
  assert.deepEqual(heard, [1]);
});
