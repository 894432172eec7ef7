// @ts-check
/**
 * Building frames for another client, and opening those of others with what is proved about them.
 *
 * Encryption has two forms (MERK-BOUND). The bound form, of ours, has "merk-bound/1", sender and target as associated data and
 * an extended content, so that nobody can sign a ciphertext as his own or aim it at somebody else. The legacy form, of the
 * original, has no associated data and proves neither.
 *
 * Auth levels: bound (sender, type and target are proved), legacy (signed content that may have been meant for another;
 * encrypted content whose sender may not be its author), ambiguous (32 signed bytes, which might be the answer to a hostile
 * challenge), none (nothing is signed).
 * Spec: specs/merk.md 3, 7, 8.
 * @module
 */

import { concat, equal, isZero, utf8 } from "./bytes.js";
import { decodeContent, decodeSignedContent, encodeContent, encodeSignedContent, MESSAGE_ID_BYTES } from "./contents.js";
import { LocalError, MalformedError } from "./errors.js";
import { CHALLENGE_BYTES, encodeFrame, headerOf, KEY_BYTES, MessageType, SIGNATURE_BYTES } from "./frames.js";
import { headerMessage } from "./proofs.js";

/** @typedef {import("./bytes.js").Bytes} Bytes */
/** @typedef {import("./keys.js").Keys} Keys */
/** @typedef {import("./contents.js").Content} Content */
/** @typedef {import("./frames.js").Frame} Frame */
/** @typedef {"bound" | "legacy" | "ambiguous" | "none"} Auth */
/** @typedef {"plain" | "signed" | "encrypted"} Mode */

export const GCM_NONCE_BYTES = 12;
const TAG_BYTES = 16;
const BOUND_CONTEXT = utf8("merk-bound/1");
const ENCRYPTED_BYTES_MIN = KEY_BYTES + KEY_BYTES + GCM_NONCE_BYTES + TAG_BYTES + 1;

/** @type {Readonly<Record<Auth, string>>} */
export const AUTH_SENTENCES = Object.freeze({
  bound: "The sender signed this for you: who sent it, what it is and that you are the recipient are proved.",
  legacy: "The sender signed this, but nothing inside names sender and recipient: somebody may have passed on what another wrote, or what was meant for another.",
  ambiguous: "This is signed, but it looks like an answer that a hostile server could have obtained: do not rely on the sender.",
  none: "Nothing is signed: the relay's word is all there is for who sent this.",
});

/**
 * What was inside a frame.
 * @typedef {object} Opened
 * @property {Bytes} sender
 * @property {Mode} mode
 * @property {Auth} auth
 * @property {Content} content
 * @property {Bytes} messageId 16 bytes, the same for sender and recipient.
 */

/**
 * Builds a DATA frame: bytes without type, and without signature unless the header is signed.
 * @param {Keys} keys
 * @param {Bytes} target
 * @param {Bytes} content
 * @param {{ headerSignature?: boolean }} [options]
 */
export function dataFrame(keys, target, content, { headerSignature = true } = {}) {
  return finish(keys, MessageType.DATA, concat(target, content), headerSignature);
}

/**
 * Builds a SIGNED_DATA frame. Without a header signature it refuses content of exactly 32 bytes, which receivers cannot
 * tell from the answer to a challenge.
 * @param {Keys} keys
 * @param {Bytes} target
 * @param {Content} content
 * @param {{ headerSignature?: boolean }} [options]
 * @throws {LocalError}
 */
export async function signedFrame(keys, target, content, { headerSignature = true } = {}) {
  const encoded = encodeSignedContent(content);
  if (encoded.length === CHALLENGE_BYTES && !headerSignature) {
    throw new LocalError("Signed content of exactly 32 bytes needs a signed header, it could be mistaken for a login otherwise.");
  }
  const signature = await keys.sign(encoded);
  return finish(keys, MessageType.SIGNED_DATA, concat(target, signature, encoded), headerSignature);
}

