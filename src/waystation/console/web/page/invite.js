// @ts-check
/**
 * The invitation: one's link, to be copied, shared, or read from the screen as a QR code.
 * @module
 */

import { byId, copies, draw, make } from "./dom.js";
import { encodeQr } from "./qr.js";
import { tameName } from "./people.js";

const QUIET_MODULES = 4; // ISO/IEC 18004, 6.3.8

/**
 * The link that begins a conversation with its maker.
 * @param {string} key
 * @param {string} name What the maker says of itself; empty for none.
 * @param {string} [origin]
 */
export function inviteLink(key, name, origin = location.origin) {
  return `${origin}/#to=${key}${name ? `&name=${encodeURIComponent(name)}` : ""}`;
}

/**
 * Draws a QR code, dark on light in both schemes, because many readers know no other.
 * @param {string} text
 * @param {string} label Said to whoever hears the page.
 * @param {"L" | "M"} [level]
 */
export function qrPicture(text, label, level = "M") {
  const code = encodeQr(text, { level });
  if (code === null) return make("p", { class: "quiet" }, "This is too long for a QR code; copy the link instead.");
  let path = "";
  code.rows.forEach((row, y) => row.forEach((dark, x) => { if (dark) path += `M${x + QUIET_MODULES} ${y + QUIET_MODULES}h1v1h-1z`; }));
  const side = code.size + 2 * QUIET_MODULES;
  return draw("svg", { class: "qr", viewBox: `0 0 ${side} ${side}`, role: "img", "aria-label": label, "shape-rendering": "crispEdges" },
    draw("rect", { width: `${side}`, height: `${side}`, class: "qr-light" }), draw("path", { d: path, class: "qr-dark" }));
}

/** The invitation on the first screen and behind the button "Invite". */
export class Invite {
  /**
   * @param {string} key
   * @param {import("./history.js").History} history
   */
  constructor(key, history) {
    this.key = key;
    this.history = history;
    copies(byId("copy-link"), () => this.link);
    byId("share-link").hidden = typeof navigator.share !== "function";
    byId("share-link").addEventListener("click", () => navigator.share({ url: this.link }).catch(() => null)); // closing the share sheet rejects
    byId("invite").addEventListener("click", () => this.openDialog());
    byId("invite-close").addEventListener("click", () => byId("invite-dialog").close());
    byId("invite-dialog").addEventListener("close", () => byId("welcome-place").append(byId("invite-card")));
    byId("nick").addEventListener("change", () => this.setName(byId("nick").value));
    this.render();
    byId("copy-link").disabled = byId("invite").disabled = false;
  }

  get link() {
    return inviteLink(this.key, tameName(this.history.settings.name));
  }

  /** @param {string} text */
  async setName(text) {
    const name = tameName(text);
    byId("nick").value = name;
    await this.history.set({ name });
    this.render();
  }

  openDialog() {
    byId("invite-place").append(byId("invite-card"));
    byId("invite-dialog").showModal();
    byId("copy-link").focus();
  }

  render() {
    if (document.activeElement !== byId("nick")) byId("nick").value = this.history.settings.name ?? "";
    byId("invite-link").textContent = this.link;
    byId("invite-qr").replaceChildren(qrPicture(this.link, "QR code of your invite link"));
  }
}
