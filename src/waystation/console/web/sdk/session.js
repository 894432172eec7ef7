// @ts-check
/**
 * One connection to a server, from its challenge on: what arrives, what may be sent, and when it must end.
 *
 * awaiting_challenge -> answered -> confirmed -> ready -> ended. A client signs 32 bytes that the server chose, so it signs
 * once per connection, and never bytes that could be read as typed content (specs/merk.md 8). Nothing is sent before the
 * confirmation. A server that says HELLO and proves its key is authenticated, and gets our own proof (AUTH), bound to its key and
 * to both nonces, so that nobody can pass it on to another server; one that stays silent is an original relay.
 * @module
 */

import { equal, isZero, toHex } from "./bytes.js";
import { ContentType } from "./contents.js";
import { MalformedError } from "./errors.js";
import { CHALLENGE_BYTES, decodeFrame, encodeFrame, FRAME_BYTES_MAX, MessageType } from "./frames.js";
import { decodeInfo, encodeInfoFrame, Feature, NONCE_BYTES, Role } from "./info.js";
import { authMessage } from "./proofs.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {import("./errors.js").Refusal} Refusal */
/** @typedef {import("./frames.js").Frame} Frame */
/** @typedef {"awaiting_challenge" | "answered" | "confirmed" | "ready" | "ended"} SessionState */

/**
 * What a session tells.
 * @typedef {{ type: "ready", server: Bytes, authenticated: boolean, features: number, frameBytesMax: number }} Ready Told again if the
 *   proof or the limits are late.
 * @typedef {{ type: "frame", frame: Frame, data: Bytes }} FrameArrived
 * @typedef {{ type: "info", info: import("./info.js").Info }} InfoArrived
 * @typedef {{ type: "dropped", refusal: Refusal, sender: Bytes | null }} Dropped
 * @typedef {{ type: "ended", refusal: Refusal, detail: string }} Ended The connection must be closed with `status`.
 * @typedef {Ready | FrameArrived | InfoArrived | Dropped | Ended} SessionEvent
 */

/** From the open connection to the confirmation. */
export const HANDSHAKE_WITHIN_MS = 10_000;
/** How long a server may take to answer HELLO before it counts as an original relay. */
export const HELLO_WITHIN_MS = 2_000;
/** What may wait for its turn; a server that sends faster than this page computes is cut off. */
export const WAITING_MAX = 4_096;
export const WAITING_BYTES_MAX = 8 * FRAME_BYTES_MAX;

const OUR_FEATURES = Feature.DELIVERY_NOTICES | Feature.KEY_DIRECTORY | Feature.HEADER_SIGNATURES | Feature.PRESENCE | Feature.MAILBOX;

/** @type {Partial<Record<Refusal, number>>} */
const STATUSES = { short: 1002, bad_magic: 1002, bad_version: 1002, bad_length: 1002, too_big: 1009, auth_timeout: 4408 };

/**
 * Gives the status with which a page closes a connection. Browsers let pages use 1000 and 3000 to 4999 only, so 1xxx
 * become 4xxx with the same last digits.
 * @param {Refusal} refusal
 */
export function closeStatus(refusal) {
  const status = STATUSES[refusal] ?? 4401;
  return status < 3000 ? status + 3000 : status;
}

/** One connection's state. Bytes go in by `receive`, one after the other; events come out by the listener. */
export class Session {
  /** @type {SessionState} */
  state = "awaiting_challenge";
  /** Key that the server names at confirmation. @type {Bytes | null} */
  server = null;
  authenticated = false;
  features = 0;
  /** What the server takes, headers included. */
  limitBytes;
  /** @type {import("./info.js").Hello | null} */
  #hello = null;
  /** @type {Bytes} */
  #nonce;
  /** @type {unknown} */
  #timer;
  #turn = Promise.resolve();
  #waiting = 0;
  #waitingBytes = 0;

