// @ts-check
/**
 * One socket for all tabs of an identity: the tab that holds a lock owns the link, the others use it through a channel.
 *
 * When the owner closes, the browser hands the lock to another tab, which connects to the same server. A tab that is looked
 * at and gets no answer from the owner takes the lock by force. Where the browser has no locks each tab is alone.
 * @module
 */

import { toHex } from "./bytes.js";
import { Emitter } from "./emitter.js";
import { LocalError } from "./errors.js";
import { Link } from "./link.js";
import { outcomeOf } from "./delivery/outcomes.js";
import { idleState } from "./state.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {import("./delivery/outcomes.js").Outcome} Outcome */
/** @typedef {import("./state.js").State} State */

/**
 * What tabs say to each other.
 * @typedef {{ kind: "call", from: string, id: number, name: "start" | "stop" | "wake" | "send" | "tell", argument: any }} Call
 * @typedef {{ kind: "answer", to: string, id: number, outcome: Outcome | null, error: string | null }} Answer
 * @typedef {{ kind: "event", type: keyof import("./link.js").LinkEvents | "changed", detail: any }} Told
 * @typedef {{ kind: "owner" }} OwnerChanged
 * @typedef {Call | Answer | Told | OwnerChanged} TabMessage
 */

/** @typedef {import("./link.js").LinkEvents & { changed: string }} SharedEvents `changed`: another tab wrote that table. */

/** An owner that does not answer for so long is taken to be frozen. */
export const OWNER_WITHIN_MS = 5_000;
/** Longer than any outcome takes. */
const SEND_WITHIN_MS = 60_000;
export const CALLS_MAX = 4_096;

/** Shown where tabs cannot share. */
export const NO_LOCKS_WARNING =
  "This page cannot share its connection with other tabs, so open it in one tab only: a second one with the same identity " +
  "would take the connection away from the first.";

