// @ts-check
/**
 * Where keys, servers and settings stay: the browser's database, or memory where there is none.
 * @module
 */

/**
 * Named tables of values by text key.
 * @typedef {object} Storage
 * @property {boolean} isPersistent
 * @property {boolean} takesKeys Whether values may hold CryptoKeys; elsewhere they are what JSON can say.
 * @property {(table: Table, key: string) => Promise<any>} get Undefined when there is none.
 * @property {(table: Table, key: string, value: unknown) => Promise<void>} put
 * @property {(table: Table, key: string) => Promise<void>} remove
 * @property {(table: Table) => Promise<Array<[string, any]>>} entries In the order of the keys.
 * @property {() => void} close
 */

/** @typedef {"identities" | "servers" | "adverts" | "settings" | "seen" | "floors"} Table */

/**
 * One change of the browser's database.
 * @typedef {object} Change
 * @property {Table} table
 * @property {(rows: IDBObjectStore) => unknown} apply
 * @property {() => void} resolve
 * @property {(error: unknown) => void} reject
 */

/** @type {Table[]} */
export const TABLES = ["identities", "servers", "adverts", "settings", "seen", "floors"];
const DATABASE = "waystation-merk";
const DATABASE_VERSION = 2;

/** @implements {Storage} */
export class MemoryStorage {
  isPersistent = false;
  takesKeys = true;
  /** @type {Map<Table, Map<string, unknown>>} */
  #tables = new Map(TABLES.map((table) => [table, new Map()]));

  /**
   * @param {Table} table
   * @param {string} key
   */
  async get(table, key) {
    return this.#table(table).get(key);
  }

  /**
   * @param {Table} table
   * @param {string} key
   * @param {unknown} value
   */
  async put(table, key, value) {
    this.#table(table).set(key, value);
  }

  /**
   * @param {Table} table
   * @param {string} key
   */
  async remove(table, key) {
    this.#table(table).delete(key);
  }

  /**
   * @param {Table} table
   * @returns {Promise<Array<[string, any]>>}
   */
  async entries(table) {
    return [...this.#table(table)].sort(([left], [right]) => (left < right ? -1 : 1));
  }

  close() {}

  /** @param {Table} table */
  #table(table) {
    const rows = this.#tables.get(table);
    if (rows === undefined) throw new RangeError(`no table ${table}`);
    return rows;
  }
}

/**
 * The browser's database. What is written is on the disk when its promise is fulfilled, so that no power cut takes what was confirmed
 * since; what is written while a transaction is under way goes with the next one, so many messages need few syncs.
 * @implements {Storage}
 */
export class IndexedDbStorage {
  isPersistent = true;
  takesKeys = true;
  /** What waits for the transaction under way. @type {Change[]} */
  #waiting = [];
  #isWriting = false;

  /** @param {IDBDatabase} database */
  constructor(database) {
    this.database = database;
    // Another tab with a newer SDK wants to change the tables: let it.
    database.onversionchange = () => database.close();
  }

  /**
   * Opens the database, making it at first use.
   * @param {IDBFactory} factory
   * @param {string} [name]
   */
  static async open(factory, name = DATABASE) {
    const request = factory.open(name, DATABASE_VERSION);
    request.onupgradeneeded = () => {
      const { result } = request;
      for (const table of TABLES) if (!result.objectStoreNames.contains(table)) result.createObjectStore(table);
    };
    return new IndexedDbStorage(await done(request));
  }

  /**
   * @param {Table} table
   * @param {string} key
   */
  async get(table, key) {
    return done(this.database.transaction(table).objectStore(table).get(key));
  }

  /**
   * @param {Table} table
   * @param {string} key
   * @param {unknown} value
   */
  put(table, key, value) {
    return this.#write(table, (rows) => rows.put(value, key));
  }

  /**
   * @param {Table} table
   * @param {string} key
   */
  remove(table, key) {
    return this.#write(table, (rows) => rows.delete(key));
  }

