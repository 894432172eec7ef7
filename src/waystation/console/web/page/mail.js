// @ts-check
/**
 * Between the SDK and the history: what comes is written down before it is shown, what goes out keeps its state through reloads.
 * This is the one module that knows the SDK's outcomes, events and options.
 * @module
 */

import { announcedName, announcement, tameName } from "./people.js";
import { MEANINGS, stateOf } from "./words.js";

/** @typedef {import("./history.js").Entry} Entry */

/** Larger files stay in this tab only. */
export const KEPT_FILE_BYTES_MAX = 33_554_432;

export class Mail {
  /** Bytes of files too large to be kept. @type {Map<string, Uint8Array>} */
  #large = new Map();
  /** Files under way, by entry. @type {Map<string, AbortController>} */
  #cancels = new Map();
  /** The end of what goes to each person: one after the other, in the order in which it was written. @type {Map<string, Promise<unknown>>} */
  #turns = new Map();
  /** Outcomes and receipts that this tab waits for. @type {Map<string, string>} */
  #byId = new Map();
  #wasReady = false;

  /**
   * @param {object} parts
   * @param {any} parts.sdk
   * @param {any} parts.client
   * @param {import("./history.js").History} parts.history
   * @param {import("./people.js").People} parts.people
   * @param {(change: { entry?: Entry, isNew?: boolean, person?: string, progress?: { at: string, done: number } }) => void} parts.show
   * @param {{ postMessage: (change: any) => void } | null} parts.tabs
   */
  constructor({ sdk, client, history, people, show, tabs }) {
    Object.assign(this, { sdk, client, history, people, show, tabs });
    for (const entry of history.entries.values()) if (entry.way === "out" && entry.id) this.#byId.set(entry.id, entry.at);
    client.on("message", (message) => this.receive(message));
    client.on("receipt", (receipt) => this.onReceipt(receipt));
    client.on("state", () => this.onState());
  }

  /** Ends what an earlier visit left in the air, and sends what waited. */
  async begin() {
    for (const entry of this.history.entries.values()) {
      const reason = "The page was closed before anything was said about it, so it may or may not have arrived.";
      if (entry.way === "out" && entry.state === "sending" && this.client.state.tab !== "follower") await this.#settle(entry, "unknown", reason);
    }
    this.onState();
  }

  /**
   * Takes a message; the SDK has taken it once this is over.
   * @throws {import("../sdk/errors.js").LocalError} The browser did not keep it, so that it may come again.
   */
  async receive(message) {
    const { sender, kind } = message;
    const person = this.people.get(sender);
    if (person.isBlocked) return;
    const name = kind === "json" && message.auth === "bound" ? announcedName(message.json) : null;
    if (name !== null) {
      await this.#nameOf(sender, name);
      return;
    }
    if (message.mode === "plain" && this.client.state.tab === "follower") return; // equal plain ones cannot be told apart by two tabs
    const at = await this.#keyOf(message);
    // Another tab may have it and write it as well; whether it is written down, each finds out by itself.
    const known = this.history.entries.get(at);
    if (!this.people.has(sender) && !(await this.people.set(sender, {}))) return;
    const bytes = kind === "file" || message.text === undefined ? message.data : undefined;
    /** @type {Entry} */
    const entry = known ?? {
      at, peer: sender, way: "in", kind: kind === "raw" ? (message.text === undefined ? "bytes" : "text") : kind, ms: Date.now(), state: "new",
      mode: message.mode, auth: message.auth, id: message.id, sentMs: message.timeMs, size: message.bytes, name: message.name, text: message.text,
    };
    await this.#write(entry, bytes, known === undefined);
    if (!this.history.isKept(at)) throw new this.sdk.LocalError("The browser keeps nothing more.");
    if (this.client.state.tab !== "follower") this.client.confirm(message); // written down: the sender may know
  }

