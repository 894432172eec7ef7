// @ts-check
/**
 * What the page remembers: people, messages and files of one identity, in the browser's database, sealed when there is a passphrase
 * (MERK-VAULT), within the bounds of MERK-KEPT.
 *
 * Records are plain objects. A row is `{ clear }` or `{ sealed }`; a sealed history reads clear rows, too, and seals them.
 * @module
 */

import { Vault } from "./vault.js";

/** @typedef {import("./store.js").Table} Table */
/**
 * @typedef {object} Entry A message.
 * @property {string} at Key of the record.
 * @property {string} peer Hex key of the person.
 * @property {"in" | "out"} way
 * @property {"text" | "json" | "file" | "bytes"} kind
 * @property {number} ms When it came, or was written; the page's clock.
 * @property {string} state Of one that goes out: see words.js; of one that came: "new" or "seen".
 * @property {string} [text]
 * @property {string} [name] Of a file: the sender's word.
 * @property {number} [size]
 * @property {string} [mode]
 * @property {string} [auth]
 * @property {string} [reason] What went wrong.
 * @property {string} [id] The SDK's, by which a receipt names it.
 * @property {number | null} [sentMs] The sender's clock.
 */

export const ENTRIES_MAX = 10_000;
/** Messages with people whom the user never answered: above it theirs give way first, so that no flood of them costs another's. */
export const UNANSWERED_MAX = 1_000;
/** Beyond it the bytes of the oldest files are let go, those of people never answered first; their entries stay. */
export const FILES_BYTES_MAX = 134_217_728;
const WRAPPED = "vault";
const SETTINGS = "settings";

/** The history of one identity. */
export class History {
  /** @type {Map<string, any>} */
  people = new Map();
  /** @type {Map<string, Entry>} */
  entries = new Map();
  /** Bytes of files by key, oldest first. @type {Map<string, number>} */
  #files = new Map();
  #vault = /** @type {Vault | null} */ (null);
  #settings = /** @type {Record<string, any>} */ ({});
  /** The end of what is written: one change after the other, so that the last one stays. @type {Promise<unknown>} */
  #turn = Promise.resolve();
  /** Messages whose last change the browser did not take. @type {Set<string>} */
  #unkept = new Set();
  /** Whether the browser took the last change. */
  isKeeping = true;
  /** Hears when the browser takes nothing more. @type {(problem: any) => void} */
  onRefused = () => {};

  /** @param {import("./store.js").MemoryStore | import("./store.js").DatabaseStore} store */
  constructor(store) {
    this.store = store;
  }

  get isPersistent() {
    return this.store.isPersistent;
  }

  get isSealed() {
    return this.#vault !== null;
  }

  get settings() {
    return this.#settings;
  }

  /** Whether a passphrase is needed before `load`. */
  async isLocked() {
    return this.#vault === null && (await this.store.get("meta", WRAPPED)) !== undefined;
  }

  /**
   * @param {string} passphrase
   * @throws {import("./vault.js").WrongPassphrase}
   */
  async unlock(passphrase) {
    const wrapped = await this.store.get("meta", WRAPPED);
    if (wrapped !== undefined) this.#vault = await Vault.open(passphrase, wrapped);
  }

