// @ts-check
/**
 * From what the application says to frames: the right format for the recipient, its key, and a file in parts where it is large.
 * @module
 */

import { fromHex, toHex, utf8 } from "./bytes.js";
import { MESSAGE_ID_BYTES, TAKEN } from "./contents.js";
import { LocalError, NoAnswerError } from "./errors.js";
import { HEADER_BYTES } from "./frames.js";
import { Asks } from "./delivery/asks.js";
import { outcomeOf } from "./delivery/outcomes.js";
import { AwaitedReceipts } from "./delivery/receipts.js";
import { dataFrame, encryptedFrame, messageIdOf, signedFrame } from "./sealing.js";
import { cut, PART_BYTES, sendParts } from "./delivery/transfers.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {import("./sealing.js").Mode} Mode */
/** @typedef {import("./contents.js").Simple} Simple */
/** @typedef {import("./contents.js").Inner} Inner */
/** @typedef {import("./contents.js").Content} Content */
/** @typedef {import("./delivery/outcomes.js").Outcome} Outcome */

/**
 * @typedef {object} SendOptions
 * @property {Mode} [mode] Encrypted unless told otherwise.
 * @property {string | undefined} [agreementKey] The recipient's, in hex; looked up where it is missing.
 * @property {"auto" | "original" | "extended"} [format] Auto: extended once the recipient is known to understand it.
 * @typedef {object} FileOptions
 * @property {string} [name]
 * @property {(progress: { bytesDone: number, bytesTotal: number }) => void} [onProgress]
 * @property {AbortSignal} [signal]
 * @typedef {object} Sent
 * @property {string} id Hex, the same that the recipient's `message` has.
 * @property {Promise<Outcome>} outcome The servers' word; never rejects.
 * @property {Promise<boolean>} read True when the recipient's program says, signed, that it took the message; false when nobody waits for
 *   that any more, or the recipient cannot say so. Never rejects, and has no time limit.
 * @typedef {{ to: string, target: Bytes, mode: Mode, agreementKey: Bytes | null, isExtended: boolean }} Way How a message goes.
 */

/** What the largest headers and signatures take of a frame, rounded up. */
const OVERHEAD_BYTES = 1_024;
/** Outcomes of what certainly has not arrived. @type {readonly import("./delivery/outcomes.js").OutcomeName[]} */
const NOT_ARRIVED = ["unknown_target", "queue_full", "too_large", "rate", "not_connected"];
const NOT_CONNECTED_NO_KEY = "Not connected: the recipient's encryption key is not known here, and there is no server to ask for it.";
const WOULD_BE_WEAKER = "This recipient is known to speak the bound form, so a message in the original's format is not sent to it.";

/** Makes and sends frames for one identity. */
export class Outbox {
  #awaited = new AwaitedReceipts();
  /** The end of what was asked for last, by recipient. @type {Map<string, Promise<unknown>>} */
  #last = new Map();

  /**
   * @param {object} options
   * @param {import("./keys.js").Keys} options.keys
   * @param {import("./environment.js").Clock} options.clock
   * @param {import("./directory.js").Directory} options.directory
   * @param {() => Promise<boolean>} options.isReady Waits for a connection that is being made; false when there is none.
   * @param {(frame: Bytes) => Promise<Outcome>} options.send
   * @param {() => number} options.frameBytesMax What the server takes.
   * @param {(transfer: import("./inbox.js").Transfer) => void} options.onTransfer
   */
  constructor({ keys, clock, directory, isReady, send, frameBytesMax, onTransfer }) {
    this.keys = keys;
    this.clock = clock;
    this.directory = directory;
    this.isReady = isReady;
    this.send = send;
    this.frameBytesMax = frameBytesMax;
    this.onTransfer = onTransfer;
    this.asks = new Asks(clock);
  }

  /**
   * Takes a receipt of somebody.
   * @param {{ sender: string, ids: string[] }} receipt
   */
  onReceipt({ sender, ids }) {
    this.#awaited.take(sender, ids);
  }

