// @ts-check
/**
 * Deals with one thing after the other, in the order in which they came, as long as not too much waits.
 * @module
 */

import { LocalError } from "./errors.js";

/** As in the Python client. */
export const WAITING_BYTES_MAX = 67_108_864;

/** A queue of actions. */
export class Turns {
  /** @type {Promise<unknown>} */
  #last = Promise.resolve();
  #waitingBytes = 0;

  /**
   * Puts an action behind those before it.
   * @param {() => Promise<void>} action
   */
  put(action) {
    const done = this.#last.then(action);
    this.#last = done.catch(() => null); // One failure does not keep up what follows; it is told here:
    done.catch((error) => {
      // The connection went away meanwhile, which the state tells. Anything else is a fault, left to the page to see.
      if (!(error instanceof LocalError)) throw error;
    });
  }

  /**
   * Puts an action that holds some memory until it is done.
   * @param {number} bytes
   * @param {() => Promise<void>} action
   * @returns {boolean} False when too much waits.
   */
  putLarge(bytes, action) {
    if (this.#waitingBytes + bytes > WAITING_BYTES_MAX) return false;
    this.#waitingBytes += bytes;
    this.put(() => action().finally(() => (this.#waitingBytes -= bytes)));
    return true;
  }
}
