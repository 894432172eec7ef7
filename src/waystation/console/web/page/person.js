// @ts-check
/**
 * What there is about one person: the own label, the safety number, block, forget.
 * @module
 */

import { ask, byId, make } from "./dom.js";
import { safetyNumber, tameName } from "./people.js";

export class PersonDialog {
  #key = "";

  /**
   * @param {object} parts
   * @param {import("./history.js").History} parts.history
   * @param {import("./people.js").People} parts.people
   * @param {any} parts.client
   * @param {(key: string) => void} parts.changed
   * @param {() => void} parts.gone
   */
  constructor({ history, people, client, changed, gone }) {
    Object.assign(this, { history, people, client, changed, gone });
    byId("person").addEventListener("click", () => this.open());
    byId("person-close").addEventListener("click", () => byId("person-dialog").close());
    byId("person-form").addEventListener("submit", (event) => {
      event.preventDefault();
      byId("person-dialog").close();
    });
    byId("label").addEventListener("change", () => this.#set({ label: tameName(byId("label").value) }));
    byId("verified").addEventListener("change", () => this.#set({ isVerified: byId("verified").checked }));
    byId("agreement").addEventListener("change", () => this.#setAgreementKey());
    byId("block").addEventListener("click", () => this.#set({ isBlocked: !this.people.get(this.#key).isBlocked }));
    byId("stranger-block").addEventListener("click", () => this.#set({ isBlocked: !this.people.get(this.#key).isBlocked }));
    byId("forget").addEventListener("click", () => this.#forget());
  }

  /** Whom the dialog is about. @param {string} key */
  about(key) {
    this.#key = key;
  }

  async open() {
    const key = this.#key;
    this.#show();
    byId("person-dialog").showModal();
    byId("label").focus();
    const isSelf = key === this.client.id;
    byId("safety").hidden = byId("block").hidden = isSelf;
    const groups = isSelf ? [] : await safetyNumber(this.client.id, key);
    byId("safety-number").replaceChildren(...groups.map((group) => make("span", {}, group)));
  }

  #show() {
    const person = this.people.get(this.#key);
    byId("person-title").textContent = this.people.name(this.#key);
    byId("said").textContent = person.said ? `Calls themselves “${person.said}”. What you write here wins.` : "They have not said a name of their own.";
    byId("label").value = person.label;
    byId("label").placeholder = person.said;
    byId("person-key").textContent = this.#key;
    byId("verified").checked = person.isVerified;
    byId("block").textContent = person.isBlocked ? "Unblock" : "Block";
    byId("agreement").value = person.agreementKey ?? "";
    byId("agreement-note").textContent = "";
  }

  async #set(change) {
    await this.people.set(this.#key, change);
    this.#show();
    this.changed(this.#key);
  }

  async #setAgreementKey() {
    const typed = byId("agreement").value.replace(/\s+/g, "").toLowerCase();
    const isKey = /^[0-9a-f]{64}$/.test(typed);
    byId("agreement-note").textContent = typed && !isKey ? "An agreement key has 64 hexadecimal digits." : "";
    byId("agreement").toggleAttribute("aria-invalid", Boolean(typed && !isKey));
    if (!typed || isKey) await this.people.set(this.#key, { agreementKey: typed || undefined });
  }

  async #forget() {
    const name = this.people.name(this.#key);
    byId("person-dialog").close();
    const text = `The messages with ${name} and what you noted about them are deleted from this browser. The other side keeps what it has.`;
    if (!(await ask({ title: "Delete this conversation?", text, yes: "Delete" }))) return;
    const { isBlocked } = this.people.get(this.#key);
    await this.history.forgetPerson(this.#key);
    if (isBlocked) await this.people.set(this.#key, { isBlocked }); // who is blocked stays so
    this.gone();
  }
}
