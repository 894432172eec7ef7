// @ts-check
/**
 * What NODE_INFO frames say, as far as a client says or hears it.
 * Spec: specs/merk.md 4, 7 and 10. Forwarding between nodes (0x83, 0x86) is read as unknown: nodes never send it to a client.
 * @module
 */

import { concat, Cursor, textOf, uint, utf8 } from "./bytes.js";
import { LocalError, MalformedError } from "./errors.js";
import { encodeFrame, HASH_BYTES, KEY_BYTES, MessageType, SIGNATURE_BYTES } from "./frames.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */

/** First byte of a payload. */
export const InfoType = Object.freeze({
  REQUEST_SERVERS: 0x02,
  RESPONSE_SERVERS: 0x03,
  ADD_SERVER: 0x04,
  QUERY_CLIENT: 0x05,
  QUERY_RESPONSE: 0x06,
  HELLO: 0x80,
  AUTH: 0x81,
  DELIVERY: 0x82,
  KEY_ADVERT: 0x84,
  KEY_QUERY: 0x85,
  LIMITS: 0x87,
  PRESENCE: 0x88,
  MAIL: 0x89,
});

/** What the other side of a connection is. */
export const Role = Object.freeze({ CLIENT: 0, NODE: 1 });
/** Bits of what a side understands. */
export const Feature = Object.freeze({ DELIVERY_NOTICES: 1, KEY_DIRECTORY: 2, HEADER_SIGNATURES: 4, MESH: 8, PRESENCE: 16, MAILBOX: 32 });
/** What a client says of a node: that it is connected there, or that the node keeps its mail. */
export const PresenceKind = Object.freeze({ CONNECTED: 0, MAILBOX: 1 });
/** Whether a node keeps a client's mail. */
export const MailboxState = Object.freeze({ CLOSED: 0, OPEN: 1, REFUSED: 2 });
/** How many frames one TAKEN names at most. */
export const TAKEN_MAX = 64;
const MailVerb = Object.freeze({ OPEN: 1, CLOSE: 2, STATE: 3, TAKEN: 4, FETCH: 5 });
export const NONCE_BYTES = 32;
export const ADDRESS_BYTES_MAX = 255;
/** How many entries of one list are read, as on the node. */
export const SERVERS_MAX = 1024;
const HELLO_VERSION = 1;

/**
 * @typedef {{ type: "request_servers" }} RequestServers
 * @typedef {{ key: Bytes, address: string }} ServerEntry
 * @typedef {{ type: "servers", entries: ServerEntry[] }} Servers
 * @typedef {{ type: "add_server", address: string }} AddServer
 * @typedef {{ type: "query_client", key: Bytes }} QueryClient
 * @typedef {{ type: "client_found", key: Bytes, server: Bytes }} ClientFound
 * @typedef {{ type: "client_absent", key: Bytes }} ClientAbsent
 * @typedef {{ type: "hello", features: number, role: number, key: Bytes, nonce: Bytes, address: string }} Hello
 * @typedef {{ type: "auth", signature: Bytes }} Auth
 * @typedef {{ type: "delivery", code: number, target: Bytes, frameHash: Bytes }} Delivery
 * @typedef {{ type: "key_advert", key: Bytes, agreementKey: Bytes, timeMs: number, signature: Bytes }} KeyAdvert
 * @typedef {{ type: "key_query", key: Bytes }} KeyQuery
 * @typedef {{ type: "key_unknown", key: Bytes }} KeyUnknown
 * @typedef {{ type: "limits", frameBytesMax: number }} Limits
 * @typedef {{ kind: number, client: Bytes, node: Bytes, issuedMs: number, untilMs: number, signature: Bytes }} PresenceBody
 * @typedef {{ type: "presence" } & PresenceBody} Presence
 * @typedef {{ type: "mail_open", presence: PresenceBody }} MailOpen
 * @typedef {{ type: "mail_close" }} MailClose
 * @typedef {{ type: "mail_state", state: number, messages: number, bytes: number, untilMs: number }} MailState
 * @typedef {{ type: "mail_taken", hashes: Bytes[] }} MailTaken
 * @typedef {{ type: "mail_fetch" }} MailFetch
 * @typedef {RequestServers | Servers | AddServer | QueryClient | ClientFound | ClientAbsent | Hello | Auth | Delivery | KeyAdvert
 *   | KeyQuery | KeyUnknown | Limits | Presence | MailOpen | MailClose | MailState | MailTaken | MailFetch} Info
 */

/**
 * Makes the payload of a NODE_INFO frame.
 * @param {Info} info
 * @returns {Bytes}
 */
