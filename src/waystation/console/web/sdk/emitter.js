// @ts-check
/**
 * An EventTarget whose events are named and typed, with `on` for those who want no event object.
 * @module
 */

import { LocalError } from "./errors.js";

/**
 * @template {Record<string, any>} Events Details by event type.
 */
export class Emitter extends EventTarget {
  /**
   * Calls the listener with each event's detail.
   * @template {keyof Events & string} Type
   * @param {Type} type
   * @param {(detail: Events[Type]) => void} listener
   * @returns {() => void} Ends that.
   */
  on(type, listener) {
    if (typeof listener !== "function") throw new LocalError("A listener is a function.");
    /** @param {Event} event */
    const unwrap = (event) => listener(/** @type {CustomEvent} */ (event).detail);
    this.addEventListener(type, unwrap);
    return () => this.removeEventListener(type, unwrap);
  }

  /**
   * Tells an event.
   * @template {keyof Events & string} Type
   * @param {Type} type
   * @param {Events[Type]} detail
   */
  emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
