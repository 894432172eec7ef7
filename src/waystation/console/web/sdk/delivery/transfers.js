// @ts-check
/**
 * Files in parts: cutting and pacing on the way out, putting together and checking on the way in.
 *
 * Parts go out a few at a time, each next one when the server told what became of an earlier one; a part that did not arrive
 * is sent again unchanged, so that a receiver that has it already drops it as a repeat.
 * @module
 */

import { concat, equal, toHex } from "../bytes.js";

/** @typedef {import("../bytes.js").Bytes} Bytes */
/** @typedef {import("../contents.js").FilePart} FilePart */
/** @typedef {import("./outcomes.js").Outcome} Outcome */

/** Four parts and their headers stay below the 256 KiB that a server queues for a recipient it still looks for. */
export const PART_BYTES = 61_440;
export const WINDOW_PARTS = 4;
/** A file is held in memory as a whole, on both sides. */
export const FILE_BYTES_MAX = 268_435_456;
/** A transfer ends when nothing moved for so long. */
export const PATIENCE_MS = 60_000;
export const INCOMING_MAX = 16;
export const INCOMING_PER_SENDER_MAX = 4;
export const INCOMING_BYTES_MAX = 2 * FILE_BYTES_MAX;
/** Parts of one file: those of ours are 60 KiB and more, and each costs some memory besides its bytes. */
export const INCOMING_PARTS_MAX = 131_072;
export const INCOMING_IDLE_MS = 600_000;
/** A file that stood still for so long gives its place to one that comes; a sender's longest wait between tries is 4 s. */
export const INCOMING_STALLED_MS = 30_000;
/** Files that ended and whose late parts are still known as such. */
export const ENDED_MAX = 1_024;
/** Why a part is refused that may find a place when it comes again. */
export const NO_ROOM = "too many files, or too large";

/** Outcomes after which the same frame may be sent again. */
const PASSING = new Set(["lost", "queue_full", "rate", "lookup_timeout", "unknown_target", "no_notice", "not_connected"]);
const RETRY_FIRST_MS = 250;
const RETRY_CEILING_MS = 4_000;

/**
 * Cuts a file.
 * @param {{ data: Bytes, name: string, digest: Bytes, transferId: Bytes }} file
 * @param {number} [partBytes]
 * @returns {FilePart[]} At least one; views of the data, not copies.
 */
export function cut({ data, name, digest, transferId }, partBytes = PART_BYTES) {
  const count = Math.max(1, Math.ceil(data.length / partBytes));
  return Array.from({ length: count }, (_, index) => ({
    kind: "file_part",
    transferId,
    digest,
    index,
    count,
    totalBytes: data.length,
    name,
    data: data.subarray(index * partBytes, (index + 1) * partBytes),
  }));
}

/**
 * Sends parts, a few at a time.
 * @param {object} options
 * @param {FilePart[]} options.parts
 * @param {(part: FilePart) => Promise<Bytes>} options.seal Makes a part's frame.
 * @param {(frame: Bytes) => Promise<Outcome>} options.send
 * @param {import("../environment.js").Clock} options.clock
 * @param {(bytesDone: number) => void} options.onProgress
 * @param {() => boolean} options.isCancelled
 * @returns {Promise<Outcome | null>} That of the last part; null when it was cancelled.
 */
export async function sendParts({ parts, seal, send, clock, onProgress, isCancelled }) {
  let next = 0;
  let bytesDone = 0;
  let movedMs = clock.now();
  /** @type {Outcome | null} */
  let failure = null;
  /** @type {Outcome | null} */
  let last = null;

  /** @param {Bytes} frame */
  const sendOne = async (frame) => {
    for (let waitMs = RETRY_FIRST_MS; ; waitMs = Math.min(2 * waitMs, RETRY_CEILING_MS)) {
      const outcome = await send(frame);
      if (!PASSING.has(outcome.name) || clock.now() - movedMs >= PATIENCE_MS || isCancelled() || failure !== null) return outcome;
      await new Promise((resolve) => clock.setTimeout(() => resolve(null), waitMs));
    }
  };

  const work = async () => {
    while (next < parts.length && failure === null && !isCancelled()) {
      const part = parts[next];
      next += 1;
      const outcome = await sendOne(await seal(part));
      if (!outcome.accepted && outcome.name !== "untold") {
        failure ??= outcome;
        return;
      }
      last = outcome;
      movedMs = clock.now();
      bytesDone += part.data.length;
      onProgress(bytesDone);
    }
  };

  await Promise.all(Array.from({ length: Math.min(WINDOW_PARTS, parts.length) }, work));
  return isCancelled() ? null : (failure ?? last);
}

/**
 * @typedef {object} Incoming One file on its way in.
 * @property {string} sender
 * @property {FilePart} first The part that came first; what it says of the whole holds.
 * @property {Map<number, Bytes>} parts
 * @property {number} bytesDone
 * @property {number} movedMs
 * @property {string} kind How the first part was sent, and what that proves; all parts must be the same.
 */

/**
 * @typedef {{ status: "more", bytesDone: number } | { status: "late", isGivenUp?: true } | { status: "whole", data: Bytes } |
 *   { status: "refused", detail: string }} Taken
 */

/** Puts files together; bounded in number and bytes. */
export class IncomingTransfers {
  /** @type {Map<string, Incoming>} */
  #transfers = new Map();
  /** Whether those were given up, by sender and transfer. @type {Map<string, boolean>} */
  #ended = new Map();
  #bytes = 0;
  /** @type {Incoming[]} */
  #givenUp = [];

  /** @param {import("../crypto/web_crypto.js").WebCrypto} crypto */
  constructor(crypto) {
    this.crypto = crypto;
  }

