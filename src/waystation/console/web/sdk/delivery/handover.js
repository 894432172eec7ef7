// @ts-check
/**
 * Gives messages to the program, and says that they were taken once they were (MERK-MAILTWICE).
 *
 * A listener of `message` that returns a promise has taken the message when the promise is fulfilled. Only then it is remembered,
 * its receipt leaves, and the mailbox may delete it; a rejected one leaves all as if it had not come, so that the mailbox gives it again.
 * Parts of a file are taken with the file.
 * @module
 */

/** @typedef {import("../inbox.js").Message} Message */

/** Messages that the program has and has not taken yet; what comes beyond that is not taken. */
export const HANDED_MAX = 4_096;
export const HANDED_BYTES_MAX = 67_108_864;

/** Hands over what came. */
export class Handover {
  #count = 0;
  #bytes = 0;

  /**
   * @param {object} options
   * @param {import("./seen.js").SeenMessages} options.seen
   * @param {import("./mailbox.js").Mailbox} options.mailbox
   * @param {(message: Message) => Promise<unknown>[] | null} options.give Tells the program; gives the promises of its listeners, null when it has none.
   * @param {(message: Message) => void} options.onTaken
   * @param {(message: Message, refusal: "not_taken" | "queue_full") => void} options.onNotTaken
   */
  constructor({ seen, mailbox, give, onTaken, onNotTaken }) {
    this.seen = seen;
    this.mailbox = mailbox;
    this.give = give;
    this.onTaken = onTaken;
    this.onNotTaken = onNotTaken;
  }

  /**
   * Takes what came of a frame.
   * @param {import("../bytes.js").Bytes} frame
   * @param {import("../inbox.js").Received} received
   */
  async take(frame, { message, dropped, of, isKept = false }) {
    const hash = await this.mailbox.hashOf(frame);
    if (dropped !== undefined) return isKept ? undefined : this.mailbox.taken(of, hash);
    if (of === undefined && message === undefined) return this.mailbox.taken(of, hash);
    this.mailbox.wait(of, hash);
    // The turn does not wait for a promise: the program may ask the server for something, whose answer comes in turn.
    if (message !== undefined) await this.#hand(message, of);
  }

  /**
   * @param {Message} message
   * @param {string | undefined} of
   */
  async #hand(message, of) {
    const isFull = this.#count > 0 && (this.#count >= HANDED_MAX || this.#bytes + message.bytes > HANDED_BYTES_MAX);
    if (isFull) return this.#leave(message, of, "queue_full");
    const answers = this.give(message);
    if (answers === null) return this.#leave(message, of, null);
    if (answers.length === 0) return this.#finish(message, of);
    this.#count += 1;
    this.#bytes += message.bytes;
    Promise.allSettled(answers).then((results) => {
      this.#count -= 1;
      this.#bytes -= message.bytes;
      const isTaken = results.every(({ status }) => status === "fulfilled");
      return isTaken ? this.#finish(message, of) : this.#leave(message, of, "not_taken");
    });
  }

  /**
   * @param {Message} message
   * @param {string | undefined} of
   */
  async #finish(message, of) {
    const { sender, id, auth, timeMs, receivedMs } = message;
    if (of !== undefined) await this.seen.add(sender, id, auth === "bound" && timeMs !== null ? timeMs : receivedMs);
    this.mailbox.taken(of, null);
    this.onTaken(message);
  }

  /**
   * @param {Message} message
   * @param {string | undefined} of
   * @param {"not_taken" | "queue_full" | null} refusal
   */
  #leave(message, of, refusal) {
    if (of !== undefined) this.seen.release(message.sender, message.id);
    this.mailbox.leave(of);
    if (refusal !== null) this.onNotTaken(message, refusal);
  }
}
