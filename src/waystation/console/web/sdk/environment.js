// @ts-check
/**
 * What the SDK takes from the page it runs in; every part can be replaced, which is how it runs under Node.
 * @module
 */

import { loadCrypto } from "./crypto/web_crypto.js";
import { LocalError } from "./errors.js";
import { openStorage } from "./storage.js";

/**
 * @typedef {object} Clock
 * @property {() => number} now Unix milliseconds.
 * @property {(action: () => void, delayMs: number) => unknown} setTimeout
 * @property {(timer: any) => void} clearTimeout
 */

/**
 * The part of WebSocket that is used.
 * @typedef {object} Socket
 * @property {string} binaryType
 * @property {number} bufferedAmount
 * @property {((event: any) => void) | null} onopen
 * @property {((event: any) => void) | null} onmessage
 * @property {((event: any) => void) | null} onclose
 * @property {((event: any) => void) | null} onerror
 * @property {(data: any) => void} send
 * @property {(code?: number, reason?: string) => void} close
 */

/**
 * The part of BroadcastChannel that is used.
 * @typedef {object} Channel
 * @property {((event: any) => void) | null} onmessage
 * @property {(message: any) => void} postMessage
 * @property {() => void} close
 */

/**
 * @typedef {object} Environment
 * @property {(address: string) => Socket} socketFactory
 * @property {import("./storage.js").Storage} storage
 * @property {import("./crypto/web_crypto.js").WebCrypto} crypto
 * @property {Clock} clock
 * @property {() => number} random
 * @property {LockManager | null} locks
 * @property {((name: string) => Channel) | null} broadcastChannel
 * @property {(EventTarget & { visibilityState?: string }) | null} page
 * @property {EventTarget | null} network
 * @property {boolean} isHttps Whether the page came over https, so that it may not use ws:// addresses.
 */

const NO_WEBSOCKET =
  "There is no WebSocket here. Node.js has one from version 22 on, version 20 with --experimental-websocket; or give environment.socketFactory, for instance from the package ws.";

/** @type {WeakMap<object, Promise<Environment>>} */
const KNOWN = new WeakMap();
/** Key under which the environment of the page itself is known. */
const PAGE = {};

/**
 * Completes what was given by what the page offers; the same object gives the same environment.
 * @param {Partial<Environment>} [given]
 * @returns {Promise<Environment>}
 */
export function completeEnvironment(given = PAGE) {
  const known = KNOWN.get(given) ?? complete(given);
  KNOWN.set(given, known);
  return known;
}

/**
 * @param {Partial<Environment>} given
 * @returns {Promise<Environment>}
 */
async function complete(given) {
  const scope = globalThis;
  const crypto = given.crypto ?? (await loadCrypto());
  const storage = given.storage ?? (await openStorage());
  if (given.socketFactory === undefined && scope.WebSocket === undefined) throw new LocalError(NO_WEBSOCKET);
  return {
    socketFactory: (address) => new WebSocket(address),
    storage,
    clock: {
      now: () => Date.now(),
      setTimeout: (action, delayMs) => scope.setTimeout(action, delayMs),
      clearTimeout: (timer) => scope.clearTimeout(timer),
    },
    random: Math.random,
    locks: scope.navigator?.locks ?? null,
    broadcastChannel: scope.BroadcastChannel === undefined ? null : (name) => new BroadcastChannel(name),
    page: scope.document ?? null,
    network: scope.window ?? null,
    isHttps: scope.location?.protocol === "https:",
    ...given,
    crypto,
  };
}