/**
 * Builds an ENCRYPTED_DATA frame, signed over its whole payload: an extended content in the bound form, any other in the legacy one.
 * @param {Keys} keys
 * @param {Bytes} target
 * @param {Bytes} recipientAgreementKey X25519, 32 bytes.
 * @param {Content} content
 * @param {{ ephemeral?: import("./crypto/web_crypto.js").Pair, nonce?: Bytes }} [fixed] For vectors; both are fresh otherwise.
 * @throws {LocalError} The recipient's key is unfit.
 */
export async function encryptedFrame(keys, target, recipientAgreementKey, content, fixed = {}) {
  const crypto = keys.crypto;
  const ephemeral = fixed.ephemeral ?? (await crypto.generateAgreement(false));
  const nonce = fixed.nonce ?? crypto.randomBytes(GCM_NONCE_BYTES);
  const shared = await crypto.agree(ephemeral.secret, recipientAgreementKey);
  if (shared === null) throw new LocalError("The recipient's encryption key is unfit: anybody could read the message.");
  const associated = content.kind === "extended" ? boundContext(keys.signing.public, target) : undefined;
  const sealed = await crypto.seal(await crypto.sha256(shared), nonce, encodeContent(content), associated);
  const payload = concat(target, ephemeral.public, nonce, sealed);
  return encodeFrame(MessageType.ENCRYPTED_DATA, payload, keys.signing.public, await keys.sign(payload));
}

/**
 * Opens a frame of content.
 * @param {Keys} keys
 * @param {Frame} frame
 * @returns {Promise<Opened>}
 * @throws {MalformedError} no_target, not_for_us, bad_signature, cannot_decrypt, bad_content, or unknown_type.
 */
export async function openFrame(keys, frame) {
  const open = OPENERS.get(frame.kind);
  if (open === undefined) throw new MalformedError("unknown_type", `type ${frame.kind}`);
  if (frame.payload.length < KEY_BYTES) throw new MalformedError("no_target", `${frame.payload.length} bytes`);
  if (!equal(frame.payload.subarray(0, KEY_BYTES), keys.signing.public)) throw new MalformedError("not_for_us", "another target");
  const opened = await open(keys, frame);
  const messageId = await messageIdOf(keys.crypto, opened.content, frame.payload);
  return { sender: frame.sender, ...opened, messageId };
}

/**
 * Names a message, the same for sender and recipient: the id of an extended content, else the first half of the hash of the payload
 * behind its target. MERK-IDS.
 * @param {import("./crypto/web_crypto.js").WebCrypto} crypto
 * @param {Content} content
 * @param {Bytes} payload
 * @returns {Promise<Bytes>} 16 bytes.
 */
export async function messageIdOf(crypto, content, payload) {
  if (content.kind === "extended") return content.messageId;
  return (await crypto.sha256(payload.slice(KEY_BYTES))).slice(0, MESSAGE_ID_BYTES);
}

/**
 * Makes the associated data of the bound form, 76 bytes.
 * @param {Bytes} sender
 * @param {Bytes} target
 */
export function boundContext(sender, target) {
  return concat(BOUND_CONTEXT, sender, target);
}

/** @typedef {{ mode: Mode, auth: Auth, content: Content }} Inside */

/** @type {ReadonlyMap<number, (keys: Keys, frame: Frame) => Promise<Inside>>} */
const OPENERS = new Map([
  [MessageType.DATA, openData],
  [MessageType.SIGNED_DATA, openSigned],
  [MessageType.ENCRYPTED_DATA, openEncrypted],
]);

/**
 * @param {Keys} keys
 * @param {Frame} frame
 * @returns {Promise<Inside>}
 */
async function openData(keys, frame) {
  const auth = (await hasHeaderSignature(keys, frame)) ? "bound" : "none";
  return { mode: "plain", auth, content: { kind: "raw", data: frame.payload.slice(KEY_BYTES) } };
}

/**
 * @param {Keys} keys
 * @param {Frame} frame
 * @returns {Promise<Inside>}
 */
