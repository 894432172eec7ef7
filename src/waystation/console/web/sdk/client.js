// @ts-check
/**
 * The client an application uses: one identity, its connection, messages in and out.
 * @module
 */

import { toHex } from "./bytes.js";
import { Directory } from "./directory.js";
import { Emitter } from "./emitter.js";
import { completeEnvironment } from "./environment.js";
import { LocalError } from "./errors.js";
import { allIdentities, DEFAULT_IDENTITY, loadIdentity, makeIdentity, takeIdentity } from "./identities.js";
import { Inbox } from "./inbox.js";
import { Feature } from "./info.js";
import { keyOf, Outbox } from "./outbox.js";
import { NOT_CONNECTED } from "./outcomes.js";
import { makeAdvert } from "./proofs.js";
import { normalAddress, ServerBook } from "./servers.js";
import { SharedLink } from "./shared_link.js";
import { FILE_BYTES_MAX } from "./transfers.js";

/** @typedef {import("./environment.js").Environment} Environment */
/** @typedef {import("./outbox.js").SendOptions} SendOptions */
/** @typedef {import("./outbox.js").FileOptions} FileOptions */
/** @typedef {import("./outbox.js").Sent} Sent */
/** @typedef {import("./servers.js").ServerRecord} ServerRecord */
/** @typedef {import("./state.js").State} State */

/**
 * @typedef {object} ClientEvents
 * @property {State} state
 * @property {import("./inbox.js").Message} message
 * @property {{ refusal: import("./errors.js").Refusal, sender: string | null, sentence: string }} dropped
 * @property {import("./inbox.js").Transfer} transfer
 * @property {{ servers: ServerRecord[] }} servers
 * @property {{ code: string, sentence: string }} warning
 */

/** @typedef {{ identity?: string, environment?: Partial<Environment> }} IdentityOptions */

/** How long a message waits for a connection that is being made. */
export const READY_WITHIN_MS = 30_000;
const SERVERS_WITHIN_MS = 5_000;
/** As in the Python client. */
const WAITING_BYTES_MAX = 67_108_864;
const EXPIRE_EVERY_MS = 60_000;
const CHOSEN = "server";
const NOT_STORED_WARNING = "This browser lets the page store nothing, so your keys are gone when the page is closed.";

/** @extends {Emitter<ClientEvents>} */
export class MerkClient extends Emitter {
  /** Sentences that were told by `warning` events. @type {string[]} */
  warnings = [];
  /** @type {ServerRecord[]} */
  servers = [];
  #keys;
  #environment;
  #link;
  #book;
  #directory;
  #inbox;
  #outbox;
  #isPersistent;
  /** @type {Promise<unknown>} */
  #turn = Promise.resolve();
  /** Of frames that wait for their turn. */
  #waitingBytes = 0;
  /** @type {unknown} */
  #expiry;
  /** @type {Set<(servers: ServerRecord[]) => void>} */
  #askers = new Set();
  /** Ends what waits for a connection. @type {Set<() => void>} */
  #waiters = new Set();
  #isClosed = false;