  /**
   * @param {object} options
   * @param {import("./keys.js").Keys} options.keys
   * @param {import("./environment.js").Clock} options.clock
   * @param {Bytes | null} options.pinnedKey The one key that the server may have.
   * @param {(data: Bytes) => void} options.send
   * @param {(event: SessionEvent) => void} options.listener
   * @param {number} [options.frameBytesMax]
   */
  constructor({ keys, clock, pinnedKey, send, listener, frameBytesMax = FRAME_BYTES_MAX }) {
    this.keys = keys;
    this.clock = clock;
    this.pinnedKey = pinnedKey;
    this.send = send;
    this.listener = listener;
    this.frameBytesMax = frameBytesMax;
    this.limitBytes = frameBytesMax;
    this.#nonce = keys.crypto.randomBytes(NONCE_BYTES);
    this.#timer = clock.setTimeout(() => this.#end("auth_timeout", "no confirmation in time"), HANDSHAKE_WITHIN_MS);
  }

  /**
   * Takes one WebSocket message.
   * @param {unknown} data An ArrayBuffer; text ends the connection.
   * @returns {Promise<void>} When it and all before it are dealt with.
   */
  receive(data) {
    if (!(data instanceof ArrayBuffer)) return this.#refuse("unknown_type", "a text message");
    if (data.byteLength > this.frameBytesMax) return this.#refuse("too_big", `${data.byteLength} bytes`);
    if (this.#waiting >= WAITING_MAX || this.#waitingBytes + data.byteLength > WAITING_BYTES_MAX) {
      return this.#refuse("not_reading", "messages come faster than they can be checked");
    }
    this.#waiting += 1;
    this.#waitingBytes += data.byteLength;
    this.#turn = this.#turn.then(() => this.#take(new Uint8Array(data)));
    return this.#turn;
  }

  /** Forgets everything; for a connection that is closed already. */
  disconnect() {
    this.state = "ended";
    this.clock.clearTimeout(this.#timer);
  }

  /** @param {Bytes} data */
  async #take(data) {
    this.#waiting -= 1;
    this.#waitingBytes -= data.length;
    if (this.state === "ended") return;
    try {
      await this.#onFrame(decodeFrame(data), data);
    } catch (error) {
      const isTheirs = error instanceof MalformedError;
      this.#end(isTheirs ? error.refusal : "not_reading", String(error));
      if (!isTheirs) throw error; // A fault of ours or the browser's: a new connection may fare better, and the page sees it.
    }
  }

