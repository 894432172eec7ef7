// @ts-check
/**
 * MERK-BREP for browsers: end-to-end encrypted messages across a mesh of relays.
 *
 * ```js
 * import { MerkClient } from "/sdk/merk.js";
 * const client = await MerkClient.open();
 * client.on("message", ({ sender, text, auth }) => console.log(sender, auth, text));
 * await client.connect("wss://relay.example/merk");
 * const { outcome } = await client.sendText(key, "hello");
 * console.log((await outcome).sentence);
 * ```
 * @module
 */

export { Backoff } from "./backoff.js";
export { fromHex, shortKey, toHex } from "./bytes.js";
export { MerkClient } from "./client.js";
export { ContentType, decodeContent, decodeSignedContent, encodeContent, encodeSignedContent } from "./contents.js";
export { loadCrypto } from "./crypto/web_crypto.js";
export { LocalError, MalformedError, NoAnswerError, NoCryptoError } from "./errors.js";
export { decodeFrame, encodeFrame, frameHash, MessageType } from "./frames.js";
export { decodeInfo, encodeInfo, encodeInfoFrame, Feature, InfoType, MailboxState, PresenceKind, Role } from "./info.js";
export { Keys } from "./keys.js";
export { Link } from "./link.js";
export { advertMessage, authMessage, headerMessage, isAdvertValid, makeAdvert, makePresence, presenceMessage } from "./proofs.js";
export { AUTH_SENTENCES, boundContext, dataFrame, encryptedFrame, openFrame, signedFrame } from "./sealing.js";
export { SeenMessages } from "./delivery/seen.js";
export { Session } from "./session.js";
export { SharedLink } from "./shared_link.js";
export { nodeInfo } from "./node_info.js";
export { IndexedDbStorage, MemoryStorage, openStorage, TextStorage } from "./storage.js";
