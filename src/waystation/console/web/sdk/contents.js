// @ts-check
/**
 * What a client says to another: bytes, text, JSON, a file, and type 0x10, which adds time, id and parts of files.
 * Spec: specs/merk.md 3 and 8. Layout of 0x10 (ours): 10 | u64 ms | id[16] | u8 kind | body; kind 4 is a part of a file,
 * kind 5 a receipt: u8 what | 1 to 64 ids[16]; kind 6 an answer: id[16] of the message that it answers | u8 kind 0 to 2 | body.
 * @module
 */

import { concat, Cursor, textOf, uint, utf8 } from "./bytes.js";
import { LocalError, MalformedError } from "./errors.js";
import { CHALLENGE_BYTES } from "./frames.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */

/** First byte of a typed content. */
export const ContentType = Object.freeze({ RAW: 0, TEXT: 1, JSON: 2, FILE: 3, EXTENDED: 0x10 });
export const MESSAGE_ID_BYTES = 16;
export const NAME_BYTES_MAX = 255;
/** 1 TiB: beyond it a file's size is no size. */
export const FILE_BYTES_LIMIT = 2 ** 40;
const DIGEST_BYTES = 32;
/** How every other statement begins that the keys sign (specs/merk.md 7). */
const STATEMENT = utf8("merk-");
const PART = 4;
const RECEIPT = 5;
const ANSWER = 6;
/** What a receipt says: the recipient's program has taken the messages. */
export const TAKEN = 1;
/** How many messages one receipt names at most. */
export const RECEIPT_IDS_MAX = 64;
const PARTS_MAX = 2 ** 32 - 1;

/**
 * @typedef {{ kind: "raw", data: Bytes }} Raw
 * @typedef {{ kind: "text", text: string }} Text
 * @typedef {{ kind: "json", text: string }} Json JSON text as sent.
 * @typedef {{ kind: "file", name: string, data: Bytes }} FileContent
 * @typedef {object} FilePart One part of a file.
 * @property {"file_part"} kind
 * @property {Bytes} transferId 16 bytes.
 * @property {Bytes} digest SHA-256 of the whole file.
 * @property {number} index 0 to count - 1.
 * @property {number} count At least 1.
 * @property {number} totalBytes
 * @property {string} name At most 255 bytes of UTF-8.
 * @property {Bytes} data
 * @typedef {{ kind: "receipt", what: number, ids: Bytes[] }} Receipt
 * @typedef {{ kind: "answer", to: Bytes, content: Raw | Text | Json }} Answer `to`: id of the message that it answers, 16 bytes.
 * @typedef {Raw | Text | Json | FileContent} Simple
 * @typedef {Simple | FilePart | Receipt | Answer} Inner What an extended content can hold.
 * @typedef {{ kind: "extended", timeMs: number, messageId: Bytes, content: Inner }} Extended
 * @typedef {Simple | Extended} Content
 */

/**
 * Writes a content with its type byte, as inside ENCRYPTED_DATA.
 * @param {Content} content
 * @returns {Bytes}
 * @throws {LocalError} A file's name is longer than 255 bytes.
 */
export function encodeContent(content) {
  if (content.kind !== "extended") return concat(Uint8Array.of(TYPE_OF[content.kind]), bodyOf(content));
  const head = concat(Uint8Array.of(ContentType.EXTENDED), uint(content.timeMs, 8), content.messageId);
  return concat(head, Uint8Array.of(TYPE_OF[content.content.kind]), bodyOf(content.content));
}

/**
 * Writes a content as inside SIGNED_DATA, where raw bytes have no type byte.
 * @param {Content} content
 * @returns {Bytes}
 * @throws {LocalError} Raw bytes that would be read as something else.
 */
export function encodeSignedContent(content) {
  if (content.kind !== "raw") return encodeContent(content);
  if (!isSignable(content.data)) throw new LocalError("These raw bytes could be mistaken for something else once signed; they need the extended format.");
  return content.data;
}

/**
 * Tells whether raw bytes may be signed without a type byte: not those that would be read as typed content, as the answer to
 * a challenge (32 bytes), or as one of the statements that begin with "merk-".
 * @param {Bytes} data
 */
export function isSignable(data) {
  const isStatement = STATEMENT.every((byte, index) => byte === data[index]);
  return !isTypeByte(data[0]) && data.length !== CHALLENGE_BYTES && !isStatement;
}

/**
 * Reads a content with its type byte.
 * @param {Bytes} bytes
 * @returns {Content}
 * @throws {MalformedError} bad_content.
 */
export function decodeContent(bytes) {
  const cursor = new Cursor(bytes, (detail) => new MalformedError("bad_content", detail));
  const type = cursor.uint(1);
  if (type !== ContentType.EXTENDED) return readSimple(cursor, type);
  const timeMs = cursor.uint(8);
  const messageId = cursor.take(MESSAGE_ID_BYTES);
  const inner = cursor.uint(1);
  const read = EXTENDED_READERS.get(inner) ?? readSimple;
  return { kind: "extended", timeMs, messageId, content: read(cursor, inner) };
}

/**
 * Reads a content of SIGNED_DATA: without a known type byte in front it is raw, and so is what only begins like type 0x10.
 * @param {Bytes} bytes
 * @returns {Content}
 * @throws {MalformedError} bad_content.
 */
export function decodeSignedContent(bytes) {
  if (!isTypeByte(bytes[0])) return { kind: "raw", data: bytes };
  try {
    return decodeContent(bytes);
  } catch (error) {
    // The original signs raw bytes that begin in any way, also as 0x10 does.
    if (error instanceof MalformedError && bytes[0] === ContentType.EXTENDED) return { kind: "raw", data: bytes };
    throw error;
  }
}