  /**
   * NODE_INFO before the confirmation is nobody's harm and ignored, as the original does.
   * @param {Frame} frame
   * @param {Bytes} data
   */
  async #onFrame(frame, data) {
    if (frame.kind === MessageType.HANDSHAKE) return this.#onHandshake(frame);
    const isOpen = this.state === "confirmed" || this.state === "ready";
    if (frame.kind === MessageType.NODE_INFO) return isOpen ? this.#onInfoFrame(frame) : undefined;
    if (!isOpen) throw new MalformedError("frame_before_auth", `type ${frame.kind}`);
    return this.listener({ type: "frame", frame, data });
  }

  /** @param {Frame} frame */
  async #onHandshake({ sender, payload, signature }) {
    if (!isZero(signature)) throw new MalformedError("hostile_challenge", "a signature where there must be none");
    if (this.state === "awaiting_challenge") return this.#answer(payload);
    if (payload.length === CHALLENGE_BYTES) throw new MalformedError("hostile_challenge", "a second challenge");
    const isConfirmation = this.state === "answered" && payload.length === 1 && payload[0] === 1;
    if (!isConfirmation) throw new MalformedError("misplaced_handshake", `in state ${this.state}`);
    this.#onConfirmed(sender);
  }

  /** @param {Bytes} challenge */
  async #answer(challenge) {
    if (challenge.length !== CHALLENGE_BYTES) throw new MalformedError("hostile_challenge", `${challenge.length} bytes`);
    const first = challenge[0];
    if ((first >= ContentType.TEXT && first <= ContentType.FILE) || first === ContentType.EXTENDED) {
      throw new MalformedError("hostile_challenge", "its signature could be passed off as a signed message");
    }
    this.state = "answered";
    const signature = await this.keys.sign(challenge);
    if (this.state === "answered") this.send(encodeFrame(MessageType.HANDSHAKE, challenge, this.keys.signing.public, signature));
  }

  /** @param {Bytes} server */
  #onConfirmed(server) {
    if (this.pinnedKey !== null && !equal(server, this.pinnedKey)) throw new MalformedError("wrong_server", `key ${toHex(server)}`);
    this.server = server;
    this.state = "confirmed";
    this.clock.clearTimeout(this.#timer);
    this.#timer = this.clock.setTimeout(() => this.#onSilence(), HELLO_WITHIN_MS);
    const key = this.keys.signing.public;
    this.send(encodeInfoFrame({ type: "hello", features: OUR_FEATURES, role: Role.CLIENT, key, nonce: this.#nonce, address: "" }, key));
  }

  #onSilence() {
    if (this.pinnedKey !== null) this.#end("bad_peer_auth", "the server did not prove the key that it proved before");
    else this.#becomeReady();
  }

  /** @param {Frame} frame */
  async #onInfoFrame({ payload, sender }) {
    const info = readInfo(payload);
    if (info === undefined) return this.listener({ type: "dropped", refusal: "malformed_info", sender });
    if (info === null) return;
    if (info.type === "hello") return this.#onHello(info);
    if (info.type === "auth") return this.#onAuth(info);
    if (info.type === "limits") return this.#onLimits(info);
    this.listener({ type: "info", info });
  }

  /** @param {import("./info.js").Hello} hello */
  #onHello(hello) {
    const isOurs = this.#hello === null && hello.role === Role.NODE && this.server !== null && equal(hello.key, this.server);
    if (!isOurs) throw new MalformedError("bad_peer_auth", "a HELLO that does not fit");
    this.#hello = hello;
  }

  /** @param {import("./info.js").Auth} auth */
  async #onAuth({ signature }) {
    const hello = this.#hello;
    if (hello === null || this.authenticated) throw new MalformedError("bad_peer_auth", "a proof out of turn");
    const message = authMessage(hello.key, this.keys.signing.public, hello.nonce, this.#nonce, Role.NODE, Role.CLIENT);
    if (!(await this.keys.crypto.verify(hello.key, message, signature))) throw new MalformedError("bad_peer_auth", "a false proof");
    const ours = authMessage(this.keys.signing.public, hello.key, this.#nonce, hello.nonce, Role.CLIENT, Role.NODE);
    const proof = await this.keys.sign(ours);
    if (this.#isEnded()) return;
    this.send(encodeInfoFrame({ type: "auth", signature: proof }, this.keys.signing.public));
    this.authenticated = true;
    this.features = hello.features;
    this.#becomeReady();
  }

  /** @param {import("./info.js").Limits} limits */
  #onLimits({ frameBytesMax }) {
    this.limitBytes = Math.min(frameBytesMax, this.frameBytesMax);
    if (this.state === "ready") this.#becomeReady();
  }

  #isEnded() {
    return this.state === "ended";
  }

  #becomeReady() {
    this.clock.clearTimeout(this.#timer);
    this.state = "ready";
    const server = /** @type {Bytes} */ (this.server);
    this.listener({ type: "ready", server, authenticated: this.authenticated, features: this.features, frameBytesMax: this.limitBytes });
  }

  /**
   * @param {Refusal} refusal
   * @param {string} detail
   */
  async #refuse(refusal, detail) {
    this.#end(refusal, detail);
  }

  /**
   * @param {Refusal} refusal
   * @param {string} detail
   */
  #end(refusal, detail) {
    if (this.state === "ended") return;
    this.disconnect();
    this.listener({ type: "ended", refusal, detail });
  }
}

/**
 * @param {Bytes} payload
 * @returns {import("./info.js").Info | null | undefined} Undefined when it is malformed.
 */
function readInfo(payload) {
  try {
    return decodeInfo(payload);
  } catch (error) {
    if (error instanceof MalformedError) return undefined;
    throw error;
  }
}
