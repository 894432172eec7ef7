// @ts-check
/**
 * Sends no faster than a relay takes: specs/merk.md 6 allows 500 frames a second (1,000 at once) and 16 MiB a second (64 MiB at once).
 * @module
 */

/** A tenth below the relay's, since both clocks count on their own. */
export const FRAMES_PER_S = 450;
export const FRAMES_AT_ONCE = 900;
export const BYTES_PER_S = 15_000_000;
export const BYTES_AT_ONCE = 60_000_000;

/** The allowance of one connection. */
export class Pace {
  #frames = FRAMES_AT_ONCE;
  #bytes = BYTES_AT_ONCE;
  #filledMs = 0;

  /**
   * Counts a frame.
   * @param {number} bytes
   * @param {number} nowMs
   * @returns {number} Milliseconds to wait before it may leave.
   */
  take(bytes, nowMs) {
    const seconds = Math.max(0, nowMs - this.#filledMs) / 1_000;
    this.#filledMs = nowMs;
    this.#frames = Math.min(FRAMES_AT_ONCE, this.#frames + seconds * FRAMES_PER_S) - 1;
    this.#bytes = Math.min(BYTES_AT_ONCE, this.#bytes + seconds * BYTES_PER_S) - bytes;
    const waitS = Math.max(-this.#frames / FRAMES_PER_S, -this.#bytes / BYTES_PER_S, 0);
    return Math.ceil(waitS * 1_000);
  }
}
