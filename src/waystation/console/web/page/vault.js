// @ts-check
/**
 * A passphrase in front of bytes: PBKDF2-SHA-256 and AES-256-GCM of WebCrypto. The history is sealed with a random key that the
 * passphrase wraps; a backup with the passphrase's key itself. Spec: RFC 8018 5.2; NIST SP 800-38D.
 * @module
 */

/** OWASP Password Storage Cheat Sheet (2023) for PBKDF2-SHA-256. */
export const ITERATIONS = 600_000;
/** More than this a file may not ask for: a hostile one could keep the browser busy for minutes. */
export const ITERATIONS_MAX = 10_000_000;
export const PASSPHRASE_CHARS_MIN = 8;
const SALT_BYTES = 16;
const NONCE_BYTES = 12;
const KEY_BYTES = 32;
const VERSION = 1;
const HEAD_BYTES = 1 + 4 + SALT_BYTES + NONCE_BYTES;

/** The passphrase does not open this, or somebody has changed it. */
export class WrongPassphrase extends Error {
  constructor() {
    super("This passphrase does not open it. Check for capitals and blanks.");
    this.name = "WrongPassphrase";
  }
}

/**
 * @param {string} passphrase
 * @param {Uint8Array} salt
 * @param {number} iterations
 */
async function keyOf(passphrase, salt, iterations) {
  const bytes = new TextEncoder().encode(passphrase.normalize("NFKC"));
  const base = await crypto.subtle.importKey("raw", bytes, "PBKDF2", false, ["deriveKey"]);
  const kind = { name: "AES-GCM", length: 256 };
  return crypto.subtle.deriveKey({ name: "PBKDF2", hash: "SHA-256", salt, iterations }, base, kind, false, ["encrypt", "decrypt"]);
}

/**
 * Seals bytes with a passphrase.
 * @param {string} passphrase
 * @param {Uint8Array} bytes
 * @param {number} [iterations]
 * @returns {Promise<Uint8Array>} version[1] | iterations[4] | salt[16] | nonce[12] | ciphertext; all before it is authenticated.
 */
export async function sealWithPassphrase(passphrase, bytes, iterations = ITERATIONS) {
  const head = new Uint8Array(HEAD_BYTES);
  head[0] = VERSION;
  new DataView(head.buffer).setUint32(1, iterations);
  crypto.getRandomValues(head.subarray(5));
  const { salt, nonce } = partsOf(head);
  const key = await keyOf(passphrase, salt, iterations);
  const sealed = await crypto.subtle.encrypt({ name: "AES-GCM", iv: nonce, additionalData: head }, key, bytes);
  return joined(head, new Uint8Array(sealed));
}

/**
 * Opens what `sealWithPassphrase` made.
 * @param {string} passphrase
 * @param {Uint8Array} sealed
 * @throws {WrongPassphrase}
 */
export async function openWithPassphrase(passphrase, sealed) {
  const head = sealed.slice(0, HEAD_BYTES);
  if (sealed.length < HEAD_BYTES + 16 || head[0] !== VERSION) throw new WrongPassphrase();
  const { iterations, salt, nonce } = partsOf(head);
  if (iterations < 1 || iterations > ITERATIONS_MAX) throw new WrongPassphrase();
  const key = await keyOf(passphrase, salt, iterations);
  return opened(key, nonce, head, sealed.slice(HEAD_BYTES));
}

function partsOf(head) {
  return {
    iterations: new DataView(head.buffer, head.byteOffset).getUint32(1),
    salt: head.slice(5, 5 + SALT_BYTES),
    nonce: head.slice(5 + SALT_BYTES, HEAD_BYTES),
  };
}

async function opened(key, nonce, additionalData, ciphertext) {
  try {
    return new Uint8Array(await crypto.subtle.decrypt({ name: "AES-GCM", iv: nonce, additionalData }, key, ciphertext));
  } catch {
    throw new WrongPassphrase(); // decrypt has no other failure
  }
}

function joined(head, rest) {
  const whole = new Uint8Array(head.length + rest.length);
  whole.set(head);
  whole.set(rest, head.length);
  return whole;
}

/** The key of a history; rows are bound to their place, so that none can be put in another's. */
export class Vault {
  /** @param {CryptoKey} key */
  constructor(key) {
    this.key = key;
  }

  /**
   * Makes a vault and what opens it again.
   * @param {string} passphrase
   * @param {number} [iterations]
   */
  static async make(passphrase, iterations = ITERATIONS) {
    const bytes = crypto.getRandomValues(new Uint8Array(KEY_BYTES));
    const wrapped = await sealWithPassphrase(passphrase, bytes, iterations);
    return { vault: await Vault.#of(bytes), wrapped };
  }

  /**
   * @param {string} passphrase
   * @param {Uint8Array} wrapped
   * @throws {WrongPassphrase}
   */
  static async open(passphrase, wrapped) {
    return Vault.#of(await openWithPassphrase(passphrase, wrapped));
  }

  /** @param {Uint8Array} bytes */
  static async #of(bytes) {
    return new Vault(await crypto.subtle.importKey("raw", bytes, "AES-GCM", false, ["encrypt", "decrypt"]));
  }

  /**
   * @param {string} place Table and key of the row.
   * @param {Uint8Array} bytes
   */
  async seal(place, bytes) {
    const nonce = crypto.getRandomValues(new Uint8Array(NONCE_BYTES));
    const additionalData = new TextEncoder().encode(place);
    const sealed = await crypto.subtle.encrypt({ name: "AES-GCM", iv: nonce, additionalData }, this.key, bytes);
    return joined(nonce, new Uint8Array(sealed));
  }

  /**
   * @param {string} place
   * @param {Uint8Array} sealed
   * @throws {WrongPassphrase} The row was changed, or stood elsewhere.
   */
  async open(place, sealed) {
    return opened(this.key, sealed.slice(0, NONCE_BYTES), new TextEncoder().encode(place), sealed.slice(NONCE_BYTES));
  }
}