  /**
   * @param {Table} table
   * @returns {Promise<Array<[string, any]>>}
   */
  async entries(table) {
    const rows = this.database.transaction(table).objectStore(table);
    const [keys, values] = await Promise.all([done(rows.getAllKeys()), done(rows.getAll())]);
    return keys.map((key, index) => [String(key), values[index]]);
  }

  close() {
    this.database.close();
  }

  /**
   * @param {Table} table
   * @param {(rows: IDBObjectStore) => unknown} apply
   * @returns {Promise<void>}
   */
  #write(table, apply) {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ table, apply, resolve, reject });
      if (!this.#isWriting) this.#writeAll();
    });
  }

  #writeAll() {
    const changes = this.#waiting.splice(0);
    this.#isWriting = changes.length > 0;
    if (!this.#isWriting) return;
    /** @param {(change: Change) => void} settle */
    const end = (settle) => {
      changes.forEach(settle);
      this.#writeAll();
    };
    try {
      const transaction = this.database.transaction(TABLES, "readwrite", { durability: "strict" });
      transaction.oncomplete = () => end(({ resolve }) => resolve());
      transaction.onabort = () => end(({ reject }) => reject(transaction.error));
      for (const { table, apply, reject } of changes) {
        try {
          apply(transaction.objectStore(table));
        } catch (error) {
          reject(error); // a value that cannot be copied; the others are written
        }
      }
    } catch (error) {
      end(({ reject }) => reject(error)); // the database is closed
    }
  }
}

/**
 * The part of `localStorage` that is used.
 * @typedef {object} TextStore
 * @property {number} length
 * @property {(index: number) => string | null} key
 * @property {(key: string) => string | null} getItem
 * @property {(key: string, value: string) => void} setItem
 * @property {(key: string) => void} removeItem
 */

/**
 * Values as JSON in `localStorage` or the like. Keys of identities are readable there for every script of the origin.
 * @implements {Storage}
 */
export class TextStorage {
  isPersistent = true;
  takesKeys = false;

  /**
   * @param {TextStore} store
   * @param {string} [prefix] In front of every key, so that others can use the same store.
   */
  constructor(store, prefix = `${DATABASE}:`) {
    this.store = store;
    this.prefix = prefix;
  }

  /**
   * @param {Table} table
   * @param {string} key
   */
  async get(table, key) {
    const text = this.store.getItem(`${this.prefix}${table}:${key}`);
    return text === null ? undefined : JSON.parse(text);
  }

  /**
   * @param {Table} table
   * @param {string} key
   * @param {unknown} value
   */
  async put(table, key, value) {
    this.store.setItem(`${this.prefix}${table}:${key}`, JSON.stringify(value));
  }

  /**
   * @param {Table} table
   * @param {string} key
   */
  async remove(table, key) {
    this.store.removeItem(`${this.prefix}${table}:${key}`);
  }

  /**
   * @param {Table} table
   * @returns {Promise<Array<[string, any]>>}
   */
  async entries(table) {
    const prefix = `${this.prefix}${table}:`;
    const names = Array.from({ length: this.store.length }, (_, index) => this.store.key(index) ?? "").filter((name) => name.startsWith(prefix));
    return names.sort().map((name) => [name.slice(prefix.length), JSON.parse(this.store.getItem(name) ?? "null")]);
  }

  close() {}
}

/**
 * Opens the browser's database, or memory where there is none or it is forbidden (private windows of some browsers).
 * @param {IDBFactory | undefined} [factory]
 * @returns {Promise<Storage>}
 */
export async function openStorage(factory = globalThis.indexedDB) {
  if (factory === undefined) return new MemoryStorage();
  try {
    return await IndexedDbStorage.open(factory);
  } catch {
    return new MemoryStorage(); // Its `isPersistent` tells; the client warns.
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
