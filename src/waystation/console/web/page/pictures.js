// @ts-check
/**
 * Which bytes are a picture that the page shows: by their first bytes, never by their name or by what their sender says.
 * @module
 */

/** @type {Array<[string, RegExp]>} */
const KINDS = [
  ["image/png", /^\x89PNG\r\n\x1a\n/],
  ["image/jpeg", /^\xff\xd8\xff/],
  ["image/gif", /^GIF8[79]a/],
  ["image/webp", /^RIFF[^]{4}WEBP/],
  ["image/avif", /^[^]{4}ftypavi[fs]/],
];
/** Larger ones are offered as files. */
export const PICTURE_BYTES_MAX = 16_777_216;

/**
 * @param {Uint8Array} bytes
 * @returns {string | null} The type, null when it is none of these.
 */
export function pictureType(bytes) {
  if (bytes.length > PICTURE_BYTES_MAX) return null;
  const head = String.fromCharCode(...bytes.subarray(0, 16));
  return KINDS.find(([, pattern]) => pattern.test(head))?.[0] ?? null;
}