  /** Reads everything but the bytes of files. */
  async load() {
    const clear = [];
    for (const table of /** @type {Table[]} */ (["people", "messages"])) {
      for (const [key, row] of await this.store.entries(table)) {
        const record = await this.#read(table, key, row);
        (table === "people" ? this.people : this.entries).set(key, record);
        if (this.#vault !== null && row.sealed === undefined) clear.push(await this.#change(table, key, record));
      }
    }
    const settings = await this.store.get("meta", SETTINGS);
    if (settings !== undefined) this.#settings = await this.#read("meta", SETTINGS, settings);
    this.entries = new Map([...this.entries].sort(([, left], [, right]) => left.ms - right.ms));
    for (const [at, { kind, size = 0, hasFile }] of /** @type {any} */ (this.entries)) if (kind !== "text" && hasFile) this.#files.set(at, size);
    await this.store.change(clear);
  }

  /**
   * Sets what the page remembers besides people and messages.
   * @param {Record<string, any>} change
   */
  async set(change) {
    this.#settings = { ...this.#settings, ...change };
    await this.#commit(async () => [await this.#change("meta", SETTINGS, this.#settings)]);
  }

  /** @param {any} person With `key`. */
  async putPerson(person) {
    this.people.set(person.key, person);
    await this.#commit(async () => [await this.#change("people", person.key, person)]);
  }

  /**
   * Writes a message, with the bytes of its file.
   * @param {Entry} entry
   * @param {Uint8Array} [bytes]
   */
  async put(entry, bytes) {
    const record = bytes === undefined ? entry : { ...entry, hasFile: true };
    this.entries.set(entry.at, record);
    if (bytes !== undefined) this.#files.set(entry.at, bytes.length);
    const isKept = await this.#commit(async () => {
      const changes = [await this.#change("messages", entry.at, record)];
      if (bytes !== undefined) changes.push(await this.#change("files", entry.at, bytes));
      return [...changes, ...(await this.#makeRoom(entry.at))];
    });
    if (isKept) this.#unkept.delete(entry.at);
    else this.#unkept.add(entry.at);
    return record;
  }

  /** Whether a message is written down as it is. @param {string} at */
  isKept(at) {
    return this.entries.has(at) && !this.#unkept.has(at);
  }

  /** Takes what another tab has written. @param {Entry} entry */
  take(entry) {
    this.entries.set(entry.at, entry);
  }

  /**
   * @param {string} at
   * @returns {Promise<Uint8Array | null>} Null when it was let go.
   */
  async file(at) {
    const row = await this.store.get("files", at);
    if (row === undefined) return null;
    return row.sealed === undefined ? row.clear : /** @type {Vault} */ (this.#vault).open(`files:${at}`, row.sealed);
  }

  /** Messages with a person, oldest first. @param {string} peer */
  with(peer) {
    return [...this.entries.values()].filter((entry) => entry.peer === peer);
  }

  /** Forgets messages. @param {(entry: Entry) => boolean} which */
  async forget(which) {
    const gone = [...this.entries.values()].filter(which).map(({ at }) => at);
    await this.#commit(async () => gone.flatMap((at) => this.#forgotten(at)));
  }

  /** @param {string} key */
  async forgetPerson(key) {
    await this.forget(({ peer }) => peer === key);
    this.people.delete(key);
    await this.#commit(async () => [{ table: "people", key }]);
  }

  /** Deletes everything of this identity, sealed or not. */
  async wipe() {
    const changes = [];
    for (const table of /** @type {Table[]} */ (["people", "messages", "files", "meta"])) {
      for (const [key] of await this.store.entries(table)) changes.push({ table, key });
    }
    await this.store.change(changes);
    this.people.clear();
    this.entries.clear();
    this.#files.clear();
    this.#vault = null;
    this.#settings = {};
  }

  /**
   * Seals everything with a passphrase, or opens it for good with null; all rows change together.
   * @param {string | null} passphrase
   * @param {number} [iterations]
   */
  async protect(passphrase, iterations) {
    const before = this.#vault;
    await this.#commit(() => this.#resealed(passphrase, iterations));
    if (!this.isKeeping) this.#vault = before; // what is stored is as it was
  }

  async #resealed(passphrase, iterations) {
    const files = await Promise.all([...this.#files.keys()].map(async (at) => /** @type {[string, any]} */ ([at, await this.file(at)])));
    const made = passphrase === null ? null : await Vault.make(passphrase, iterations);
    this.#vault = made?.vault ?? null;
    const changes = [{ table: /** @type {Table} */ ("meta"), key: WRAPPED, value: made?.wrapped }];
    for (const [key, person] of this.people) changes.push(await this.#change("people", key, person));
    for (const [at, entry] of this.entries) changes.push(await this.#change("messages", at, entry));
    for (const [at, bytes] of files) if (bytes !== null) changes.push(await this.#change("files", at, bytes));
    changes.push(await this.#change("meta", SETTINGS, this.#settings));
    return changes;
  }

  /** Writes what `make` says when its turn has come; a browser that takes nothing more is reported, and the page goes on. */
  async #commit(make) {
    const turn = this.#turn.then(async () => this.store.change(await make()));
    const settled = turn.then(() => (this.isKeeping = true), (problem) => {
      this.isKeeping = false;
      this.onRefused(problem);
      return false;
    });
    this.#turn = settled;
    return settled;
  }

  /** @param {string} peer */
  #isAnswered(peer) {
    return Boolean(this.people.get(peer)?.isKnown);
  }

  /** The message that gives way: the oldest of whoever has most, of people never answered first while they have many. */
  #leastMissed() {
    /** @type {Map<string, Entry[]>} */
    const byPeer = new Map();
    for (const entry of this.entries.values()) {
      const others = byPeer.get(entry.peer);
      if (others === undefined) byPeer.set(entry.peer, [entry]);
      else others.push(entry);
    }
    const unanswered = [...byPeer.values()].filter(([{ peer }]) => !this.#isAnswered(peer));
    const isCrowded = unanswered.reduce((sum, { length }) => sum + length, 0) > UNANSWERED_MAX;
    return (isCrowded ? unanswered : [...byPeer.values()]).reduce((most, each) => (each.length > most.length ? each : most))[0].at;
  }

  /** @param {string} added */
  async #makeRoom(added) {
    const changes = [];
    while (this.entries.size > ENTRIES_MAX) changes.push(...this.#forgotten(this.#leastMissed()));
    let bytes = [...this.#files.values()].reduce((sum, size) => sum + size, 0);
    const rank = (at) => Number(this.#isAnswered(this.entries.get(at)?.peer ?? ""));
    for (const [at, size] of [...this.#files].sort(([one], [other]) => rank(one) - rank(other))) {
      if (bytes <= FILES_BYTES_MAX) break;
      if (at === added) continue;
      bytes -= size;
      this.#files.delete(at);
      const entry = { .../** @type {Entry} */ (this.entries.get(at)), hasFile: false };
      this.entries.set(at, entry);
      changes.push({ table: /** @type {Table} */ ("files"), key: at }, await this.#change("messages", at, entry));
    }
    return changes;
  }

  /** @param {string} at */
  #forgotten(at) {
    this.entries.delete(at);
    this.#unkept.delete(at);
    this.#files.delete(at);
    return [{ table: /** @type {Table} */ ("messages"), key: at }, { table: /** @type {Table} */ ("files"), key: at }];
  }

  async #change(table, key, record) {
    return { table, key, value: await this.#row(table, key, record) };
  }

  async #row(table, key, record) {
    if (this.#vault === null) return { clear: record };
    const bytes = record instanceof Uint8Array ? record : new TextEncoder().encode(JSON.stringify(record));
    return { sealed: await this.#vault.seal(`${table}:${key}`, bytes) };
  }

  async #read(table, key, row) {
    if (row.sealed === undefined) return row.clear;
    const bytes = await /** @type {Vault} */ (this.#vault).open(`${table}:${key}`, row.sealed);
    return JSON.parse(new TextDecoder().decode(bytes));
  }
}
