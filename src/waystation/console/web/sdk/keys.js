// @ts-check
/**
 * An identity: an Ed25519 pair that signs and an X25519 pair that agrees on secrets.
 * @module
 */

import { concat, equal, fromBase64, toBase64, toHex } from "./bytes.js";
import { LocalError } from "./errors.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {import("./crypto/web_crypto.js").WebCrypto} Crypto */
/** @typedef {import("./crypto/web_crypto.js").Pair} Pair */

/** @typedef {{ signing: Pair, agreement: Pair, exportable: boolean } | { file: string }} StoredKeys What goes into the storage. */

const NOT_EXPORTABLE = "These keys were made so that nobody can take them out of this browser, so they cannot be exported.";

/** Both key pairs of one identity. */
export class Keys {
  /**
   * @param {Crypto} crypto
   * @param {Pair} signing
   * @param {Pair} agreement
   * @param {boolean} isExportable
   */
  constructor(crypto, signing, agreement, isExportable) {
    this.crypto = crypto;
    this.signing = signing;
    this.agreement = agreement;
    this.isExportable = isExportable;
  }

  /** The identity in hex: its Ed25519 public key. */
  get id() {
    return toHex(this.signing.public);
  }

  /**
   * Makes a new identity.
   * @param {Crypto} crypto
   * @param {{ exportable?: boolean }} [options]
   */
  static async generate(crypto, { exportable = false } = {}) {
    return new Keys(crypto, await crypto.generateSigning(exportable), await crypto.generateAgreement(exportable), exportable);
  }

  /**
   * Makes the identity of two 32-byte secrets.
   * @param {Crypto} crypto
   * @param {Bytes} seed
   * @param {Bytes} agreementSecret
   * @param {{ exportable?: boolean }} [options]
   */
  static async fromSeeds(crypto, seed, agreementSecret, { exportable = false } = {}) {
    const signing = await crypto.importSigning(seed, exportable);
    return new Keys(crypto, signing, await crypto.importAgreement(agreementSecret, exportable), exportable);
  }

  /**
   * Reads the original's key file: four keys in base64.
   * @param {Crypto} crypto
   * @param {string} text
   * @param {{ exportable?: boolean }} [options]
   * @throws {LocalError} It is something else, or the halves of a pair do not belong together.
   */
  static async importJson(crypto, text, options = {}) {
    const file = parseFile(text);
    const signingPublic = member(file, "publicKey", 32);
    const signingSecret = member(file, "privateKey", 64);
    const agreementPublic = member(file, "encryptionPublicKey", 32);
    const keys = await Keys.fromSeeds(crypto, signingSecret.slice(0, 32), member(file, "encryptionPrivateKey", 32), options);
    const matches =
      equal(keys.signing.public, signingPublic) &&
      equal(signingSecret.slice(32), signingPublic) &&
      equal(keys.agreement.public, agreementPublic);
    if (!matches) throw new LocalError("This key file is damaged: its public and private keys do not belong together.");
    return keys;
  }

  /**
   * Writes the original's key file.
   * @throws {LocalError} The keys were not made to be exported.
   */
  async exportJson() {
    if (!this.isExportable) throw new LocalError(NOT_EXPORTABLE);
    const seed = await this.crypto.exportSecret(this.signing.secret);
    const agreementSecret = await this.crypto.exportSecret(this.agreement.secret);
    if (seed === null || agreementSecret === null) throw new LocalError(NOT_EXPORTABLE);
    return JSON.stringify({
      publicKey: toBase64(this.signing.public),
      privateKey: toBase64(concat(seed, this.signing.public)),
      encryptionPublicKey: toBase64(this.agreement.public),
      encryptionPrivateKey: toBase64(agreementSecret),
    });
  }

  /**
   * Signs with the identity.
   * @param {Bytes} message
   */
  sign(message) {
    return this.crypto.sign(this.signing.secret, message);
  }

  /**
   * Makes what goes into a storage.
   * @param {boolean} takesKeys Whether it can hold CryptoKeys; elsewhere it gets the key file.
   * @returns {Promise<StoredKeys>}
   */
  async toStored(takesKeys) {
    if (!takesKeys) return { file: await this.exportJson() };
    return { signing: this.signing, agreement: this.agreement, exportable: this.isExportable };
  }

  /**
   * @param {Crypto} crypto
   * @param {StoredKeys} stored
   */
  static async fromStored(crypto, stored) {
    if ("file" in stored) return Keys.importJson(crypto, stored.file, { exportable: true });
    return new Keys(crypto, stored.signing, stored.agreement, stored.exportable);
  }
}

/**
 * @param {string} text
 * @returns {Record<string, unknown>}
 */
function parseFile(text) {
  try {
    const file = JSON.parse(text);
    if (typeof file === "object" && file !== null) return file;
  } catch {
    // Told below, together with JSON that is no object.
  }
  throw new LocalError("This is no key file: it should be a JSON object with four keys.");
}

/**
 * @param {Record<string, unknown>} file
 * @param {string} name
 * @param {number} count
 * @returns {Bytes}
 */
function member(file, name, count) {
  const bytes = fromBase64(file[name]);
  if (bytes === null || bytes.length !== count) throw new LocalError(`This is no key file: ${name} should be ${count} bytes in base64.`);
  return bytes;
}
