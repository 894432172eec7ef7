// @ts-check
/**
 * Waits for a state of a connection, as long as its client is open.
 * @module
 */

/** @typedef {import("./state.js").State} State */

/** Those who wait. */
export class Waits {
  isClosed = false;
  /** Ends what waits for a connection. @type {Set<() => void>} */
  #waiters = new Set();

  /**
   * @param {import("./environment.js").Clock} clock
   * @param {{ state: State, on: (type: "state", listener: (state: State) => void) => () => void }} client
   */
  constructor(clock, client) {
    this.clock = clock;
    this.client = client;
  }

  /**
   * Waits until the state is a certain one, or the time is over, or the client is closed.
   * @param {number} withinMs
   * @param {(state: State) => boolean} holds
   * @returns {Promise<void>}
   */
  async settled(withinMs, holds) {
    if (this.isClosed || holds(this.client.state)) return undefined;
    return new Promise((resolve) => {
      const timer = this.clock.setTimeout(() => finish(), withinMs);
      const off = this.client.on("state", (state) => holds(state) && finish());
      const finish = () => {
        off();
        this.clock.clearTimeout(timer);
        this.#waiters.delete(finish);
        resolve(undefined);
      };
      this.#waiters.add(finish);
    });
  }

  /** Nobody waits any more. */
  close() {
    this.isClosed = true;
    for (const finish of [...this.#waiters]) finish();
  }
}
