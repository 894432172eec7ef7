// @ts-check
/**
 * The two ways in which things go wrong: the caller asked for what cannot be done, or the other side broke a rule.
 * @module
 */

/** What the caller asked cannot be done; the message is a sentence that may be shown to people. */
export class LocalError extends Error {
  /** @param {string} sentence */
  constructor(sentence) {
    super(sentence);
    this.name = "LocalError";
  }

  /** The same as `message`. */
  get sentence() {
    return this.message;
  }
}

/**
 * Why bytes of the other side are refused; the same words as on the node (protocols/merk/refusals.py).
 * @typedef {"short" | "bad_magic" | "bad_version" | "bad_length" | "too_big" | "malformed_info" | "hostile_challenge"
 *   | "wrong_server" | "bad_peer_auth" | "misplaced_handshake" | "frame_before_auth" | "auth_timeout" | "not_for_us" | "no_target" | "bad_signature"
 *   | "cannot_decrypt" | "bad_content" | "duplicate" | "unknown_type" | "bad_advert" | "too_large" | "not_reading"
 *   | "queue_full"} Refusal
 */

/** Bytes that are not what they should be. */
export class MalformedError extends Error {
  /**
   * @param {Refusal} refusal Which rule they break.
   * @param {string} detail
   */
  constructor(refusal, detail) {
    super(`${refusal}: ${detail}`);
    this.name = "MalformedError";
    /** @type {Refusal} */
    this.refusal = refusal;
  }
}
