// @ts-check
/**
 * The conversation with one person: the newest message at the bottom and in view.
 * @module
 */

import { announce, byId, make } from "./dom.js";
import { day, safeFileName, size } from "./format.js";
import { icon } from "./icons.js";
import { messageElement } from "./message.js";

/** @typedef {import("./history.js").Entry} Entry */

/** So many are shown; a button above them shows as many more. */
const SHOWN_AT_ONCE = 100;
/** Beyond it the oldest leave the screen while the end is in view. */
const DRAWN_MAX = 400;
const NEAR_PX = 80;

export class Thread {
  /** @type {string | null} */
  peer = null;
  #shown = SHOWN_AT_ONCE;
  /** Files that come in, by peer and transfer. @type {Map<string, any>} */
  #incoming = new Map();

  /**
   * @param {object} parts
   * @param {import("./history.js").History} parts.history
   * @param {import("./people.js").People} parts.people
   * @param {import("./message.js").Around} parts.around
   * @param {() => void} parts.onSeen
   */
  constructor({ history, people, around, onSeen }) {
    Object.assign(this, { history, people, around, onSeen });
    byId("scroller").addEventListener("scroll", () => this.look());
    byId("to-newest").addEventListener("click", () => this.toNewest());
    byId("older").addEventListener("click", () => this.#older());
    document.addEventListener("visibilitychange", () => this.look());
    addEventListener("focus", () => this.look());
    // A picture that has loaded, a keyboard that has come up: who was at the end stays there.
    const observer = new ResizeObserver(() => this.#isAtEnd && this.toNewest());
    for (const id of ["log", "scroller"]) observer.observe(byId(id));
  }

  #isAtEnd = true;

  /** Opens the conversation with a person. @param {string} peer */
  open(peer) {
    this.peer = peer;
    this.#shown = SHOWN_AT_ONCE;
    this.render();
    this.toNewest();
  }

  close() {
    this.peer = null;
    byId("log").replaceChildren();
  }

  /** Draws everything anew. */
  render() {
    if (this.peer === null) return;
    this.renderHead();
    const all = this.history.with(this.peer);
    const shown = all.slice(-this.#shown);
    byId("older").hidden = shown.length === all.length;
    let before = "";
    const items = [];
    for (const entry of shown) {
      const on = day(entry.ms);
      if (on !== before) items.push(make("li", { class: "day" }, make("span", {}, on)));
      before = on;
      items.push(messageElement(entry, this.around));
    }
    const files = [...this.#incoming.values()].filter(({ peer }) => peer === this.peer).map(({ item }) => item);
    byId("log").replaceChildren(...items, ...files);
    byId("thread-empty").hidden = shown.length > 0;
  }

  renderHead() {
    const peer = /** @type {string} */ (this.peer);
    const person = this.people.get(peer);
    byId("person-name").replaceChildren(this.people.name(peer));
    if (person.isVerified) byId("person-name").append(icon("verified"), make("span", { class: "hidden" }, ", compared"));
    const short = this.around.sdk.shortKey(peer);
    byId("person-note").textContent = person.label && person.said && person.said !== person.label ? `says: ${person.said}` : short;
    const isStranger = !person.isKnown && this.history.with(peer).some(({ way }) => way === "in");
    byId("stranger").hidden = !isStranger && !person.isBlocked && !this.people.isDoubtful(peer);
    byId("stranger-text").textContent = person.isBlocked ? "Blocked: nothing that they send reaches you."
      : this.people.isDoubtful(peer) ? `Somebody else goes by this name, too. The key of this one: ${short}.`
        : "You have not written to this person yet. The name is their own word.";
    byId("stranger-block").textContent = person.isBlocked ? "Unblock" : "Block";
    byId("compose").hidden = person.isBlocked;
  }

  /** Shows a message that is new, or has changed. @param {Entry} entry */
  show(entry, isNew = false) {
    if (entry.peer !== this.peer) return;
    this.renderHead();
    const old = byId("log").querySelector(`[data-at="${entry.at}"]`);
    const isOpen = old?.querySelector(".mark[aria-expanded=true]");
    const element = messageElement(entry, this.around);
    if (old) {
      const hasFocus = old.contains(document.activeElement);
      old.replaceWith(element);
      if (isOpen) element.querySelector(".mark").click();
      if (hasFocus) element.querySelector(".mark").focus();
      return;
    }
    const last = this.history.with(entry.peer).at(-2);
    if (last === undefined || day(last.ms) !== day(entry.ms)) byId("log").append(make("li", { class: "day" }, make("span", {}, day(entry.ms))));
    byId("log").append(element);
    byId("thread-empty").hidden = true;
    for (const log = byId("log"); this.#isAtEnd && log.children.length > DRAWN_MAX; log.firstChild.remove()) byId("older").hidden = false;
    if (entry.way === "out" || this.#isAtEnd) this.toNewest();
    else byId("to-newest").hidden = false;
    if (isNew) this.look();
  }

  /** Moves the bar of a file that goes out. */
  progress({ at, done }) {
    const bar = byId("log").querySelector(`[data-at="${at}"] progress`);
    if (bar) bar.value = done;
  }

  /** Shows how far a file has come in; the message itself takes its place. */
  transfer({ direction, transferId, peer, name, bytesDone, bytesTotal, done, failed }) {
    if (direction !== "in" || this.people.get(peer).isBlocked) return;
    const id = `${peer}:${transferId}`; // its sender chose the second half
    const known = this.#incoming.get(id) ?? this.#begin(id, peer, safeFileName(name), bytesTotal);
    known.bar.value = bytesTotal ? bytesDone / bytesTotal : 1;
    if (!done && !failed) return;
    this.#incoming.delete(id);
    if (done) known.item.remove();
    else {
      known.bar.remove();
      known.item.append(make("p", { class: "trouble", "data-tone": "bad" }, `${safeFileName(name)} did not arrive whole: ${failed}`));
    }
  }

  #begin(id, peer, name, bytesTotal) {
    const bar = make("progress", { max: "1", value: "0", "aria-label": `Receiving ${name}` });
    const item = make("li", { class: "entry in" }, make("div", { class: "bubble file" }, make("span", { class: "file-name" }, name),
      make("span", { class: "quiet" }, size(bytesTotal)), bar));
    const known = { peer, item, bar };
    this.#incoming.set(id, known);
    if (peer === this.peer) {
      byId("log").append(item);
      if (this.#isAtEnd) this.toNewest();
    }
    return known;
  }

  toNewest() {
    const box = byId("scroller");
    box.scrollTop = box.scrollHeight;
    this.#isAtEnd = true;
    this.look();
  }

  /** Counts as seen what is in view while somebody looks. */
  look() {
    const box = byId("scroller");
    this.#isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_PX;
    byId("to-newest").hidden = this.#isAtEnd;
    if (this.peer !== null && this.#isAtEnd && document.visibilityState === "visible" && box.checkVisibility()) this.onSeen();
  }

  #older() {
    const box = byId("scroller");
    const below = box.scrollHeight - box.scrollTop;
    this.#shown += SHOWN_AT_ONCE;
    this.#isAtEnd = false;
    this.render();
    box.scrollTop = box.scrollHeight - below;
    byId("log").querySelector(".mark")?.focus({ preventScroll: true });
    announce("Older messages are shown.");
  }
}
