// @ts-check
/**
 * Identities by name in the storage.
 * @module
 */

import { demandName } from "./arguments.js";
import { toHex } from "./bytes.js";
import { LocalError } from "./errors.js";
import { Keys } from "./keys.js";

/** @typedef {import("./environment.js").Environment} Environment */
/** @typedef {{ identity: string, id: string, agreementKey: string, exportable: boolean }} IdentityRecord Keys in hex. */

export const DEFAULT_IDENTITY = "default";
/** Held while an identity is made, so that two tabs at their first start do not make two. */
const MAKING = "waystation-merk-identities";

/**
 * Gives the identity of this name.
 * @param {Environment} environment
 * @param {string} identity
 * @returns {Promise<Keys | null>}
 */
export async function loadIdentity({ storage, crypto }, identity) {
  const stored = await storage.get("identities", identity);
  return stored === undefined ? null : Keys.fromStored(crypto, stored);
}

/**
 * Gives the identity of this name, making it where there is none; tabs that begin at once get the same.
 * @param {Environment} environment
 * @param {string} identity
 * @param {boolean} exportable
 * @returns {Promise<Keys>}
 * @throws {LocalError} The name is empty or too long.
 */
export async function openIdentity(environment, identity, exportable) {
  const found = await loadIdentity(environment, identity);
  return found ?? alone(environment, async () => (await loadIdentity(environment, identity)) ?? generate(environment, identity, exportable));
}

/**
 * Makes an identity under a name that is free.
 * @param {Environment} environment
 * @param {string} identity
 * @param {boolean} exportable
 * @returns {Promise<Keys>}
 * @throws {LocalError} The name is taken, empty or too long.
 */
export async function makeIdentity(environment, identity, exportable) {
  return alone(environment, () => generate(environment, identity, exportable));
}

/**
 * Takes the original's key file under a name that is free.
 * @param {Environment} environment
 * @param {string} identity
 * @param {string} text
 * @param {boolean} exportable
 * @returns {Promise<Keys>}
 * @throws {LocalError} It is no such file, or the name is taken.
 */
export async function takeIdentity(environment, identity, text, exportable) {
  const keys = await Keys.importJson(environment.crypto, text, { exportable: exportable || !environment.storage.takesKeys });
  return alone(environment, () => put(environment, identity, keys));
}

/**
 * Lists them by name.
 * @param {Environment} environment
 * @returns {Promise<IdentityRecord[]>}
 */
export async function allIdentities({ storage, crypto }) {
  const listed = (await storage.entries("identities")).map(async ([identity, stored]) => {
    const keys = await Keys.fromStored(crypto, stored);
    return { identity, id: keys.id, agreementKey: toHex(keys.agreement.public), exportable: keys.isExportable };
  });
  return Promise.all(listed);
}

/**
 * Does something while no other tab does such.
 * @param {Environment} environment
 * @param {() => Promise<Keys>} action
 * @returns {Promise<Keys>}
 */
async function alone({ locks }, action) {
  return locks === null ? action() : locks.request(MAKING, {}, action);
}

/**
 * @param {Environment} environment
 * @param {string} identity
 * @param {boolean} exportable
 */
async function generate(environment, identity, exportable) {
  return put(environment, identity, await Keys.generate(environment.crypto, { exportable: exportable || !environment.storage.takesKeys }));
}

/**
 * @param {Environment} environment
 * @param {string} identity
 * @param {Keys} keys
 */
async function put(environment, identity, keys) {
  await demandFree(environment, identity);
  await environment.storage.put("identities", identity, await keys.toStored(environment.storage.takesKeys));
  return keys;
}

/**
 * @param {Environment} environment
 * @param {string} identity
 */
async function demandFree({ storage }, identity) {
  demandName(identity, "An identity's name");
  if ((await storage.get("identities", identity)) !== undefined) throw new LocalError(`There is an identity "${identity}" already; forget it first.`);
}
