// @ts-check
/**
 * A connection that comes back for ever: tries again with growing waits, and at once when the page is looked at again or the
 * network returns.
 *
 * Timers of hidden pages are throttled and sockets of sleeping machines die without a word, so a page that becomes visible
 * does not trust what it has: it asks the server something and reconnects when no answer comes. Only two things stop the
 * tries: a server that tries to misuse our signature, and one that is not the server we know.
 * @module
 */

import { toHex } from "./bytes.js";
import { Backoff } from "./backoff.js";
import { Emitter } from "./emitter.js";
import { LocalError } from "./errors.js";
import { FRAME_BYTES_MAX, frameHash } from "./frames.js";
import { Pace } from "./delivery/pace.js";
import { encodeInfoFrame, Feature, PresenceKind } from "./info.js";
import { outcomeOf, outcomeOfCode, PendingOutcomes } from "./delivery/outcomes.js";
import { makePresence } from "./proofs.js";
import { closeStatus, Session } from "./session.js";
import { idleState, sentenceOf } from "./state.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {import("./delivery/outcomes.js").Outcome} Outcome */
/** @typedef {import("./state.js").State} State */
/** @typedef {import("./errors.js").Refusal} Refusal */

/**
 * @typedef {object} LinkEvents
 * @property {State} state
 * @property {Bytes} frame A frame of content, whole.
 * @property {import("./info.js").Info} info
 * @property {{ refusal: Refusal, sender: string | null }} dropped
 */

/**
 * The one key that each server may have.
 * @typedef {object} Pins
 * @property {(address: string) => Promise<Bytes | null>} pinOf
 * @property {(address: string, key: Bytes) => Promise<void>} pin
 */

export const OPEN_WITHIN_MS = 15_000;
/** How long a server may take to show life when asked. */
export const PROBE_WITHIN_MS = 5_000;
/** A connection on which nothing came for so long is asked. */
export const QUIET_MS = 30_000;
/** Hostile challenges in a row after which the tries stop; honest ones are refused 4 times in 256. */
export const HOSTILE_MAX = 3;
/** A signed presence proves to other nodes where this client is; it is renewed twice in its life. */
export const PRESENCE_FOR_MS = 600_000;
export const PRESENCE_EVERY_MS = 300_000;
/** What may wait for the pace. */
export const QUEUED_MAX = 4_096;
export const QUEUED_BYTES_MAX = 67_108_864;
const REPLACED_STATUS = 4409;
const TOO_MUCH = "More is waiting to be sent than the connection can take; wait a moment.";
const BUFFERED_BYTES_MAX = 2 * FRAME_BYTES_MAX;