export function encodeInfo(info) {
  switch (info.type) {
    case "request_servers":
      return Uint8Array.of(InfoType.REQUEST_SERVERS);
    case "servers":
      return concat(
        Uint8Array.of(InfoType.RESPONSE_SERVERS),
        uint(info.entries.length, 2),
        ...info.entries.flatMap((entry) => [entry.key, shortText(entry.address)]),
      );
    case "add_server":
      return concat(Uint8Array.of(InfoType.ADD_SERVER), shortText(info.address));
    case "query_client":
      return concat(Uint8Array.of(InfoType.QUERY_CLIENT), info.key);
    case "client_found":
      return concat(Uint8Array.of(InfoType.QUERY_RESPONSE, 1), info.key, info.server);
    case "client_absent":
      return concat(Uint8Array.of(InfoType.QUERY_RESPONSE, 0), info.key);
    case "hello":
      return concat(
        Uint8Array.of(InfoType.HELLO, HELLO_VERSION),
        uint(info.features, 4),
        Uint8Array.of(info.role),
        info.key,
        info.nonce,
        shortText(info.address),
      );
    case "auth":
      return concat(Uint8Array.of(InfoType.AUTH), info.signature);
    case "delivery":
      return concat(Uint8Array.of(InfoType.DELIVERY, info.code), info.target, info.frameHash);
    case "key_advert":
      return concat(Uint8Array.of(InfoType.KEY_ADVERT), info.key, info.agreementKey, uint(info.timeMs, 8), info.signature);
    case "key_query":
      return concat(Uint8Array.of(InfoType.KEY_QUERY), info.key);
    case "key_unknown":
      return concat(Uint8Array.of(InfoType.KEY_QUERY), info.key, Uint8Array.of(0));
    case "limits":
      return concat(Uint8Array.of(InfoType.LIMITS), uint(info.frameBytesMax, 4));
    case "presence":
      return concat(Uint8Array.of(InfoType.PRESENCE), presenceBytes(info));
    default:
      return encodeMail(info);
  }
}

/**
 * @param {MailOpen | MailClose | MailState | MailTaken | MailFetch} info
 * @returns {Bytes}
 */
function encodeMail(info) {
  switch (info.type) {
    case "mail_open":
      return concat(Uint8Array.of(InfoType.MAIL, MailVerb.OPEN), presenceBytes(info.presence));
    case "mail_close":
      return Uint8Array.of(InfoType.MAIL, MailVerb.CLOSE);
    case "mail_state":
      return concat(Uint8Array.of(InfoType.MAIL, MailVerb.STATE, info.state), uint(info.messages, 4), uint(info.bytes, 4), uint(info.untilMs, 8));
    case "mail_taken":
      if (info.hashes.length < 1 || info.hashes.length > TAKEN_MAX) throw new LocalError(`TAKEN names 1 to ${TAKEN_MAX} frames.`);
      return concat(Uint8Array.of(InfoType.MAIL, MailVerb.TAKEN), ...info.hashes);
    case "mail_fetch":
      return Uint8Array.of(InfoType.MAIL, MailVerb.FETCH);
  }
}

/** @param {PresenceBody} presence */
function presenceBytes({ kind, client, node, issuedMs, untilMs, signature }) {
  return concat(Uint8Array.of(kind), client, node, uint(issuedMs, 8), uint(untilMs, 8), signature);
}

/**
 * Makes a whole NODE_INFO frame; its header is never signed.
 * @param {Info} info
 * @param {Uint8Array} sender
 */
export function encodeInfoFrame(info, sender) {
  return encodeFrame(MessageType.NODE_INFO, encodeInfo(info), sender);
}

/**
 * Reads the payload of a NODE_INFO frame.
 * @param {Bytes} payload
 * @returns {Info | null} Null for an empty payload or a subtype that a client does not know.
 * @throws {MalformedError} malformed_info: a known subtype with wrong lengths.
 */
export function decodeInfo(payload) {
  if (payload.length === 0) return null;
  const read = READERS.get(payload[0]);
  if (read === undefined) return null;
  const cursor = new Cursor(payload, (detail) => new MalformedError("malformed_info", `subtype ${payload[0]}: ${detail}`));
  cursor.take(1);
  const info = read(cursor);
  if (info !== null) cursor.end();
  return info;
}

/** @type {ReadonlyMap<number, (cursor: Cursor) => Info | null>} */
const READERS = new Map(/** @type {[number, (cursor: Cursor) => Info | null][]} */ ([
  [InfoType.REQUEST_SERVERS, () => ({ type: "request_servers" })],
  [InfoType.RESPONSE_SERVERS, readServers],
  [InfoType.ADD_SERVER, (cursor) => ({ type: "add_server", address: readAddress(cursor) })],
  [InfoType.QUERY_CLIENT, (cursor) => ({ type: "query_client", key: cursor.take(KEY_BYTES) })],
  [InfoType.QUERY_RESPONSE, readQueryResponse],
  [InfoType.HELLO, readHello],
  [InfoType.AUTH, (cursor) => ({ type: "auth", signature: cursor.take(SIGNATURE_BYTES) })],
  [InfoType.DELIVERY, (cursor) => ({ type: "delivery", code: cursor.uint(1), target: cursor.take(KEY_BYTES), frameHash: cursor.take(HASH_BYTES) })],
  [InfoType.KEY_ADVERT, readAdvert],
  [InfoType.KEY_QUERY, readKeyQuery],
  [InfoType.LIMITS, (cursor) => ({ type: "limits", frameBytesMax: cursor.uint(4) })],
  [InfoType.PRESENCE, (cursor) => ({ type: "presence", ...readPresence(cursor) })],
  [InfoType.MAIL, readMail],
]));

