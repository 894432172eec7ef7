// @ts-check
/**
 * The mailbox: the node that its owner chose keeps encrypted messages while the owner is away, until the owner's program took them.
 * Spec: specs/merk.md 7, MERK-MAIL.
 *
 * The choice is remembered with the node's key. On every connection to that node the client says so again, for another 30 days, and
 * asks for what came meanwhile. Only the tab that holds the connection speaks.
 * @module
 */

import { fromHex, toHex } from "../bytes.js";
import { LocalError } from "../errors.js";
import { frameHash, MessageType } from "../frames.js";
import { Feature, PresenceKind, TAKEN_MAX } from "../info.js";
import { makePresence } from "../proofs.js";

/** @typedef {import("../bytes.js").Bytes} Bytes */
/** @typedef {{ state: "closed" | "open" | "refused", messages: number, bytes: number, untilMs: number }} MailboxInfo */

/** For so long a node keeps mail after the last time that its owner came by. */
export const KEPT_MS = 30 * 86_400_000;
/** How long messages that were taken wait for others, before the node hears that it can delete them. */
export const TAKEN_BATCH_MS = 1_000;
/** How long a node may take to answer. */
export const ANSWER_WITHIN_MS = 10_000;
/** Frames that are remembered until their message is taken; the oldest give way, and come again. */
export const WAITING_MAX = 65_536;
const KIND_AT = 2;
/** By number. @type {readonly MailboxInfo["state"][]} */
const NAMES = ["closed", "open", "refused"];

/** One identity's mailbox. */
export class Mailbox {
  /** What the node said last. @type {MailboxInfo} */
  info = { state: "closed", messages: 0, bytes: 0, untilMs: 0 };
  /** @type {Bytes[]} */
  #taken = [];
  /** Hashes of frames of what the program has not taken yet, by sender and id of message. @type {Map<string, Map<string, Bytes>>} */
  #waiting = new Map();
  #waitingCount = 0;
  /** @type {unknown} */
  #timer;
  /** Who waits for the node's answer, and which state is none yet: a node also says unasked how the mailbox stands. @type {Map<() => void, MailboxInfo["state"]>} */
  #askers = new Map();

  /**
   * @param {object} options
   * @param {import("../keys.js").Keys} options.keys
   * @param {import("../environment.js").Environment} options.environment
   * @param {{ state: import("../state.js").State, tell: (info: import("../info.js").Info) => Promise<void> }} options.link
   */
  constructor({ keys, environment, link }) {
    this.keys = keys;
    this.environment = environment;
    this.link = link;
  }

