// @ts-check
/**
 * What is signed besides contents: a node's proof of its key, the tie between both keys of an identity, a header.
 * Spec: specs/merk.md 7 and 10.1, 10.2.
 * @module
 */

import { concat, uint, utf8 } from "./bytes.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {import("./info.js").KeyAdvert} KeyAdvert */

const AUTH_CONTEXT = utf8("merk-ext-auth/1");
const KEYS_CONTEXT = utf8("merk-keys/1");
const PRESENCE_CONTEXT = utf8("merk-presence/1");
const FRAME_CONTEXT = utf8("merk-frame/1");

/**
 * Makes what EXT_AUTH signs.
 * @param {Bytes} signerKey
 * @param {Bytes} otherKey
 * @param {Bytes} signerNonce
 * @param {Bytes} otherNonce
 * @param {number} signerRole
 * @param {number} otherRole
 */
export function authMessage(signerKey, otherKey, signerNonce, otherNonce, signerRole, otherRole) {
  return concat(AUTH_CONTEXT, signerKey, otherKey, signerNonce, otherNonce, Uint8Array.of(signerRole, otherRole));
}

/**
 * Makes what a header signature signs.
 * @param {Bytes} header56 The header up to the signature.
 * @param {Bytes} payload
 */
export function headerMessage(header56, payload) {
  return concat(FRAME_CONTEXT, header56, payload);
}

/**
 * Makes what KEY_ADVERT signs.
 * @param {Bytes} key
 * @param {Bytes} agreementKey
 * @param {number} timeMs
 */
export function advertMessage(key, agreementKey, timeMs) {
  return concat(KEYS_CONTEXT, key, agreementKey, uint(timeMs, 8));
}

/**
 * Ties an identity's agreement key to it.
 * @param {import("./keys.js").Keys} keys
 * @param {number} timeMs Unix milliseconds; the newest counts.
 * @returns {Promise<KeyAdvert>}
 */
export async function makeAdvert(keys, timeMs) {
  const key = keys.signing.public;
  const agreementKey = keys.agreement.public;
  const signature = await keys.sign(advertMessage(key, agreementKey, timeMs));
  return { type: "key_advert", key, agreementKey, timeMs, signature };
}

/**
 * Tells whether the identity itself made the tie.
 * @param {import("./crypto/web_crypto.js").WebCrypto} crypto
 * @param {KeyAdvert} advert
 */
export function isAdvertValid(crypto, advert) {
  return crypto.verify(advert.key, advertMessage(advert.key, advert.agreementKey, advert.timeMs), advert.signature);
}

/**
 * Makes what PRESENCE signs.
 * @param {Omit<import("./info.js").PresenceBody, "signature">} presence
 */
export function presenceMessage({ kind, client, node, issuedMs, untilMs }) {
  return concat(PRESENCE_CONTEXT, Uint8Array.of(kind), client, node, uint(issuedMs, 8), uint(untilMs, 8));
}

/**
 * Says at which node an identity is, or which one keeps its mail.
 * @param {import("./keys.js").Keys} keys
 * @param {number} kind Of `PresenceKind`.
 * @param {Bytes} node The node's key.
 * @param {number} issuedMs Unix milliseconds; the newest counts.
 * @param {number} untilMs
 * @returns {Promise<import("./info.js").PresenceBody>}
 */
export async function makePresence(keys, kind, node, issuedMs, untilMs) {
  const presence = { kind, client: keys.signing.public, node, issuedMs, untilMs };
  return { ...presence, signature: await keys.sign(presenceMessage(presence)) };
}
