// @ts-check
/**
 * Questions that wait for their answer (MERK-ANSWER): only an encrypted, bound message of whom was asked, which names the question.
 * @module
 */

import { LocalError, NoAnswerError } from "../errors.js";

/** @typedef {import("../inbox.js").Message} Message */

/** Questions that wait at once; one more is refused. */
export const ASKS_MAX = 4_096;

/** What was asked and is not answered yet. */
export class Asks {
  /** By peer and id. @type {Map<string, { settle: (answer: Message) => void, fail: (error: Error) => void }>} */
  #waiting = new Map();

  /** @param {import("../environment.js").Clock} clock */
  constructor(clock) {
    this.clock = clock;
  }

  /**
   * Waits for the answer of one peer to one message.
   * @param {string} peer
   * @param {string} id
   * @param {number} withinMs
   * @returns {Promise<Message>}
   * @throws {LocalError} Too many wait.
   */
  expect(peer, id, withinMs) {
    if (this.#waiting.size >= ASKS_MAX) throw new LocalError(`${ASKS_MAX} questions wait for their answer; ask again when some have it.`);
    /** @type {Promise<Message>} */
    const answer = new Promise((settle, fail) => this.#waiting.set(`${peer}:${id}`, { settle, fail }));
    const timer = this.clock.setTimeout(() => this.fail(peer, id, new NoAnswerError("no_answer")), withinMs);
    const end = () => this.clock.clearTimeout(timer);
    answer.then(end, end);
    return answer;
  }

  /**
   * Takes a message that somebody waits for.
   * @param {Message} message
   * @returns {boolean} Whether it is one.
   */
  settle(message) {
    const name = `${message.sender}:${message.answers}`;
    const waiting = message.answers === undefined ? undefined : this.#waiting.get(name);
    this.#waiting.delete(name);
    waiting?.settle(message);
    return waiting !== undefined;
  }

  /**
   * Ends the waiting for one answer.
   * @param {string} peer
   * @param {string} id
   * @param {Error} error
   */
  fail(peer, id, error) {
    const waiting = this.#waiting.get(`${peer}:${id}`);
    this.#waiting.delete(`${peer}:${id}`);
    waiting?.fail(error);
  }

  /** Nobody waits any more. */
  close() {
    for (const { fail } of this.#waiting.values()) fail(new LocalError("The client was closed before the answer came."));
    this.#waiting.clear();
  }
}