  /**
   * Has the connected node keep mail from now on.
   * @returns {Promise<MailboxInfo>}
   * @throws {LocalError} It keeps none, or none for this identity.
   */
  async open() {
    const serverKey = this.#demandNode();
    await this.environment.storage.put("settings", this.#setting, serverKey);
    await this.#ask(() => this.#sayOpen(serverKey), "closed");
    if (this.info.state !== "open") throw new LocalError("This server does not keep mail for you; choose another one.");
    return this.info;
  }

  /** Has it kept no more; what is there is deleted. */
  async close() {
    await this.environment.storage.remove("settings", this.#setting);
    this.#demandNode();
    await this.#ask(() => this.link.tell({ type: "mail_close" }), "open");
    return this.info;
  }

  /**
   * Begins on a connection.
   * @param {import("../state.js").State} state
   */
  async begin({ serverKey, features }) {
    this.info = { state: "closed", messages: 0, bytes: 0, untilMs: 0 };
    const chosen = await this.environment.storage.get("settings", this.#setting);
    if (serverKey === null || chosen !== serverKey || (features & Feature.MAILBOX) === 0) return;
    await this.#sayOpen(serverKey);
    await this.link.tell({ type: "mail_fetch" });
  }

  /**
   * Takes what the node says.
   * @param {import("../info.js").Info} info
   * @returns {boolean} Whether it was about the mailbox.
   */
  take(info) {
    if (info.type !== "mail_state") return false;
    this.info = { state: NAMES[info.state], messages: info.messages, bytes: info.bytes, untilMs: info.untilMs };
    for (const [settle, notYet] of [...this.#askers]) if (notYet !== this.info.state) settle();
    return true;
  }

  /**
   * Gives the hash of a frame that the node may keep.
   * @param {Bytes} frame
   * @returns {Promise<Bytes | null>} Null when it keeps no such frame for us.
   */
  async hashOf(frame) {
    const isMail = frame[KIND_AT] === MessageType.ENCRYPTED_DATA && this.info.state === "open" && this.link.state.tab !== "follower";
    return isMail ? frameHash(this.keys.crypto, frame) : null;
  }

  /**
   * Keeps a frame's hash until the message, or file, that it belongs to is taken.
   * @param {string | undefined} of
   * @param {Bytes | null} hash
   */
  wait(of, hash) {
    if (of === undefined || hash === null) return;
    const hashes = this.#waiting.get(of) ?? new Map();
    this.#waiting.set(of, hashes);
    if (!hashes.has(toHex(hash))) this.#waitingCount += 1;
    hashes.set(toHex(hash), hash);
    while (this.#waitingCount > WAITING_MAX) this.leave(/** @type {string} */ (this.#waiting.keys().next().value));
  }

  /**
   * The program has a message, or never will: the node can delete its frames.
   * @param {string | undefined} of
   * @param {Bytes | null} hash One more frame.
   */
  taken(of, hash) {
    if (hash !== null) this.wait((of ??= ""), hash);
    for (const each of this.leave(of)) {
      this.#taken.push(each);
      if (this.#taken.length >= TAKEN_MAX) this.flush();
      else if (this.#taken.length === 1) this.#timer = this.environment.clock.setTimeout(() => this.flush(), TAKEN_BATCH_MS);
    }
  }

  /**
   * The program did not take a message: the node keeps its frames.
   * @param {string | undefined} of
   * @returns {Bytes[]} Their hashes.
   */
  leave(of = "") {
    const hashes = [...(this.#waiting.get(of)?.values() ?? [])];
    this.#waiting.delete(of);
    this.#waitingCount -= hashes.length;
    return hashes;
  }

  /** Tells the node at once what was taken. */
  flush() {
    this.environment.clock.clearTimeout(this.#timer);
    const hashes = this.#taken.splice(0);
    if (hashes.length > 0) this.link.tell({ type: "mail_taken", hashes }).catch(() => hashes); // Without a connection the node sends them again.
  }

  get #setting() {
    return `mailbox:${this.keys.id}`;
  }

  #demandNode() {
    const { phase, serverKey, features } = this.link.state;
    if (phase !== "ready" || serverKey === null) throw new LocalError("There is no connection to a server.");
    if ((features & Feature.MAILBOX) === 0) throw new LocalError("This server keeps no mail.");
    return serverKey;
  }

  /** @param {string} serverKey */
  async #sayOpen(serverKey) {
    const now = this.environment.clock.now();
    const presence = await makePresence(this.keys, PresenceKind.MAILBOX, fromHex(serverKey, 32), now, now + KEPT_MS);
    await this.link.tell({ type: "mail_open", presence });
  }

  /**
   * @param {() => Promise<void>} say
   * @param {MailboxInfo["state"]} notYet
   */
  async #ask(say, notYet) {
    const { clock } = this.environment;
    /** @type {Promise<boolean>} */
    const answered = new Promise((resolve) => {
      const timer = clock.setTimeout(() => finish(false), ANSWER_WITHIN_MS);
      const settle = () => finish(true);
      /** @param {boolean} isAnswered */
      const finish = (isAnswered) => {
        clock.clearTimeout(timer);
        this.#askers.delete(settle);
        resolve(isAnswered);
      };
      this.#askers.set(settle, notYet);
    });
    await say();
    if (!(await answered)) throw new LocalError("The server did not answer in time.");
  }
}