  /** Nobody waits for receipts any more. */
  close() {
    this.#awaited.close();
    this.asks.close();
  }

  /**
   * Asks somebody, and waits for the answer.
   * @param {string | Uint8Array} to
   * @param {Simple} content
   * @param {number} timeoutMs
   */
  async ask(to, content, timeoutMs) {
    const way = await this.#wayTo(to, {});
    if (!way.isExtended) throw new NoAnswerError("not_able");
    const made = await this.#inOrder(way.to, this.#frame(way, content));
    const answer = this.asks.expect(way.to, made.id, timeoutMs);
    const { outcome } = await this.#sendFrame(way, made);
    outcome.then(({ name, sentence }) => NOT_ARRIVED.includes(name) && this.asks.fail(way.to, made.id, new NoAnswerError("not_delivered", sentence)));
    return answer;
  }

  /**
   * Answers a message.
   * @param {Pick<import("./inbox.js").Message, "sender" | "id" | "mode" | "auth">} message
   * @param {import("./contents.js").Raw | import("./contents.js").Text | import("./contents.js").Json} content
   * @returns {Promise<Sent>}
   */
  async answer({ sender, id, mode, auth }, content) {
    if (mode !== "encrypted" || auth !== "bound") throw new LocalError("Only an encrypted, bound message has an answer.");
    const way = await this.#wayTo(sender, { format: "extended" });
    return this.#sendFrame(way, await this.#inOrder(way.to, this.#frame(way, { kind: "answer", to: fromHex(id, MESSAGE_ID_BYTES), content })));
  }

  /**
   * Tells the sender of messages that this program took them; nothing happens where its key cannot be found.
   * @param {string} peer
   * @param {string[]} ids 1 to 64.
   */
  async sendReceipt(peer, ids) {
    const known = await this.directory.find(peer);
    if (known === null) return;
    const way = { to: peer, target: fromHex(peer, 32), mode: /** @type {Mode} */ ("encrypted"), agreementKey: fromHex(known.agreementKey, 32), isExtended: true };
    const { frame } = await this.#frame(way, { kind: "receipt", what: TAKEN, ids: ids.map((id) => fromHex(id, MESSAGE_ID_BYTES)) });
    await this.#outcomeOf(frame);
  }

  /**
   * Sends one content in one frame.
   * @param {string | Uint8Array} to
   * @param {Simple} content
   * @param {SendOptions} options
   * @returns {Promise<Sent>}
   */
  async sendContent(to, content, options) {
    const recipient = toHex(keyOf(to));
    const making = this.#wayTo(to, options).then(async (way) => ({ way, made: await this.#frame(way, content) }));
    const { way, made } = await this.#inOrder(recipient, making);
    return this.#sendFrame(way, made);
  }

