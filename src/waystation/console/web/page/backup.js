// @ts-check
/**
 * A copy of an identity that a passphrase protects: as a file, or as a link and its QR code for another device. It holds the keys, the own
 * name and, in a file, the people; never messages. Layout: vault.js around JSON (MERK-BACKUP).
 * @module
 */

import { tameName } from "./people.js";
import { openWithPassphrase, sealWithPassphrase } from "./vault.js";

const KIND = "merk-backup/1";
const PEOPLE_MAX = 2_000;

/** What was given is no backup. */
export class NoBackup extends Error {
  constructor() {
    super("This is no backup of such a page: choose the file that it saved, or the link that it showed.");
    this.name = "NoBackup";
  }
}

/**
 * Seals an identity.
 * @param {string} passphrase
 * @param {{ keys: string, name: string, people?: any[] }} identity `keys` is the key file of the original, as the SDK exports it.
 * @param {number} [iterations]
 * @returns {Promise<string>} base64url.
 */
export async function sealBackup(passphrase, { keys, name, people }, iterations) {
  const { privateKey, encryptionPublicKey, encryptionPrivateKey } = JSON.parse(keys);
  const known = people?.map(({ key, said, label, isBlocked, isVerified, isKnown }) => [key, said, label, Number(isBlocked), Number(isVerified), Number(isKnown)]);
  const text = JSON.stringify([KIND, privateKey, encryptionPublicKey, encryptionPrivateKey, name, ...(known ? [known] : [])]);
  return toBase64Url(await sealWithPassphrase(passphrase, new TextEncoder().encode(text), iterations));
}

/**
 * Opens a backup.
 * @param {string} passphrase
 * @param {string} text The file's or link's base64url, or a link that has it behind `backup=`.
 * @returns {Promise<{ keys: string, name: string, people: any[] }>}
 * @throws {NoBackup | import("./vault.js").WrongPassphrase}
 */
export async function openBackup(passphrase, text) {
  const sealed = fromBase64Url(backupIn(text));
  if (sealed === null) throw new NoBackup();
  const whole = readJson(new TextDecoder().decode(await openWithPassphrase(passphrase, sealed)));
  if (!Array.isArray(whole) || whole[0] !== KIND || whole.slice(1, 5).some((each) => typeof each !== "string")) throw new NoBackup();
  const [, privateKey, encryptionPublicKey, encryptionPrivateKey, name, people = []] = whole;
  const bytes = atobOrEmpty(privateKey);
  const publicKey = btoa(bytes.slice(32));
  return { keys: JSON.stringify({ publicKey, privateKey, encryptionPublicKey, encryptionPrivateKey }), name: tameName(name), people: peopleOf(people) };
}

/** The sealed text in a file, a link or alone. @param {string} text */
export function backupIn(text) {
  return /[#&]backup=([A-Za-z0-9_-]+)/.exec(text)?.[1] ?? text.trim();
}

function peopleOf(rows) {
  if (!Array.isArray(rows)) return [];
  return rows.slice(0, PEOPLE_MAX).filter((row) => Array.isArray(row) && /^[0-9a-f]{64}$/.test(row[0])).map((row) => ({
    key: row[0], said: tameName(row[1]), label: tameName(row[2]), isBlocked: row[3] === 1, isVerified: row[4] === 1, isKnown: row[5] === 1,
  }));
}

function readJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null; // the caller refuses it
  }
}

function atobOrEmpty(text) {
  try {
    return atob(text);
  } catch {
    throw new NoBackup();
  }
}

function toBase64Url(bytes) {
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

function fromBase64Url(text) {
  if (!/^[A-Za-z0-9_-]+$/.test(text) || text.length % 4 === 1) return null;
  return Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (sign) => sign.charCodeAt(0));
}
