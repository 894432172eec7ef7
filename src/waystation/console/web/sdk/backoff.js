// @ts-check
/**
 * How long to wait before the next try: half a second, doubling to 30 seconds, with jitter, for ever.
 * @module
 */

export const FIRST_MS = 500;
export const CEILING_MS = 30_000;

/** Waiting times of one connection's tries. */
export class Backoff {
  /** @param {() => number} random Numbers in [0, 1). */
  constructor(random) {
    this.random = random;
    this.attempt = 0;
  }

  /** The next wait in milliseconds: between half of the step and the whole of it. */
  next() {
    const step = Math.min(FIRST_MS * 2 ** Math.min(this.attempt, 16), CEILING_MS);
    this.attempt += 1;
    return step * (0.5 + this.random() / 2);
  }

  /** Makes the next wait the longest one, for an end that a quick return would only repeat. */
  exhaust() {
    this.attempt = Math.max(this.attempt, 16);
  }

  /** Begins anew, after a success. */
  reset() {
    this.attempt = 0;
  }
}
