// @ts-check
/**
 * From what the application says to frames: the right format for the recipient, its key, and a file in parts where it is large.
 * @module
 */

import { fromHex, toHex, utf8 } from "./bytes.js";
import { isSignable, MESSAGE_ID_BYTES, NAME_BYTES_MAX } from "./contents.js";
import { LocalError } from "./errors.js";
import { FRAME_BYTES_MAX, frameHash } from "./frames.js";
import { outcomeOf } from "./outcomes.js";
import { dataFrame, encryptedFrame, signedFrame } from "./sealing.js";
import { cut, FILE_BYTES_MAX, PART_BYTES, sendParts } from "./transfers.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {import("./sealing.js").Mode} Mode */
/** @typedef {import("./contents.js").Simple} Simple */
/** @typedef {import("./contents.js").Content} Content */
/** @typedef {import("./outcomes.js").Outcome} Outcome */

/**
 * @typedef {object} SendOptions
 * @property {Mode} [mode] Encrypted unless told otherwise.
 * @property {string | undefined} [agreementKey] The recipient's, in hex; looked up where it is missing.
 * @property {"auto" | "original" | "extended"} [format] Auto: extended once the recipient is known to understand it.
 * @typedef {object} FileOptions
 * @property {string} [name]
 * @property {(progress: { bytesDone: number, bytesTotal: number }) => void} [onProgress]
 * @property {AbortSignal} [signal]
 * @typedef {{ id: string, outcome: Promise<Outcome> }} Sent
 * @typedef {{ to: string, target: Bytes, mode: Mode, agreementKey: Bytes | null, isExtended: boolean }} Way How a message goes.
 */

/** What the largest headers and signatures take of a frame, rounded up. */
const OVERHEAD_BYTES = 1_024;
const SINGLE_BYTES_MAX = FRAME_BYTES_MAX - OVERHEAD_BYTES;
const SENDERS_KNOWN_MAX = 1_024;
const NOT_CONNECTED_NO_KEY = "Not connected: the recipient's encryption key is not known here, and there is no server to ask for it.";
/** @type {readonly Mode[]} */
const MODES = ["encrypted", "signed", "plain"];

/** Makes and sends frames for one identity. */
export class Outbox {
  /** Who sent us type 0x10. @type {Set<string>} */
  #ours = new Set();

  /**
   * @param {object} options
   * @param {import("./keys.js").Keys} options.keys
   * @param {import("./environment.js").Clock} options.clock
   * @param {import("./directory.js").Directory} options.directory
   * @param {() => Promise<boolean>} options.isReady Waits for a connection that is being made; false when there is none.
   * @param {(frame: Bytes) => Promise<Outcome>} options.send
   * @param {(transfer: import("./inbox.js").Transfer) => void} options.onTransfer
   */
  constructor({ keys, clock, directory, isReady, send, onTransfer }) {
    this.keys = keys;
    this.clock = clock;
    this.directory = directory;
    this.isReady = isReady;
    this.send = send;
    this.onTransfer = onTransfer;
  }

