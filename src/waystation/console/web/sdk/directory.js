// @ts-check
/**
 * Encryption keys of others: asked from the servers' key directory, or set by hand.
 *
 * An advert is signed by the identity itself, so a server can withhold a newer one but not invent one; an older one never
 * replaces a newer. Who has an advert is able: speaks the bound form, and no other with us. That is kept beside the key and never
 * taken back, since no server can hide an advert that is here already.
 * Spec: specs/merk.md 10.2.
 * @module
 */

import { fromHex, toHex } from "./bytes.js";
import { Feature } from "./info.js";
import { isAdvertValid } from "./proofs.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {{ key: string, agreementKey: string, timeMs: number, isManual: boolean, isAble: boolean, askedMs: number }} KnownKey Keys in hex. */

export const KEYS_KEPT_MAX = 1_024;
export const QUESTIONS_MAX = 64;
export const ANSWER_WITHIN_MS = 8_000;
/** For so long an answer is taken as it is; identities rarely change their second key. */
export const FRESH_MS = 600_000;
/** As nodes do: who was absent may have come meanwhile. */
const ABSENT_MS = 2_000;

/** What is known about others' encryption keys. */
export class Directory {
  /** Open questions by key. @type {Map<string, { promise: Promise<void>, settle: () => void }>} */
  #questions = new Map();
  /** Who spoke the bound form with us. @type {Set<string>} */
  #spoke = new Set();
  /** When a key was last said to be unknown. @type {Map<string, number>} */
  #absent = new Map();

  /**
   * @param {object} options
   * @param {import("./environment.js").Environment} options.environment
   * @param {{ state: import("./state.js").State, tell: (info: import("./info.js").Info) => Promise<void> }} options.link
   */
  constructor({ environment, link }) {
    this.environment = environment;
    this.link = link;
  }

  /** Whether there is a server to ask, one that keeps a directory. */
  get isThere() {
    const { phase, features } = this.link.state;
    return phase === "ready" && (features & Feature.KEY_DIRECTORY) !== 0;
  }

  /**
   * Finds a key: what is fresh, else what the directory says, else what was known before.
   * @param {string} key
   * @returns {Promise<KnownKey | null>}
   */
  async find(key) {
    const now = this.environment.clock.now();
    const known = await this.#known(key);
    if (known !== null && (known.isManual || now - known.askedMs < FRESH_MS)) return known;
    if (now - (this.#absent.get(key) ?? -ABSENT_MS) < ABSENT_MS) return known;
    await this.#ask(key);
    return this.#known(key);
  }

  /**
   * Sets a key by hand; it is used until it is set anew.
   * @param {string} key
   * @param {string} agreementKey
   */
  async set(key, agreementKey) {
    const known = await this.#known(key);
    await this.#keep({ key, agreementKey, timeMs: 0, isManual: true, isAble: known?.isAble === true, askedMs: this.environment.clock.now() });
  }

  /**
   * Tells whether an identity is known to speak the bound form.
   * @param {string} key
   */
  async isAble(key) {
    return this.#spoke.has(key) || (await this.#known(key))?.isAble === true;
  }

  /**
   * Remembers that an identity spoke the bound form with us; until the program ends, unless its advert is kept.
   * @param {string} key
   */
  markAble(key) {
    if (this.#spoke.size < KEYS_KEPT_MAX) this.#spoke.add(key);
  }

  /**
   * Takes an answer of the server; what was not asked is not kept.
   * @param {import("./info.js").Info} info
   * @returns {Promise<boolean>} False when an advert is not signed by its key.
   */
  async take(info) {
    if (info.type !== "key_advert" && info.type !== "key_unknown") return true;
    const key = toHex(info.key);
    const question = this.#questions.get(key);
    if (question === undefined) return true;
    if (info.type === "key_unknown") this.#absent.set(key, this.environment.clock.now());
    else if (!(await isAdvertValid(this.environment.crypto, info))) return false;
    else await this.#learn(key, info);
    question.settle();
    return true;
  }

  /** @param {string} key */
  async #ask(key) {
    if (!this.isThere) return;
    const open = this.#questions.get(key);
    if (open !== undefined) return open.promise;
    if (this.#questions.size >= QUESTIONS_MAX) return;
    const { promise, settle } = this.#question(key);
    this.#questions.set(key, { promise, settle });
    await this.link.tell({ type: "key_query", key: fromHex(key, 32) });
    return promise;
  }

  /** @param {string} key */
  #question(key) {
    const { clock } = this.environment;
    /** @type {() => void} */
    let settle = () => {};
    /** @type {Promise<void>} */
    const promise = new Promise((resolve) => {
      const timer = clock.setTimeout(() => settle(), ANSWER_WITHIN_MS);
      settle = () => {
        clock.clearTimeout(timer);
        this.#questions.delete(key);
        while (this.#absent.size > KEYS_KEPT_MAX) this.#absent.delete(/** @type {string} */ (this.#absent.keys().next().value));
        resolve();
      };
    });
    return { promise, settle: () => settle() };
  }

  /**
   * @param {string} key
   * @param {import("./info.js").KeyAdvert} advert
   */
  async #learn(key, { agreementKey, timeMs }) {
    const askedMs = this.environment.clock.now();
    const known = await this.#known(key);
    const isNewer = known === null || timeMs >= known.timeMs;
    await this.#keep(isNewer ? { key, agreementKey: toHex(agreementKey), timeMs, isManual: false, isAble: true, askedMs } : { ...known, isAble: true, askedMs });
  }

  /**
   * @param {string} key
   * @returns {Promise<KnownKey | null>}
   */
  async #known(key) {
    return (await this.environment.storage.get("adverts", key)) ?? null;
  }

  /** @param {KnownKey} record */
  async #keep(record) {
    const { storage } = this.environment;
    const entries = await storage.entries("adverts");
    if (entries.length >= KEYS_KEPT_MAX) {
      const [oldest] = entries.reduce((left, right) => (left[1].askedMs <= right[1].askedMs ? left : right));
      await storage.remove("adverts", oldest);
    }
    await storage.put("adverts", record.key, record);
  }
}