/**
 * Reads entries up to the first that is cut off, as the original does; what stands behind a complete list is an error.
 * @param {Cursor} cursor
 * @returns {Servers}
 */
function readServers(cursor) {
  const count = cursor.uint(2);
  /** @type {ServerEntry[]} */
  const entries = [];
  while (entries.length < Math.min(count, SERVERS_MAX)) {
    const end = cursor.offset + KEY_BYTES + 1;
    if (end > cursor.bytes.length || end + cursor.bytes[end - 1] > cursor.bytes.length) break;
    const key = cursor.take(KEY_BYTES);
    entries.push({ key, address: readAddress(cursor) });
  }
  if (entries.length < count) cursor.rest();
  return { type: "servers", entries };
}

/** @param {Cursor} cursor */
function readAddress(cursor) {
  const address = cursor.text(cursor.uint(1));
  if (address === "") throw cursor.fail("empty address");
  return address;
}

/**
 * @param {Cursor} cursor
 * @returns {ClientFound | ClientAbsent}
 */
function readQueryResponse(cursor) {
  const status = cursor.uint(1);
  const key = cursor.take(KEY_BYTES);
  if (status === 0) return { type: "client_absent", key };
  if (status !== 1) throw cursor.fail(`status ${status}`);
  return { type: "client_found", key, server: cursor.take(KEY_BYTES) };
}

/**
 * @param {Cursor} cursor
 * @returns {Hello | null} Null for a version that nobody knows yet.
 */
function readHello(cursor) {
  if (cursor.uint(1) !== HELLO_VERSION) return null;
  const features = cursor.uint(4);
  const role = cursor.uint(1);
  if (role !== Role.CLIENT && role !== Role.NODE) throw cursor.fail(`role ${role}`);
  const key = cursor.take(KEY_BYTES);
  const nonce = cursor.take(NONCE_BYTES);
  return { type: "hello", features, role, key, nonce, address: cursor.text(cursor.uint(1)) };
}

/**
 * @param {Cursor} cursor
 * @returns {KeyAdvert}
 */
function readAdvert(cursor) {
  const key = cursor.take(KEY_BYTES);
  const agreementKey = cursor.take(KEY_BYTES);
  return { type: "key_advert", key, agreementKey, timeMs: cursor.uint(8), signature: cursor.take(SIGNATURE_BYTES) };
}

/**
 * @param {Cursor} cursor
 * @returns {KeyQuery | KeyUnknown}
 */
function readKeyQuery(cursor) {
  const key = cursor.take(KEY_BYTES);
  if (cursor.left === 0) return { type: "key_query", key };
  if (cursor.uint(1) !== 0) throw cursor.fail("an answer other than unknown");
  return { type: "key_unknown", key };
}

/**
 * @param {Cursor} cursor
 * @returns {PresenceBody}
 */
function readPresence(cursor) {
  const kind = cursor.uint(1);
  if (kind > PresenceKind.MAILBOX) throw cursor.fail(`presence of kind ${kind}`);
  const [client, node] = [cursor.take(KEY_BYTES), cursor.take(KEY_BYTES)];
  const [issuedMs, untilMs] = [cursor.uint(8), cursor.uint(8)];
  return { kind, client, node, issuedMs, untilMs, signature: cursor.take(SIGNATURE_BYTES) };
}

/**
 * @param {Cursor} cursor
 * @returns {MailOpen | MailClose | MailState | MailTaken | MailFetch | null} Null for a verb that nobody knows yet.
 */
function readMail(cursor) {
  switch (cursor.uint(1)) {
    case MailVerb.OPEN: {
      const presence = readPresence(cursor);
      if (presence.kind !== PresenceKind.MAILBOX) throw cursor.fail("OPEN with a presence of another kind");
      return { type: "mail_open", presence };
    }
    case MailVerb.CLOSE:
      return { type: "mail_close" };
    case MailVerb.STATE: {
      const state = cursor.uint(1);
      if (state > MailboxState.REFUSED) throw cursor.fail(`mailbox of state ${state}`);
      return { type: "mail_state", state, messages: cursor.uint(4), bytes: cursor.uint(4), untilMs: cursor.uint(8) };
    }
    case MailVerb.TAKEN: {
      const count = cursor.left / HASH_BYTES;
      if (!Number.isInteger(count) || count < 1 || count > TAKEN_MAX) throw cursor.fail(`TAKEN with ${cursor.left} bytes`);
      return { type: "mail_taken", hashes: Array.from({ length: count }, () => cursor.take(HASH_BYTES)) };
    }
    case MailVerb.FETCH:
      return { type: "mail_fetch" };
    default:
      return null;
  }
}

/**
 * @param {string} text
 * @returns {Bytes} One byte of length, then the text.
 */
function shortText(text) {
  const bytes = utf8(text);
  if (bytes.length > ADDRESS_BYTES_MAX || textOf(bytes) !== text) throw new LocalError(`An address has at most ${ADDRESS_BYTES_MAX} bytes.`);
  return concat(Uint8Array.of(bytes.length), bytes);
}
