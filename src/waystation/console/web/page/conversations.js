// @ts-check
/**
 * The list of conversations: the one with the newest message first, with what was not seen yet.
 * @module
 */

import { byId, make } from "./dom.js";
import { safeFileName, when } from "./format.js";
import { summaries } from "./people.js";

const TITLE = document.title;
const PREVIEW_CHARS = 80;
const LISTED_MAX = 500;

export class Conversations {
  /**
   * @param {import("./history.js").History} history
   * @param {import("./people.js").People} people
   * @param {(key: string) => void} open
   */
  constructor(history, people, open) {
    Object.assign(this, { history, people, open });
    byId("conversations").addEventListener("click", (event) => {
      const row = event.target.closest("button[data-key]");
      if (row) this.open(row.dataset.key);
    });
    byId("conversations").addEventListener("keydown", (event) => this.#walk(event));
  }

  /** @param {string | null} current Key of the open one. */
  render(current) {
    const all = summaries(this.history, this.people);
    const focused = document.activeElement?.closest("button[data-key]")?.getAttribute("data-key");
    byId("conversations").replaceChildren(...all.slice(0, LISTED_MAX).map((one) => this.#row(one, one.key === current)));
    if (focused) byId("conversations").querySelector(`[data-key="${focused}"]`)?.focus();
    const unseen = all.reduce((sum, one) => sum + one.unseen, 0);
    document.title = unseen ? `(${unseen}) ${TITLE}` : TITLE;
    document.body.toggleAttribute("data-empty", all.length === 0);
  }

  #row({ key, last, unseen }, isCurrent) {
    const name = this.people.name(key);
    const row = make("button", { type: "button", class: "conversation", "data-key": key });
    if (isCurrent) row.setAttribute("aria-current", "true");
    const badge = make("span", { class: "badge", "aria-label": `${unseen} not seen` }, unseen > 99 ? "99+" : String(unseen));
    row.append(portrait(key, name), make("span", { class: "conversation-name" }, name),
      last ? make("time", { datetime: new Date(last.ms).toISOString() }, when(last.ms)) : "",
      make("span", { class: "conversation-last", dir: "auto" }, last ? previewOf(last) : "Nothing written yet"), unseen ? badge : "");
    return make("li", {}, row);
  }

  #walk(event) {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const rows = [...byId("conversations").querySelectorAll("button[data-key]")];
    const next = rows[rows.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1)];
    next?.focus();
    event.preventDefault();
  }
}

/**
 * A circle with the first letter of a name, in one of eight colours that the key chooses.
 * @param {string} key
 * @param {string} name
 */
export function portrait(key, name) {
  const letter = [...name].find((sign) => /[\p{L}\p{N}]/u.test(sign)) ?? "?";
  return make("span", { class: "portrait", "data-hue": String(Number.parseInt(key.slice(0, 2), 16) % 8), "aria-hidden": "true" }, letter.toLocaleUpperCase());
}

function previewOf({ way, kind, text, name, state }) {
  const what = kind === "file" ? safeFileName(name ?? "") : kind === "bytes" ? "Bytes" : (text ?? "").slice(0, PREVIEW_CHARS).replace(/\s+/g, " ");
  if (state === "failed") return `Not sent: ${what}`;
  return way === "out" ? `You: ${what}` : what;
}
