/**
 * How keys, sizes, times and names are shown and read back. Nothing here touches the document.
 * @module
 */

const DIGITS = "0123456789abcdefghijklmnopqrstuv";
const ID52_CHARS = 52;
const FILE_NAME_CHARS_MAX = 120;

/**
 * Returns the 52-character text of a key: base32hex, lower case, no padding.
 * @param {string} hex 64 hexadecimal digits.
 */
export function toId52(hex) {
  const bits = BigInt(`0x${hex}`) << 4n; // 256 bits in 52 digits of 5: the last four are zero
  let text = "";
  for (let index = ID52_CHARS - 1; index >= 0; index -= 1) text += DIGITS[Number((bits >> BigInt(5 * index)) & 31n)];
  return text;
}

/**
 * Returns the key that an id52 names, or null.
 * @param {string} text 52 characters, lower case.
 */
export function fromId52(text) {
  if (!/^[0-9a-v]{52}$/.test(text)) return null;
  let bits = 0n;
  for (const digit of text) bits = (bits << 5n) | BigInt(DIGITS.indexOf(digit));
  return bits & 15n ? null : (bits >> 4n).toString(16).padStart(64, "0");
}

/**
 * Reads a recipient in any form in which people pass keys on.
 * @param {string} text Hexadecimal key, id52, or a link with `to=`.
 * @returns {{ key: string } | { problem: string }} The problem is empty for an empty text.
 */
export function readRecipient(text) {
  const linked = /[#&]to=([0-9a-z]+)/i.exec(text);
  const bare = (linked ? linked[1] : text.replace(/\s+/g, "")).toLowerCase();
  if (!bare) return { problem: "" };
  const key = /^[0-9a-f]{64}$/.test(bare) ? bare : fromId52(bare);
  if (key && /[^0]/.test(key)) return { key };
  if (/^[0-9a-f]+$/.test(bare) && ![64, ID52_CHARS].includes(bare.length)) {
    return { problem: `A key has 64 hexadecimal digits; this has ${bare.length}.` };
  }
  return { problem: "This is no key: 64 hexadecimal digits, an id52 of 52 characters, or a link that ends in one." };
}

/**
 * Reads what the part of the address behind `#` asks for.
 * @param {string} hash
 * @returns {{ to: string, name: string, backup: string, as: string }} `as` is the name of an identity of this browser, "default" unless
 *   a short plain word; `name` is what the person of `to` says of itself; `backup` is a sealed copy of an identity.
 */
export function readHash(hash) {
  const asked = new URLSearchParams(hash.replace(/^#/, ""));
  const name = asked.get("as") ?? "";
  const [to, said, backup] = ["to", "name", "backup"].map((each) => asked.get(each) ?? "");
  return { to, name: said, backup, as: /^[a-z0-9-]{1,32}$/.test(name) ? name : "default" };
}

/**
 * Returns a number of bytes in the unit that reads best.
 * @param {number} bytes
 */
export function size(bytes) {
  if (bytes < 1_000) return `${bytes} ${bytes === 1 ? "byte" : "bytes"}`;
  const [unit, scale] = bytes < 1e6 ? ["KB", 1e3] : bytes < 1e9 ? ["MB", 1e6] : ["GB", 1e9];
  return `${(bytes / scale).toLocaleString("en", { maximumSignificantDigits: 3 })} ${unit}`;
}

/**
 * Returns a span of time in its largest unit.
 * @param {number} seconds
 */
export function span(seconds) {
  for (const [unit, length] of [["day", 86_400], ["hour", 3_600], ["minute", 60]]) {
    const count = Math.floor(seconds / length);
    if (count >= 1) return `${count} ${unit}${count === 1 ? "" : "s"}`;
  }
  const count = Math.max(0, Math.floor(seconds));
  return `${count} second${count === 1 ? "" : "s"}`;
}

/**
 * Returns the time of day as people write it where they are.
 * @param {number} ms Unix milliseconds.
 */
export function clock(ms) {
  return new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

/**
 * Returns a name under which a stranger's file may be saved: no folders, nothing invisible, no leading dot.
 * @param {string} name
 */
export function safeFileName(name) {
  const last = name.split(/[/\\]/).pop() ?? "";
  const visible = last.replace(/[\p{C}<>:"|?*]/gu, "").trim().replace(/^\.+/, "");
  return [...visible].slice(-FILE_NAME_CHARS_MAX).join("") || "file";
}

/**
 * Returns the day as people write it where they are; today and yesterday by their names.
 * @param {number} ms Unix milliseconds.
 * @param {number} [now]
 */
export function day(ms, now = Date.now()) {
  const at = new Date(ms);
  const days = Math.round((new Date(now).setHours(12, 0, 0, 0) - new Date(ms).setHours(12, 0, 0, 0)) / 86_400_000);
  if (days === 0) return "Today";
  if (days === 1) return "Yesterday";
  const isNear = days > 0 && days < 300;
  return at.toLocaleDateString([], { weekday: "long", day: "numeric", month: "long", ...(isNear ? {} : { year: "numeric" }) });
}

/**
 * Returns a time in as few signs as say it: the time of day today, else the date.
 * @param {number} ms Unix milliseconds.
 * @param {number} [now]
 */
export function when(ms, now = Date.now()) {
  const name = day(ms, now);
  if (name === "Today") return clock(ms);
  return name === "Yesterday" ? name : new Date(ms).toLocaleDateString([], { day: "numeric", month: "short" });
}
