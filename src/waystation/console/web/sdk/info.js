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
});

/** What the other side of a connection is. */
export const Role = Object.freeze({ CLIENT: 0, NODE: 1 });
/** Bits of what a side understands. */
export const Feature = Object.freeze({ DELIVERY_NOTICES: 1, KEY_DIRECTORY: 2, HEADER_SIGNATURES: 4, MESH: 8 });
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
 * @typedef {RequestServers | Servers | AddServer | QueryClient | ClientFound | ClientAbsent | Hello | Auth | Delivery | KeyAdvert
 *   | KeyQuery | KeyUnknown} Info
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
  }
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
 * @param {string} text
 * @returns {Bytes} One byte of length, then the text.
 */
function shortText(text) {
  const bytes = utf8(text);
  if (bytes.length > ADDRESS_BYTES_MAX || textOf(bytes) !== text) throw new LocalError(`An address has at most ${ADDRESS_BYTES_MAX} bytes.`);
  return concat(Uint8Array.of(bytes.length), bytes);
}
