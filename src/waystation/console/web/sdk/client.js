// @ts-check
/**
 * The client an application uses: one identity, its connection, messages in and out.
 * @module
 */

import { bytesOf, contentOf, demandOptions, demandText, fileOf, jsonOf } from "./arguments.js";
import { toHex } from "./bytes.js";
import { Handover } from "./delivery/handover.js";
import { Mailbox } from "./delivery/mailbox.js";
import { OwedReceipts } from "./delivery/receipts.js";
import { SeenMessages } from "./delivery/seen.js";
import { Directory } from "./directory.js";
import { completeEnvironment } from "./environment.js";
import { droppedSentence, LocalError } from "./errors.js";
import { DEFAULT_IDENTITY, openIdentity } from "./identities.js";
import { NOT_REMEMBERED_WARNING, NOT_STORED_WARNING, RECEIPT_RULES } from "./events.js";
import { Inbox } from "./inbox.js";
import { Feature } from "./info.js";
import { keyOf, Outbox } from "./outbox.js";
import { NOT_CONNECTED } from "./delivery/outcomes.js";
import { Owner } from "./owner.js";
import { makeAdvert } from "./proofs.js";
import { normalAddress, ServerBook } from "./servers.js";
import { SharedLink } from "./shared_link.js";
import { Turns } from "./turns.js";
import { Waits } from "./waits.js";

/** @typedef {import("./environment.js").Environment} Environment */
/** @typedef {import("./outbox.js").SendOptions} SendOptions */
/** @typedef {import("./outbox.js").Sent} Sent */
/** @typedef {import("./servers.js").ServerRecord} ServerRecord */
/** @typedef {import("./state.js").State} State */

/** @typedef {import("./events.js").ClientEvents} ClientEvents */
/** @typedef {import("./events.js").ReceiptRule} ReceiptRule */

/** How long a message waits for a connection. */
export const READY_WITHIN_MS = 30_000;
const SERVERS_WITHIN_MS = 5_000;
const EXPIRE_EVERY_MS = 60_000;
const CHOSEN = "server";

/** @extends {Owner<ClientEvents>} */
export class MerkClient extends Owner {
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
  #seen;
  #mailbox;
  #handover;
  #owed;
  #receipts;
  #turns = new Turns();
  /** Whether anybody listens for messages: what nobody takes is not said to be taken. */
  #isHeard = false;
  /** The server that was greeted on this connection. @type {string | null} */
  #greeted = null;
  /** When the server was last asked for others because it named one. */
  #askedMs = -SERVERS_WITHIN_MS;
  /** @type {unknown} */
  #expiry;
  /** @type {Set<(servers: ServerRecord[]) => void>} */
  #askers = new Set();
  #waits;

