// @ts-check
/**
 * Who is who: a person is a key, the name that it says of itself, and the user's own label, which wins.
 *
 * MERK-NICK: a name travels as a JSON message `{"merk.person": {"name": "Ada"}}`; it proves nothing but that its sender says so.
 * @module
 */

export const NAME_CHARS_MAX = 40;
export const PEOPLE_MAX = 2_000;
const ANNOUNCEMENT = "merk.person";
const SAFETY = "merk-safety/1";
/** Nothing invisible, and none of the signs that turn the direction of what follows. */
const INVISIBLE = /[\p{C}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0]/gu;

/**
 * Makes a name of a stranger's text: one line, visible, at most 40 characters; empty when nothing is left.
 * @param {unknown} text
 */
export function tameName(text) {
  if (typeof text !== "string") return "";
  const line = text.slice(0, 1_000).replace(/\s+/gu, " ").replace(INVISIBLE, "").normalize("NFC").trim();
  return [...line].slice(0, NAME_CHARS_MAX).join("").trim();
}

/** What is sent to say one's name. @param {string} name */
export function announcement(name) {
  return { [ANNOUNCEMENT]: { name } };
}

/**
 * Reads a name out of a JSON message.
 * @param {any} value
 * @returns {string | null} Null when the message is something else.
 */
export function announcedName(value) {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return null;
  if (Object.keys(value).length !== 1 || typeof value[ANNOUNCEMENT] !== "object") return null;
  return tameName(value[ANNOUNCEMENT]?.name);
}

/**
 * The number that two people compare: twelve groups of five digits, the same on both sides.
 * @param {string} one Hex key.
 * @param {string} other Hex key.
 * @returns {Promise<string[]>}
 */
export async function safetyNumber(one, other) {
  const text = `${SAFETY} ${[one, other].sort().join(" ")}`;
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-512", new TextEncoder().encode(text)));
  return Array.from({ length: 12 }, (_, group) => {
    const value = digest.slice(5 * group, 5 * group + 5).reduce((sum, byte) => sum * 256 + byte, 0);
    return String(value % 100_000).padStart(5, "0");
  });
}

/** The people of one identity. */
export class People {
  /**
   * @param {import("./history.js").History} history
   * @param {string} self Own key.
   */
  constructor(history, self) {
    this.history = history;
    this.self = self;
  }

  /** @param {string} key */
  get(key) {
    return this.history.people.get(key) ?? { key, said: "", label: "", isBlocked: false, isVerified: false, isKnown: false, sinceMs: 0 };
  }

  /** @param {string} key */
  has(key) {
    return this.history.people.has(key);
  }

  all() {
    return [...this.history.people.values()];
  }

  /** The name to show: the label, else what the person says, else the start of the key. @param {string} key */
  name(key) {
    const { label, said } = this.get(key);
    if (label || said) return label || said;
    return key === this.self ? "Notes to yourself" : `${key.slice(0, 4)} ${key.slice(4, 8)}`;
  }

  /** Whether the name is only the person's own word and another person is called the same. @param {string} key */
  isDoubtful(key) {
    const name = this.name(key).toLocaleLowerCase();
    return this.all().some((other) => other.key !== key && this.name(other.key).toLocaleLowerCase() === name);
  }

  /**
   * @param {string} key
   * @param {Record<string, unknown>} change
   * @returns {Promise<boolean>} False when there is no room for another stranger.
   */
  async set(key, change) {
    if (!this.has(key) && this.history.people.size >= PEOPLE_MAX && !(await this.#forgetOneStranger())) return false;
    await this.history.putPerson({ sinceMs: Date.now(), ...this.get(key), ...change, key });
    return true;
  }

  /** Strangers who wrote and were never answered give way, the oldest first. */
  async #forgetOneStranger() {
    const stranger = this.all().filter(({ isKnown, isBlocked }) => !isKnown && !isBlocked).sort((left, right) => left.sinceMs - right.sinceMs)[0];
    if (stranger) await this.history.forgetPerson(stranger.key);
    return stranger !== undefined;
  }
}

/**
 * What the list shows of each person, newest first.
 * @param {import("./history.js").History} history
 * @param {People} people
 */
export function summaries(history, people) {
  const byPeer = new Map();
  for (const entry of history.entries.values()) {
    const { readMs = 0 } = people.get(entry.peer);
    const one = byPeer.get(entry.peer) ?? { key: entry.peer, unseen: 0 };
    one.last = entry;
    if (entry.way === "in" && entry.ms > readMs) one.unseen += 1;
    byPeer.set(entry.peer, one);
  }
  for (const { key, isKnown, sinceMs } of people.all()) if (isKnown && !byPeer.has(key)) byPeer.set(key, { key, unseen: 0, sinceMs });
  return [...byPeer.values()].filter(({ key }) => !people.get(key).isBlocked)
    .sort((left, right) => (right.last?.ms ?? right.sinceMs) - (left.last?.ms ?? left.sinceMs));
}
