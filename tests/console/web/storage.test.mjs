// Every storage against the same rules; and a folder of Node.js across crashes, damage and two programs.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { appendFileSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { FileStorage, nodeEnvironment, SPARE_LINES_MAX } from "../../../src/waystation/console/web/sdk/node.js";
import { ADDRESS, environmentOf, sdk, TestRelay, until } from "./support.mjs";

/** The part of localStorage that is used. */
class Texts extends Map {
  get length() { return this.size; }
  key = (index) => [...this.keys()][index] ?? null;
  getItem = (key) => this.get(key) ?? null;
  setItem = (key, value) => void this.set(key, value);
  removeItem = (key) => void this.delete(key);
}

async function inFolder(work) {
  const home = mkdtempSync(join(tmpdir(), "merk-"));
  try {
    await work(home);
  } finally {
    rmSync(home, { recursive: true });
  }
}

const others = new Texts([["somebody else's", "{"]]);
const STORAGES = { memory: async () => new sdk.MemoryStorage(), text: async () => new sdk.TextStorage(others), files: (home) => FileStorage.open(home) };

for (const [name, open] of Object.entries(STORAGES)) {
  test(`${name}: values by table and key, in the order of the keys, copied in and out`, () => inFolder(async (home) => {
    const storage = await open(home);
    const value = { key: null, address: "wss://ü/", list: [1] };
    await storage.put("servers", "b", value);
    await storage.put("servers", "a", 2);
    await storage.put("settings", "a", 3);
    await storage.put("settings", "a", "4");
    await storage.remove("settings", "none");
    assert.deepEqual(await storage.entries("servers"), [["a", 2], ["b", { key: null, address: "wss://ü/", list: [1] }]]);
    assert.deepEqual([await storage.get("settings", "a"), await storage.get("servers", "c")], ["4", undefined]);
    await storage.remove("settings", "a");
    assert.deepEqual(await storage.entries("settings"), []);
    await storage.close();
  }));

  test(`${name}: an identity is the same when it is opened again, and its messages count once`, () => inFolder(async (home) => {
    const relay = await TestRelay.make();
    const storage = await open(home);
    const environment = () => environmentOf(relay, { storage });
    const client = await sdk.MerkClient.open({ environment: environment() });
    await client.connect(ADDRESS);
    await client.whenReady();
    await client.setNick("Ada");
    await client.close();
    const again = await sdk.MerkClient.open({ environment: environment() });
    await again.connect();
    await again.whenReady();
    assert.deepEqual([again.id, again.getNick(), again.servers[0].key !== null], [client.id, "Ada", true]);
    assert.deepEqual((await sdk.MerkClient.listIdentities({ environment: environment() })).map(({ id }) => id), [client.id]);
    assert.equal(again.isExportable, name !== "memory", "keys that are written as text can be taken out, and the client says so");
    await again.close();
    await storage.close();
  }));
}

test("a folder keeps what it was given, for its owner alone, and forgets what a crash cut off", () => inFolder(async (home) => {
  const first = await FileStorage.open(home);
  await first.put("seen", "a", 1);
  await first.put("seen", "b", 2);
  await first.remove("seen", "a");
  await first.close();
  appendFileSync(join(home, "seen.jsonl"), '["c",');
  for (let count = 0; count < 2; count += 1) {
    const again = await FileStorage.open(home);
    assert.deepEqual(await again.entries("seen"), [["b", 2]]);
    await again.close();
  }
  assert.equal(statSync(join(home, "seen.jsonl")).mode & 0o077, 0);
}));

test("a damaged file is refused with a sentence, not read as empty", () => inFolder(async (home) => {
  for (const line of ["{", "[]", "[7,1]"]) {
    writeFileSync(join(home, "identities.jsonl"), `${line}\n`);
    await assert.rejects(FileStorage.open(home), (error) => error instanceof sdk.LocalError && /damaged/.test(error.message), line);
    rmSync(join(home, "lock"), { force: true });
  }
}));

test("a file is written anew before it grows without bound", () => inFolder(async (home) => {
  const storage = await FileStorage.open(home);
  const written = [];
  for (let count = 0; count <= SPARE_LINES_MAX + 20; count += 1) written.push(storage.put("settings", "a", count));
  await Promise.all(written);
  assert.ok(readFileSync(join(home, "settings.jsonl"), "utf8").split("\n").length < 100);
  await storage.close();
  const again = await FileStorage.open(home);
  assert.equal(await again.get("settings", "a"), SPARE_LINES_MAX + 20);
  await again.close();
}));

test("one program at a time uses a folder, and a program that died holds it no longer", () => inFolder(async (home) => {
  const storage = await FileStorage.open(home);
  await assert.rejects(FileStorage.open(home), sdk.LocalError);
  await storage.close();

  const other = spawn(process.execPath, ["-e", "setInterval(() => 1, 1000)"]);
  writeFileSync(join(home, "lock"), `${other.pid}`);
  await assert.rejects(FileStorage.open(home), (error) => error instanceof sdk.LocalError && error.message.includes(`${other.pid}`));
  const ended = new Promise((resolve) => other.on("exit", resolve));
  other.kill();
  await ended;
  await (await FileStorage.open(home)).close();
}));

test("the environment of a program has a folder, and a WebSocket where Node.js or the package ws has one", () => inFolder(async (home) => {
  const environment = await nodeEnvironment(home);
  assert.equal(environment.storage.isPersistent, true);
  assert.equal(typeof globalThis.WebSocket === "undefined" && environment.socketFactory === undefined, typeof globalThis.WebSocket === "undefined");
  await environment.storage.close();
  await until(async () => true);
}));
