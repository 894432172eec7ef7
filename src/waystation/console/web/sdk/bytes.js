// @ts-check
/**
 * Bytes, hex, base64, UTF-8, and a cursor that checks every length before it reads.
 * @module
 */

import { LocalError } from "./errors.js";

/** @typedef {Uint8Array<ArrayBuffer>} Bytes Bytes with a buffer of their own kind, as WebCrypto and WebSocket take them. */

const ENCODER = new TextEncoder();
const STRICT_DECODER = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const HEX = /^(?:[0-9a-f]{2})*$/i;
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;

/**
 * Writes bytes as lower-case hex.
 * @param {Uint8Array} bytes
 */
export function toHex(bytes) {
  let hex = "";
  for (const byte of bytes) hex += byte.toString(16).padStart(2, "0");
  return hex;
}

/**
 * Reads hex of either case.
 * @param {string} hex
 * @param {number} [count] How many bytes it must give.
 * @returns {Bytes}
 * @throws {LocalError} It is no hex, or of another length.
 */
export function fromHex(hex, count) {
  if (typeof hex !== "string" || !HEX.test(hex)) throw new LocalError("This is not hexadecimal text.");
  if (count !== undefined && hex.length !== 2 * count) throw new LocalError(`${2 * count} hex digits are needed, these are ${hex.length}.`);
  const bytes = new Uint8Array(hex.length / 2);
  for (let index = 0; index < bytes.length; index += 1) bytes[index] = Number.parseInt(hex.slice(2 * index, 2 * index + 2), 16);
  return bytes;
}

/**
 * Shortens a key for display: the first eight and the last four digits.
 * @param {string} hex
 */
export function shortKey(hex) {
  return hex.length <= 14 ? hex : `${hex.slice(0, 8)}…${hex.slice(-4)}`;
}

/**
 * Writes standard base64 with padding.
 * @param {Uint8Array} bytes
 */
export function toBase64(bytes) {
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary);
}

/**
 * Reads standard base64 with padding.
 * @param {unknown} text
 * @returns {Bytes | null} Null when it is something else.
 */
export function fromBase64(text) {
  if (typeof text !== "string" || !BASE64.test(text)) return null;
  return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
}

/**
 * Encodes text as UTF-8.
 * @param {string} text
 * @returns {Bytes}
 */
export function utf8(text) {
  return /** @type {Bytes} */ (ENCODER.encode(text));
}

/**
 * Reads UTF-8.
 * @param {Uint8Array} bytes
 * @returns {string | null} Null when it is not valid.
 */
export function textOf(bytes) {
  try {
    return STRICT_DECODER.decode(bytes);
  } catch {
    return null; // The decoder has no other failure than invalid input.
  }
}

/**
 * Joins bytes.
 * @param {...Uint8Array} parts
 * @returns {Bytes}
 */
export function concat(...parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let offset = 0;
  for (const part of parts) {
    whole.set(part, offset);
    offset += part.length;
  }
  return whole;
}

/**
 * Tells whether both are the same bytes; none of what is compared here is secret.
 * @param {Uint8Array} left
 * @param {Uint8Array} right
 */
export function equal(left, right) {
  return left.length === right.length && left.every((byte, index) => byte === right[index]);
}

/**
 * Tells whether all bytes are zero.
 * @param {Uint8Array} bytes
 */
export function isZero(bytes) {
  return bytes.every((byte) => byte === 0);
}

/**
 * Writes an unsigned number, most significant byte first.
 * @param {number} value 0 up to 2^53 - 1.
 * @param {number} size How many bytes, 1 to 8.
 * @returns {Bytes}
 */
export function uint(value, size) {
  const bytes = new Uint8Array(size);
  let rest = value;
  for (let index = size - 1; index >= 0; index -= 1) {
    bytes[index] = rest % 256;
    rest = Math.floor(rest / 256);
  }
  return bytes;
}

/** Reads bytes from the front; `fail` makes the error that is thrown when there are too few. */
export class Cursor {
  /**
   * @param {Bytes} bytes
   * @param {(detail: string) => Error} fail
   */
  constructor(bytes, fail) {
    this.bytes = bytes;
    this.fail = fail;
    this.offset = 0;
  }

  /** How many bytes are left. */
  get left() {
    return this.bytes.length - this.offset;
  }

  /**
   * Takes the next bytes, as a copy.
   * @param {number} count
   * @returns {Bytes}
   */
  take(count) {
    if (count > this.left) throw this.fail(`${count} bytes expected, ${this.left} left`);
    this.offset += count;
    return this.bytes.slice(this.offset - count, this.offset);
  }

  /**
   * Takes an unsigned number, most significant byte first.
   * @param {number} size How many bytes, 1 to 8.
   */
  uint(size) {
    const value = this.take(size).reduce((sum, byte) => sum * 256 + byte, 0);
    if (!Number.isSafeInteger(value)) throw this.fail("number beyond 2^53");
    return value;
  }

  /**
   * Takes text of so many bytes.
   * @param {number} count
   */
  text(count) {
    const text = textOf(this.take(count));
    if (text === null) throw this.fail("no valid UTF-8");
    return text;
  }

  /** Takes everything that is left. */
  rest() {
    return this.take(this.left);
  }

  /** Demands that nothing is left. */
  end() {
    if (this.left > 0) throw this.fail(`${this.left} bytes too many`);
  }
}