/** @type {Readonly<Record<Inner["kind"], number>>} */
const TYPE_OF = Object.freeze({ raw: 0, text: 1, json: 2, file: 3, file_part: PART, receipt: RECEIPT, answer: ANSWER });

/** @typedef {(cursor: Cursor) => FilePart | Receipt | Answer} Reader */
/** Contents that stand inside an extended one only. @type {ReadonlyMap<number, Reader>} */
const EXTENDED_READERS = new Map(/** @type {[number, Reader][]} */ ([[PART, readPart], [RECEIPT, readReceipt], [ANSWER, readAnswer]]));

/** @param {number | undefined} byte */
function isTypeByte(byte) {
  return byte !== undefined && ((byte >= ContentType.TEXT && byte <= ContentType.FILE) || byte === ContentType.EXTENDED);
}

/**
 * @param {Inner} content
 * @returns {Bytes}
 */
function bodyOf(content) {
  switch (content.kind) {
    case "raw":
      return content.data;
    case "text":
      return textBytes(content.text);
    case "json":
      if (!isJson(content.text)) throw new LocalError("This text is no JSON.");
      return textBytes(content.text);
    case "file":
      return concat(nameOf(content.name), content.data);
    case "file_part":
      checkPart(content, (detail) => new LocalError(`This is no part of a file: ${detail}.`));
      return concat(
        content.transferId,
        content.digest,
        uint(content.index, 4),
        uint(content.count, 4),
        uint(content.totalBytes, 8),
        nameOf(content.name),
        content.data,
      );
    case "receipt":
      if (content.ids.length < 1 || content.ids.length > RECEIPT_IDS_MAX) throw new LocalError(`A receipt names 1 to ${RECEIPT_IDS_MAX} messages.`);
      return concat(Uint8Array.of(content.what), ...content.ids);
    case "answer":
      return concat(content.to, Uint8Array.of(TYPE_OF[content.content.kind]), bodyOf(content.content));
  }
}

/**
 * @param {Cursor} cursor
 * @param {number} type
 * @returns {Simple}
 */
function readSimple(cursor, type) {
  switch (type) {
    case ContentType.RAW:
      return { kind: "raw", data: cursor.rest() };
    case ContentType.TEXT:
      return { kind: "text", text: cursor.text(cursor.left) };
    case ContentType.JSON:
      return readJson(cursor);
    case ContentType.FILE: {
      const name = cursor.text(cursor.uint(1));
      return { kind: "file", name, data: cursor.rest() };
    }
    default:
      throw cursor.fail(`type ${type}`);
  }
}

/**
 * @param {Cursor} cursor
 * @returns {Json}
 */
function readJson(cursor) {
  const text = cursor.text(cursor.left);
  if (!isJson(text)) throw cursor.fail("no JSON");
  return { kind: "json", text };
}

/** @param {string} text */
function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false; // JSON.parse has no other failure than its input.
  }
}

/** @param {string} text */
function textBytes(text) {
  const bytes = utf8(text);
  if (textOf(bytes) !== text) throw new LocalError("This text has half characters (lone surrogates), which nobody could read.");
  return bytes;
}

/**
 * @param {Cursor} cursor
 * @returns {FilePart}
 */
function readPart(cursor) {
  const transferId = cursor.take(MESSAGE_ID_BYTES);
  const digest = cursor.take(DIGEST_BYTES);
  const index = cursor.uint(4);
  const count = cursor.uint(4);
  const totalBytes = cursor.uint(8);
  const name = cursor.text(cursor.uint(1));
  /** @type {FilePart} */
  const part = { kind: "file_part", transferId, digest, index, count, totalBytes, name, data: cursor.rest() };
  checkPart(part, cursor.fail);
  return part;
}

/**
 * @param {Cursor} cursor
 * @returns {Receipt}
 */
function readReceipt(cursor) {
  const what = cursor.uint(1);
  if (what !== TAKEN) throw cursor.fail(`a receipt that says ${what}`);
  const count = cursor.left / MESSAGE_ID_BYTES;
  if (!Number.isInteger(count) || count < 1 || count > RECEIPT_IDS_MAX) throw cursor.fail(`a receipt of ${cursor.left} bytes`);
  return { kind: "receipt", what, ids: Array.from({ length: count }, () => cursor.take(MESSAGE_ID_BYTES)) };
}

/**
 * @param {Cursor} cursor
 * @returns {Answer}
 */
function readAnswer(cursor) {
  const to = cursor.take(MESSAGE_ID_BYTES);
  const content = readSimple(cursor, cursor.uint(1));
  if (content.kind === "file") throw cursor.fail("an answer that is a file");
  return { kind: "answer", to, content };
}

/**
 * @param {FilePart} part
 * @param {(detail: string) => Error} fail
 */
function checkPart(part, fail) {
  if (part.count < 1 || part.count > PARTS_MAX || part.index >= part.count) throw fail(`part ${part.index} of ${part.count}`);
  if (part.totalBytes > FILE_BYTES_LIMIT || part.data.length > part.totalBytes) throw fail(`${part.data.length} of ${part.totalBytes} bytes`);
}

/**
 * @param {string} name
 * @returns {Bytes} One byte of length, then the name.
 */
function nameOf(name) {
  const bytes = textBytes(name);
  if (bytes.length > NAME_BYTES_MAX) throw new LocalError(`A file's name has at most ${NAME_BYTES_MAX} bytes of UTF-8.`);
  return concat(Uint8Array.of(bytes.length), bytes);
}