  /** Marks messages as read; the SDK has checked whose receipt it is. */
  async onReceipt({ sender, ids = [] }) {
    for (const id of ids) {
      const entry = this.history.entries.get(this.#byId.get(id) ?? "");
      if (entry?.peer === sender) await this.#settle(entry, "read", "");
    }
  }

  onState() {
    const isReady = this.client.state.phase === "ready";
    const begins = isReady && !this.#wasReady && this.client.state.tab !== "follower";
    this.#wasReady = isReady;
    if (begins) for (const entry of [...this.history.entries.values()]) if (entry.way === "out" && entry.state === "waiting") void this.again(entry);
  }

  /**
   * Writes to a person.
   * @param {string} peer
   * @param {{ text?: string, json?: any, file?: File | Blob, name?: string }} content
   * @param {"encrypted" | "signed" | "plain"} mode
   * @throws What the SDK says cannot be done; nothing is kept then.
   */
  async write(peer, { text, json, file, name }, mode) {
    const at = this.sdk.toHex(crypto.getRandomValues(new Uint8Array(16)));
    const bytes = file && new Uint8Array(await file.arrayBuffer());
    const kind = file ? "file" : json === undefined ? "text" : "json";
    /** @type {Entry} */
    const entry = { at, peer, way: "out", kind, ms: Date.now(), state: "sending", mode, text, name, size: bytes?.length };
    if (!this.people.get(peer).isKnown) await this.people.set(peer, { isKnown: true });
    await this.#write(entry, bytes, true);
    void this.#inTurn(peer, () => this.#send(entry));
  }

  /** Whether there is a key to encrypt to this person with. @param {string} peer */
  async findKey(peer) {
    try {
      return (await this.client.findKey(peer)) !== null;
    } catch (problem) {
      if (problem instanceof this.sdk.LocalError) return false; // there is no connection to ask by
      throw problem;
    }
  }

  /** Sends a message once more, as another one. @param {Entry} entry */
  async again(entry) {
    await this.#settle(entry, "sending", "");
    await this.#inTurn(entry.peer, () => this.#send(entry));
  }

  /** Stops a file on its way. @param {string} at */
  cancel(at) {
    this.#cancels.get(at)?.abort();
  }

  /** @param {string} at */
  isCancellable(at) {
    return this.#cancels.has(at);
  }

  /** Bytes of a file, null when they are not kept any more. @param {string} at */
  async file(at) {
    return this.#large.get(at) ?? this.history.file(at);
  }

  async #send(entry) {
    try {
      await this.#sayName(entry);
      const { id, outcome } = await this.#pass(entry);
      this.#byId.set(id, entry.at);
      entry = { .../** @type {Entry} */ (this.history.entries.get(entry.at) ?? entry), id };
      await this.#write(entry, undefined, false);
      // Later ones need not wait for this one's outcome.
      void outcome.then(({ name, sentence }) => this.#onOutcome(entry.at, name, sentence));
    } catch (problem) {
      if (!(problem instanceof this.sdk.LocalError)) throw problem;
      this.#cancels.delete(entry.at);
      await this.#settle(entry, this.client.state.phase === "ready" ? "failed" : "waiting", problem.message);
    }
  }

  async #onOutcome(at, name, sentence) {
    this.#cancels.delete(at);
    const entry = this.history.entries.get(at);
    if (entry === undefined || (entry.state === "read" && stateOf(name) !== "read")) return;
    const state = stateOf(name);
    await this.#settle(entry, state, state === "failed" || state === "unknown" ? sentence : "");
  }

  async #pass(entry) {
    const { agreementKey } = this.people.get(entry.peer);
    const options = { mode: entry.mode, ...(agreementKey && entry.mode === "encrypted" && { agreementKey }) };
    if (entry.kind === "json") return this.client.sendJson(entry.peer, JSON.parse(entry.text), options);
    if (entry.kind !== "file") return this.client.sendText(entry.peer, entry.text, options);
    const bytes = await this.file(entry.at);
    if (bytes === null) throw new this.sdk.LocalError("The file is not kept here any more; choose it again.");
    const cancel = new AbortController();
    this.#cancels.set(entry.at, cancel);
    const onProgress = ({ bytesDone, bytesTotal }) => this.show({ progress: { at: entry.at, done: bytesTotal ? bytesDone / bytesTotal : 1 } });
    return this.client.sendFile(entry.peer, bytes, { ...options, name: entry.name, signal: cancel.signal, onProgress });
  }

  /** Says one's name once, before the first message that follows it. */
  async #sayName({ peer, mode }) {
    const own = tameName(this.history.settings.name);
    const { toldName = "", agreementKey } = this.people.get(peer);
    if (mode !== "encrypted" || agreementKey || own === toldName || peer === this.client.id) return;
    const { outcome } = await this.client.sendJson(peer, announcement(own), { mode });
    await this.people.set(peer, { toldName: own });
    void outcome.then(({ name }) => ["failed", "waiting"].includes(stateOf(name)) && this.people.set(peer, { toldName }));
  }

  async #nameOf(sender, said) {
    if (sender === this.client.id || this.people.get(sender).said === said) return;
    if (await this.people.set(sender, { said })) this.#tell({ person: sender });
  }

  /** The same for the same message in every tab; equal plain messages have equal ids, and each is shown. */
  async #keyOf({ sender, mode, id }) {
    const once = mode === "plain" ? this.sdk.toHex(crypto.getRandomValues(new Uint8Array(8))) : "";
    const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(`${sender} ${id} ${once}`));
    return this.sdk.toHex(new Uint8Array(digest).slice(0, 16));
  }

  async #settle(entry, state, reason) {
    const known = this.history.entries.get(entry.at) ?? entry;
    await this.#write({ ...known, state, reason: reason || undefined }, undefined, false);
  }

  async #write(entry, bytes, isNew) {
    const isLarge = bytes !== undefined && bytes.length > KEPT_FILE_BYTES_MAX;
    if (isLarge) this.#large.set(entry.at, bytes);
    const record = await this.history.put(isLarge ? { ...entry, isLarge } : entry, isLarge ? undefined : bytes);
    this.#tell({ entry: record, isNew });
  }

  #tell(change) {
    this.show(change);
    const person = this.history.people.get(change.person ?? change.entry?.peer);
    this.tabs?.postMessage({ ...change, record: person });
  }

  #inTurn(peer, action) {
    const turn = (this.#turns.get(peer) ?? Promise.resolve()).then(action);
    this.#turns.set(peer, turn.catch(() => null)); // the failure itself is thrown to whoever waits for this turn
    return turn;
  }
}

/** What a mark says when it is opened. @param {Entry} entry */
export function meaningOf(entry) {
  return entry.reason || MEANINGS[entry.state] || "";
}