  /**
   * Remembers that an identity runs this software.
   * @param {string} key
   */
  markOurs(key) {
    if (this.#ours.size < SENDERS_KNOWN_MAX) this.#ours.add(key);
  }

  /**
   * Sends one content in one frame.
   * @param {string | Uint8Array} to
   * @param {Simple} content
   * @param {SendOptions} options
   * @returns {Promise<Sent>}
   */
  async sendContent(to, content, options) {
    const way = await this.#wayTo(to, options);
    return this.#sendFrame(await this.#frame(way, content));
  }

  /**
   * Sends a file: in parts where the recipient understands them, else in one frame.
   * @param {string | Uint8Array} to
   * @param {Bytes} data
   * @param {string} name
   * @param {SendOptions & FileOptions} options
   * @returns {Promise<Sent>}
   */
  async sendFile(to, data, name, options) {
    const way = await this.#wayTo(to, options);
    if (utf8(name).length > NAME_BYTES_MAX) throw new LocalError(`A file's name has at most ${NAME_BYTES_MAX} bytes.`);
    if (data.length > FILE_BYTES_MAX) throw new LocalError(`A file may have ${FILE_BYTES_MAX} bytes, this one has ${data.length}.`);
    if (way.isExtended && data.length > PART_BYTES) return this.#sendInParts(way, data, name, options);
    if (data.length > SINGLE_BYTES_MAX) {
      throw new LocalError(`This recipient takes files in one piece only, of at most ${SINGLE_BYTES_MAX} bytes; this one has ${data.length}.`);
    }
    // A plain frame has no place for a type or a name: only the bytes go.
    const content = way.mode === "plain" ? /** @type {Simple} */ ({ kind: "raw", data }) : /** @type {Simple} */ ({ kind: "file", name, data });
    const sent = await this.#sendFrame(await this.#frame(way, content));
    sent.outcome.then(({ name: outcome }) => (outcome === "delivered" || outcome === "untold") && options.onProgress?.({ bytesDone: data.length, bytesTotal: data.length }));
    return sent;
  }

  /**
   * @param {string | Uint8Array} to
   * @param {SendOptions} options
   * @returns {Promise<Way>}
   */
  async #wayTo(to, { mode = "encrypted", agreementKey, format = "auto" }) {
    const target = keyOf(to);
    const hex = toHex(target);
    if (!MODES.includes(mode)) throw new LocalError(`The mode is one of ${MODES.join(", ")}.`);
    if (agreementKey !== undefined) keyOf(agreementKey);
    const isReady = await this.isReady();
    if (mode === "plain") return { to: hex, target, mode, agreementKey: null, isExtended: false };
    const isAsked = agreementKey === undefined && (mode === "encrypted" || (format === "auto" && !this.#ours.has(hex)));
    const known = isAsked ? await this.directory.find(hex) : null;
    const isOurs = this.#ours.has(hex) || (known !== null && !known.isManual);
    const isExtended = format === "extended" || (format === "auto" && isOurs);
    if (mode === "signed") return { to: hex, target, mode, agreementKey: null, isExtended };
    const agreement = agreementKey ?? known?.agreementKey;
    if (agreement === undefined) throw new LocalError(isReady ? this.#noKeySentence() : NOT_CONNECTED_NO_KEY);
    return { to: hex, target, mode, agreementKey: keyOf(agreement), isExtended };
  }

  #noKeySentence() {
    const why = this.directory.isThere ? "nobody in the key directory has it" : "this server keeps no key directory";
    return `No encryption key of this recipient is known: ${why}. Ask for it, or send the message signed.`;
  }

  /**
   * @param {Way} way
   * @param {Simple | import("./contents.js").FilePart} content
   * @returns {Promise<Bytes>}
   */
  async #frame(way, content) {
    if (way.mode === "plain") return dataFrame(this.keys, way.target, plainBytes(content));
    const whole = this.#dress(way, content);
    if (way.mode === "signed" || way.agreementKey === null) return signedFrame(this.keys, way.target, whole);
    return encryptedFrame(this.keys, way.target, way.agreementKey, whole);
  }

  /**
   * Adds time and id where the recipient understands them, and where raw bytes must not be signed as they are.
   * @param {Way} way
   * @param {Simple | import("./contents.js").FilePart} content
   * @returns {Content}
   */
  #dress(way, content) {
    const mustDress = way.isExtended || content.kind === "file_part" || (way.mode === "signed" && content.kind === "raw" && !isSignable(content.data));
    if (!mustDress) return content;
    const messageId = this.keys.crypto.randomBytes(MESSAGE_ID_BYTES);
    return { kind: "extended", timeMs: this.clock.now(), messageId, content };
  }

  /**
   * @param {Bytes} frame
   * @returns {Promise<Sent>}
   */
  async #sendFrame(frame) {
    if (frame.length > FRAME_BYTES_MAX) throw new LocalError(`A message may have ${SINGLE_BYTES_MAX} bytes.`);
    const id = toHex(await frameHash(this.keys.crypto, frame));
    return { id, outcome: this.#outcomeOf(frame) };
  }

  /**
   * @param {Bytes} frame
   * @returns {Promise<Outcome>}
   */
  async #outcomeOf(frame) {
    try {
      return await this.send(frame);
    } catch (error) {
      if (error instanceof LocalError) return { ...outcomeOf("not_connected"), sentence: error.message };
      throw error;
    }
  }

  /**
   * @param {Way} way
   * @param {Bytes} data
   * @param {string} name
   * @param {FileOptions} options
   * @returns {Promise<Sent>}
   */
  async #sendInParts(way, data, name, { onProgress, signal }) {
    const { crypto } = this.keys;
    const parts = cut({ data, name, digest: await crypto.sha256(data), transferId: crypto.randomBytes(MESSAGE_ID_BYTES) });
    const transferId = toHex(parts[0].transferId);
    /** @type {(bytesDone: number, failed: string | null, done: boolean) => void} */
    const report = (bytesDone, failed, done) => this.onTransfer({ direction: "out", transferId, peer: way.to, name, bytesDone, bytesTotal: data.length, done, failed });
    let sentBytes = 0;
    const outcome = sendParts({
      parts,
      seal: (part) => this.#frame(way, part),
      send: (frame) => this.#outcomeOf(frame),
      clock: this.clock,
      isCancelled: () => signal?.aborted === true,
      onProgress: (bytesDone) => {
        sentBytes = bytesDone;
        onProgress?.({ bytesDone, bytesTotal: data.length });
        report(bytesDone, null, bytesDone === data.length);
      },
    }).then((last) => {
      const final = last ?? outcomeOf("cancelled");
      if (sentBytes < data.length) report(sentBytes, final.sentence, false);
      return final;
    });
    return { id: transferId, outcome };
  }
}

/**
 * Reads a key, from hex or bytes.
 * @param {string | Uint8Array} key
 * @returns {Bytes}
 * @throws {LocalError}
 */
export function keyOf(key) {
  if (key instanceof Uint8Array && key.length === 32) return Uint8Array.from(key);
  if (typeof key === "string" && /^[0-9a-f]{64}$/i.test(key.trim())) return fromHex(key.trim());
  throw new LocalError("A key is 64 hex digits.");
}

/**
 * @param {Simple | import("./contents.js").FilePart} content
 * @returns {Bytes}
 */
function plainBytes(content) {
  return content.kind === "text" || content.kind === "json" ? utf8(content.text) : content.data;
}