/** @extends {Emitter<LinkEvents>} */
export class Link extends Emitter {
  /** @type {State} */
  state = idleState("alone");
  /** @type {import("./environment.js").Socket | null} */
  #socket = null;
  /** @type {Session | null} */
  #session = null;
  #backoff;
  #pending;
  #hostileCount = 0;
  #heardMs = 0;
  /** Names the newest attempt, so that what an older one still does is ignored. */
  #attemptId = 0;
  /** @type {Promise<unknown>} */
  #sending = Promise.resolve();
  #pace = new Pace();
  #queued = 0;
  #queuedBytes = 0;
  /** @type {Partial<Record<"retry" | "open" | "probe" | "quiet" | "presence", unknown>>} */
  #timers = {};
  #onVisible = () => {
    if (this.environment.page?.visibilityState !== "hidden") this.wake();
  };
  #onOnline = () => this.wake();

  /**
   * @param {object} options
   * @param {import("./keys.js").Keys} options.keys
   * @param {import("./environment.js").Environment} options.environment
   * @param {Pins} options.pins
   * @param {number} [options.frameBytesMax]
   */
  constructor({ keys, environment, pins, frameBytesMax = FRAME_BYTES_MAX }) {
    super();
    this.keys = keys;
    this.environment = environment;
    this.pins = pins;
    this.frameBytesMax = frameBytesMax;
    this.#backoff = new Backoff(environment.random);
    this.#pending = new PendingOutcomes(environment.clock);
    environment.page?.addEventListener("visibilitychange", this.#onVisible);
    environment.network?.addEventListener("online", this.#onOnline);
    environment.network?.addEventListener("pageshow", this.#onOnline);
  }

  /**
   * Connects to a server, and reconnects until `stop`.
   * @param {string} address
   */
  start(address) {
    this.#drop();
    this.#pace = new Pace();
    this.#backoff.reset();
    this.#hostileCount = 0;
    this.#connect(address);
  }

  /** Lets go of the server. */
  stop() {
    this.#drop();
    this.#become({ phase: "idle", address: this.state.address, reason: null });
  }

  /** Ends everything; the link is not used after it. */
  close() {
    this.stop();
    this.environment.page?.removeEventListener("visibilitychange", this.#onVisible);
    this.environment.network?.removeEventListener("online", this.#onOnline);
    this.environment.network?.removeEventListener("pageshow", this.#onOnline);
  }

  /** Tries now instead of later, or finds out whether the connection still lives. */
  wake() {
    if (this.state.phase === "waiting" && this.state.address !== null) this.#connect(this.state.address);
    else if (this.state.phase === "ready") this.#probe();
  }

  /**
   * Sends a frame of content, as soon as the server's allowance has room for it.
   * @param {Bytes} frame
   * @returns {Promise<Outcome>}
   * @throws {LocalError} It is too large for the server, or too much is on its way already.
   */
  async send(frame) {
    this.#demandSize(frame);
    if (this.#queued >= QUEUED_MAX || this.#queuedBytes + frame.length > QUEUED_BYTES_MAX) throw new LocalError(TOO_MUCH);
    this.#queued += 1;
    this.#queuedBytes += frame.length;
    const hashed = frameHash(this.keys.crypto, frame);
    // Hashes of small frames may be ready before those of large ones; the order is that of the calls nevertheless.
    const turn = this.#sending.then(async () => {
      const hash = toHex(await hashed);
      await this.#inPace(frame.length);
      return this.#sendNow(frame, hash);
    });
    this.#sending = turn.catch(() => null);
    const { outcome } = await turn.finally(() => this.#dequeue(frame.length));
    return outcome;
  }

  /** @param {number} bytes */
  #dequeue(bytes) {
    this.#queued -= 1;
    this.#queuedBytes -= bytes;
  }

  /** @param {Bytes} frame */
  #demandSize({ length }) {
    const max = Math.min(this.frameBytesMax, this.state.frameBytesMax);
    if (length > max) throw new LocalError(`This server takes messages of ${max} bytes at most, this one has ${length}.`);
  }

  /** @param {number} bytes */
  async #inPace(bytes) {
    const { clock } = this.environment;
    const waitMs = this.state.phase === "ready" ? this.#pace.take(bytes, clock.now()) : 0;
    if (waitMs > 0) await new Promise((resolve) => clock.setTimeout(() => resolve(null), waitMs));
  }

  /**
   * @param {Bytes} frame
   * @param {string} hash
   * @returns {{ outcome: Promise<Outcome> }} Wrapped, so that the next frame does not wait for it.
   */
  #sendNow(frame, hash) {
    const socket = this.#socket;
    if (this.state.phase !== "ready" || socket === null) return { outcome: Promise.resolve(outcomeOf("not_connected")) };
    if (this.#pending.isFull || socket.bufferedAmount > BUFFERED_BYTES_MAX) {
      throw new LocalError(TOO_MUCH);
    }
    const tells = (this.state.features & Feature.DELIVERY_NOTICES) !== 0;
    const outcome = tells ? this.#pending.expect(hash) : Promise.resolve(outcomeOf("untold"));
    socket.send(frame);
    return { outcome };
  }

  /**
   * Says something to the server; nothing happens while there is none.
   * @param {import("./info.js").Info} info
   */
  async tell(info) {
    if (this.state.phase === "ready") this.#socket?.send(encodeInfoFrame(info, this.keys.signing.public));
  }

  /** @param {string} address */
  async #connect(address) {
    this.#drop();
    const id = this.#attemptId;
    this.#become({ phase: "connecting", address, reason: this.state.reason });
    const pinnedKey = await this.pins.pinOf(address);
    if (id !== this.#attemptId) return;
    try {
      this.#open(address, pinnedKey, id);
    } catch {
      this.#retry("no_connection"); // An address that this page may not use throws at once; `addServer` explains such ones.
    }
  }

  /**
   * @param {string} address
   * @param {Bytes | null} pinnedKey
   * @param {number} id
   */
  #open(address, pinnedKey, id) {
    const socket = this.environment.socketFactory(address);
    this.#socket = socket;
    socket.binaryType = "arraybuffer";
    this.#after("open", OPEN_WITHIN_MS, () => this.#lose("no_connection"));
    socket.onopen = () => {
      if (id === this.#attemptId) this.#onOpen(socket, pinnedKey, id);
    };
    socket.onmessage = ({ data }) => {
      if (id === this.#attemptId) this.#onMessage(data);
    };
    socket.onclose = ({ code }) => {
      if (id === this.#attemptId) this.#onClosed(code);
    };
    socket.onerror = null; // A close always follows, and the error event says nothing more.
  }

  /**
   * @param {import("./environment.js").Socket} socket
   * @param {Bytes | null} pinnedKey
   * @param {number} id
   */
  #onOpen(socket, pinnedKey, id) {
    this.#cancel("open");
    this.#session = new Session({
      keys: this.keys,
      clock: this.environment.clock,
      pinnedKey,
      frameBytesMax: this.frameBytesMax,
      send: (data) => {
        if (id === this.#attemptId) socket.send(data);
      },
      listener: (event) => {
        if (id === this.#attemptId) this.#onSessionEvent(event);
      },
    });
    this.#become({ phase: "handshaking", address: this.state.address, reason: null });
  }

  /** @param {unknown} data */
  #onMessage(data) {
    this.#heardMs = this.environment.clock.now();
    this.#cancel("probe");
    this.#session?.receive(data);
  }

  /** @param {import("./session.js").SessionEvent} event */
  #onSessionEvent(event) {
    switch (event.type) {
      case "ready":
        return this.#onReady(event);
      case "frame":
        return this.emit("frame", event.data);
      case "info":
        return this.#onInfo(event.info);
      case "dropped":
        return this.emit("dropped", { refusal: event.refusal, sender: event.sender && toHex(event.sender) });
      case "ended":
        return this.#onEnded(event.refusal);
    }
  }

  /** @param {import("./session.js").Ready} ready */
  #onReady({ server, authenticated, features, frameBytesMax }) {
    const { address } = this.state;
    this.#backoff.reset();
    this.#hostileCount = 0;
    if (authenticated && address !== null) this.pins.pin(address, server);
    this.#become({ phase: "ready", address, reason: null, serverKey: toHex(server), authenticated, features, frameBytesMax });
    this.#watch();
    if (this.#timers.presence === undefined && (features & Feature.PRESENCE) !== 0) this.#sayPresence(server, this.#attemptId);
  }

  /** @param {import("./info.js").Info} info */
  #onInfo(info) {
    if (info.type === "delivery") this.#pending.settle(toHex(info.frameHash), outcomeOfCode(info.code));
    else this.emit("info", info);
  }

  /** @param {Refusal} refusal */
  #onEnded(refusal) {
    const isHostile = refusal === "hostile_challenge";
    if (isHostile) this.#hostileCount += 1;
    this.#drop(closeStatus(refusal));
    if (refusal === "wrong_server" || (isHostile && this.#hostileCount > HOSTILE_MAX)) this.#refuse(refusal);
    else this.#retry(refusal);
  }

  /** @param {number} status */
  #onClosed(status) {
    if (status === REPLACED_STATUS) this.#backoff.exhaust();
    this.#lose(status === REPLACED_STATUS ? "replaced" : "no_connection");
  }

  /** @param {string} reason */
  #lose(reason) {
    this.#drop();
    this.#retry(reason);
  }

  /** @param {string} reason */
  #retry(reason) {
    const waitMs = this.#backoff.next();
    const { address } = this.state;
    this.#become({ phase: "waiting", address, reason, attempt: this.#backoff.attempt, retryAtMs: this.environment.clock.now() + waitMs });
    this.#after("retry", waitMs, () => address !== null && this.#connect(address));
  }

  /** @param {Refusal} reason */
  #refuse(reason) {
    this.#become({ phase: "refused", address: this.state.address, reason });
  }

  /** Asks for a sign of life, and reconnects at once when none comes. */
  #probe() {
    if (this.#timers.probe !== undefined) return;
    this.#after("probe", PROBE_WITHIN_MS, () => {
      const { address } = this.state;
      if (address !== null) this.#connect(address);
    });
    this.tell({ type: "request_servers" });
  }

  /**
   * Signs where this client is, now and again before that ends.
   * @param {Bytes} server
   * @param {number} id
   */
  async #sayPresence(server, id) {
    this.#after("presence", PRESENCE_EVERY_MS, () => this.#sayPresence(server, id));
    const now = this.environment.clock.now();
    const presence = await makePresence(this.keys, PresenceKind.CONNECTED, server, now, now + PRESENCE_FOR_MS);
    if (id === this.#attemptId) await this.tell({ type: "presence", ...presence });
  }

  #watch() {
    this.#after("quiet", QUIET_MS, () => {
      if (this.environment.clock.now() - this.#heardMs >= QUIET_MS) this.#probe();
      this.#watch();
    });
  }

  /**
   * Lets go of socket, session and timers; what was sent and not told of is lost.
   * @param {number} [status]
   */
  #drop(status = 1000) {
    this.#attemptId += 1;
    for (const name of /** @type {const} */ (["retry", "open", "probe", "quiet", "presence"])) this.#cancel(name);
    this.#session?.disconnect();
    this.#session = null;
    const socket = this.#socket;
    this.#socket = null;
    if (socket !== null) {
      socket.onopen = socket.onmessage = socket.onclose = null;
      socket.close(status);
    }
    this.#pending.settleAll("lost");
  }

  /**
   * @param {"retry" | "open" | "probe" | "quiet" | "presence"} name
   * @param {number} delayMs
   * @param {() => void} action
   */
  #after(name, delayMs, action) {
    this.#cancel(name);
    this.#timers[name] = this.environment.clock.setTimeout(() => {
      delete this.#timers[name];
      action();
    }, delayMs);
  }

  /** @param {"retry" | "open" | "probe" | "quiet" | "presence"} name */
  #cancel(name) {
    if (this.#timers[name] !== undefined) this.environment.clock.clearTimeout(this.#timers[name]);
    delete this.#timers[name];
  }

  /** @param {Partial<State> & Pick<State, "phase" | "address" | "reason">} change */
  #become(change) {
    const state = { ...idleState("alone"), attempt: this.#backoff.attempt, ...change };
    this.state = { ...state, sentence: sentenceOf(state) };
    this.emit("state", this.state);
  }
}
