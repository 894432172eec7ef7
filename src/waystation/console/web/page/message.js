// @ts-check
/**
 * One message of a thread as an element. Contents and names are a stranger's: they become text; a picture is shown as one only when its
 * first bytes say so; a file is offered for saving under a tame name, never opened.
 * @module
 */

import { make } from "./dom.js";
import { clock, safeFileName, size } from "./format.js";
import { icon } from "./icons.js";
import { meaningOf } from "./mail.js";
import { pictureType } from "./pictures.js";
import { PROOFS, STATES } from "./words.js";

/** @typedef {import("./history.js").Entry} Entry */

const SHOWN_CHARS_MAX = 20_000; // more than anybody reads in a thread; all of it can be saved
const INDENTED_CHARS_MAX = 2_000; // JSON that is nested deeply grows by the square when it is indented
const CLOCKS_DIFFER_MS = 300_000;

/**
 * @typedef {object} Around What a message needs of the page.
 * @property {any} sdk
 * @property {import("./mail.js").Mail} mail
 * @property {(key: string) => string} nameOf
 * @property {(key: string) => boolean} isKnown Whether the user has written to this person.
 */

/**
 * Makes the element of a message.
 * @param {Entry} entry
 * @param {Around} around
 */
export function messageElement(entry, around) {
  const item = make("li", { class: `entry ${entry.way}`, "data-at": entry.at });
  const bubble = make("div", { class: "bubble" });
  const speaker = entry.way === "out" ? "You" : around.nameOf(entry.peer);
  bubble.append(make("span", { class: "hidden" }, `${speaker}: `), ...contents(entry, around));
  const time = make("time", { datetime: new Date(entry.ms).toISOString(), title: new Date(entry.ms).toLocaleString() }, clock(entry.ms));
  const note = make("p", { class: "why", hidden: "", id: `why-${entry.at}` });
  bubble.append(make("div", { class: "foot" }, time, markOf(entry, around, note)));
  item.append(bubble, ...troubles(entry, around), note);
  return item;
}

function markOf(entry, around, note) {
  const [words, picture, tone] = entry.way === "out" ? stateMark(entry) : proofMark(entry);
  const mark = make("button", { type: "button", class: "mark", "data-tone": tone, "data-state": entry.state, title: words,
    "aria-label": words, "aria-expanded": "false", "aria-controls": note.id }, icon(picture));
  mark.addEventListener("click", () => {
    note.hidden = !note.hidden;
    note.textContent = note.hidden ? "" : explanation(entry, around.sdk);
    mark.setAttribute("aria-expanded", String(!note.hidden));
  });
  return mark;
}

function stateMark(entry) {
  const [words, picture, tone] = STATES[entry.state] ?? STATES.unknown;
  return [entry.mode === "encrypted" ? words : `${words}, ${entry.mode}`, picture, tone];
}

function proofMark({ mode, auth = "none" }) {
  const [words, tone] = PROOFS[auth] ?? PROOFS.none;
  if (mode === "encrypted") return [`Encrypted, ${words.toLowerCase()}`, tone === "good" ? "lock" : "warning", tone];
  return [`Not encrypted, ${words.toLowerCase()}`, tone === "good" ? "pen" : "warning", tone === "good" ? "pending" : tone];
}

function explanation(entry, sdk) {
  const how = { encrypted: "Encrypted: no relay can read it.", signed: "Not encrypted: every relay on the way can read it.",
    plain: "Not encrypted: every relay on the way can read it." }[entry.mode ?? "plain"];
  if (entry.way === "out") return `${STATES[entry.state][0]}. ${meaningOf(entry)} ${how}`;
  const parts = [how, sdk.AUTH_SENTENCES[entry.auth ?? "none"]];
  if (entry.sentMs != null && Math.abs(entry.ms - entry.sentMs) > CLOCKS_DIFFER_MS) {
    parts.push(`Its sender's clock said ${new Date(entry.sentMs).toLocaleString()}.`);
  }
  return parts.join(" ");
}

