// @ts-check
/**
 * Mail while the user is away: the page has the relay keep it unless the user says no (MERK-AWAY).
 * @module
 */

import { byId } from "./dom.js";
import { size } from "./format.js";

/**
 * Shows the choice, and has the relay keep mail.
 * @param {any} sdk
 * @param {any} client
 * @param {import("./history.js").History} history
 */
export function showMailbox(sdk, client, history) {
  const view = new MailboxView(sdk, client, history);
  client.on("mailbox", () => view.onMailbox());
  client.on("state", () => view.onState());
  byId("keep-mail").addEventListener("change", () => view.choose(byId("keep-mail").checked));
  view.onState();
}

class MailboxView {
  #problem = "";
  #wasReady = false;

  constructor(sdk, client, history) {
    Object.assign(this, { sdk, client, history });
  }

  get isWanted() {
    return this.history.settings.keepsMail !== false;
  }

  /** What the relay says last counts: it may say "closed" when the client comes, and "open" a moment later. */
  onMailbox() {
    if (this.client.mailbox.state === "open") this.#problem = "";
    this.render();
  }

  onState() {
    const { phase, tab } = this.client.state;
    const begins = phase === "ready" && !this.#wasReady && tab !== "follower";
    this.#wasReady = phase === "ready";
    if (begins && this.isWanted) void this.#work(() => this.client.openMailbox());
    this.render();
  }

  async choose(isWanted) {
    await this.history.set({ keepsMail: isWanted });
    await this.#work(() => (isWanted ? this.client.openMailbox() : this.client.closeMailbox()));
  }

  async #work(action) {
    this.#problem = "";
    try {
      await action();
    } catch (problem) {
      if (!(problem instanceof this.sdk.LocalError)) throw problem;
      this.#problem = problem.message;
    }
    this.render();
  }

  render() {
    const { state, messages, bytes } = this.client.mailbox;
    byId("keep-mail").checked = this.isWanted;
    byId("mailbox-note").textContent = this.#problem || (state === "open" && this.isWanted
      ? `Your relay keeps encrypted messages while you are away, each usually for a week, and none when you stay away for 30 days${messages ? `; ${messages} (${size(bytes)}) wait for you` : ""}.`
      : "Whoever writes to you while you are away has to send it again.");
  }
}