  /** How many files are on their way. */
  get count() {
    return this.#transfers.size;
  }

  /** How many bytes are held. */
  get bytes() {
    return this.#bytes;
  }

  /**
   * Takes a part.
   * @param {string} sender
   * @param {string} kind
   * @param {FilePart} part
   * @param {number} nowMs
   * @returns {Promise<Taken>}
   */
  async take(sender, kind, part, nowMs) {
    const id = `${sender}:${toHex(part.transferId)}`;
    if (this.#ended.has(id)) return { status: "late", ...(this.#ended.get(id) && { isGivenUp: true }) };
    if (part.data.length === 0 && part.totalBytes > 0) return { status: "refused", detail: "a part without a byte" };
    const transfer = this.#transfers.get(id) ?? this.#begin(id, { sender, first: part, parts: new Map(), bytesDone: 0, movedMs: nowMs, kind });
    if (transfer === null) return { status: "refused", detail: NO_ROOM };
    if (transfer.kind !== kind || !isSameFile(transfer.first, part)) return { status: "refused", detail: "a part that does not fit its file" };
    if (transfer.parts.has(part.index)) return { status: "more", bytesDone: transfer.bytesDone };
    if (transfer.bytesDone + part.data.length > part.totalBytes) return this.#fail(id, "more bytes than announced");
    transfer.parts.set(part.index, part.data);
    transfer.bytesDone += part.data.length;
    transfer.movedMs = nowMs;
    this.#bytes += part.data.length;
    return transfer.parts.size < part.count ? { status: "more", bytesDone: transfer.bytesDone } : this.#finish(id, transfer);
  }

  /**
   * Gives up files on which nothing moved for ten minutes.
   * @param {number} nowMs
   * @returns {Incoming[]} Those.
   */
  expire(nowMs) {
    const idle = [...this.#transfers].filter(([, { movedMs }]) => nowMs - movedMs >= INCOMING_IDLE_MS);
    for (const [id] of idle) this.#remove(id, true);
    return idle.map(([, transfer]) => transfer);
  }

  /** Gives those that lost their place since the last call. @returns {Incoming[]} */
  takeGivenUp() {
    return this.#givenUp.splice(0);
  }

  /**
   * @param {string} id
   * @param {Incoming} transfer
   * @returns {Incoming | null}
   */
  #begin(id, transfer) {
    const { totalBytes, count } = transfer.first;
    // Every part but the only one of an empty file has a byte, so there cannot be more parts than bytes.
    const countMax = Math.min(Math.max(1, totalBytes), INCOMING_PARTS_MAX);
    if (totalBytes > FILE_BYTES_MAX || count > countMax || this.#countOf(transfer.sender) >= INCOMING_PER_SENDER_MAX) return null;
    while (!this.#hasRoomFor(totalBytes)) if (!this.#giveUpOne(transfer.movedMs)) return null;
    this.#transfers.set(id, transfer);
    return transfer;
  }

  /** @param {number} totalBytes */
  #hasRoomFor(totalBytes) {
    const announced = [...this.#transfers.values()].reduce((sum, { first }) => sum + first.totalBytes, 0);
    return this.#transfers.size < INCOMING_MAX && announced + totalBytes <= INCOMING_BYTES_MAX;
  }

  /** @param {string} sender */
  #countOf(sender) {
    return [...this.#transfers.values()].filter((transfer) => transfer.sender === sender).length;
  }

  /**
   * Gives up the stalest file of the sender that has most of those under way; files that move stay.
   * @param {number} nowMs
   * @returns {boolean} Whether there was one.
   */
  #giveUpOne(nowMs) {
    const stalled = [...this.#transfers].filter(([, { movedMs }]) => nowMs - movedMs >= INCOMING_STALLED_MS);
    const [worst] = stalled.sort(([, left], [, right]) => this.#countOf(right.sender) - this.#countOf(left.sender) || left.movedMs - right.movedMs);
    if (worst === undefined) return false;
    this.#givenUp.push(worst[1]);
    this.#remove(worst[0], true);
    return true;
  }

  /**
   * @param {string} id
   * @param {Incoming} transfer
   * @returns {Promise<Taken>}
   */
  async #finish(id, { first, parts, bytesDone }) {
    if (bytesDone !== first.totalBytes) return this.#fail(id, "fewer bytes than announced");
    this.#remove(id);
    const data = concat(...Array.from({ length: first.count }, (_, index) => /** @type {Bytes} */ (parts.get(index))));
    if (!equal(await this.crypto.sha256(data), first.digest)) return { status: "refused", detail: "not the file that was announced" };
    return { status: "whole", data };
  }

  /**
   * @param {string} id
   * @param {string} detail
   * @returns {Taken}
   */
  #fail(id, detail) {
    this.#remove(id);
    return { status: "refused", detail };
  }

  /**
   * Lets a file that the program did not take come again.
   * @param {string} sender
   * @param {string} transferId Hex.
   */
  forget(sender, transferId) {
    this.#ended.delete(`${sender}:${transferId}`);
  }

  /**
   * @param {string} id
   * @param {boolean} [isGivenUp]
   */
  #remove(id, isGivenUp = false) {
    this.#bytes -= this.#transfers.get(id)?.bytesDone ?? 0;
    this.#transfers.delete(id);
    this.#ended.set(id, isGivenUp);
    if (this.#ended.size > ENDED_MAX) this.#ended.delete(/** @type {string} */ (this.#ended.keys().next().value));
  }
}

/**
 * @param {FilePart} left
 * @param {FilePart} right
 */
function isSameFile(left, right) {
  return left.count === right.count && left.totalBytes === right.totalBytes && left.name === right.name && equal(left.digest, right.digest);
}
