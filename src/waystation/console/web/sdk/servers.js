// @ts-check
/**
 * Servers that the user added or that servers told of, with the key each one proved first.
 * @module
 */

import { fromHex, toHex } from "./bytes.js";
import { demandText } from "./arguments.js";
import { LocalError } from "./errors.js";
import { ADDRESS_BYTES_MAX } from "./info.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */

/**
 * @typedef {object} ServerRecord
 * @property {string} address
 * @property {"user" | "told"} origin
 * @property {string | null} key In hex, once it was proved.
 * @property {string | null} [named] The key that was named with a told address: only who proves it is taken for this server.
 */

/** As many as the Python client keeps (specs/merk.md 8). */
export const SERVERS_KEPT_MAX = 64;

/** The list in a storage; every call reads it anew, since other tabs write too. */
export class ServerBook {
  /**
   * @param {import("./storage.js").Storage} storage
   * @param {boolean} isHttps
   */
  constructor(storage, isHttps) {
    this.storage = storage;
    this.isHttps = isHttps;
  }

  /**
   * Lists the servers, the user's own first.
   * @returns {Promise<ServerRecord[]>}
   */
  async list() {
    const records = (await this.storage.entries("servers")).map(([, record]) => /** @type {ServerRecord} */ (record));
    return [...records.filter(({ origin }) => origin === "user"), ...records.filter(({ origin }) => origin === "told")];
  }

  /**
   * Adds a server by hand.
   * @param {string} address
   * @returns {Promise<string>} The address as it is kept.
   * @throws {LocalError} It is no WebSocket address, or the list is full of the user's own.
   */
  async add(address) {
    const normal = normalAddress(address, this.isHttps);
    const records = await this.list();
    const known = records.find((record) => record.address === normal);
    if (known === undefined && records.length >= SERVERS_KEPT_MAX) await this.#makeRoom(records);
    await this.storage.put("servers", normal, { address: normal, origin: "user", key: known?.key ?? null, named: null });
    return normal;
  }

  /**
   * Takes what a server told: addresses that this page could use, until the list is full. A key named with one proves nothing; the
   * server there has to.
   * @param {readonly { address: string, key: Bytes | null }[]} entries
   */
  async learn(entries) {
    const known = new Map((await this.list()).map((record) => [record.address, record]));
    for (const { address, key } of entries) {
      const normal = isUsable(address, this.isHttps) ? normalAddress(address, this.isHttps) : null;
      const record = normal === null ? undefined : known.get(normal);
      const isNews = normal !== null && (record === undefined ? known.size < SERVERS_KEPT_MAX : record.origin === "told" && record.named == null && key !== null);
      if (!isNews) continue;
      /** @type {ServerRecord} */
      const told = { address: normal, origin: "told", key: record?.key ?? null, named: key === null ? null : toHex(key) };
      known.set(normal, told);
      await this.storage.put("servers", normal, told);
    }
  }

  /** @param {string} address */
  async remove(address) {
    await this.storage.remove("servers", address);
  }

  /**
   * Gives the key that a server proved before, or has to prove because it was named with a told address.
   * @param {string} address
   * @returns {Promise<Bytes | null>}
   */
  async pinOf(address) {
    const record = /** @type {ServerRecord | undefined} */ (await this.storage.get("servers", address));
    const key = record?.key ?? record?.named;
    return key == null ? null : fromHex(key, 32);
  }

  /**
   * Remembers the key that a server proved first; a later one never replaces it.
   * @param {string} address
   * @param {Bytes} key
   */
  async pin(address, key) {
    const record = /** @type {ServerRecord | undefined} */ (await this.storage.get("servers", address));
    if (record?.key != null) return;
    await this.storage.put("servers", address, { named: null, ...record, address, origin: record?.origin ?? "user", key: toHex(key) });
  }

  /**
   * Forgets the key, so that the next one counts as the first; the server is the user's own choice from then on.
   * @param {string} address
   */
  async forgetPin(address) {
    const record = /** @type {ServerRecord | undefined} */ (await this.storage.get("servers", address));
    if (record !== undefined) await this.storage.put("servers", address, { ...record, origin: "user", key: null, named: null });
  }

  /** @param {ServerRecord[]} records */
  async #makeRoom(records) {
    const told = records.filter(({ origin }) => origin === "told");
    const last = told.at(-1);
    if (last === undefined) throw new LocalError(`${SERVERS_KEPT_MAX} servers are enough; remove one first.`);
    await this.remove(last.address);
  }
}

/**
 * Writes an address in one way.
 * @param {string} address
 * @param {boolean} isHttps
 * @returns {string}
 * @throws {LocalError} This page cannot use it.
 */
export function normalAddress(address, isHttps) {
  const url = parse(demandText(address, "A server's address").trim());
  if (url === null || (url.protocol !== "ws:" && url.protocol !== "wss:")) throw new LocalError("A server's address begins with ws:// or wss://.");
  if (isHttps && url.protocol === "ws:" && !isLoopback(url.hostname)) throw new LocalError("A page served over https can only use wss:// addresses.");
  if (url.username !== "" || url.password !== "" || url.hash !== "") throw new LocalError("A server's address has no user, password or fragment.");
  if (url.href.length > ADDRESS_BYTES_MAX) throw new LocalError(`A server's address has at most ${ADDRESS_BYTES_MAX} bytes.`);
  return url.href;
}

/**
 * @param {string} address
 * @param {boolean} isHttps
 */
function isUsable(address, isHttps) {
  try {
    normalAddress(address, isHttps);
    return true;
  } catch (error) {
    if (error instanceof LocalError) return false;
    throw error;
  }
}

/** @param {string} address */
function parse(address) {
  try {
    return new URL(address);
  } catch {
    return null; // URL has no other failure.
  }
}

/**
 * Tells whether others could alter what goes to a server: it is reached without TLS, on another machine.
 * @param {string} address
 */
export function isAlterable(address) {
  const url = parse(address);
  return url !== null && url.protocol === "ws:" && !isLoopback(url.hostname);
}

/** @param {string} host */
function isLoopback(host) {
  return host === "localhost" || host === "[::1]" || /^127(?:\.\d+){3}$/.test(host);
}
