// @ts-check
/**
 * Tells repeats, across restarts too: a message of a sender counts once. Spec: specs/merk.md 8.
 *
 * Remembered are sender and id for fourteen days. A message whose time is proved and is older than that, or not newer than what had
 * to be forgotten of its sender for room, could be one of the forgotten and is refused. Room is taken from whoever holds most of
 * it. Where all hold few, the sender that came last is forgotten, and nothing as old is taken of senders that are not remembered:
 * keys cost nothing, so a flood makes nobody's mail too old but that of who writes for the first time (MERK-SEEN).
 * @module
 */

/** @typedef {import("../storage.js").Storage} Storage */

export const REMEMBERED_MS = 14 * 86_400_000;
/** How far a sender's clock may be ahead of ours, as on the Python side. */
export const AHEAD_MS = 86_400_000;
export const REMEMBERED_MAX = 16_384;
/** So many a sender keeps, whoever else floods; of those who have more the one with the most gives first. */
export const FEW = 16;
/** So much of the room is cleared at once, because finding what to forget looks at all senders. */
const ROOM_SHARE = 16;

/** The messages that one identity has had. */
export class SeenMessages {
  /** Times by id, by sender. @type {Map<string, Map<string, number>>} */
  #times = new Map();
  #count = 0;
  /** Messages that the program has and has not taken yet. @type {Set<string>} */
  #held = new Set();
  /** Up to this time something of a sender is forgotten. @type {Map<string, number>} */
  #floors = new Map();
  /** The same of senders that are not remembered. */
  #newcomers = -Infinity;
  /** Called when the storage takes nothing; what was added then holds until the program ends. */
  onRefused = () => {};

  /**
   * Use `open`.
   * @param {Storage} storage
   * @param {string} owner
   * @param {number} max
   */
  constructor(storage, owner, max) {
    this.storage = storage;
    this.owner = owner;
    this.max = max;
  }

  /**
   * Reads what an identity remembers.
   * @param {Storage} storage
   * @param {string} owner The identity's key in hex.
   * @param {number} nowMs
   * @param {number} [max]
   */
  static async open(storage, owner, nowMs, max = REMEMBERED_MAX) {
    const seen = new SeenMessages(storage, owner, max);
    for (const [key, floorMs] of await storage.entries("floors")) {
      const [whose, sender] = key.split(":");
      if (whose === owner && sender === "") seen.#newcomers = floorMs;
      else if (whose === owner) seen.#floors.set(sender, floorMs);
    }
    // By time, as they were added: who came last is forgotten first.
    for (const [key, timeMs] of (await storage.entries("seen")).sort((one, other) => one[1] - other[1])) {
      const [whose, sender, id] = key.split(":");
      if (whose === owner) seen.#put(sender, id, timeMs);
    }
    await seen.expire(nowMs);
    return seen;
  }

  /** How many are remembered. */
  get count() {
    return this.#count;
  }

