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

/** @type {Readonly<Record<"not_able" | "not_delivered" | "no_answer", string>>} */
const NO_ANSWER = Object.freeze({
  not_able: "This recipient is not known to use a client that can say which message it answers, so nothing was asked.",
  not_delivered: "The question did not arrive",
  no_answer: "No answer came in time; the question may have been read.",
});

/** A question got no answer. */
export class NoAnswerError extends LocalError {
  /**
   * @param {"not_able" | "not_delivered" | "no_answer"} reason Whether it was not sent, certainly did not arrive, or may have been read.
   * @param {string} [detail]
   */
  constructor(reason, detail) {
    super(NO_ANSWER[reason] + (detail === undefined ? "" : `: ${detail}`));
    this.name = "NoAnswerError";
    /** @type {"not_able" | "not_delivered" | "no_answer"} */
    this.reason = reason;
  }
}

/**
 * Why bytes of the other side are refused; the same words as on the node (protocols/merk/refusals.py).
 * @typedef {"short" | "bad_magic" | "bad_version" | "bad_length" | "too_big" | "malformed_info" | "hostile_challenge"
 *   | "wrong_server" | "bad_peer_auth" | "misplaced_handshake" | "frame_before_auth" | "auth_timeout" | "not_for_us" | "no_target" | "bad_signature"
 *   | "cannot_decrypt" | "bad_content" | "duplicate" | "stale" | "downgraded" | "unknown_type" | "bad_advert" | "too_large" | "not_reading"
 *   | "queue_full" | "not_taken"} Refusal
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

/** @type {Partial<Record<Refusal, string>>} */
const DROPPED = Object.freeze({
  bad_signature: "A message was not taken: its signature is wrong.",
  cannot_decrypt: "A message was not taken: it cannot be decrypted with your key.",
  bad_content: "A message was not taken: its content is damaged.",
  not_for_us: "A message was not taken: it is meant for somebody else.",
  duplicate: "A message was not taken: it came before.",
  stale: "A message was not taken: by its time it is so old that it could be a repeat, or more than a day ahead.",
  downgraded: "A message was not taken: its sender is known to write in a safer form, so somebody else may have made or kept it.",
  no_target: "A message was not taken: it names no recipient.",
  not_taken: "A message was not taken: this program could not keep it.",
  queue_full: "A message was not taken: too many came at once.",
  bad_advert: "A server told an encryption key that its owner did not sign; it was not taken.",
});

/**
 * Says to people that something came and was not taken.
 * @param {Refusal} refusal
 */
export function droppedSentence(refusal) {
  return DROPPED[refusal] ?? `Something was not taken: ${refusal.replaceAll("_", " ")}.`;
}
