/**
 * What the page says about outcomes, proofs and protection, in plain words. The longer sentences are the SDK's own.
 * @module
 */

/** @typedef {"good" | "warn" | "bad" | "pending"} Tone */

/** By name of an outcome: what is said in short, and how it is meant. @type {Record<string, [string, Tone]>} */
export const OUTCOMES = {
  accepted: ["Delivered", "good"],
  stored: ["Kept for them", "good"],
  unknown_target: ["Not delivered", "bad"],
  queue_full: ["Queue full", "bad"],
  lookup_timeout: ["No answer in time", "warn"],
  too_large: ["Too large", "bad"],
  rate: ["Too fast", "bad"],
  lost: ["Connection lost", "warn"],
  untold: ["Sent", "warn"],
  no_notice: ["No notice", "warn"],
  cancelled: ["Cancelled", "bad"],
  not_connected: ["Not sent", "bad"],
};

/** By auth level of a message. @type {Record<string, [string, Tone]>} */
export const PROOFS = {
  bound: ["Sender proved", "good"],
  legacy: ["Sender partly proved", "warn"],
  ambiguous: ["Sender doubtful", "bad"],
  none: ["Sender not proved", "warn"],
};

/** By mode: what it means for a message to be sent. @type {Record<string, string>} */
export const MODES = {
  encrypted: "Only the recipient can read it, and sees that it is from you.",
  signed: "Every relay on the way can read it. The recipient sees that it is from you and unchanged.",
  plain: "Every relay on the way can read it. It arrives as bare bytes: clients like this page see that they are from you and "
    + "unchanged, original ones do not look.",
};

/** By phase of the connection, on one line. @type {Record<string, string>} */
export const PHASES = {
  idle: "Not connected",
  connecting: "Connecting …",
  handshaking: "Signing in …",
  ready: "Connected",
  waiting: "No connection",
  refused: "Refused",
};

/** By origin of a server. @type {Record<string, string>} */
export const ORIGINS = { user: "added by you", told: "learnt from a server" };