  /**
   * Use `open`.
   * @param {import("./keys.js").Keys} keys
   * @param {Environment} environment
   */
  constructor(keys, environment) {
    super();
    this.#keys = keys;
    this.#environment = environment;
    this.#isPersistent = environment.storage.isPersistent;
    this.#book = new ServerBook(environment.storage, environment.isHttps);
    this.#link = new SharedLink({ keys, environment, pins: this.#book });
    this.#directory = new Directory({ environment, link: this.#link });
    this.#inbox = new Inbox(keys, environment.clock);
    this.#outbox = new Outbox({
      keys,
      clock: environment.clock,
      directory: this.#directory,
      isReady: () => this.#isReady(),
      send: (frame) => this.#link.send(frame),
      onTransfer: (transfer) => this.emit("transfer", transfer),
    });
  }

  /**
   * Opens an identity, making it where there is none of that name.
   * @param {IdentityOptions} [options]
   */
  static async open({ identity = DEFAULT_IDENTITY, environment: given } = {}) {
    const environment = await completeEnvironment(given);
    const keys = (await loadIdentity(environment, identity)) ?? (await makeIdentity(environment, identity, false));
    const client = new MerkClient(keys, environment);
    await client.#begin();
    return client;
  }

  /**
   * Makes an identity.
   * @param {IdentityOptions & { exportable?: boolean }} [options]
   */
  static async createIdentity({ identity = DEFAULT_IDENTITY, exportable = false, environment } = {}) {
    await makeIdentity(await completeEnvironment(environment), identity, exportable);
  }

  /**
   * Takes the original's key file.
   * @param {string} text
   * @param {IdentityOptions & { exportable?: boolean }} [options]
   */
  static async importIdentity(text, { identity = DEFAULT_IDENTITY, exportable = false, environment } = {}) {
    await takeIdentity(await completeEnvironment(environment), identity, text, exportable);
  }

  /** @param {{ environment?: Partial<Environment> }} [options] */
  static async listIdentities({ environment } = {}) {
    return allIdentities(await completeEnvironment(environment));
  }

  /**
   * Forgets an identity for good.
   * @param {string} identity
   * @param {{ environment?: Partial<Environment> }} [options]
   */
  static async forgetIdentity(identity, { environment } = {}) {
    const { storage } = await completeEnvironment(environment);
    await storage.remove("identities", identity);
  }

  /** What you give to others: 64 hex digits. */
  get id() {
    return this.#keys.id;
  }

  /** The encryption key, 64 hex digits; only clients without key directory need it. */
  get agreementKey() {
    return toHex(this.#keys.agreement.public);
  }

  /** Whether the keys outlive the page. */
  get isPersistent() {
    return this.#isPersistent;
  }

  get isExportable() {
    return this.#keys.isExportable;
  }

  /** @returns {State} */
  get state() {
    return this.#link.state;
  }

  /** Writes the original's key file; LocalError unless the keys were made for it. */
  exportKeys() {
    return this.#keys.exportJson();
  }

  /**
   * Connects to a server and stays connected; without an address to the one chosen last.
   * @param {string} [address]
   * @throws {LocalError} It is no address that this page can use, or none was chosen yet.
   */
  async connect(address) {
    const { storage, isHttps } = this.#environment;
    const chosen = address === undefined ? await storage.get("settings", CHOSEN) : normalAddress(address, isHttps);
    if (chosen === undefined) throw new LocalError("Choose a server first.");
    await storage.put("settings", CHOSEN, chosen);
    if (address !== undefined) await this.addServer(chosen);
    await this.#link.start(chosen);
  }

  /** Lets go of the server in all tabs of this identity. */
  async disconnect() {
    await this.#link.stop();
  }

  /**
   * Waits for the connection.
   * @param {number} [timeoutMs]
   * @returns {Promise<State>}
   */
  async whenReady(timeoutMs = READY_WITHIN_MS) {
    await this.#settled(timeoutMs, ({ phase }) => phase === "ready");
    if (this.state.phase !== "ready") throw new LocalError(this.state.sentence);
    return this.state;
  }

  /** Lets go of everything in this tab. */
  async close() {
    this.#isClosed = true;
    this.#environment.clock.clearTimeout(this.#expiry);
    this.#link.close();
    for (const finish of [...this.#waiters]) finish();
  }

  /**
   * @param {string | Uint8Array} to
   * @param {string} text
   * @param {SendOptions} [options]
   * @returns {Promise<Sent>}
   */
  sendText(to, text, options = {}) {
    return this.#outbox.sendContent(to, { kind: "text", text }, options);
  }

  /**
   * @param {string | Uint8Array} to
   * @param {unknown} value
   * @param {SendOptions} [options]
   * @returns {Promise<Sent>}
   */
  async sendJson(to, value, options = {}) {
    const text = JSON.stringify(value);
    if (text === undefined) throw new LocalError("This value has no form in JSON.");
    return this.#outbox.sendContent(to, { kind: "json", text }, options);
  }

  /**
   * @param {string | Uint8Array} to
   * @param {Uint8Array} data
   * @param {SendOptions} [options]
   * @returns {Promise<Sent>}
   */
  sendBytes(to, data, options = {}) {
    return this.#outbox.sendContent(to, { kind: "raw", data: Uint8Array.from(data) }, options);
  }

  /**
   * @param {string | Uint8Array} to
   * @param {File | Blob | Uint8Array} file
   * @param {SendOptions & FileOptions} [options]
   * @returns {Promise<Sent>}
   */
  async sendFile(to, file, options = {}) {
    const name = options.name ?? ("name" in file ? file.name : "file");
    const size = file instanceof Uint8Array ? file.length : file.size;
    if (size > FILE_BYTES_MAX) throw new LocalError(`A file may have ${FILE_BYTES_MAX} bytes, this one has ${size}.`);
    const data = file instanceof Uint8Array ? Uint8Array.from(file) : new Uint8Array(await file.arrayBuffer());
    return this.#outbox.sendFile(to, data, name, options);
  }

  /**
   * Asks the key directory.
   * @param {string | Uint8Array} key
   * @returns {Promise<{ key: string, agreementKey: string, timeMs: number } | null>} Null when nobody knows one.
   * @throws {LocalError} None is known here, and there is no server to ask.
   */
  async findKey(key) {
    const target = toHex(keyOf(key));
    const isReady = await this.#isReady();
    const known = await this.#directory.find(target);
    if (known === null && !isReady) throw new LocalError(NOT_CONNECTED);
    return known && { key: known.key, agreementKey: known.agreementKey, timeMs: known.timeMs };
  }

  /**
   * Sets an encryption key by hand.
   * @param {string | Uint8Array} key
   * @param {string | Uint8Array} agreementKey
   */
  async setAgreementKey(key, agreementKey) {
    await this.#directory.set(toHex(keyOf(key)), toHex(keyOf(agreementKey)));
  }

  /** @param {string} address */
  async addServer(address) {
    await this.#book.add(address);
    await this.#onServersChanged();
  }

  /** @param {string} address */
  async removeServer(address) {
    await this.#book.remove(address);
    await this.#onServersChanged();
  }

  /** @param {string} address */
  async forgetServerKey(address) {
    await this.#book.forgetPin(address);
    await this.#onServersChanged();
  }

  /**
   * Asks the server for others.
   * @returns {Promise<ServerRecord[]>} The whole list, with what it told.
   * @throws {LocalError} There is none to ask.
   */
  async askServers() {
    if (!(await this.#isReady())) throw new LocalError(NOT_CONNECTED);
    const { clock } = this.#environment;
    /** @type {Promise<ServerRecord[]>} */
    const told = new Promise((resolve) => {
      const timer = clock.setTimeout(() => settle(this.servers), SERVERS_WITHIN_MS);
      /** @param {ServerRecord[]} servers */
      const settle = (servers) => {
        clock.clearTimeout(timer);
        this.#askers.delete(settle);
        resolve(servers);
      };
      this.#askers.add(settle);
    });
    await this.#link.tell({ type: "request_servers" });
    return told;
  }

  /**
   * Waits for a connection that is wanted, and not for one that is not.
   * @returns {Promise<boolean>} Whether there is one.
   */
  async #isReady() {
    await this.#settled(READY_WITHIN_MS, ({ phase }) => phase === "ready" || phase === "idle" || phase === "refused");
    return this.state.phase === "ready" && !this.#isClosed;
  }

  /**
   * Waits until the state is a certain one, or the time is over, or the client is closed.
   * @param {number} withinMs
   * @param {(state: State) => boolean} holds
   * @returns {Promise<void>}
   */
  async #settled(withinMs, holds) {
    if (this.#isClosed || holds(this.state)) return undefined;
    const { clock } = this.#environment;
    return new Promise((resolve) => {
      const timer = clock.setTimeout(() => finish(), withinMs);
      const off = this.on("state", (state) => holds(state) && finish());
      const finish = () => {
        off();
        clock.clearTimeout(timer);
        this.#waiters.delete(finish);
        resolve(undefined);
      };
      this.#waiters.add(finish);
    });
  }

  async #begin() {
    this.#link.on("state", (state) => this.#onState(state));
    this.#link.on("frame", (frame) => this.#onArrived(frame));
    this.#link.on("info", (info) => this.#inTurn(() => this.#onInfo(info)));
    this.#link.on("dropped", ({ refusal, sender }) => this.#onDropped(refusal, sender));
    this.#link.on("changed", () => this.#inTurn(() => this.#readServers()));
    if (!this.#isPersistent) this.#warn("not_stored", NOT_STORED_WARNING);
    this.#warn("not_shared", this.#link.warning);
    this.#expireLater();
    await this.#readServers();
    await this.#link.open();
  }

  /** @param {State} state */
  #onState(state) {
    const advertises = state.phase === "ready" && state.tab !== "follower" && (state.features & Feature.KEY_DIRECTORY) !== 0;
    if (advertises) this.#inTurn(async () => this.#link.tell(await makeAdvert(this.#keys, this.#environment.clock.now())));
    this.emit("state", state);
  }

  /**
   * Puts a frame behind those before it, as long as not too much waits: opening one takes longer than sending it.
   * @param {import("./bytes.js").Bytes} frame
   */
  #onArrived(frame) {
    if (this.#waitingBytes + frame.length > WAITING_BYTES_MAX) {
      this.#onDropped("queue_full", null);
      return;
    }
    this.#waitingBytes += frame.length;
    this.#inTurn(() => this.#onFrame(frame).finally(() => (this.#waitingBytes -= frame.length)));
  }

  /** @param {import("./bytes.js").Bytes} frame */
  async #onFrame(frame) {
    const { message, transfer, dropped, isOurs, givenUp = [] } = await this.#inbox.take(frame);
    for (const ended of givenUp) this.emit("transfer", ended);
    if (dropped !== undefined) this.#onDropped(dropped.refusal, dropped.sender);
    if (transfer !== undefined) this.emit("transfer", transfer);
    if (isOurs === true && message !== undefined && message.auth !== "none") this.#outbox.markOurs(message.sender);
    if (message !== undefined) this.emit("message", message);
  }

  /** @param {import("./info.js").Info} info */
  async #onInfo(info) {
    if (info.type === "servers") await this.#learn(info.entries.map(({ address }) => address));
    else if (info.type === "add_server") await this.#learn([info.address]);
    else if (!(await this.#directory.take(info))) this.#onDropped("bad_advert", null);
    if (info.type === "servers") for (const settle of [...this.#askers]) settle(this.servers);
  }

  /** @param {string[]} addresses */
  async #learn(addresses) {
    // One tab writes; the others hear of it.
    if (this.state.tab !== "follower") await this.#book.learn(addresses);
    await this.#onServersChanged();
  }

  async #onServersChanged() {
    await this.#readServers();
    if (this.state.tab !== "follower") this.#link.changed("servers");
  }

  async #readServers() {
    const servers = await this.#book.list();
    if (JSON.stringify(servers) === JSON.stringify(this.servers)) return;
    this.servers = servers;
    this.emit("servers", { servers });
  }

  /**
   * @param {import("./errors.js").Refusal} refusal
   * @param {string | null} sender
   */
  #onDropped(refusal, sender) {
    this.emit("dropped", { refusal, sender, sentence: DROPPED[refusal] ?? `Something was not taken: ${refusal.replaceAll("_", " ")}.` });
  }

  /**
   * @param {string} code
   * @param {string | null} sentence
   */
  #warn(code, sentence) {
    if (sentence === null || this.warnings.includes(sentence)) return;
    this.warnings.push(sentence);
    this.emit("warning", { code, sentence });
  }

  #expireLater() {
    this.#expiry = this.#environment.clock.setTimeout(() => {
      for (const transfer of this.#inbox.expire()) this.emit("transfer", transfer);
      this.#expireLater();
    }, EXPIRE_EVERY_MS);
  }

  /**
   * Deals with one thing after the other, in the order in which they came.
   * @param {() => Promise<void>} action
   */
  #inTurn(action) {
    const done = this.#turn.then(action);
    this.#turn = done.catch(() => null); // One failure does not keep up what follows; it is told here:
    done.catch((error) => {
      // The connection went away meanwhile, which the state tells. Anything else is a fault, left to the page to see.
      if (!(error instanceof LocalError)) throw error;
    });
  }
}

/** @type {Partial<Record<import("./errors.js").Refusal, string>>} */
const DROPPED = Object.freeze({
  bad_signature: "A message was not taken: its signature is wrong.",
  cannot_decrypt: "A message was not taken: it cannot be decrypted with your key.",
  bad_content: "A message was not taken: its content is damaged.",
  not_for_us: "A message was not taken: it is meant for somebody else.",
  duplicate: "A message was not taken: it came before.",
  no_target: "A message was not taken: it names no recipient.",
  queue_full: "A message was not taken: too many came at once.",
  bad_advert: "A server told an encryption key that its owner did not sign; it was not taken.",
});