  /**
   * Judges a message.
   * @param {string} sender Hex.
   * @param {string} id Hex.
   * @param {number | null} timeMs When it was sent, where that is proved.
   * @param {number} nowMs
   * @returns {"duplicate" | "stale" | null} Null: it is new.
   */
  judge(sender, id, timeMs, nowMs) {
    if (this.#times.get(sender)?.has(id) || this.isHeld(sender, id)) return "duplicate";
    if (timeMs === null) return null;
    const floorMs = Math.max(this.#floorOf(sender), nowMs - REMEMBERED_MS);
    return timeMs <= floorMs || timeMs > nowMs + AHEAD_MS ? "stale" : null;
  }

  /**
   * Counts a message as seen until `add` or `release`; nothing is written.
   * @param {string} sender
   * @param {string} id
   */
  hold(sender, id) {
    this.#held.add(`${sender}:${id}`);
  }

  /**
   * @param {string} sender
   * @param {string} id
   */
  isHeld(sender, id) {
    return this.#held.has(`${sender}:${id}`);
  }

  /**
   * Lets a message that was held come again.
   * @param {string} sender
   * @param {string} id
   */
  release(sender, id) {
    this.#held.delete(`${sender}:${id}`);
  }

  /**
   * Remembers a message; from the call on it counts as seen, and when the promise is done also after a restart.
   * @param {string} sender
   * @param {string} id
   * @param {number} timeMs When it was sent, or where that is not proved, when it came.
   */
  async add(sender, id, timeMs) {
    this.release(sender, id);
    const written = [];
    if (this.#count >= this.max) written.push(...this.#makeRoom());
    // What was forgotten of a newcomer stays refused once it is none any more.
    const floorMs = this.#floorOf(sender);
    if (floorMs > -Infinity) written.push(this.#raise(sender, floorMs));
    this.#put(sender, id, timeMs);
    written.push(this.storage.put("seen", `${this.owner}:${sender}:${id}`, timeMs));
    await this.#settled(written);
  }

  /** @param {Promise<unknown>[]} written */
  async #settled(written) {
    const results = await Promise.allSettled(written);
    if (results.some(({ status }) => status === "rejected")) this.onRefused();
  }

  /**
   * Forgets what is older than fourteen days.
   * @param {number} nowMs
   */
  async expire(nowMs) {
    const removed = [];
    for (const [sender, times] of this.#times) {
      for (const [id, timeMs] of times) if (timeMs <= nowMs - REMEMBERED_MS) removed.push(this.#remove(sender, id));
    }
    for (const [sender, floorMs] of this.#floors) {
      if (floorMs > nowMs - REMEMBERED_MS) continue;
      this.#floors.delete(sender);
      removed.push(this.storage.remove("floors", `${this.owner}:${sender}`));
    }
    await this.#settled(removed);
  }

  /** @param {string} sender */
  #floorOf(sender) {
    const own = this.#floors.get(sender) ?? -Infinity;
    return this.#times.has(sender) ? own : Math.max(own, this.#newcomers);
  }

  /** Forgets the oldest of whoever holds most; where all hold few, whole senders, the last one first. */
  #makeRoom() {
    const written = [];
    const left = this.max - Math.ceil(this.max / ROOM_SHARE);
    while (this.#count > left) {
      const [sender, times] = [...this.#times].reduce((most, each) => (each[1].size > most[1].size ? each : most));
      if (times.size <= FEW) break;
      const wanted = Math.min(this.#count - left, Math.ceil(times.size / 2));
      const oldest = [...times].sort((one, other) => one[1] - other[1]).slice(0, wanted);
      written.push(this.#raise(sender, oldest[oldest.length - 1][1]));
      for (const [id] of oldest) written.push(this.#remove(sender, id));
    }
    const newest = [...this.#times.keys()];
    while (this.#count > left) {
      const sender = /** @type {string} */ (newest.pop());
      const times = /** @type {Map<string, number>} */ (this.#times.get(sender));
      this.#newcomers = Math.max(this.#newcomers, this.#floors.get(sender) ?? -Infinity, ...times.values());
      for (const id of [...times.keys()]) written.push(this.#remove(sender, id));
      if (this.#floors.delete(sender)) written.push(this.storage.remove("floors", `${this.owner}:${sender}`));
    }
    if (this.#newcomers > -Infinity) written.push(this.storage.put("floors", `${this.owner}:`, this.#newcomers));
    return written;
  }

  /**
   * @param {string} sender
   * @param {number} timeMs
   */
  #raise(sender, timeMs) {
    if (timeMs <= (this.#floors.get(sender) ?? -Infinity)) return Promise.resolve();
    this.#floors.set(sender, timeMs);
    return this.storage.put("floors", `${this.owner}:${sender}`, timeMs);
  }

  /**
   * @param {string} sender
   * @param {string} id
   * @param {number} timeMs
   */
  #put(sender, id, timeMs) {
    const times = this.#times.get(sender) ?? new Map();
    this.#times.set(sender, times);
    if (!times.has(id)) this.#count += 1;
    times.set(id, timeMs);
  }

  /**
   * @param {string} sender
   * @param {string} id
   */
  #remove(sender, id) {
    const times = this.#times.get(sender);
    if (times?.delete(id)) this.#count -= 1;
    if (times?.size === 0) this.#times.delete(sender);
    return this.storage.remove("seen", `${this.owner}:${sender}:${id}`);
  }
}
