// @ts-check
/**
 * Tables of the page in the browser's database, or in memory where there is none.
 * @module
 */

/** @typedef {"people" | "messages" | "files" | "meta"} Table */

/** @type {Table[]} */
export const TABLES = ["people", "messages", "files", "meta"];
const VERSION = 1;

/** Tables that end with the tab. */
export class MemoryStore {
  isPersistent = false;
  /** @type {Map<string, Map<string, any>>} */
  #tables = new Map(TABLES.map((table) => [table, new Map()]));

  async get(table, key) {
    return this.#tables.get(table)?.get(key);
  }

  async entries(table) {
    return [...(this.#tables.get(table) ?? [])];
  }

  /**
   * Writes and deletes together.
   * @param {Array<{ table: Table, key: string, value?: any }>} changes Without a value the row is deleted.
   */
  async change(changes) {
    for (const { table, key, value } of changes) {
      if (value === undefined) this.#tables.get(table)?.delete(key);
      else this.#tables.get(table)?.set(key, value);
    }
  }
}

/** Tables in IndexedDB; the face is that of `MemoryStore`. What was changed is on the disk, since a message is confirmed then. */
export class DatabaseStore {
  isPersistent = true;

  /** @param {IDBDatabase} database */
  constructor(database) {
    this.database = database;
    database.onversionchange = () => database.close();
  }

  async get(table, key) {
    return done(this.database.transaction(table).objectStore(table).get(key));
  }

  async entries(table) {
    const rows = this.database.transaction(table).objectStore(table);
    const [keys, values] = await Promise.all([done(rows.getAllKeys()), done(rows.getAll())]);
    return keys.map((key, index) => [String(key), values[index]]);
  }

  async change(changes) {
    if (changes.length === 0) return;
    const transaction = this.database.transaction(TABLES, "readwrite", { durability: "strict" });
    for (const { table, key, value } of changes) {
      if (value === undefined) transaction.objectStore(table).delete(key);
      else transaction.objectStore(table).put(value, key);
    }
    await new Promise((resolve, reject) => {
      transaction.oncomplete = () => resolve(undefined);
      transaction.onabort = () => reject(transaction.error);
      transaction.onerror = () => reject(transaction.error);
    });
  }
}

/**
 * Opens the tables of one identity.
 * @param {string} identity
 * @param {IDBFactory | undefined} [factory]
 * @returns {Promise<MemoryStore | DatabaseStore>}
 */
export async function openStore(identity, factory = globalThis.indexedDB) {
  if (factory === undefined) return new MemoryStore();
  try {
    const request = factory.open(`waystation-page-${identity}`, VERSION);
    request.onupgradeneeded = () => TABLES.forEach((table) => request.result.createObjectStore(table));
    return new DatabaseStore(await done(request));
  } catch {
    return new MemoryStore(); // private windows of some browsers; `isPersistent` says so and the page shows it
  }
}

/**
 * @template T
 * @param {IDBRequest<T>} request
 * @returns {Promise<T>}
 */
function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
