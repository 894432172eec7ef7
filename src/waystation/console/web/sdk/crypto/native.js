// @ts-check
/**
 * The browser's own cryptography; private keys are CryptoKeys and, unless asked otherwise, cannot be exported.
 * @module
 */

import { concat, fromHex, isZero } from "../bytes.js";
import { mayVerify } from "./ed25519_checks.js";
import { LocalError } from "../errors.js";

/** @typedef {import("../bytes.js").Bytes} Bytes */
/** @typedef {import("./choice.js").PrivateKey} PrivateKey */
/** @typedef {import("./choice.js").Crypto} Crypto */

/** PKCS #8 in front of 32 secret bytes, RFC 8410 7. */
const PKCS8_ED25519 = fromHex("302e020100300506032b657004220420");
const PKCS8_X25519 = fromHex("302e020100300506032b656e04220420");

/** @implements {Crypto} */
export class NativeCrypto {
  /** @type {"native"} */
  kind = "native";
  /** @type {string | null} */
  warning = null;

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

  /** @param {PrivateKey} secret */
  async exportSecret(secret) {
    const key = handleOf(secret);
    if (!key.extractable) return null;
    return new Uint8Array(await this.subtle.exportKey("pkcs8", key)).slice(-32);
  }

  /**
   * @param {PrivateKey} secret
   * @param {Bytes} message
   */
  async sign(secret, message) {
    return new Uint8Array(await this.subtle.sign("Ed25519", handleOf(secret), message));
  }

  /**
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
   * @param {PrivateKey} secret
   * @param {Bytes} key
   */
  async agree(secret, key) {
    try {
      const publicKey = await this.subtle.importKey("raw", key, "X25519", false, []);
      const shared = new Uint8Array(await this.subtle.deriveBits({ name: "X25519", public: publicKey }, handleOf(secret), 256));
      return isZero(shared) ? null : shared;
    } catch (error) {
      if (error instanceof LocalError) throw error;
      return null; // The specification lets deriveBits fail where the result would be zero.
    }
  }

  /**
   * @param {Bytes} key
   * @param {Bytes} nonce
   * @param {Bytes} plaintext
   */
  async seal(key, nonce, plaintext) {
    const gcm = await this.subtle.importKey("raw", key, "AES-GCM", false, ["encrypt"]);
    return new Uint8Array(await this.subtle.encrypt({ name: "AES-GCM", iv: nonce }, gcm, plaintext));
  }

  /**
   * @param {Bytes} key
   * @param {Bytes} nonce
   * @param {Bytes} sealed
   */
  async open(key, nonce, sealed) {
    const gcm = await this.subtle.importKey("raw", key, "AES-GCM", false, ["decrypt"]);
    try {
      return new Uint8Array(await this.subtle.decrypt({ name: "AES-GCM", iv: nonce }, gcm, sealed));
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

/**
 * @param {PrivateKey} secret
 * @returns {CryptoKey}
 */
function handleOf(secret) {
  if (secret instanceof Uint8Array) throw new LocalError("This key belongs to the vendored cryptography.");
  return secret;
}

/** @param {string} text */
function fromBase64Url(text) {
  return Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (char) => char.charCodeAt(0));
}
