// @ts-check
/**
 * The same primitives without WebCrypto, for pages that are no secure context; imported only there.
 * @module
 */

import { isZero } from "../bytes.js";
import { mayVerify } from "./ed25519_checks.js";
import { LocalError } from "../errors.js";
import { gcm } from "../vendor/noble/ciphers/aes.js";
import { ed25519, x25519 } from "../vendor/noble/curves/ed25519.js";
import { sha256 } from "../vendor/noble/hashes/sha2.js";

/** @typedef {import("../bytes.js").Bytes} Bytes */
/** @typedef {import("./choice.js").PrivateKey} PrivateKey */
/** @typedef {import("./choice.js").Crypto} Crypto */

/** @implements {Crypto} */
export class VendoredCrypto {
  /** @type {"vendored"} */
  kind = "vendored";

  /** @param {string | null} warning */
  constructor(warning) {
    this.warning = warning;
  }

  /** @param {number} count */
  randomBytes(count) {
    return crypto.getRandomValues(new Uint8Array(count));
  }

  /** @param {Bytes} data */
  async sha256(data) {
    return Uint8Array.from(sha256(data));
  }

  /** @param {boolean} exportable */
  generateSigning(exportable) {
    return this.importSigning(this.randomBytes(32), exportable);
  }

  /** @param {boolean} exportable */
  generateAgreement(exportable) {
    return this.importAgreement(this.randomBytes(32), exportable);
  }

  /**
   * @param {Bytes} seed
   * @param {boolean} _exportable Bytes always are; `Keys` remembers what was asked.
   */
  async importSigning(seed, _exportable) {
    return { secret: seed.slice(), public: Uint8Array.from(ed25519.getPublicKey(seed)) };
  }

  /**
   * @param {Bytes} secret
   * @param {boolean} _exportable
   */
  async importAgreement(secret, _exportable) {
    return { secret: secret.slice(), public: Uint8Array.from(x25519.getPublicKey(secret)) };
  }

  /** @param {PrivateKey} secret */
  async exportSecret(secret) {
    return bytesOf(secret).slice();
  }

  /**
   * @param {PrivateKey} secret
   * @param {Bytes} message
   */
  async sign(secret, message) {
    return Uint8Array.from(ed25519.sign(message, bytesOf(secret)));
  }

  /**
   * @param {Bytes} key
   * @param {Bytes} message
   * @param {Bytes} signature
   */
  async verify(key, message, signature) {
    if (!mayVerify(key, signature)) return false;
    try {
      return ed25519.verify(signature, message, key, { zip215: false });
    } catch {
      return false; // A key off the curve.
    }
  }

  /**
   * @param {PrivateKey} secret
   * @param {Bytes} key
   */
  async agree(secret, key) {
    const ours = bytesOf(secret);
    try {
      const shared = Uint8Array.from(x25519.getSharedSecret(ours, key));
      return isZero(shared) ? null : shared;
    } catch {
      return null; // It refuses keys that lead to zero.
    }
  }

  /**
   * @param {Bytes} key
   * @param {Bytes} nonce
   * @param {Bytes} plaintext
   */
  async seal(key, nonce, plaintext) {
    return Uint8Array.from(gcm(key, nonce).encrypt(plaintext));
  }

  /**
   * @param {Bytes} key
   * @param {Bytes} nonce
   * @param {Bytes} sealed
   */
  async open(key, nonce, sealed) {
    try {
      return Uint8Array.from(gcm(key, nonce).decrypt(sealed));
    } catch {
      return null; // A wrong tag, or too short for one.
    }
  }
}

/**
 * @param {PrivateKey} secret
 * @returns {Bytes}
 */
function bytesOf(secret) {
  if (!(secret instanceof Uint8Array)) throw new LocalError("This key belongs to the browser's own cryptography.");
  return secret;
}
