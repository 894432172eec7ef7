// @ts-check
/**
 * Checks of what callers give: a wrong type is refused at once and with a sentence, before anything is made or sent.
 * @module
 */

import { textOf, utf8 } from "./bytes.js";
import { NAME_BYTES_MAX } from "./contents.js";
import { LocalError } from "./errors.js";
import { FILE_BYTES_MAX } from "./delivery/transfers.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {Uint8Array | ArrayBuffer | ArrayBufferView} BytesLike Memory as it is, whatever a view of it counts in. */

/**
 * Copies bytes.
 * @param {BytesLike} data
 * @returns {Bytes}
 * @throws {LocalError} They are something else.
 */
export function bytesOf(data) {
  if (data instanceof ArrayBuffer) return new Uint8Array(data.slice(0));
  if (ArrayBuffer.isView(data)) return Uint8Array.from(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
  throw new LocalError(`Bytes are a Uint8Array, an ArrayBuffer or a view of one, and this is ${kindOf(data)}. Use sendText for text and sendJson for other values.`);
}

/**
 * Demands a text.
 * @param {unknown} text
 * @param {string} [what]
 * @returns {string}
 */
export function demandText(text, what = "A text") {
  if (typeof text !== "string") throw new LocalError(`${what} is a string, and this is ${kindOf(text)}.`);
  return text;
}

/**
 * Makes a content: of a string a text, of bytes raw bytes, of `{ json: value }` JSON.
 * @param {string | BytesLike | { json: unknown }} content
 * @returns {import("./contents.js").Raw | import("./contents.js").Text | import("./contents.js").Json}
 */
export function contentOf(content) {
  if (typeof content === "string") return { kind: "text", text: content };
  const isJson = typeof content === "object" && content !== null && Object.keys(content).join() === "json";
  if (isJson) return { kind: "json", text: jsonOf(/** @type {{ json: unknown }} */ (content).json) };
  return { kind: "raw", data: bytesOf(/** @type {BytesLike} */ (content)) };
}

/**
 * Writes a value as JSON.
 * @param {unknown} value
 */
export function jsonOf(value) {
  let text;
  try {
    text = JSON.stringify(value);
  } catch (error) {
    throw new LocalError(`This value has no form in JSON: ${/** @type {Error} */ (error).message}.`); // A circle, or a BigInt.
  }
  if (text === undefined) throw new LocalError("This value has no form in JSON.");
  return text;
}

/**
 * Reads a file.
 * @param {Blob | BytesLike} file A `File` is a `Blob`.
 * @param {string} [name] Its own name by default.
 * @returns {Promise<{ data: Bytes, name: string }>}
 */
export async function fileOf(file, name) {
  const own = typeof File !== "undefined" && file instanceof File ? file.name : "file";
  const shown = demandText(name ?? own, "A file's name");
  if (utf8(shown).length > NAME_BYTES_MAX) throw new LocalError(`A file's name has at most ${NAME_BYTES_MAX} bytes.`);
  if (typeof Blob !== "undefined" && file instanceof Blob) {
    demandSize(file.size);
    return { data: new Uint8Array(await file.arrayBuffer()), name: shown };
  }
  if (!(file instanceof ArrayBuffer) && !ArrayBuffer.isView(file)) {
    throw new LocalError(`A file is a File, a Blob, a Uint8Array or an ArrayBuffer, and this is ${kindOf(file)}.`);
  }
  const bytes = /** @type {BytesLike} */ (file);
  demandSize(bytes.byteLength);
  return { data: bytesOf(bytes), name: shown };
}

/** @param {number} size */
function demandSize(size) {
  if (size > FILE_BYTES_MAX) throw new LocalError(`A file may have ${FILE_BYTES_MAX} bytes, this one has ${size}.`);
}

/**
 * Demands options that are an object, with members of their types.
 * @param {unknown} options
 */
export function demandOptions(options) {
  if (typeof options !== "object" || options === null) throw new LocalError(`Options are an object, and this is ${kindOf(options)}.`);
  const { mode, format, onProgress, signal } = /** @type {Record<string, unknown>} */ (options);
  demandOneOf("mode", mode, MODES);
  demandOneOf("format", format, FORMATS);
  if (onProgress !== undefined && typeof onProgress !== "function") throw new LocalError(`onProgress is a function, and this is ${kindOf(onProgress)}.`);
  if (signal !== undefined && !(signal instanceof AbortSignal)) throw new LocalError(`signal is an AbortSignal, and this is ${kindOf(signal)}.`);
}

/**
 * Demands a name of 1 to 64 characters.
 * @param {unknown} name
 * @param {string} what
 */
export function demandName(name, what) {
  const text = demandText(name, what);
  if (text === "" || text.length > NAME_CHARS_MAX || textOf(utf8(text)) !== text) throw new LocalError(`${what} has 1 to ${NAME_CHARS_MAX} characters.`);
  return text;
}

const NAME_CHARS_MAX = 64;
const MODES = ["encrypted", "signed", "plain"];
const FORMATS = ["auto", "original", "extended"];

/**
 * @param {string} what
 * @param {unknown} value
 * @param {string[]} values
 */
function demandOneOf(what, value, values) {
  if (value !== undefined && !values.includes(/** @type {string} */ (value))) throw new LocalError(`The ${what} is one of ${values.join(", ")}.`);
}

/** @param {unknown} value */
function kindOf(value) {
  if (value === null || value === undefined) return String(value);
  if (typeof value !== "object") return `a ${typeof value}`;
  const name = value.constructor?.name;
  return name ? `a value of type ${name}` : "an object";
}
