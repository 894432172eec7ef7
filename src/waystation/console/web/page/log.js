/**
 * The section "Messages": what came, what was sent, and what became of it; the newest first.
 *
 * Contents and names are a stranger's: they become text, and files are offered for saving under a tame name, never opened.
 * @module
 */

import { byId, make } from "./dom.js";
import { clock, safeFileName, size } from "./format.js";
import { OUTCOMES, PROOFS } from "./words.js";

const ENTRIES_MAX = 200;
const SHOWN_CHARS_MAX = 20_000; // more than anybody reads in a log; all of it can be saved
const INDENTED_CHARS_MAX = 2_000; // JSON that is nested deeply grows by the square when it is indented
const TITLE = document.title;

/** The list of messages. */
export class Log {
  /**
   * @param {any} sdk
   * @param {(key: string) => void} reply Writes to a sender.
   */
  constructor(sdk, reply) {
    this.sdk = sdk;
    this.reply = reply;
    this.unseen = 0;
    this.incoming = new Map();
    document.addEventListener("visibilitychange", () => this.showUnseen(0));
    byId("clear-log").addEventListener("click", () => this.clear());
  }

  /** Shows a message that came. */
  addMessage(message) {
    const { sender, mode, auth, kind, timeMs } = message;
    const [proof, tone] = PROOFS[auth];
    const answer = make("button", { type: "button", class: "slight", "aria-label": `Reply to ${this.sdk.shortKey(sender)}` },
      "Reply");
    answer.addEventListener("click", () => this.reply(sender));
    const parts = [this.head("From", sender, `${kind === "raw" ? "bytes" : kind}, ${mode}`, message.receivedMs)];
    parts.push(...this.content(message));
    parts.push(make("p", { class: "proof", "data-tone": tone }, make("strong", {}, proof), ". ",
      this.sdk.AUTH_SENTENCES[auth]));
    if (timeMs !== null && Math.abs(message.receivedMs - timeMs) > 60_000) {
      parts.push(make("p", { class: "quiet" }, `Its sender's clock said ${new Date(timeMs).toLocaleString()}.`));
    }
    parts.push(answer);
    this.put(make("li", { class: "entry in" }, ...parts));
    if (document.hidden) this.showUnseen(this.unseen + 1);
  }

  /** Shows a message that was thrown away, because somebody should know. */
  addDropped({ refusal, sender, sentence }) {
    if (refusal === "duplicate") return; // it was shown when it came first
    const from = sender ? ` It came under the name of ${this.sdk.shortKey(sender)}.` : "";
    this.put(make("li", { class: "entry in" }, make("p", { class: "outcome", "data-tone": "bad" },
      make("strong", {}, "Not taken"), `. ${sentence}${from}`)));
  }

  /** Shows a text or JSON that is on its way. */
  addSent({ to, mode, kind, text, outcome }) {
    const told = pending("Sending", "waiting for what becomes of it.");
    this.put(make("li", { class: "entry out" }, this.head("To", to, `${kind}, ${mode}`, Date.now()),
      ...this.content({ kind, text }), told));
    void outcome.then((known) => settle(told, known));
  }

  /** Shows a file that is being sent; returns what moves it on. */
  addSentFile({ to, mode, name, bytes, cancel }) {
    const told = pending("Sending", "");
    const bar = make("progress", { max: "1", value: "0", "aria-label": `Sending ${name}` });
    const stop = make("button", { type: "button", class: "slight" }, "Cancel");
    stop.addEventListener("click", () => cancel.abort());
    const entry = make("li", { class: "entry out" }, this.head("To", to, `file, ${mode}`, Date.now()),
      make("div", { class: "body file" }, make("span", { class: "file-name" }, name), make("span", { class: "quiet" }, size(bytes))),
      bar, told, stop);
    this.put(entry);
    return {
      onProgress: ({ bytesDone, bytesTotal }) => { bar.value = bytesTotal ? bytesDone / bytesTotal : 1; },
      wait: (outcome) => outcome.then((known) => {
        bar.remove();
        stop.remove();
        settle(told, known);
      }),
      remove: () => this.remove(entry),
    };
  }

