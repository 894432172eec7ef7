// @ts-check
/**
 * What a node says of itself in `/.well-known/waystation.json`: where its MERK is, and where its page is over https.
 *
 * The document is not signed. It serves to find an address, and proves nothing about it.
 * @module
 */

import { LocalError } from "./errors.js";

/** The address of the document on a node. */
export const INFO_PATH = "/.well-known/waystation.json";
/** Where MERK is unless an operator chose otherwise; of several paths the same one is taken every time. */
const USUAL_PATH = "/merk";
const ANSWER_WITHIN_MS = 8_000;

/**
 * @typedef {object} NodeInfo
 * @property {string} name Shown to people; the node's word.
 * @property {string} address Where its MERK is: `ws://` or `wss://`, as the document came over http or https.
 * @property {string | null} securePage The page over https; null when the node says of none.
 */

/**
 * Asks a node where its MERK is; `merk.paths` may have any path.
 * @param {string} [origin] `http://` or `https://`, host and port; that of the page by default.
 * @param {(address: string, options: { signal: AbortSignal }) => Promise<{ ok: boolean, json: () => Promise<any> }>} [get] Stands in for `fetch`.
 * @returns {Promise<NodeInfo>}
 * @throws {LocalError} There is no such document, or no MERK in it.
 */
export async function nodeInfo(origin = globalThis.location?.origin, get = (address, options) => globalThis.fetch(address, options)) {
  const place = httpPlace(origin);
  const document = await read(new URL(INFO_PATH, place).href, get);
  const merk = document?.protocols?.merk;
  /** @type {string[]} */
  const paths = Array.isArray(merk?.paths) ? merk.paths.filter((/** @type {unknown} */ each) => typeof each === "string" && each.startsWith("/")) : [];
  if (paths.length === 0) throw new LocalError("This node says of no MERK.");
  const path = paths.includes(USUAL_PATH) ? USUAL_PATH : paths[0];
  const address = new URL(path, place);
  address.protocol = place.protocol === "https:" ? "wss:" : "ws:";
  return { name: typeof document.name === "string" ? document.name : "", address: address.href, securePage: securePageOf(merk.url) };
}

/** @param {unknown} origin */
function httpPlace(origin) {
  const url = typeof origin === "string" ? urlOf(origin) : null;
  if (url === null || (url.protocol !== "http:" && url.protocol !== "https:")) throw new LocalError("A node's origin begins with http:// or https://.");
  return url;
}

/**
 * @param {string} address
 * @param {NonNullable<Parameters<typeof nodeInfo>[1]>} get
 * @returns {Promise<any>}
 */
async function read(address, get) {
  try {
    const answer = await get(address, { signal: AbortSignal.timeout(ANSWER_WITHIN_MS) });
    if (answer.ok) return await answer.json();
  } catch {
    // No connection, no answer in time, or no JSON: the sentence below is true of each.
  }
  throw new LocalError(`Nothing that describes a node came from ${address}.`);
}

/**
 * The page of a node is at the root of the host and port of its public address.
 * @param {unknown} address
 */
function securePageOf(address) {
  const url = typeof address === "string" ? urlOf(address) : null;
  return url?.protocol === "wss:" ? `https://${url.host}/` : null;
}

/** @param {string} text */
function urlOf(text) {
  try {
    return new URL(text);
  } catch {
    return null; // URL has no other failure.
  }
}