/** @extends {Emitter<SharedEvents>} */
export class SharedLink extends Emitter {
  /** @type {State} */
  state;
  /** @type {Link | null} */
  #link = null;
  /** @type {import("./environment.js").Channel | null} */
  #channel = null;
  #tabId;
  #callCount = 0;
  /** @type {Map<number, { resolve: (outcome: Outcome | null) => void, reject: (error: Error) => void, timer: unknown }>} */
  #calls = new Map();
  /** Lets go of the lock. @type {() => void} */
  #release = () => {};
  #isClosed = false;
  #onVisible = () => {
    if (this.environment.page?.visibilityState !== "hidden" && this.state.tab === "follower") this.wake();
  };

  /**
   * @param {object} options
   * @param {import("./keys.js").Keys} options.keys
   * @param {import("./environment.js").Environment} options.environment
   * @param {import("./link.js").Pins} options.pins
   * @param {number} [options.frameBytesMax]
   */
  constructor(options) {
    super();
    this.options = options;
    this.environment = options.environment;
    this.lockName = `waystation-merk:${options.keys.id}`;
    this.#tabId = toHex(options.keys.crypto.randomBytes(8));
    this.state = idleState("alone");
  }

  /** Whether tabs can share here. */
  get canShare() {
    return this.environment.locks !== null && this.environment.broadcastChannel !== null;
  }

  /** A sentence for people, where two tabs would have one identity and cannot share. */
  get warning() {
    // A program without a page has no tabs.
    return this.canShare || this.environment.page === null ? null : NO_LOCKS_WARNING;
  }

  /** Becomes owner, follower, or alone. */
  async open() {
    if (!this.canShare) return this.#own("alone");
    this.#channel = /** @type {(name: string) => import("./environment.js").Channel} */ (this.environment.broadcastChannel)(this.lockName);
    this.#channel.onmessage = ({ data }) => this.#onTabMessage(data);
    this.environment.page?.addEventListener("visibilitychange", this.#onVisible);
    if (await this.#contend({ ifAvailable: true })) return;
    this.#follow();
  }

  /**
   * Connects, in whichever tab owns the link.
   * @param {string} address
   */
  async start(address) {
    await this.#do("start", address);
  }

  async stop() {
    await this.#do("stop", null);
  }

  /** Tries now; an owner that gives no answer loses the link to this tab. */
  async wake() {
    try {
      await this.#do("wake", null);
    } catch (error) {
      if (!(error instanceof LocalError)) throw error;
      const isLookedAt = this.environment.page?.visibilityState !== "hidden";
      if (!this.#isClosed && this.state.tab === "follower" && isLookedAt) this.#contend({ steal: true });
    }
  }

  /**
   * Sends a frame of content.
   * @param {Bytes} frame
   * @returns {Promise<Outcome>}
   */
  async send(frame) {
    return (await this.#do("send", frame)) ?? outcomeOf("not_connected");
  }

  /**
   * Says something to the server.
   * @param {import("./info.js").Info} info
   */
  async tell(info) {
    await this.#do("tell", info);
  }

  /**
   * Tells the other tabs that a table of the storage changed.
   * @param {string} table
   */
  changed(table) {
    this.#channel?.postMessage({ kind: "event", type: "changed", detail: table });
  }

  /** Ends everything in this tab; another one takes over. */
  close() {
    this.#isClosed = true;
    this.#disown();
    this.#settleCalls();
    this.environment.page?.removeEventListener("visibilitychange", this.#onVisible);
    if (this.#channel !== null) {
      this.#channel.onmessage = null;
      this.#channel.close();
    }
    this.#channel = null;
    this.#release();
  }

  /**
   * Asks for the lock and holds it until `close`, or until it is taken away.
   * @param {LockOptions} options
   * @returns {Promise<boolean>} Whether this tab has it now.
   */
  #contend(options) {
    const locks = /** @type {LockManager} */ (this.environment.locks);
    return new Promise((resolve) => {
      const held = locks.request(this.lockName, options, (lock) => {
        if (lock === null || this.#isClosed || this.#link !== null) return resolve(false);
        this.#own("owner");
        resolve(true);
        return new Promise((release) => {
          this.#release = () => release(null);
        });
      });
      held.catch((error) => {
        if (error.name !== "AbortError") throw error;
        this.#onLockTaken();
      });
    });
  }

  #onLockTaken() {
    if (this.#isClosed) return;
    this.#disown();
    this.#follow();
  }

  /** Waits for the lock as a follower. */
  #follow() {
    this.#setState({ ...this.state, tab: "follower" });
    this.#contend({});
    this.wake();
  }

  /** @param {"owner" | "alone"} tab */
  #own(tab) {
    const { address, phase } = this.state;
    const link = new Link(this.options);
    this.#link = link;
    // A link that is given up says so; other tabs must not take that for the user's wish to disconnect.
    const isCurrent = () => this.#link === link;
    link.on("state", (state) => isCurrent() && this.#tellAll("state", { ...state, tab }));
    for (const type of /** @type {const} */ (["frame", "info", "dropped"])) link.on(type, (detail) => isCurrent() && this.#tellAll(type, detail));
    this.#channel?.postMessage({ kind: "owner" });
    this.#settleCalls();
    this.#tellAll("state", { ...this.state, tab });
    if (address !== null && phase !== "idle" && phase !== "refused") link.start(address);
  }

  #disown() {
    const link = this.#link;
    this.#link = null;
    link?.close();
  }

  /**
   * @param {keyof import("./link.js").LinkEvents} type
   * @param {any} detail
   */
  #tellAll(type, detail) {
    if (type === "state") this.state = detail;
    this.#channel?.postMessage({ kind: "event", type, detail });
    this.emit(type, detail);
  }

  /** @param {State} state */
  #setState(state) {
    this.state = state;
    this.emit("state", state);
  }

  /**
   * @param {Call["name"]} name
   * @param {any} argument
   * @returns {Promise<Outcome | null>}
   */
  async #do(name, argument) {
    if (this.#isClosed) throw new LocalError("This client is closed.");
    if (this.#link !== null) return this.#doHere(this.#link, name, argument);
    if (this.#calls.size >= CALLS_MAX) throw new LocalError("More is waiting to be sent than the connection can take; wait a moment.");
    this.#callCount += 1;
    const id = this.#callCount;
    return new Promise((resolve, reject) => {
      const timer = this.environment.clock.setTimeout(() => this.#onNoAnswer(id, name), name === "send" ? SEND_WITHIN_MS : OWNER_WITHIN_MS);
      this.#calls.set(id, { resolve, reject, timer });
      this.#channel?.postMessage({ kind: "call", from: this.#tabId, id, name, argument });
    });
  }

  /**
   * @param {Link} link
   * @param {Call["name"]} name
   * @param {any} argument
   * @returns {Promise<Outcome | null>}
   */
  async #doHere(link, name, argument) {
    if (name === "send") return link.send(argument);
    if (name === "tell") await link.tell(argument);
    else if (name === "start") link.start(argument);
    else link[name]();
    return null;
  }

  /**
   * @param {number} id
   * @param {Call["name"]} name
   */
  #onNoAnswer(id, name) {
    const call = this.#calls.get(id);
    this.#calls.delete(id);
    if (name === "send") call?.resolve(outcomeOf("no_notice"));
    else call?.reject(new LocalError("The tab that holds the connection does not answer."));
  }

  /** @param {TabMessage} message */
  #onTabMessage(message) {
    switch (message.kind) {
      case "call":
        return this.#onCall(message);
      case "answer":
        return this.#onAnswer(message);
      case "event":
        return this.#onTold(message);
      case "owner":
        return this.#settleCalls();
    }
  }

  /** @param {Call} call */
  async #onCall({ from, id, name, argument }) {
    const link = this.#link;
    if (link === null) return;
    if (name === "wake") this.#channel?.postMessage({ kind: "event", type: "state", detail: this.state });
    /** @type {Omit<Answer, "outcome" | "error">} */
    const answer = { kind: "answer", to: from, id };
    try {
      const outcome = await this.#doHere(link, name, argument);
      this.#channel?.postMessage({ ...answer, outcome, error: null });
    } catch (error) {
      if (!(error instanceof LocalError)) throw error;
      this.#channel?.postMessage({ ...answer, outcome: null, error: error.message });
    }
  }

  /** @param {Answer} answer */
  #onAnswer({ to, id, outcome, error }) {
    const call = this.#calls.get(id);
    if (to !== this.#tabId || call === undefined) return;
    this.#calls.delete(id);
    this.environment.clock.clearTimeout(call.timer);
    if (error === null) call.resolve(outcome);
    else call.reject(new LocalError(error));
  }

  /** @param {Told} told */
  #onTold({ type, detail }) {
    if (type === "changed") return this.emit("changed", detail);
    if (this.#link !== null) return;
    if (type === "state") this.#setState({ ...detail, tab: "follower" });
    else this.emit(type, detail);
  }

  /** The owner changed: what it was asked is not answered any more. */
  #settleCalls() {
    for (const { resolve, timer } of this.#calls.values()) {
      this.environment.clock.clearTimeout(timer);
      resolve(outcomeOf("lost"));
    }
    this.#calls.clear();
  }
}
