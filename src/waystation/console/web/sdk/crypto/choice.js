// @ts-check
/**
 * One interface over the browser's own cryptography and the vendored one, and the choice between them.
 *
 * The browser's own keeps private keys where no script can read them. It exists in secure contexts only (https, localhost);
 * elsewhere the vendored code computes the same with keys that are bytes in the page's memory, and `warning` says so.
 * @module
 */

import { NativeCrypto } from "./native.js";

/** @typedef {import("../bytes.js").Bytes} Bytes */

/**
 * A private key: a CryptoKey, or its 32 bytes where there is no secure context.
 * @typedef {CryptoKey | Bytes} PrivateKey
 * @typedef {{ secret: PrivateKey, public: Bytes }} Pair
 */

/**
 * Every primitive the protocol needs.
 * @typedef {object} Crypto
 * @property {"native" | "vendored"} kind
 * @property {string | null} warning A sentence for people, when keys are less safe than they could be.
 * @property {(count: number) => Bytes} randomBytes
 * @property {(data: Bytes) => Promise<Bytes>} sha256
 * @property {(exportable: boolean) => Promise<Pair>} generateSigning
 * @property {(exportable: boolean) => Promise<Pair>} generateAgreement
 * @property {(seed: Bytes, exportable: boolean) => Promise<Pair>} importSigning
 * @property {(secret: Bytes, exportable: boolean) => Promise<Pair>} importAgreement
 * @property {(secret: PrivateKey) => Promise<Bytes | null>} exportSecret 32 bytes; null when the key cannot be exported.
 * @property {(secret: PrivateKey, message: Bytes) => Promise<Bytes>} sign Ed25519, 64 bytes.
 * @property {(key: Bytes, message: Bytes, signature: Bytes) => Promise<boolean>} verify Strict, see ed25519_checks.js.
 * @property {(secret: PrivateKey, key: Bytes) => Promise<Bytes | null>} agree X25519, 32 bytes; null when they would be zero.
 * @property {(key: Bytes, nonce: Bytes, plaintext: Bytes) => Promise<Bytes>} seal AES-256-GCM, no associated data, tag last.
 * @property {(key: Bytes, nonce: Bytes, sealed: Bytes) => Promise<Bytes | null>} open Null when it was not sealed so.
 */

/** Shown wherever the vendored code is in use. */
export const INSECURE_WARNING =
  "This page was not loaded over https or from localhost, so the browser offers no protected keys: your keys live in this " +
  "page's memory, are gone when it is closed, and are only as safe as the network that delivered the page.";
/** Shown where the context is secure and the browser too old. */
export const OLD_BROWSER_WARNING =
  "This browser cannot protect Ed25519 and X25519 keys yet, so your keys live in this page's memory and are gone when it is " +
  "closed. A current version of Chrome, Edge, Firefox or Safari keeps them safely.";

/**
 * Chooses the cryptography for this page.
 * @param {{ subtle?: SubtleCrypto | undefined }} [scope] The global `crypto`, or what stands in for it.
 * @returns {Promise<Crypto>}
 */
export async function loadCrypto(scope = globalThis.crypto) {
  const subtle = scope.subtle;
  if (subtle !== undefined && (await NativeCrypto.isComplete(subtle))) return new NativeCrypto(subtle);
  const { VendoredCrypto } = await import("./vendored.js");
  return new VendoredCrypto(subtle === undefined ? INSECURE_WARNING : OLD_BROWSER_WARNING);
}
