// @ts-check
/**
 * The part of a client that is about its identity: keys by name, what they are worth, and what their owner calls itself.
 * @module
 */

import { demandName } from "./arguments.js";
import { toHex } from "./bytes.js";
import { Emitter } from "./emitter.js";
import { completeEnvironment } from "./environment.js";
import { allIdentities, DEFAULT_IDENTITY, makeIdentity, takeIdentity } from "./identities.js";

/** @typedef {import("./environment.js").Environment} Environment */
/** @typedef {{ identity?: string, environment?: Partial<Environment> }} IdentityOptions */

/**
 * Whoever holds the keys of one identity.
 * @template {Record<string, any>} Events
 * @extends {Emitter<Events>}
 */
export class Owner extends Emitter {
  #keys;
  #environment;
  #nick = "";

  /**
   * @param {import("./keys.js").Keys} keys
   * @param {Environment} environment
   */
  constructor(keys, environment) {
    super();
    this.#keys = keys;
    this.#environment = environment;
  }

  /**
   * Makes an identity.
   * @param {IdentityOptions & { exportable?: boolean }} [options]
   */
  static async createIdentity({ identity = DEFAULT_IDENTITY, exportable = false, environment } = {}) {
    await makeIdentity(await completeEnvironment(environment), identity, exportable);
  }

  /**
   * Takes the original's key file.
   * @param {string} text
   * @param {IdentityOptions & { exportable?: boolean }} [options]
   */
  static async importIdentity(text, { identity = DEFAULT_IDENTITY, exportable = false, environment } = {}) {
    await takeIdentity(await completeEnvironment(environment), identity, text, exportable);
  }

  /** @param {{ environment?: Partial<Environment> }} [options] */
  static async listIdentities({ environment } = {}) {
    return allIdentities(await completeEnvironment(environment));
  }

  /**
   * Forgets an identity for good.
   * @param {string} identity
   * @param {{ environment?: Partial<Environment> }} [options]
   */
  static async forgetIdentity(identity, { environment } = {}) {
    const { storage } = await completeEnvironment(environment);
    await storage.remove("identities", identity);
  }

  /** What you give to others: 64 hex digits. */
  get id() {
    return this.#keys.id;
  }

  /** The encryption key, 64 hex digits; only clients without key directory need it. */
  get agreementKey() {
    return toHex(this.#keys.agreement.public);
  }

  /** Whether the keys outlive the page. */
  get isPersistent() {
    return this.#environment.storage.isPersistent;
  }

  get isExportable() {
    return this.#keys.isExportable;
  }

  /** Reads the nick; part of `open`. */
  async readNick() {
    this.#nick = (await this.#environment.storage.get("settings", `nick:${this.id}`)) ?? "";
  }

  /** What the owner calls itself; nobody else learns it from here. */
  getNick() {
    return this.#nick;
  }

  /**
   * Names oneself; kept with the identity.
   * @param {string} nick 1 to 64 characters, or none.
   */
  async setNick(nick) {
    this.#nick = nick === "" ? "" : demandName(nick, "A nick");
    await this.#environment.storage.put("settings", `nick:${this.id}`, this.#nick);
  }

  /** Writes the original's key file; LocalError unless the keys were made for it. */
  exportKeys() {
    return this.#keys.exportJson();
  }
}
