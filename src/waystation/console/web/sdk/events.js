// @ts-check
/**
 * What a client tells its program, and the sentences of its warnings.
 * @module
 */

/**
 * @typedef {object} ClientEvents
 * @property {import("./state.js").State} state
 * @property {import("./inbox.js").Message} message
 * @property {{ refusal: import("./errors.js").Refusal, sender: string | null, sentence: string }} dropped
 * @property {import("./inbox.js").Transfer} transfer
 * @property {{ sender: string, ids: string[] }} receipt Messages of ours that the program of `sender` took.
 * @property {import("./delivery/mailbox.js").MailboxInfo} mailbox
 * @property {{ servers: import("./servers.js").ServerRecord[] }} servers
 * @property {{ code: string, sentence: string }} warning
 */

/**
 * Who gets receipts: "auto" every sender of ours, once the listeners of `message` took it; "manual" whom the program names by `confirm`;
 * "never" nobody.
 * @typedef {"auto" | "manual" | "never"} ReceiptRule
 */

export const NOT_STORED_WARNING = "Nothing can be stored here, so your keys are gone when this page or program ends.";
export const NOT_REMEMBERED_WARNING = "The storage takes nothing more, so after a restart an old message could come again as a new one.";
/** @type {ReceiptRule[]} */
export const RECEIPT_RULES = ["auto", "manual", "never"];
