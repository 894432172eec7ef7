// @ts-check
/**
 * From a frame of content to a message for the application: opened, told from repeats, files put together.
 * @module
 */

import { textOf, toHex, utf8 } from "./bytes.js";
import { MalformedError } from "./errors.js";
import { decodeFrame } from "./frames.js";
import { openFrame } from "./sealing.js";
import { IncomingTransfers, NO_ROOM } from "./delivery/transfers.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {import("./sealing.js").Opened} Opened */
/** @typedef {import("./contents.js").FilePart} FilePart */

/**
 * @typedef {object} Message
 * @property {string} sender Hex.
 * @property {import("./sealing.js").Mode} mode
 * @property {import("./sealing.js").Auth} auth
 * @property {"raw" | "text" | "json" | "file"} kind
 * @property {string} [text] Of text and JSON as sent, and of raw bytes that are valid UTF-8.
 * @property {any} [json]
 * @property {string} [name]
 * @property {Bytes} [data] Of raw and file.
 * @property {number | null} timeMs The sender's clock; only from clients of ours.
 * @property {number} receivedMs
 * @property {string} id Hex, the same that the sender's `send…` gave.
 * @property {number} bytes Size of the content.
 * @property {string} [answers] Id of the message of ours that its sender answers with it; only of encrypted, bound ones.
 */

/**
 * @typedef {{ direction: "in" | "out", transferId: string, peer: string, name: string, bytesDone: number, bytesTotal: number,
 *   done: boolean, failed: string | null }} Transfer
 */

/**
 * What came of a frame.
 * @typedef {{ message?: Message, transfer?: Transfer, dropped?: { refusal: import("./errors.js").Refusal, sender: string | null },
 *   receipt?: { sender: string, ids: string[] }, givenUp?: Transfer[], of?: string, isKept?: boolean }} Received `of`: sender and id of the
 *   message, or file, that it belongs to, where repeats are known. `isKept`: what was dropped may be wanted again, so a mailbox keeps it.
 */

/** Opens frames for one identity. */
export class Inbox {
  #transfers;

  /**
   * @param {object} options
   * @param {import("./keys.js").Keys} options.keys
   * @param {import("./environment.js").Clock} options.clock
   * @param {import("./delivery/seen.js").SeenMessages} options.seen
   * @param {(sender: string) => Promise<boolean>} options.isAble Whether an identity is known to speak the bound form.
   */
  constructor({ keys, clock, seen, isAble }) {
    this.keys = keys;
    this.clock = clock;
    this.seen = seen;
    this.isAble = isAble;
    this.#transfers = new IncomingTransfers(keys.crypto);
  }

  /**
   * Takes a whole frame.
   * @param {Bytes} data
   * @returns {Promise<Received>}
   */
  async take(data) {
    const frame = decodeFrame(data);
    const sender = toHex(frame.sender);
    try {
      const opened = await openFrame(this.keys, frame);
      // MERK-BOUND: whoever speaks the bound form sends no other, so that this was made, or kept for later, by somebody else.
      const isLess = opened.auth === "legacy" || opened.auth === "ambiguous";
      if (isLess && (await this.isAble(sender))) return { dropped: { refusal: "downgraded", sender } };
      return await this.#read(opened, sender);
    } catch (error) {
      if (error instanceof MalformedError) return { dropped: { refusal: error.refusal, sender } };
      throw error;
    }
  }

  /**
   * Lets a message that the program did not take come again.
   * @param {Message} message
   */
  leave({ sender, id }) {
    this.#transfers.forget(sender, id);
  }

  /** Gives up files on which nothing moves any more. @returns {Transfer[]} */
  expire() {
    return this.#transfers.expire(this.clock.now()).map((incoming) => failed(incoming, "Nothing came for ten minutes."));
  }

