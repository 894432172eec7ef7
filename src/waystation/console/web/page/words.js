// @ts-check
/**
 * What the page says about outcomes, proofs and protection, in plain words. The longer sentences are the SDK's own.
 * @module
 */

/** @typedef {"good" | "warn" | "bad" | "pending"} Tone */

/** States of a message that goes out: words for the mark, its picture, how it is meant. @type {Record<string, [string, string, Tone]>} */
export const STATES = {
  sending: ["Sending", "clock", "pending"],
  waiting: ["Waits for the connection", "clock", "pending"],
  sent: ["Sent", "tick", "pending"],
  accepted: ["Accepted", "tick", "good"],
  stored: ["Stored", "box", "good"],
  read: ["Read", "ticks", "good"],
  unknown: ["May not have arrived", "question", "warn"],
  failed: ["Not sent", "cross", "bad"],
};

/** State of a message by the SDK's name of the outcome; what stands nowhere here has failed. @type {Record<string, string>} */
const STATE_OF = {
  accepted: "accepted",
  stored: "stored",
  read: "read",
  untold: "sent",
  lost: "unknown",
  no_notice: "unknown",
  lookup_timeout: "unknown",
  not_connected: "waiting",
};

/** @param {string} outcome */
export function stateOf(outcome) {
  return STATE_OF[outcome] ?? "failed";
}

/** What a state means, where the SDK gave no sentence. @type {Record<string, string>} */
export const MEANINGS = {
  sending: "On its way to your relay.",
  waiting: "There is no connection right now. It goes out by itself when there is one.",
  sent: "Sent. This relay is an original one, which says nothing about what becomes of a message.",
  accepted: "The other side's relay has passed it to their connection. Nothing says yet that their program has it.",
  stored: "They are away. A relay of their choice keeps the message, encrypted, usually for a week, until they come back.",
  read: "Their program has it: its receipt is signed with their key.",
  unknown: "The connection ended before anything was said about it, so it may or may not have arrived.",
  failed: "It did not arrive.",
};

/** By auth level of a message that came: in short, and how it is meant. @type {Record<string, [string, Tone]>} */
export const PROOFS = {
  bound: ["Sender proved", "good"],
  legacy: ["Sender partly proved", "warn"],
  ambiguous: ["Sender doubtful", "bad"],
  none: ["Sender not proved", "warn"],
};

/** By mode: what it means for a message to be sent. @type {Record<string, string>} */
export const MODES = {
  encrypted: "Only they can read it, and see that it is from you.",
  signed: "Every relay on the way can read it. They see that it is from you and unchanged.",
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
