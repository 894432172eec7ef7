// What several tests build: the vectors' clients, a clock that the test turns, a relay in the same process, tabs' locks.

import { readFileSync } from "node:fs";
import * as sdk from "../../../src/waystation/console/web/sdk/merk.js";

export { sdk };
export const VECTORS = JSON.parse(readFileSync(new URL("../../vectors/merk.json", import.meta.url), "utf8"));
export const hex = sdk.toHex;
export const bytes = (text) => sdk.fromHex(text);
export const native = await sdk.loadCrypto();
export const ADDRESS = "ws://relay.test/merk";
export const ALL_FEATURES = 63;

/** Gives the keys of alice or bob. */
export function keysOf(name, crypto = native) {
  const { ed_seed, x_priv } = VECTORS.clients[name];
  return sdk.Keys.fromSeeds(crypto, bytes(ed_seed), bytes(x_priv), { exportable: true });
}

/** Waits for a condition; WebCrypto answers from other threads, so turns of the loop cannot be counted. */
export async function until(condition, what = condition.toString(), withinMs = 15_000) {
  const deadline = Date.now() + withinMs;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > deadline) throw new Error(`never came: ${what}`);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/** Lets everything that is under way come to an end, where nothing is to be waited for. */
export async function quiet() {
  for (let turn = 0; turn < 20; turn += 1) {
    await native.sha256(new Uint8Array(1));
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/** Time that moves when the test says so. */
export class TestClock {
  ms = 1_700_000_000_000;
  #timers = new Map();
  #count = 0;

  now = () => this.ms;

  setTimeout = (action, delayMs) => {
    this.#count += 1;
    this.#timers.set(this.#count, { action, at: this.ms + delayMs });
    return this.#count;
  };

  clearTimeout = (timer) => {
    this.#timers.delete(timer);
  };

  get waits() {
    return [...this.#timers.values()].map(({ at }) => at - this.ms).sort((left, right) => left - right);
  }

  advance(ms) {
    const end = this.ms + ms;
    for (;;) {
      const due = [...this.#timers].filter(([, { at }]) => at <= end).sort(([, left], [, right]) => left.at - right.at)[0];
      if (due === undefined) break;
      this.#timers.delete(due[0]);
      this.ms = due[1].at;
      due[1].action();
    }
    this.ms = end;
  }
}

/** The client's end of a connection; the relay holds the other. */
class TestSocket {
  binaryType = "blob";
  bufferedAmount = 0;
  onopen = null;
  onmessage = null;
  onclose = null;
  onerror = null;
  closed = null;

  constructor(relay, address) {
    this.relay = relay;
    this.address = address;
    this.sent = [];
    queueMicrotask(() => (relay.isUp ? this.#accept() : this.end(1006)));
  }

  #accept() {
    if (this.closed !== null) return;
    this.onopen?.({});
    this.relay.onConnect(this);
  }

  send(data) {
    if (this.closed !== null) return;
    this.sent.push(data);
    this.relay.onMessage(this, data);
  }

  close(code) {
    if (this.closed !== null) return;
    this.closed = code;
    this.relay.onClose(this);
  }

  /** The relay says something. */
  deliver(data) {
    if (this.closed === null) this.onmessage?.({ data: data instanceof Uint8Array ? data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength) : data });
  }

  /** The relay or the network closes. */
  end(code) {
    if (this.closed !== null) return;
    this.closed = code;
    this.relay.onClose(this);
    this.onclose?.({ code });
  }
}

/** A relay that keeps the rules; a test makes it hostile by replacing one of its methods. */
export class TestRelay {
  isUp = true;
  sockets = [];
  clients = new Map();
  adverts = new Map();
  heard = [];
  presences = [];
  boxes = new Map();
  refusesMail = false;
  /** What LIMITS says; null says nothing. */
  limit = null;
  servers = [];
  features = ALL_FEATURES;
  saysHello = true;
  answersServers = true;
  code = null;

  constructor(keys) {
    this.keys = keys;
    this.environment = null;
  }

  static async make() {
    return new TestRelay(await sdk.Keys.generate(native));
  }

  get key() {
    return this.keys.signing.public;
  }

  get live() {
    return this.sockets.filter(({ closed }) => closed === null);
  }

  connect = (address) => {
    const socket = new TestSocket(this, address);
    this.sockets.push(socket);
    return socket;
  };

  /** Challenges as a node does: the first byte is 0x80 or more. */
  onConnect(socket) {
    socket.challenge = native.randomBytes(32);
    socket.challenge[0] |= 0x80;
    socket.deliver(sdk.encodeFrame(1, socket.challenge));
  }

  async onMessage(socket, data) {
    const frame = sdk.decodeFrame(data);
    this.heard.push({ socket, frame, data });
    if (frame.kind === 1) await this.onAnswer(socket, frame);
    else if (frame.kind === 3) await this.onInfo(socket, sdk.decodeInfo(frame.payload));
    else await this.onContent(socket, frame, data);
  }

  async onAnswer(socket, { sender, payload, signature }) {
    if (!(await native.verify(sender, payload, signature))) return socket.end(4401);
    this.clients.get(hex(sender))?.end(4409);
    socket.client = hex(sender);
    this.clients.set(socket.client, socket);
    socket.deliver(sdk.encodeFrame(1, Uint8Array.of(1), this.key));
  }

  async onInfo(socket, info) {
    if (info.type === "auth") socket.isProved = this.isProof(socket, info.signature);
    if (info.type === "presence") this.presences.push(info);
    if (info.type.startsWith("mail_")) await this.onMail(socket, info);
    if (info.type === "hello" && this.saysHello) await this.onHello(socket, info);
    if (info.type === "request_servers" && this.answersServers) this.say(socket, { type: "servers", entries: this.servers });
    if (info.type === "key_advert") this.adverts.set(hex(info.key), info);
    if (info.type === "key_query") this.say(socket, this.adverts.get(hex(info.key)) ?? { type: "key_unknown", key: info.key });
  }

  isProof(socket, signature) {
    const { key, nonce } = socket.hello;
    return native.verify(key, sdk.authMessage(key, this.key, nonce, socket.nonce, 0, 1), signature);
  }

  /** Keeps frames of who is away, until their owner says that it took them. */
  async onMail(socket, info) {
    const key = socket.client;
    const isProved = await socket.isProved; // whatever it is about, it comes behind the proof, and in its order
    if (info.type === "mail_open" && isProved) this.boxes.set(key, this.boxes.get(key) ?? []);
    if (info.type === "mail_close") this.boxes.delete(key);
    if (info.type === "mail_taken") this.boxes.set(key, this.boxes.get(key).filter(({ hash }) => !info.hashes.some((taken) => hex(taken) === hash)));
    if (info.type === "mail_fetch") for (const { data } of this.boxes.get(key) ?? []) socket.deliver(data);
    const box = this.boxes.get(key);
    const state = this.refusesMail ? 2 : box === undefined ? 0 : 1;
    if (info.type !== "mail_fetch") this.say(socket, { type: "mail_state", state, messages: box?.length ?? 0, bytes: 0, untilMs: 0 });
  }

  async onHello(socket, hello) {
    const nonce = native.randomBytes(32);
    socket.hello = hello;
    socket.nonce = nonce;
    this.say(socket, { type: "hello", features: this.features, role: 1, key: this.key, nonce, address: "" });
    const message = sdk.authMessage(this.key, hello.key, nonce, hello.nonce, 1, 0);
    this.say(socket, { type: "auth", signature: await this.keys.sign(message) });
    if (this.limit !== null) this.say(socket, { type: "limits", frameBytesMax: this.limit });
  }

  async onContent(socket, { payload }, data) {
    const target = hex(payload.slice(0, 32));
    const recipient = this.clients.get(target);
    const frameHash = await sdk.frameHash(native, data);
    const box = recipient === undefined && data[2] === 5 ? this.boxes.get(target) : undefined;
    const code = this.code ?? (recipient === undefined ? (box === undefined ? 1 : 6) : 0);
    if (code === 0) recipient.deliver(data);
    if (code === 6) box?.push({ hash: hex(frameHash), data });
    this.say(socket, { type: "delivery", code, target: payload.slice(0, 32), frameHash });
  }

  onClose(socket) {
    if (this.clients.get(socket.client) === socket) this.clients.delete(socket.client);
  }

  say(socket, info) {
    socket.deliver(sdk.encodeInfoFrame(info, this.key));
  }

  /** Ends every connection, as a restart does. */
  restart(code = 1006) {
    for (const socket of this.live) socket.end(code);
  }
}

/** The part of navigator.locks that is used: exclusive, waiting, asking once, and taking by force. */
export class TestLocks {
  #held = new Map();
  #queues = new Map();

  request = async (name, options, callback) => {
    if (options.steal) this.#held.get(name)?.reject(Object.assign(new Error("taken"), { name: "AbortError" }));
    else if (this.#held.has(name)) {
      if (options.ifAvailable) return callback(null);
      await new Promise((resolve) => this.#queues.set(name, [...(this.#queues.get(name) ?? []), resolve]));
    }
    let reject;
    const taken = new Promise((_, fail) => (reject = fail));
    const holder = { reject };
    this.#held.set(name, holder);
    try {
      return await Promise.race([callback({ name }), taken]);
    } finally {
      if (this.#held.get(name) === holder) {
        this.#held.delete(name);
        this.#queues.get(name)?.shift()?.();
      }
    }
  };
}

/** Channels between tabs of one test; each message is a structured clone, as in a browser. */
export class TestChannels {
  #open = new Set();

  make = (name) => {
    const channel = { name, onmessage: null, postMessage: (message) => this.#post(channel, message), close: () => this.#open.delete(channel) };
    this.#open.add(channel);
    return channel;
  };

  #post(from, message) {
    const data = structuredClone(message);
    for (const channel of this.#open) {
      if (channel !== from && channel.name === from.name) queueMicrotask(() => this.#open.has(channel) && channel.onmessage?.({ data }));
    }
  }
}

/** A page that can be hidden and shown. */
export class TestPage extends EventTarget {
  visibilityState = "visible";

  show(state = "visible") {
    this.visibilityState = state;
    this.dispatchEvent(new Event("visibilitychange"));
  }
}

/** The environment of one tab; `overrides` replace parts of it. */
export function environmentOf(relay, overrides = {}) {
  return {
    socketFactory: relay.connect,
    storage: new sdk.MemoryStorage(),
    crypto: native,
    clock: new TestClock(),
    random: () => 0.5,
    locks: null,
    broadcastChannel: null,
    page: new TestPage(),
    network: new EventTarget(),
    isHttps: false,
    ...overrides,
  };
}

/** Opens a client with vector keys and waits for its connection. */
export async function connected(relay, name, overrides = {}) {
  const environment = environmentOf(relay, overrides);
  await sdk.MerkClient.importIdentity(await (await keysOf(name)).exportJson(), { environment, exportable: true });
  const client = await sdk.MerkClient.open({ environment });
  await client.connect(ADDRESS);
  await until(() => client.state.phase === "ready", "ready");
  return { client, environment, clock: environment.clock, messages: collect(client, "message"), dropped: collect(client, "dropped") };
}

/** Collects the details of events. */
export function collect(emitter, type) {
  const details = [];
  emitter.on(type, (detail) => details.push(detail));
  return details;
}