  /**
   * @param {Opened} opened
   * @param {string} sender
   * @returns {Promise<Received>}
   */
  async #read({ mode, auth, content, messageId }, sender) {
    const isExtended = content.kind === "extended";
    const inner = isExtended ? content.content : content;
    const timeMs = isExtended ? content.timeMs : null;
    if (inner.kind === "receipt") return this.#onReceipt(inner, { mode, auth }, sender);
    const id = toHex(inner.kind === "file_part" ? inner.transferId : messageId);
    const receivedMs = this.clock.now();
    // The same plain bytes may be meant twice; the same signed ones are a replay.
    const refusal = mode === "plain" ? null : this.seen.judge(sender, id, auth === "bound" ? timeMs : null, receivedMs);
    if (refusal !== null) return { dropped: { refusal, sender }, isKept: this.seen.isHeld(sender, id) };
    if (inner.kind === "file_part") return this.#onPart(inner, { mode, auth }, sender, timeMs ?? receivedMs);
    const message = { sender, mode, auth, timeMs, receivedMs, id, ...bodyOf(inner.kind === "answer" ? inner.content : inner) };
    if (inner.kind === "answer" && mode === "encrypted" && auth === "bound") Object.assign(message, { answers: toHex(inner.to) });
    if (mode === "plain") return { message };
    this.seen.hold(sender, id);
    return { message, of: `${sender}:${id}` };
  }

  /**
   * @param {import("./contents.js").Receipt} receipt
   * @param {Pick<Opened, "mode" | "auth">} proof
   * @param {string} sender
   * @returns {Received}
   */
  #onReceipt({ ids }, { mode, auth }, sender) {
    if (mode !== "encrypted" || auth !== "bound") return { dropped: { refusal: "bad_content", sender } };
    return { receipt: { sender, ids: ids.map(toHex) } };
  }

  /**
   * @param {FilePart} part
   * @param {Pick<Opened, "mode" | "auth">} proof
   * @param {string} sender
   * @param {number} timeMs
   * @returns {Promise<Received>}
   */
  async #onPart(part, proof, sender, timeMs) {
    const received = await this.#putPart(part, proof, sender, timeMs);
    const givenUp = this.#transfers.takeGivenUp().map((incoming) => failed(incoming, "It stood still, and its place was needed."));
    return { ...received, givenUp };
  }

  /**
   * @param {FilePart} part
   * @param {Pick<Opened, "mode" | "auth">} proof
   * @param {string} sender
   * @param {number} timeMs
   * @returns {Promise<Received>}
   */
  async #putPart(part, { mode, auth }, sender, timeMs) {
    const receivedMs = this.clock.now();
    const id = toHex(part.transferId);
    const of = `${sender}:${id}`;
    const taken = await this.#transfers.take(sender, `${mode}:${auth}`, part, receivedMs);
    if (taken.status === "late") return { dropped: { refusal: "duplicate", sender }, isKept: taken.isGivenUp };
    if (taken.status === "refused") {
      const transfer = transferOf(sender, part, 0, `Refused: ${taken.detail}.`);
      return { dropped: { refusal: "bad_content", sender }, transfer, of, isKept: taken.detail === NO_ROOM };
    }
    if (taken.status === "more") return { transfer: transferOf(sender, part, taken.bytesDone, null), of };
    this.seen.hold(sender, id);
    const { name } = part;
    const { data } = taken;
    /** @type {Message} */
    const message = { sender, mode, auth, kind: "file", name, data, bytes: data.length, timeMs, receivedMs, id };
    return { message, transfer: transferOf(sender, part, data.length, null), of };
  }
}

/**
 * @param {import("./delivery/transfers.js").Incoming} incoming
 * @param {string} why
 */
function failed({ sender, first, bytesDone }, why) {
  return transferOf(sender, first, bytesDone, why);
}

/**
 * @param {string} peer
 * @param {FilePart} part
 * @param {number} bytesDone
 * @param {string | null} failed
 * @returns {Transfer}
 */
function transferOf(peer, { transferId, name, totalBytes }, bytesDone, failed) {
  const done = failed === null && bytesDone === totalBytes;
  return { direction: "in", transferId: toHex(transferId), peer, name, bytesDone, bytesTotal: totalBytes, done, failed };
}

/**
 * @param {import("./contents.js").Simple} content
 * @returns {Pick<Message, "kind" | "text" | "json" | "name" | "data" | "bytes">}
 */
function bodyOf(content) {
  switch (content.kind) {
    case "raw": {
      const text = textOf(content.data);
      return { kind: "raw", data: content.data, bytes: content.data.length, ...(text === null ? {} : { text }) };
    }
    case "text":
      return { kind: "text", text: content.text, bytes: utf8(content.text).length };
    case "json":
      return { kind: "json", text: content.text, json: JSON.parse(content.text), bytes: utf8(content.text).length };
    case "file":
      return { kind: "file", name: content.name, data: content.data, bytes: content.data.length };
  }
}