/** Sentences that need no press: only where something is wrong. */
function troubles(entry, { mail }) {
  if (entry.way === "in") {
    const [words, tone] = PROOFS[entry.auth ?? "none"] ?? PROOFS.none;
    return tone === "bad" ? [make("p", { class: "trouble", "data-tone": tone }, `${words}: somebody else may have made this.`)] : [];
  }
  if (entry.state !== "failed" && entry.state !== "unknown") return [];
  const again = make("button", { type: "button", class: "slight again" }, "Send again");
  again.addEventListener("click", () => mail.again(entry));
  return [make("div", { class: "trouble", "data-tone": STATES[entry.state][2] }, make("span", {}, meaningOf(entry)), again)];
}

function contents(entry, around) {
  if (entry.kind === "file" || entry.kind === "bytes") return [fileBox(entry, around)];
  const text = entry.text ?? "";
  const whole = entry.kind === "json" ? indented(text) : text;
  const parts = [make(entry.kind === "json" ? "pre" : "p", { class: "body", dir: "auto" }, whole.slice(0, SHOWN_CHARS_MAX))];
  if (whole.length > SHOWN_CHARS_MAX) parts.push(offer("Save all of it", "message.txt", async () => new TextEncoder().encode(text)));
  return parts;
}

function indented(text) {
  if (text.length > INDENTED_CHARS_MAX) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text; // what is no JSON stays as it came
  }
}

function fileBox(entry, around) {
  const name = entry.kind === "bytes" ? "message.bin" : safeFileName(entry.name ?? "");
  const read = () => around.mail.file(entry.at);
  const box = make("div", { class: "file" });
  box.append(make("div", { class: "file-line" }, icon("file"), make("span", { class: "file-name" }, name),
    make("span", { class: "quiet" }, size(entry.size ?? 0)), offer("Save", name, read)));
  if (around.mail.isCancellable(entry.at) && entry.state === "sending") {
    const stop = make("button", { type: "button", class: "slight" }, "Cancel");
    stop.addEventListener("click", () => around.mail.cancel(entry.at));
    box.append(make("progress", { max: "1", value: "0", "aria-label": `Sending ${name}` }), stop);
  }
  if (/** @type {any} */ (entry).isLarge) box.append(make("p", { class: "quiet" }, "Too large to be kept here: save it before you close the page."));
  void preview(entry, around, box, read, name);
  return box;
}

/** Shows a picture at once when it is from somebody the user writes to, and on a press when it is a stranger's. */
async function preview(entry, around, box, read, name) {
  const bytes = await read();
  if (bytes === null) {
    box.querySelector(".save").remove();
    box.append(make("p", { class: "quiet" }, "Its bytes are not kept here any more."));
    return;
  }
  const type = pictureType(bytes);
  if (type === null) return;
  const show = () => {
    const picture = make("img", { class: "picture", alt: name });
    const address = URL.createObjectURL(new Blob([bytes], { type }));
    const free = () => URL.revokeObjectURL(address);
    picture.addEventListener("load", free, { once: true });
    picture.addEventListener("error", () => {
      free();
      picture.remove();
    }, { once: true });
    picture.src = address;
    box.prepend(picture);
  };
  if (entry.way === "out" || around.isKnown(entry.peer)) {
    show();
    return;
  }
  const press = make("button", { type: "button", class: "slight" }, "Show the picture");
  press.addEventListener("click", () => {
    press.remove();
    show();
  });
  box.append(press);
}

/** A button that saves bytes; they are read when it is pressed. */
function offer(label, name, read) {
  const button = make("button", { type: "button", class: "slight save", "aria-label": `${label} ${name}` }, label);
  button.addEventListener("click", async () => {
    const bytes = await read();
    if (bytes !== null) save(name, new Blob([bytes]));
  });
  return button;
}

/**
 * Has the browser save bytes under a name.
 * @param {string} name
 * @param {Blob} blob
 */
export function save(name, blob) {
  const href = URL.createObjectURL(blob);
  const link = make("a", { href, download: safeFileName(name), class: "hidden" });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(href), 60_000); // the browser has begun to read it by then
}
