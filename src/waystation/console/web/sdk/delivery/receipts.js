// @ts-check
/**
 * Receipts: what others' programs took of ours, and what this program owes to others.
 *
 * A receipt is a message of the bound form from the recipient itself, so no relay can make one. What is owed waits up to a second,
 * so that one frame answers many messages (MERK-RECEIPT).
 * @module
 */

import { RECEIPT_IDS_MAX } from "../contents.js";

/** How long a message that was taken waits for others that can share its receipt. */
export const BATCH_MS = 1_000;
/** Messages that wait for a receipt, and such that wait to get one; the oldest give way. */
export const AWAITED_MAX = 4_096;
export const OWED_MAX = 4_096;

/** Messages that were sent and not read yet. */
export class AwaitedReceipts {
  /** @type {Map<string, (isRead: boolean) => void>} */
  #waiting = new Map();

  /**
   * Waits for a receipt of one message.
   * @param {string} peer Its recipient.
   * @param {string} id
   * @returns {Promise<boolean>} True when the recipient's program took it; false when nobody waits any more.
   */
  expect(peer, id) {
    return new Promise((settle) => {
      this.#waiting.set(`${peer}:${id}`, settle);
      if (this.#waiting.size <= AWAITED_MAX) return;
      const [[oldest, giveUp]] = this.#waiting;
      this.#waiting.delete(oldest);
      giveUp(false);
    });
  }

  /**
   * Takes a receipt; what its sender was not sent it cannot have read.
   * @param {string} peer
   * @param {string[]} ids
   */
  take(peer, ids) {
    for (const id of ids) {
      this.#waiting.get(`${peer}:${id}`)?.(true);
      this.#waiting.delete(`${peer}:${id}`);
    }
  }

  /** Nobody waits any more. */
  close() {
    for (const settle of this.#waiting.values()) settle(false);
    this.#waiting.clear();
  }
}

/** Receipts that this program owes. */
export class OwedReceipts {
  /** @type {Map<string, string[]>} */
  #owed = new Map();
  #count = 0;
  /** @type {unknown} */
  #timer;

  /**
   * @param {import("../environment.js").Clock} clock
   * @param {(peer: string, ids: string[]) => void} send Sends one receipt of 1 to 64 ids.
   */
  constructor(clock, send) {
    this.clock = clock;
    this.send = send;
  }

  /**
   * Owes the sender of a message a receipt; nothing happens where too many are owed already.
   * @param {string} peer
   * @param {string} id
   */
  owe(peer, id) {
    if (this.#count >= OWED_MAX) return;
    if (this.#count === 0) this.#timer = this.clock.setTimeout(() => this.flush(), BATCH_MS);
    this.#count += 1;
    const ids = this.#owed.get(peer) ?? [];
    this.#owed.set(peer, ids);
    ids.push(id);
    if (ids.length < RECEIPT_IDS_MAX) return;
    this.#owed.delete(peer);
    this.#count -= ids.length;
    this.send(peer, ids);
    if (this.#count === 0) this.clock.clearTimeout(this.#timer);
  }

  /** Sends all that is owed. */
  flush() {
    this.clock.clearTimeout(this.#timer);
    const owed = [...this.#owed];
    this.#owed.clear();
    this.#count = 0;
    for (const [peer, ids] of owed) this.send(peer, ids);
  }
}
