// @ts-check
/**
 * Every primitive the protocol needs, computed by WebCrypto; private keys are CryptoKeys and, unless asked otherwise, cannot be
 * exported.
 *
 * WebCrypto exists in secure contexts only: pages of https and of the own machine, and Node.js. There is no second
 * implementation: where it is missing, or lacks Ed25519 or X25519, `loadCrypto` throws `NoCryptoError`. MERK-JS.
 * @module
 */

import { concat, fromHex, isZero } from "../bytes.js";
import { NoCryptoError } from "../errors.js";
import { mayVerify } from "./ed25519_checks.js";

/** @typedef {import("../bytes.js").Bytes} Bytes */
/** @typedef {{ secret: CryptoKey, public: Bytes }} Pair */

/** PKCS #8 in front of 32 secret bytes, RFC 8410 7. */
const PKCS8_ED25519 = fromHex("302e020100300506032b657004220420");
const PKCS8_X25519 = fromHex("302e020100300506032b656e04220420");
const NOTHING = new Uint8Array(0);

/**
 * Loads the cryptography of this page.
 * @param {{ subtle?: SubtleCrypto | undefined }} [scope] The global `crypto`, or what stands in for it.
 * @returns {Promise<WebCrypto>}
 * @throws {NoCryptoError} There is none (`reason` "insecure"), or it lacks what is needed ("old").
 */
export async function loadCrypto(scope = globalThis.crypto) {
  const subtle = scope?.subtle;
  if (subtle === undefined) throw new NoCryptoError(globalThis.isSecureContext === true ? "old" : "insecure");
  if (!(await WebCrypto.isComplete(subtle))) throw new NoCryptoError("old");
  return new WebCrypto(subtle);
}

/** The primitives over one `SubtleCrypto`. */
export class WebCrypto {
  /** @param {SubtleCrypto} subtle */
  constructor(subtle) {
    this.subtle = subtle;
  }

  /**
   * Tells whether everything needed is there, by using it once.
   * @param {SubtleCrypto} subtle
   */
  static async isComplete(subtle) {
    try {
      await subtle.generateKey("Ed25519", false, ["sign", "verify"]);
      await subtle.generateKey("X25519", false, ["deriveBits"]);
      return true;
    } catch {
      return false; // An older browser: the algorithm is unknown to it, under one of several errors.
    }
  }

  /** @param {number} count */
  randomBytes(count) {
    return crypto.getRandomValues(new Uint8Array(count));
  }

  /** @param {Bytes} data */
  async sha256(data) {
    return new Uint8Array(await this.subtle.digest("SHA-256", data));
  }

