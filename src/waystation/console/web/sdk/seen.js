// @ts-check
/**
 * Tells repeats: a frame of the same sender with the same payload counts once in ten minutes. Spec: specs/merk.md 8.
 * @module
 */

export const REMEMBERED_MS = 600_000;
export const REMEMBERED_MAX = 8_192;

/** Fingerprints of the last ten minutes, the oldest forgotten first when there are too many. */
export class SeenMessages {
  /** @type {Map<string, number>} */
  #times = new Map();

  /** @param {number} [max] */
  constructor(max = REMEMBERED_MAX) {
    this.max = max;
  }

  /** How many are remembered. */
  get count() {
    return this.#times.size;
  }

  /**
   * Remembers a fingerprint.
   * @param {string} fingerprint
   * @param {number} nowMs
   * @returns {boolean} Whether it is new.
   */
  add(fingerprint, nowMs) {
    for (const [oldest, time] of this.#times) {
      if (time + REMEMBERED_MS > nowMs) break;
      this.#times.delete(oldest);
    }
    if (this.#times.has(fingerprint)) return false;
    this.#times.set(fingerprint, nowMs);
    if (this.#times.size > this.max) this.#times.delete(/** @type {string} */ (this.#times.keys().next().value));
    return true;
  }
}
