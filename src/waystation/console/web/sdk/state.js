// @ts-check
/**
 * What a connection is doing, for people and for code.
 * @module
 */

import { FRAME_BYTES_MAX } from "./frames.js";
import { isAlterable } from "./servers.js";

/** @typedef {"idle" | "connecting" | "handshaking" | "ready" | "waiting" | "refused"} Phase */
/** @typedef {"owner" | "follower" | "alone"} Tab Whether this tab holds the socket, uses another tab's, or knows of no others. */

/**
 * @typedef {object} State
 * @property {Phase} phase
 * @property {string | null} address
 * @property {string | null} serverKey Hex.
 * @property {boolean} authenticated Whether the server proved its key.
 * @property {number} features Bits of `Feature`; 0 for an original relay.
 * @property {number} frameBytesMax What the server takes in one message, headers included.
 * @property {number} attempt Tries since the last success.
 * @property {number | null} retryAtMs
 * @property {Tab} tab
 * @property {string} sentence
 * @property {string | null} reason Why the last connection ended, or why there will be none.
 */

/**
 * The state before anything was asked.
 * @param {Tab} tab
 * @returns {State}
 */
export function idleState(tab) {
  const phase = /** @type {Phase} */ ("idle");
  const nothing = { address: null, serverKey: null, authenticated: false, features: 0, frameBytesMax: FRAME_BYTES_MAX, attempt: 0, retryAtMs: null, reason: null };
  return { phase, ...nothing, tab, sentence: "Not connected." };
}

/**
 * Says a state to people.
 * @param {State} state
 */
export function sentenceOf({ phase, address, reason, authenticated, features }) {
  switch (phase) {
    case "idle":
      return "Not connected.";
    case "connecting":
      return `Connecting to ${address}.`;
    case "handshaking":
      return `Signing in at ${address}.`;
    case "ready":
      if (authenticated && isAlterable(address ?? "")) return `Connected to ${address}, ${ALTERABLE}`;
      if (authenticated) return `Connected to ${address}; the server proved its key.`;
      return `Connected to ${address}, an original relay: it proves no key${features === 0 ? " and tells no outcomes" : ""}.`;
    case "waiting":
      return WAITING[reason ?? ""] ?? `The connection to ${address} ended; the next try follows by itself.`;
    case "refused":
      return REFUSED[reason ?? ""] ?? "This server is not used any more.";
  }
}

/** A proof at the beginning does not protect what follows: nothing ties it to a connection without TLS. */
const ALTERABLE =
  "which is not encrypted: anyone on the way sees to whom you write, and can hold messages back or tell false outcomes. Use a " +
  "wss:// address where there is one.";

/** @type {Readonly<Record<string, string>>} */
const WAITING = Object.freeze({
  no_connection: "The server cannot be reached; the next try follows by itself.",
  replaced: "Your identity connected from elsewhere, so this connection ended; it tries again when you return to this tab.",
  auth_timeout: "The server did not finish the sign-in in time; the next try follows by itself.",
  bad_peer_auth: "The server did not prove the key it proved before; the next try follows by itself.",
  hostile_challenge: "The server's sign-in question could be misused, so it was refused; the next try follows by itself.",
  not_reading: "The server sends faster than this page can check; the next try follows by itself.",
});

/** @type {Readonly<Record<string, string>>} */
const REFUSED = Object.freeze({
  wrong_server: "This is not the server that was here before: its key changed. Forget the old key if you know why, then connect again.",
  hostile_challenge: "This server asks, again and again, for a signature that could be passed off as a message of yours. It is not used any more.",
});
