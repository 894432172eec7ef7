// @ts-check
/**
 * What an Ed25519 verifier must refuse before it computes anything, because not every WebCrypto does.
 *
 * An all-zero key with an all-zero signature passed the original's check one time in four (specs/merk.md 2). Refused are
 * S >= L, points that are not written in their one canonical way, and points of small order, as key and as R.
 * @module
 */

/** Order of the main subgroup, least significant byte first. RFC 8032 5.1. */
const L = bytesOf(2n ** 252n + 27742317777372353535851937790883648493n);
/** The field's prime, least significant byte first. */
const P = bytesOf(2n ** 255n - 19n);

/** y of the points whose order divides 8, least significant byte first, the sign bit left out. */
const SMALL_ORDER = [
  bytesOf(0n),
  bytesOf(1n),
  bytesOf(2n ** 255n - 20n),
  bytesOf(0x05fc536d880238b13933c6d305acdfd5f098eff289f4c345b027b2c28f95e826n),
  bytesOf(0x7a03ac9277fdc74ec6cc392cfa53202a0f67100d760b3cba4fd84d3d706a17c7n),
];

/**
 * Tells whether a signature may be looked at at all.
 * @param {Uint8Array} key 32 bytes.
 * @param {Uint8Array} signature 64 bytes.
 */
export function mayVerify(key, signature) {
  if (key.length !== 32 || signature.length !== 64) return false;
  return isSoundPoint(key) && isSoundPoint(signature.subarray(0, 32)) && isLess(signature.subarray(32), L);
}

/**
 * Tells whether 32 bytes are a canonical y of a point that is not of small order; whether it is on the curve is not checked.
 * @param {Uint8Array} point
 */
export function isSoundPoint(point) {
  const y = Uint8Array.from(point);
  y[31] &= 0x7f;
  return isLess(y, P) && !SMALL_ORDER.some((small) => small.every((byte, index) => byte === y[index]));
}

/**
 * Compares numbers of 32 bytes, least significant byte first; nothing here is secret, so time may tell.
 * @param {Uint8Array} left
 * @param {Uint8Array} right
 */
function isLess(left, right) {
  for (let index = 31; index >= 0; index -= 1) {
    if (left[index] !== right[index]) return left[index] < right[index];
  }
  return false;
}

/** @param {bigint} value */
function bytesOf(value) {
  return Uint8Array.from({ length: 32 }, (_, index) => Number((value >> BigInt(8 * index)) & 255n));
}