async function openSigned(keys, frame) {
  const signature = frame.payload.slice(KEY_BYTES, KEY_BYTES + SIGNATURE_BYTES);
  const encoded = frame.payload.slice(KEY_BYTES + SIGNATURE_BYTES);
  if (signature.length < SIGNATURE_BYTES) throw new MalformedError("bad_signature", "cut off");
  if (!(await keys.crypto.verify(frame.sender, encoded, signature))) throw new MalformedError("bad_signature", "content");
  const bound = await hasHeaderSignature(keys, frame);
  const content = decodeSignedContent(encoded);
  return { mode: "signed", auth: bound ? "bound" : encoded.length === CHALLENGE_BYTES ? "ambiguous" : "legacy", content };
}

/**
 * @param {Keys} keys
 * @param {Frame} frame
 * @returns {Promise<Inside>}
 */
async function openEncrypted(keys, frame) {
  const { payload } = frame;
  if (payload.length < ENCRYPTED_BYTES_MIN) throw new MalformedError("cannot_decrypt", `${payload.length} bytes`);
  const coversTarget = await isTargetSigned(keys, frame);
  const nonceAt = KEY_BYTES + KEY_BYTES;
  const sealedAt = nonceAt + GCM_NONCE_BYTES;
  const shared = await keys.crypto.agree(keys.agreement.secret, payload.slice(KEY_BYTES, nonceAt));
  if (shared === null) throw new MalformedError("cannot_decrypt", "unfit ephemeral key");
  const key = await keys.crypto.sha256(shared);
  const [nonce, sealed] = [payload.slice(nonceAt, sealedAt), payload.slice(sealedAt)];
  const bound = await keys.crypto.open(key, nonce, sealed, boundContext(frame.sender, keys.signing.public));
  if (bound !== null) return { mode: "encrypted", auth: "bound", content: readBound(bound, coversTarget) };
  const legacy = await keys.crypto.open(key, nonce, sealed);
  if (legacy === null) throw new MalformedError("cannot_decrypt", "wrong key, sender or recipient, or changed on its way");
  return { mode: "encrypted", auth: "legacy", content: decodeContent(legacy) };
}

/**
 * Nobody of ours makes the bound form without the target in the signature, or around another content.
 * @param {Bytes} plaintext
 * @param {boolean} coversTarget
 */
function readBound(plaintext, coversTarget) {
  const content = decodeContent(plaintext);
  if (!coversTarget) throw new MalformedError("bad_signature", "a bound message is signed with its target");
  if (content.kind !== "extended") throw new MalformedError("bad_content", "a bound message has a time and an id");
  return content;
}

/**
 * The original signs without the target and checks with it; we read both.
 * @param {Keys} keys
 * @param {Frame} frame
 * @returns {Promise<boolean>} Whether the signature covers the target.
 */
async function isTargetSigned({ crypto }, { sender, payload, signature }) {
  if (await crypto.verify(sender, payload, signature)) return true;
  if (await crypto.verify(sender, payload.slice(KEY_BYTES), signature)) return false;
  throw new MalformedError("bad_signature", "encrypted payload");
}

/**
 * @param {Keys} keys
 * @param {Frame} frame
 * @returns {Promise<boolean>} False when the header carries none.
 * @throws {MalformedError} It carries one that is wrong.
 */
async function hasHeaderSignature({ crypto }, { sender, header56, payload, signature }) {
  if (isZero(signature)) return false;
  if (await crypto.verify(sender, headerMessage(header56, payload), signature)) return true;
  throw new MalformedError("bad_signature", "header");
}

/**
 * @param {Keys} keys
 * @param {number} kind
 * @param {Bytes} payload
 * @param {boolean} headerSignature
 */
async function finish(keys, kind, payload, headerSignature) {
  const sender = keys.signing.public;
  if (!headerSignature) return encodeFrame(kind, payload, sender);
  const signature = await keys.sign(headerMessage(headerOf(kind, payload.length, sender), payload));
  return encodeFrame(kind, payload, sender, signature);
}
