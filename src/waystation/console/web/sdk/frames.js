// @ts-check
/**
 * Frames: a header of 120 bytes and a payload, one frame per binary WebSocket message.
 * Spec: seed "Frame Format"; specs/merk.md 1. The exact length is demanded; reserved bytes are sent zero and ignored.
 * @module
 */

import { concat, uint } from "./bytes.js";
import { MalformedError } from "./errors.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */

export const MAGIC = 0x58;
export const VERSION = 0x01;
export const HEADER_BYTES = 120;
export const KEY_BYTES = 32;
export const SIGNATURE_BYTES = 64;
export const CHALLENGE_BYTES = 32;
/** How much of a frame's SHA-256 names it in a delivery notice. */
export const HASH_BYTES = 16;
/** What a node takes unless its operator changed it (specs/merk.md 10.11). */
export const FRAME_BYTES_MAX = 8_388_608;

const LENGTH_AT = 4;
const SENDER_AT = 24;
const SIGNATURE_AT = 56;

/** Byte 2 of the header. */
export const MessageType = Object.freeze({ HANDSHAKE: 1, DATA: 2, NODE_INFO: 3, SIGNED_DATA: 4, ENCRYPTED_DATA: 5 });

/**
 * One frame.
 * @typedef {object} Frame
 * @property {number} kind Byte 2; one of `MessageType` where it is a known one.
 * @property {Bytes} sender 32 bytes; zero in a challenge.
 * @property {Bytes} signature 64 bytes; zero where the header is not signed.
 * @property {Bytes} payload
 * @property {Bytes} header56 The header up to the signature, as it came.
 */

/**
 * Makes the header up to the signature, 56 bytes.
 * @param {number} kind
 * @param {number} payloadBytes
 * @param {Uint8Array} sender
 */
export function headerOf(kind, payloadBytes, sender) {
  return concat(Uint8Array.of(MAGIC, VERSION, kind, 0), uint(payloadBytes, 4), new Uint8Array(16), sender);
}

/**
 * Makes a whole frame.
 * @param {number} kind
 * @param {Uint8Array} payload
 * @param {Uint8Array} [sender] 32 bytes.
 * @param {Uint8Array} [signature] 64 bytes.
 */
export function encodeFrame(kind, payload, sender = new Uint8Array(KEY_BYTES), signature = new Uint8Array(SIGNATURE_BYTES)) {
  return concat(headerOf(kind, payload.length, sender), signature, payload);
}

/**
 * Reads one WebSocket message.
 * @param {Bytes} data
 * @returns {Frame}
 * @throws {MalformedError} short, bad_magic, bad_version or bad_length.
 */
export function decodeFrame(data) {
  if (data.length < HEADER_BYTES) throw new MalformedError("short", `${data.length} bytes are less than a header`);
  if (data[0] !== MAGIC) throw new MalformedError("bad_magic", `first byte ${data[0]}`);
  if (data[1] !== VERSION) throw new MalformedError("bad_version", `version ${data[1]}`);
  const length = new DataView(data.buffer, data.byteOffset).getUint32(LENGTH_AT);
  if (length !== data.length - HEADER_BYTES) throw new MalformedError("bad_length", `${length} bytes promised, ${data.length - HEADER_BYTES} came`);
  return {
    kind: data[2],
    sender: data.slice(SENDER_AT, SIGNATURE_AT),
    signature: data.slice(SIGNATURE_AT, HEADER_BYTES),
    payload: data.slice(HEADER_BYTES),
    header56: data.slice(0, SIGNATURE_AT),
  };
}

/**
 * Hashes a whole frame as its sender sent it: 16 bytes.
 * @param {import("./crypto/web_crypto.js").WebCrypto} crypto
 * @param {Bytes} frame
 * @returns {Promise<Bytes>}
 */
export async function frameHash(crypto, frame) {
  return (await crypto.sha256(frame)).slice(0, HASH_BYTES);
}