  /** @param {boolean} exportable */
  async generateSigning(exportable) {
    const pair = /** @type {CryptoKeyPair} */ (await this.subtle.generateKey("Ed25519", exportable, ["sign", "verify"]));
    return { secret: pair.privateKey, public: await this.#rawOf(pair.publicKey) };
  }

  /** @param {boolean} exportable */
  async generateAgreement(exportable) {
    const pair = /** @type {CryptoKeyPair} */ (await this.subtle.generateKey("X25519", exportable, ["deriveBits"]));
    return { secret: pair.privateKey, public: await this.#rawOf(pair.publicKey) };
  }

  /**
   * @param {Bytes} seed
   * @param {boolean} exportable
   */
  importSigning(seed, exportable) {
    return this.#importPair(PKCS8_ED25519, seed, "Ed25519", ["sign"], exportable);
  }

  /**
   * @param {Bytes} secret
   * @param {boolean} exportable
   */
  importAgreement(secret, exportable) {
    return this.#importPair(PKCS8_X25519, secret, "X25519", ["deriveBits"], exportable);
  }

  /**
   * @param {CryptoKey} secret
   * @returns {Promise<Bytes | null>} 32 bytes; null when the key cannot be exported.
   */
  async exportSecret(secret) {
    if (!secret.extractable) return null;
    return new Uint8Array(await this.subtle.exportKey("pkcs8", secret)).slice(-32);
  }

  /**
   * Signs with Ed25519.
   * @param {CryptoKey} secret
   * @param {Bytes} message
   * @returns {Promise<Bytes>} 64 bytes.
   */
  async sign(secret, message) {
    return new Uint8Array(await this.subtle.sign("Ed25519", secret, message));
  }

  /**
   * Checks a signature strictly, see ed25519_checks.js.
   * @param {Bytes} key
   * @param {Bytes} message
   * @param {Bytes} signature
   */
  async verify(key, message, signature) {
    if (!mayVerify(key, signature)) return false;
    try {
      const publicKey = await this.subtle.importKey("raw", key, "Ed25519", false, ["verify"]);
      return await this.subtle.verify("Ed25519", publicKey, signature, message);
    } catch {
      return false; // Some browsers refuse a key off the curve at import, others at verification.
    }
  }

  /**
   * Agrees on a secret by X25519.
   * @param {CryptoKey} secret
   * @param {Bytes} key
   * @returns {Promise<Bytes | null>} 32 bytes; null when they would be zero.
   */
  async agree(secret, key) {
    try {
      const publicKey = await this.subtle.importKey("raw", key, "X25519", false, []);
      const shared = new Uint8Array(await this.subtle.deriveBits({ name: "X25519", public: publicKey }, secret, 256));
      return isZero(shared) ? null : shared;
    } catch {
      return null; // The specification lets deriveBits fail where the result would be zero.
    }
  }

  /**
   * Seals with AES-256-GCM; the tag comes last.
   * @param {Bytes} key 32 bytes.
   * @param {Bytes} nonce 12 bytes.
   * @param {Bytes} plaintext
   * @param {Bytes} [associated] What has to be the same for `open`, and is not part of the result.
   */
  async seal(key, nonce, plaintext, associated = NOTHING) {
    const gcm = await this.subtle.importKey("raw", key, "AES-GCM", false, ["encrypt"]);
    return new Uint8Array(await this.subtle.encrypt({ name: "AES-GCM", iv: nonce, additionalData: associated }, gcm, plaintext));
  }

  /**
   * Opens what `seal` made.
   * @param {Bytes} key
   * @param {Bytes} nonce
   * @param {Bytes} sealed
   * @param {Bytes} [associated]
   * @returns {Promise<Bytes | null>} Null when it was not sealed so.
   */
  async open(key, nonce, sealed, associated = NOTHING) {
    const gcm = await this.subtle.importKey("raw", key, "AES-GCM", false, ["decrypt"]);
    try {
      return new Uint8Array(await this.subtle.decrypt({ name: "AES-GCM", iv: nonce, additionalData: associated }, gcm, sealed));
    } catch {
      return null; // decrypt fails with one OperationError for every kind of damage.
    }
  }

  /** @param {CryptoKey} key */
  async #rawOf(key) {
    return new Uint8Array(await this.subtle.exportKey("raw", key));
  }

  /**
   * The public half is read from an exportable copy that lives only in this call.
   * @param {Bytes} prefix
   * @param {Bytes} secret
   * @param {string} algorithm
   * @param {KeyUsage[]} usages
   * @param {boolean} exportable
   */
  async #importPair(prefix, secret, algorithm, usages, exportable) {
    const pkcs8 = concat(prefix, secret);
    const open = await this.subtle.importKey("pkcs8", pkcs8, algorithm, true, usages);
    const { x } = await this.subtle.exportKey("jwk", open);
    const key = exportable ? open : await this.subtle.importKey("pkcs8", pkcs8, algorithm, false, usages);
    return { secret: key, public: fromBase64Url(x ?? "") };
  }
}

/** @param {string} text */
function fromBase64Url(text) {
  return Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (char) => char.charCodeAt(0));
}