  /**
   * What goes to one recipient leaves in the order of the calls, whichever frame is ready first.
   * @template Made
   * @param {string} to
   * @param {Promise<Made>} making
   * @returns {Promise<Made>}
   */
  async #inOrder(to, making) {
    const turn = Promise.allSettled([this.#last.get(to), making]);
    this.#last.set(to, turn);
    await turn;
    if (this.#last.get(to) === turn) this.#last.delete(to);
    return making;
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
    const room = this.frameBytesMax() - OVERHEAD_BYTES;
    const partBytes = Math.min(PART_BYTES, room);
    if (partBytes < 1) throw new LocalError(`This server takes messages of ${this.frameBytesMax()} bytes at most, which is too little for a file.`);
    if (way.isExtended && data.length > partBytes) return this.#sendInParts(way, data, name, partBytes, options);
    if (data.length > room) throw new LocalError(`This recipient takes files in one piece only, of at most ${room} bytes; this one has ${data.length}.`);
    // A plain frame has no place for a type or a name: only the bytes go.
    const content = way.mode === "plain" ? /** @type {Simple} */ ({ kind: "raw", data }) : /** @type {Simple} */ ({ kind: "file", name, data });
    const sent = await this.#sendFrame(way, await this.#inOrder(way.to, this.#frame(way, content)));
    sent.outcome.then((outcome) => (outcome.accepted || outcome.name === "untold") && options.onProgress?.({ bytesDone: data.length, bytesTotal: data.length }));
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
    if (agreementKey !== undefined) keyOf(agreementKey);
    const isReady = await this.isReady();
    if (mode === "plain") return { to: hex, target, mode, agreementKey: null, isExtended: false };
    const isAsked = agreementKey === undefined && (mode === "encrypted" || (format === "auto" && !(await this.directory.isAble(hex))));
    const known = isAsked ? await this.directory.find(hex) : null;
    const isAble = await this.directory.isAble(hex);
    const isExtended = format === "extended" || (format === "auto" && isAble);
    if (mode === "signed") return { to: hex, target, mode, agreementKey: null, isExtended };
    if (isAble && !isExtended) throw new LocalError(WOULD_BE_WEAKER);
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
   * @param {Inner} content
   * @returns {Promise<{ frame: Bytes, id: string }>}
   */
  async #frame(way, content) {
    if (way.mode === "plain") return this.#named(await dataFrame(this.keys, way.target, plainBytes(content)), null);
    const whole = this.#dress(way, content);
    if (way.mode === "signed" || way.agreementKey === null) return this.#named(await signedFrame(this.keys, way.target, whole), whole);
    return this.#named(await encryptedFrame(this.keys, way.target, way.agreementKey, whole), whole);
  }

  /**
   * @param {Bytes} frame
   * @param {Content | null} content
   */
  async #named(frame, content) {
    const id = await messageIdOf(this.keys.crypto, content ?? { kind: "raw", data: frame }, frame.subarray(HEADER_BYTES));
    return { frame, id: toHex(id) };
  }

  /**
   * Adds time and id where the recipient understands them. Nothing is altered for a recipient that does not: what the original would
   * take for something else is refused (MERK-RAW).
   * @param {Way} way
   * @param {Inner} content
   * @returns {Content}
   */
  #dress(way, content) {
    if (!way.isExtended) return /** @type {Simple} */ (content);
    const messageId = this.keys.crypto.randomBytes(MESSAGE_ID_BYTES);
    return { kind: "extended", timeMs: this.clock.now(), messageId, content };
  }

  /**
   * @param {Way} way
   * @param {{ frame: Bytes, id: string }} made
   * @returns {Promise<Sent>}
   */
  async #sendFrame(way, { frame, id }) {
    const max = this.frameBytesMax();
    if (frame.length > max) throw new LocalError(`This server takes messages of ${max} bytes at most, this one has ${frame.length}.`);
    return { id, outcome: this.#outcomeOf(frame), read: this.#readOf(way, id) };
  }

  /**
   * @param {Way} way
   * @param {string} id
   */
  #readOf(way, id) {
    return way.mode === "encrypted" && way.isExtended ? this.#awaited.expect(way.to, id) : Promise.resolve(false);
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
   * @param {number} partBytes
   * @param {FileOptions} options
   * @returns {Promise<Sent>}
   */
  async #sendInParts(way, data, name, partBytes, { onProgress, signal }) {
    const { crypto } = this.keys;
    const parts = cut({ data, name, digest: await crypto.sha256(data), transferId: crypto.randomBytes(MESSAGE_ID_BYTES) }, partBytes);
    const transferId = toHex(parts[0].transferId);
    /** @type {(bytesDone: number, failed: string | null, done: boolean) => void} */
    const report = (bytesDone, failed, done) => this.onTransfer({ direction: "out", transferId, peer: way.to, name, bytesDone, bytesTotal: data.length, done, failed });
    let sentBytes = 0;
    const outcome = sendParts({
      parts,
      seal: async (part) => (await this.#frame(way, part)).frame,
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
    return { id: transferId, outcome, read: this.#readOf(way, transferId) };
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
 * @param {Inner} content
 * @returns {Bytes}
 */
function plainBytes(content) {
  if (content.kind === "receipt" || content.kind === "answer") throw new LocalError("A receipt or an answer is not sent in plain.");
  return content.kind === "text" || content.kind === "json" ? utf8(content.text) : content.data;
}
