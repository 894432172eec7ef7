// @ts-check
/**
 * What became of a frame, and the frames whose outcome is not known yet. Spec: specs/merk.md 10.3.
 * @module
 */

/**
 * @typedef {"accepted" | "stored" | "unknown_target" | "queue_full" | "lookup_timeout" | "too_large" | "rate" | "lost" | "untold"
 *   | "no_notice" | "cancelled" | "not_connected"} OutcomeName
 * @typedef {object} Outcome
 * @property {number | null} code The server's.
 * @property {OutcomeName} name
 * @property {boolean} accepted Whether it left for the recipient: written to its connection, or kept by its mailbox.
 * @property {boolean} delivered Deprecated: the same as `name === "accepted"`.
 * @property {string} sentence
 */

/** Longer than a look-up of 5 s across the mesh. */
export const NOTICE_WITHIN_MS = 30_000;
export const PENDING_MAX = 4_096;

/** Names by code. @type {readonly OutcomeName[]} */
const CODES = ["accepted", "unknown_target", "queue_full", "lookup_timeout", "too_large", "rate", "stored"];

/** Told where there is nobody to ask. */
export const NOT_CONNECTED = "There is no connection to a server.";

/** @type {Readonly<Record<OutcomeName, string>>} */
const SENTENCES = Object.freeze({
  accepted: "Accepted by the recipient's server, which wrote it to the recipient's connection.",
  stored: "Kept by the recipient's mailbox, usually for a week, until the recipient comes.",
  unknown_target: "Not sent on: no node linked with yours has the recipient.",
  queue_full: "The server has too much waiting for this recipient; try again in a moment.",
  lookup_timeout: "A part of the mesh did not answer in time, so it may or may not have arrived.",
  too_large: "The server does not take messages of this size.",
  rate: "You send faster than the server allows; try again in a moment.",
  lost: "The connection ended before the server told the outcome, so it may or may not have arrived.",
  untold: "Sent; this server does not tell whether messages arrive.",
  no_notice: "The server did not tell the outcome in time.",
  cancelled: "Cancelled.",
  not_connected: "Not sent: there is no connection to a server.",
});

/**
 * Makes an outcome.
 * @param {OutcomeName} name
 * @returns {Outcome}
 */
export function outcomeOf(name) {
  const code = CODES.indexOf(name);
  const accepted = name === "accepted" || name === "stored";
  return { code: code < 0 ? null : code, name, accepted, delivered: name === "accepted", sentence: SENTENCES[name] };
}

/**
 * Names a server's code; one that is not known counts as no notice.
 * @param {number} code
 * @returns {Outcome}
 */
export function outcomeOfCode(code) {
  return outcomeOf(CODES[code] ?? "no_notice");
}

/** Frames that were sent and whose outcome the server still owes. */
export class PendingOutcomes {
  /** @type {Map<string, Array<{ settle: (outcome: Outcome) => void, timer: unknown }>>} */
  #waiting = new Map();
  #count = 0;

  /** @param {import("../environment.js").Clock} clock */
  constructor(clock) {
    this.clock = clock;
  }

  /** Whether no further frame can wait. */
  get isFull() {
    return this.#count >= PENDING_MAX;
  }

  /**
   * Waits for the notice of a frame.
   * @param {string} hash
   * @returns {Promise<Outcome>}
   */
  expect(hash) {
    return new Promise((settle) => {
      const timer = this.clock.setTimeout(() => this.settle(hash, outcomeOf("no_notice")), NOTICE_WITHIN_MS);
      const waiting = this.#waiting.get(hash) ?? [];
      this.#waiting.set(hash, [...waiting, { settle, timer }]);
      this.#count += 1;
    });
  }

  /**
   * Takes a notice; a frame that was sent twice has two, in their order.
   * @param {string} hash
   * @param {Outcome} outcome
   */
  settle(hash, outcome) {
    const waiting = this.#waiting.get(hash);
    const first = waiting?.shift();
    if (waiting === undefined || first === undefined) return;
    if (waiting.length === 0) this.#waiting.delete(hash);
    this.#count -= 1;
    this.clock.clearTimeout(first.timer);
    first.settle(outcome);
  }

  /**
   * Gives all that wait one outcome.
   * @param {OutcomeName} name
   */
  settleAll(name) {
    for (const [hash, waiting] of [...this.#waiting]) {
      for (let left = waiting.length; left > 0; left -= 1) this.settle(hash, outcomeOf(name));
    }
  }
}
