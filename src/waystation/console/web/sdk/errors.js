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

/** @type {Readonly<Record<"insecure" | "old", string>>} */
const NO_CRYPTO = Object.freeze({
  insecure:
    "This page came over plain http, so the browser lends it no cryptography: no key can be made or kept, and nothing can be " +
    "encrypted. Open it over https, or on the machine that serves it as http://localhost.",
  old: "This browser has no Ed25519 or X25519 in WebCrypto. A current version of Chrome, Edge, Firefox or Safari has both.",
});

/** There is no WebCrypto with all that is needed; nothing of the SDK works without it. */
export class NoCryptoError extends LocalError {
  /** @param {"insecure" | "old"} reason Whether the page has to come over https, or the browser has to be newer. */
  constructor(reason) {
    super(NO_CRYPTO[reason]);
    this.name = "NoCryptoError";
    /** @type {"insecure" | "old"} */
    this.reason = reason;
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
