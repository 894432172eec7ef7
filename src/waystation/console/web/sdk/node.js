// @ts-check
/**
 * For Node.js: an environment whose storage is a folder.
 *
 * ```js
 * import { MerkClient } from "waystation-merk";
 * import { nodeEnvironment } from "waystation-merk/node";
 * const client = await MerkClient.open({ environment: await nodeEnvironment("./me") });
 * ```
 * @module
 */

import { appendFile, mkdir, open, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { LocalError } from "./errors.js";
import { TABLES } from "./storage.js";

/** @typedef {import("./storage.js").Storage} Storage */
/** @typedef {import("./storage.js").Table} Table */

/** A file is written anew when it has so many lines more than it needs. */
export const SPARE_LINES_MAX = 4_096;
/** Folders that this program has open. @type {Set<string>} */
const OPEN = new Set();
/** The package that gives a WebSocket where Node.js has none. */
const WEBSOCKET_PACKAGE = "ws";

/**
 * Makes the environment of a program.
 * @param {string} home A folder, made where there is none; one program at a time uses it.
 * @returns {Promise<Partial<import("./environment.js").Environment>>}
 * @throws {LocalError} Another program uses the folder, or it is damaged.
 */
export async function nodeEnvironment(home) {
  const storage = await FileStorage.open(home);
  if (globalThis.WebSocket !== undefined) return { storage, locks: null, broadcastChannel: null };
  const socketFactory = await optionalWebSocket();
  return { storage, locks: null, broadcastChannel: null, ...(socketFactory === null ? {} : { socketFactory }) };
}

/** @returns {Promise<((address: string) => import("./environment.js").Socket) | null>} */
async function optionalWebSocket() {
  try {
    const { WebSocket } = await import(WEBSOCKET_PACKAGE);
    return (address) => new WebSocket(address);
  } catch {
    return null; // It is not installed; opening a client says what helps.
  }
}

/**
 * One file per table, of lines `[key, value]` in JSON; a line without value removes. The last line for a key counts. Keys of identities
 * are in it as they are, so the folder is for its owner alone.
 * @implements {Storage}
 */
export class FileStorage {
  isPersistent = true;
  takesKeys = false;
  /** @type {Map<Table, { rows: Map<string, any>, lines: number, turn: Promise<unknown> }>} */
  #tables = new Map();

  /**
   * Use `open`.
   * @param {string} home
   */
  constructor(home) {
    this.home = home;
  }

  /**
   * Opens a folder.
   * @param {string} home
   * @throws {LocalError} Another program uses it, or a file is damaged.
   */
  static async open(home) {
    const place = resolve(home);
    if (OPEN.has(place)) throw new LocalError(`This program uses the folder already: ${place}.`);
    await mkdir(place, { recursive: true, mode: 0o700 });
    await takeLock(join(place, "lock"));
    const storage = new FileStorage(place);
    for (const table of TABLES) await storage.#load(table);
    OPEN.add(place);
    return storage;
  }

  /**
   * @param {Table} table
   * @param {string} key
   */
  async get(table, key) {
    return structuredClone(this.#table(table).rows.get(key));
  }

  /**
   * @param {Table} table
   * @param {string} key
   * @param {unknown} value
   */
  async put(table, key, value) {
    this.#table(table).rows.set(key, structuredClone(value));
    await this.#write(table, [key, value]);
  }

  /**
   * @param {Table} table
   * @param {string} key
   */
  async remove(table, key) {
    if (this.#table(table).rows.delete(key)) await this.#write(table, [key]);
  }

  /**
   * @param {Table} table
   * @returns {Promise<Array<[string, any]>>}
   */
  async entries(table) {
    return structuredClone([...this.#table(table).rows].sort(([left], [right]) => (left < right ? -1 : 1)));
  }

  /** Leaves the folder to others, once all is written. */
  async close() {
    await Promise.all([...this.#tables.values()].map(({ turn }) => turn));
    await rm(join(this.home, "lock"), { force: true });
    OPEN.delete(this.home);
  }

  /** @param {Table} table */
  async #load(table) {
    const lines = (await textOf(this.#path(table))).split("\n");
    const torn = lines.pop(); // A line that a crash cut off was promised to nobody.
    const rows = new Map();
    for (const line of lines) {
      const [key, value] = rowOf(line, this.#path(table));
      if (value === undefined) rows.delete(key);
      else rows.set(key, value);
    }
    this.#tables.set(table, { rows, lines: lines.length, turn: Promise.resolve() });
    if (torn !== "") await this.#rewrite(table);
  }

  /**
   * @param {Table} table
   * @param {[string, unknown?]} row
   */
  async #write(table, row) {
    const state = this.#table(table);
    const written = state.turn.then(async () => {
      await appendFile(this.#path(table), `${JSON.stringify(row)}\n`, { mode: 0o600, flush: true });
      state.lines += 1;
      if (state.lines > state.rows.size + SPARE_LINES_MAX) await this.#rewrite(table);
    });
    state.turn = written.catch(() => null); // The caller gets the failure; the next write is tried anew.
    await written;
  }

  /** @param {Table} table */
  async #rewrite(table) {
    const state = this.#table(table);
    const rows = [...state.rows];
    const path = this.#path(table);
    await writeFile(`${path}.new`, rows.map((row) => `${JSON.stringify(row)}\n`).join(""), { mode: 0o600, flush: true });
    await rename(`${path}.new`, path);
    state.lines = rows.length;
  }

  /** @param {Table} table */
  #path(table) {
    return join(this.home, `${table}.jsonl`);
  }

  /** @param {Table} table */
  #table(table) {
    const found = this.#tables.get(table);
    if (found === undefined) throw new RangeError(`no table ${table}`);
    return found;
  }
}

/**
 * @param {string} line
 * @param {string} path
 * @returns {[string, any]}
 */
function rowOf(line, path) {
  try {
    const row = JSON.parse(line);
    if (Array.isArray(row) && typeof row[0] === "string") return /** @type {[string, any]} */ (row);
  } catch {
    // Told below, together with JSON that is no row.
  }
  throw new LocalError(`${path} is damaged.`);
}

/** @param {string} path */
async function textOf(path) {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if (/** @type {NodeJS.ErrnoException} */ (error).code === "ENOENT") return "";
    throw error;
  }
}

/**
 * Takes the lock of a folder; one that a program left behind when it died is taken over.
 * @param {string} path
 */
async function takeLock(path) {
  const holder = Number(await textOf(path));
  if (holder > 0 && holder !== process.pid && isRunning(holder)) throw new LocalError(`The program ${holder} uses this folder: ${path}.`);
  const file = await open(path, "w", 0o600);
  await file.writeFile(`${process.pid}`);
  await file.close();
}

/** @param {number} id Of a process. */
function isRunning(id) {
  try {
    process.kill(id, 0);
    return true;
  } catch (error) {
    return /** @type {NodeJS.ErrnoException} */ (error).code === "EPERM";
  }
}