  /**
   * Use `open`.
   * @param {import("./keys.js").Keys} keys
   * @param {Environment} environment
   * @param {SeenMessages} seen
   * @param {ReceiptRule} receipts
   */
  constructor(keys, environment, seen, receipts) {
    super(keys, environment);
    this.#keys = keys;
    this.#environment = environment;
    this.#receipts = receipts;
    this.#book = new ServerBook(environment.storage, environment.isHttps);
    this.#link = new SharedLink({ keys, environment, pins: this.#book });
    this.#directory = new Directory({ environment, link: this.#link });
    this.#mailbox = new Mailbox({ keys, environment, link: this.#link });
    this.#inbox = new Inbox({ keys, clock: environment.clock, seen, isAble: (sender) => this.#directory.isAble(sender) });
    this.#seen = seen;
    this.#waits = new Waits(environment.clock, this);
    this.#handover = new Handover({
      seen,
      mailbox: this.#mailbox,
      give: (message) => this.#give(message),
      onTaken: (message) => this.#receipts === "auto" && this.state.tab !== "follower" && this.confirm(message),
      onNotTaken: (message, refusal) => {
        this.#inbox.leave(message);
        this.#onDropped(refusal, message.sender);
      },
    });
    seen.onRefused = () => this.#warn("not_remembered", NOT_REMEMBERED_WARNING);
    this.#owed = new OwedReceipts(environment.clock, (peer, ids) => this.#sendReceipt(peer, ids));
    this.#outbox = new Outbox({
      keys,
      clock: environment.clock,
      directory: this.#directory,
      isReady: () => this.#isReady(),
      send: (frame) => this.#link.send(frame),
      frameBytesMax: () => this.state.frameBytesMax,
      onTransfer: (transfer) => this.emit("transfer", transfer),
    });
  }

  /**
   * Opens an identity, making it where there is none of that name.
   * @param {import("./owner.js").IdentityOptions & { exportable?: boolean, receipts?: ReceiptRule }} [options] `exportable` counts where it is made.
   * @throws {LocalError} There is no cryptography here (`NoCryptoError`), or no WebSocket.
   */
  static async open({ identity = DEFAULT_IDENTITY, exportable = false, receipts = "auto", environment: given } = {}) {
    if (!RECEIPT_RULES.includes(receipts)) throw new LocalError(`receipts is one of ${RECEIPT_RULES.join(", ")}.`);
    const environment = await completeEnvironment(given);
    const keys = await openIdentity(environment, identity, exportable);
    const seen = await SeenMessages.open(environment.storage, keys.id, environment.clock.now());
    const client = new MerkClient(keys, environment, seen, receipts);
    await client.#begin();
    return client;
  }

  /** What the node said of the mailbox. */
  get mailbox() {
    return this.#mailbox.info;
  }

  /**
   * Has the connected server keep encrypted messages while this client is away; from now on, and on every connection to it.
   * @throws {LocalError} There is no connection, or the server keeps none.
   */
  openMailbox() {
    return this.#mailbox.open();
  }

  /** Ends that; the server deletes what it keeps. */
  closeMailbox() {
    return this.#mailbox.close();
  }

  /** @returns {State} */
  get state() {
    return this.#link.state;
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
    if (!this.servers.some((server) => server.address === chosen)) await this.addServer(chosen);
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
    await this.#waits.settled(timeoutMs, ({ phase }) => phase === "ready");
    if (this.state.phase !== "ready") throw new LocalError(this.state.sentence);
    return this.state;
  }

  /** Lets go of everything in this tab. */
  async close() {
    this.#environment.clock.clearTimeout(this.#expiry);
    this.#owed.flush();
    this.#mailbox.flush();
    this.#outbox.close();
    this.#link.close();
    this.#waits.close();
  }

  /**
   * @param {string | Uint8Array} to
   * @param {string} text
   * @param {SendOptions} [options]
   * @returns {Promise<Sent>}
   */
  async sendText(to, text, options = {}) {
    demandOptions(options);
    return this.#outbox.sendContent(to, { kind: "text", text: demandText(text) }, options);
  }

  /**
   * @param {string | Uint8Array} to
   * @param {unknown} value
   * @param {SendOptions} [options]
   * @returns {Promise<Sent>}
   */
  async sendJson(to, value, options = {}) {
    demandOptions(options);
    return this.#outbox.sendContent(to, { kind: "json", text: jsonOf(value) }, options);
  }

  /**
   * @param {string | Uint8Array} to
   * @param {import("./arguments.js").BytesLike} data
   * @param {SendOptions} [options]
   * @returns {Promise<Sent>}
   */
  async sendBytes(to, data, options = {}) {
    demandOptions(options);
    return this.#outbox.sendContent(to, { kind: "raw", data: bytesOf(data) }, options);
  }

  /**
   * @param {string | Uint8Array} to
   * @param {Blob | import("./arguments.js").BytesLike} file A `File` is a `Blob`.
   * @param {SendOptions & import("./outbox.js").FileOptions} [options]
   * @returns {Promise<Sent>}
   */
  async sendFile(to, file, options = {}) {
    demandOptions(options);
    const { data, name } = await fileOf(file, options.name);
    return this.#outbox.sendFile(to, data, name, options);
  }

  /**
   * Asks somebody and waits for the answer, which is no `message` event then.
   * @param {string | Uint8Array} to
   * @param {string | import("./arguments.js").BytesLike | { json: unknown }} content
   * @param {{ timeoutMs?: number }} [options]
   * @throws {LocalError} As `sendText`, or there is no answer (`NoAnswerError`).
   */
  async ask(to, content, { timeoutMs = READY_WITHIN_MS } = {}) {
    return this.#outbox.ask(to, contentOf(content), timeoutMs);
  }

  /**
   * Answers an encrypted, bound message.
   * @param {import("./inbox.js").Message} message
   * @param {string | import("./arguments.js").BytesLike | { json: unknown }} content
   */
  async answer(message, content) {
    return this.#outbox.answer(message, contentOf(content));
  }

  /**
   * Tells the sender of a message that the program took it; nothing happens for one that is not encrypted and bound.
   * @param {Pick<import("./inbox.js").Message, "sender" | "id" | "mode" | "auth">} message
   */
  confirm({ sender, id, mode, auth }) {
    if (mode === "encrypted" && auth === "bound") this.#owed.owe(sender, id);
  }

  /**
   * As every EventTarget.
   * @param {string} type
   * @param {any} listener
   * @param {boolean | AddEventListenerOptions} [options]
   */
  addEventListener(type, listener, options) {
    if (type === "message") this.#isHeard = true;
    super.addEventListener(type, listener, options);
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
    await this.#waits.settled(READY_WITHIN_MS, ({ phase }) => phase === "ready" || phase === "idle" || phase === "refused");
    return this.state.phase === "ready" && !this.#waits.isClosed;
  }

  async #begin() {
    this.#link.on("state", (state) => this.#onState(state));
    this.#link.on("frame", (frame) => this.#onArrived(frame));
    this.#link.on("info", (info) => this.#turns.put(() => this.#onInfo(info)));
    this.#link.on("dropped", ({ refusal, sender }) => this.#onDropped(refusal, sender));
    this.#link.on("changed", () => this.#turns.put(() => this.#readServers()));
    if (!this.isPersistent) this.#warn("not_stored", NOT_STORED_WARNING);
    this.#warn("not_shared", this.#link.warning);
    this.#expireLater();
    await this.readNick();
    await this.#readServers();
    await this.#link.open();
  }

  /** @param {State} state */
  #onState(state) {
    const server = state.phase === "ready" && state.authenticated && state.tab !== "follower" ? state.serverKey : null;
    if (server !== null && this.#greeted !== server) this.#turns.put(() => this.#greet(state));
    this.#greeted = server;
    this.emit("state", state);
  }

  /**
   * Says what a server should know on a new connection, and asks it for mail.
   * @param {State} state
   */
  async #greet(state) {
    if ((state.features & Feature.KEY_DIRECTORY) !== 0) await this.#link.tell(await makeAdvert(this.#keys, this.#environment.clock.now()));
    await this.#mailbox.begin(state);
  }

  /** @param {import("./bytes.js").Bytes} frame */
  #onArrived(frame) {
    // Opening one takes longer than sending it.
    if (!this.#turns.putLarge(frame.length, () => this.#onFrame(frame))) this.#onDropped("queue_full", null);
  }

  /** @param {import("./bytes.js").Bytes} frame */
  async #onFrame(frame) {
    const received = await this.#inbox.take(frame);
    const { transfer, dropped, receipt } = received;
    received.givenUp?.forEach((ended) => this.#giveUp(ended));
    if (dropped !== undefined) this.#onDropped(dropped.refusal, dropped.sender);
    if (transfer !== undefined) this.emit("transfer", transfer);
    if (receipt !== undefined) this.#onReceipt(receipt);
    await this.#handover.take(frame, received);
  }

  /** @param {import("./inbox.js").Message} message */
  #give(message) {
    if (message.auth === "bound" && message.timeMs !== null) this.#directory.markAble(message.sender);
    if (this.#outbox.asks.settle(message)) return [];
    const answers = this.emit("message", message);
    return this.#isHeard ? answers : null;
  }

  /** @param {import("./inbox.js").Transfer} transfer */
  #giveUp(transfer) {
    this.#mailbox.leave(`${transfer.peer}:${transfer.transferId}`);
    this.emit("transfer", transfer);
  }

  /** @param {{ sender: string, ids: string[] }} receipt */
  #onReceipt(receipt) {
    this.#directory.markAble(receipt.sender);
    this.#outbox.onReceipt(receipt);
    this.emit("receipt", receipt);
  }

  /**
   * @param {string} peer
   * @param {string[]} ids
   */
  #sendReceipt(peer, ids) {
    // Not in turn: its key may have to be asked for, and the answer comes in turn.
    this.#outbox.sendReceipt(peer, ids).catch((error) => {
      if (!(error instanceof LocalError)) throw error; // Without a connection the sender goes on not to know.
    });
  }

  /** @param {import("./info.js").Info} info */
  async #onInfo(info) {
    if (info.type === "servers") await this.#learn(info.entries);
    else if (info.type === "add_server") await this.#onNewServer(info.address);
    else if (this.#mailbox.take(info)) this.emit("mailbox", this.mailbox);
    else if (!(await this.#directory.take(info))) this.#onDropped("bad_advert", null);
    if (info.type === "servers") for (const settle of [...this.#askers]) settle(this.servers);
  }

  /**
   * A server pushes an address without a key, so it is asked for the list, which names the key.
   * @param {string} address
   */
  async #onNewServer(address) {
    await this.#learn([{ address, key: null }]);
    const now = this.#environment.clock.now();
    if (this.state.tab === "follower" || now - this.#askedMs < SERVERS_WITHIN_MS) return;
    this.#askedMs = now;
    await this.#link.tell({ type: "request_servers" });
  }

  /** @param {readonly { address: string, key: import("./bytes.js").Bytes | null }[]} entries */
  async #learn(entries) {
    // One tab writes; the others hear of it.
    if (this.state.tab !== "follower") await this.#book.learn(entries);
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
    this.emit("dropped", { refusal, sender, sentence: droppedSentence(refusal) });
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
      this.#inbox.expire().forEach((ended) => this.#giveUp(ended));
      this.#seen.expire(this.#environment.clock.now());
      this.#expireLater();
    }, EXPIRE_EVERY_MS);
  }
}