  /** Shows how far a file has come in; the message itself takes its place. */
  addTransfer({ direction, transferId, peer, name, bytesDone, bytesTotal, done, failed }) {
    if (direction !== "in") return;
    const id = `${peer}:${transferId}`; // its sender chose the second half
    const known = this.incoming.get(id);
    const shown = safeFileName(name);
    if (done || failed) {
      if (known) this.remove(known.entry);
      this.incoming.delete(id);
      if (failed) this.addDropped({ refusal: "transfer", sender: peer, sentence: `The file ${shown} did not arrive whole: ${failed}` });
      return;
    }
    const { bar } = known ?? this.beginTransfer(id, peer, shown, bytesTotal);
    bar.value = bytesTotal ? bytesDone / bytesTotal : 1;
  }

  beginTransfer(id, peer, name, bytesTotal) {
    const bar = make("progress", { max: "1", value: "0", "aria-label": `Receiving ${name}` });
    const entry = make("li", { class: "entry in" }, this.head("From", peer, "file, on its way", Date.now()),
      make("div", { class: "body file" }, make("span", { class: "file-name" }, name),
        make("span", { class: "quiet" }, size(bytesTotal))), bar);
    this.put(entry);
    this.incoming.set(id, { entry, bar });
    return { bar };
  }

  head(direction, key, what, ms) {
    return make("header", {}, make("span", { class: "who", title: key }, `${direction} ${this.sdk.shortKey(key)}`),
      make("span", {}, what), make("time", { datetime: new Date(ms).toISOString() }, clock(ms)));
  }

  content({ kind, text, name, data, json }) {
    const parts = [];
    if (text !== undefined) {
      const whole = json === undefined || text.length > INDENTED_CHARS_MAX ? text : JSON.stringify(json, null, 2);
      const tag = kind === "json" ? "pre" : "p";
      parts.push(make(tag, { class: "body", dir: "auto" }, whole.slice(0, SHOWN_CHARS_MAX)));
      if (whole.length > SHOWN_CHARS_MAX) parts.push(offer("Save all of it", "message.txt", new Blob([text])));
    }
    if (kind === "file") {
      parts.push(make("div", { class: "body file" }, make("span", { class: "file-name" }, safeFileName(name ?? "")),
        make("span", { class: "quiet" }, size(data.length)), offer("Save file", name ?? "", new Blob([data]))));
    } else if (data && text === undefined) {
      parts.push(make("div", { class: "body file" }, make("span", {}, size(data.length)),
        offer("Save bytes", "message.bin", new Blob([data]))));
    }
    return parts;
  }

  put(entry) {
    byId("log").prepend(entry);
    byId("hint").hidden = true;
    byId("clear-log").hidden = false;
    const entries = byId("log").children;
    if (entries.length > ENTRIES_MAX) this.remove(entries[entries.length - 1]);
  }

  remove(entry) {
    for (const link of entry.querySelectorAll("a[download]")) URL.revokeObjectURL(link.href);
    entry.remove();
  }

  clear() {
    for (const entry of [...byId("log").children]) this.remove(entry);
    byId("hint").hidden = false;
    byId("clear-log").hidden = true;
    byId("text").focus();
  }

  showUnseen(count) {
    this.unseen = count;
    document.title = count ? `(${count}) ${TITLE}` : TITLE;
  }
}

function pending(title, sentence) {
  return make("p", { class: "outcome", role: "status", "data-tone": "pending" }, make("strong", {}, title),
    sentence ? `: ${sentence}` : "");
}

function settle(told, { name, sentence }) {
  const [title, tone] = OUTCOMES[name];
  told.dataset.tone = tone;
  const rest = sentence.startsWith(title) ? sentence.slice(title.length) : `. ${sentence}`;
  told.replaceChildren(make("strong", {}, title), rest);
}

function offer(label, name, blob) {
  const saved = safeFileName(name);
  const href = URL.createObjectURL(blob);
  return make("a", { class: "download", href, download: saved, "aria-label": `${label}: ${saved}` }, label);
}
