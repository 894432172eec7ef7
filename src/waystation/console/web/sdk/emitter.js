// @ts-check
/**
 * An EventTarget whose events are named and typed, with `on` for those who want no event object.
 * @module
 */

import { LocalError } from "./errors.js";

/** An event, and the promises that listeners of `on` returned. @extends {CustomEvent<any>} */
class Told extends CustomEvent {
  /** @type {Promise<unknown>[]} */
  answers = [];
}

/**
 * @template {Record<string, any>} Events Details by event type.
 */
export class Emitter extends EventTarget {
  /**
   * Calls the listener with each event's detail.
   * @template {keyof Events & string} Type
   * @param {Type} type
   * @param {(detail: Events[Type]) => unknown} listener
   * @returns {() => void} Ends that.
   */
  on(type, listener) {
    if (typeof listener !== "function") throw new LocalError("A listener is a function.");
    /** @param {Event} event */
    const unwrap = (event) => {
      const { detail, answers } = /** @type {Told} */ (event);
      try {
        const answer = /** @type {any} */ (listener(detail));
        if (typeof answer?.then === "function") answers.push(answer);
      } catch (error) {
        const failure = Promise.reject(error);
        failure.catch(() => error); // It is thrown to the page as well, here:
        answers.push(failure);
        throw error;
      }
    };
    this.addEventListener(type, unwrap);
    return () => this.removeEventListener(type, unwrap);
  }

  /**
   * Tells an event.
   * @template {keyof Events & string} Type
   * @param {Type} type
   * @param {Events[Type]} detail
   * @returns {Promise<unknown>[]} What listeners of `on` returned that is a promise, and a rejected one for each that threw.
   */
  emit(type, detail) {
    const event = new Told(type, { detail });
    this.dispatchEvent(event);
    return event.answers;
  }
}
