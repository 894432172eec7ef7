// @ts-check
/**
 * What is behind "Settings": the own identity with its backups, the history and its passphrase, who is blocked.
 * @module
 */

import { backupIn, NoBackup, openBackup, sealBackup } from "./backup.js";
import { announce, ask, byId, copies, make } from "./dom.js";
import { toId52 } from "./format.js";
import { qrPicture } from "./invite.js";
import { save } from "./message.js";
import { askPassphrase } from "./passphrase.js";
import { WrongPassphrase } from "./vault.js";

/** Where people wait for the page that has the keys of their backup. */
const PENDING = "people-of-backup";

export class Settings {
  /**
   * @param {object} parts
   * @param {any} parts.sdk
   * @param {any} parts.client
   * @param {string} parts.identity Name of the identity in this browser.
   * @param {import("./history.js").History} parts.history
   * @param {import("./people.js").People} parts.people
   * @param {(sentence: string) => void} parts.complain
   * @param {() => void} parts.changed
   * @param {{ postMessage: (change: any) => void } | null} parts.tabs Other tabs of this identity.
   */
  constructor({ sdk, client, identity, history, people, complain, changed, tabs }) {
    Object.assign(this, { sdk, client, identity, history, people, complain, changed, tabs });
    this.#showYou();
    this.#presses({
      "backup-file": () => this.saveBackup(), "backup-link": () => this.showBackupLink(), "lock-keys": () => this.lockKeys(), "new-identity": () => this.makeAnother(),
      protect: () => this.protect(), unprotect: () => this.unprotect(), "clear-history": () => this.clearHistory(),
      "restore": () => byId("restore-file").click(), "restore-early": () => byId("restore-file").click(),
    });
    byId("restore-file").addEventListener("change", () => this.#onFile());
    byId("backup-close").addEventListener("click", () => byId("backup-dialog").close());
    byId("backup-dialog").addEventListener("close", () => byId("backup-qr").replaceChildren());
    copies(byId("copy-backup"), () => byId("backup-text").textContent);
    byId("blocked").addEventListener("click", (event) => this.#unblock(event.target.closest("button")?.dataset.key));
    this.render();
  }

  #presses(actions) {
    for (const [id, action] of Object.entries(actions)) byId(id).addEventListener("click", () => this.#guard(action));
  }

  async #guard(work) {
    byId("settings-error").textContent = "";
    try {
      await work();
    } catch (problem) {
      if (!isForPeople(problem, this.sdk)) throw problem;
      byId("settings-error").textContent = problem.message;
    }
  }

  #showYou() {
    const { client, sdk } = this;
    const id52 = toId52(client.id);
    byId("short-key").textContent = sdk.shortKey(client.id);
    byId("identity-name").textContent = this.identity === "default" ? "" : `This is your identity “${this.identity}” in this browser.`;
    byId("key-hex").textContent = client.id;
    byId("key-id52").textContent = id52;
    byId("key-agreement").textContent = client.agreementKey;
    for (const [id, text] of Object.entries({ "copy-key": client.id, "copy-id52": id52, "copy-agreement": client.agreementKey })) copies(byId(id), () => text);
  }

  render() {
    const { client, history } = this;
    const canLeave = client.isPersistent && client.isExportable;
    byId("can-leave").hidden = !canLeave;
    byId("cannot-leave").hidden = canLeave;
    byId("keys-note").textContent = !client.isPersistent ? "This browser stores nothing for this page: keys and messages are gone when it is closed."
      : canLeave ? "Your keys are in this browser. When it loses them, only a backup brings them back."
        : "The keys of this identity are locked into this browser: no script can take them out, and there is no backup of them.";
    byId("protect").textContent = history.isSealed ? "Change the passphrase …" : "Protect with a passphrase …";
    byId("unprotect").hidden = !history.isSealed;
    byId("history-note").textContent = !history.isPersistent ? "This browser stores nothing for this page: messages are gone when it is closed."
      : history.isSealed ? "Messages, files and people are encrypted in this browser. The page asks for the passphrase when it is opened."
        : "Messages, files and people stay in this browser as they are: whoever can use this browser can read them.";
    const blocked = this.people.all().filter(({ isBlocked }) => isBlocked);
    byId("blocked-none").hidden = blocked.length > 0;
    byId("blocked").replaceChildren(...blocked.map(({ key }) => make("li", {}, make("span", {}, this.people.name(key)),
      make("button", { type: "button", "data-key": key, "aria-label": `Unblock ${this.people.name(key)}` }, "Unblock"))));
  }

  async #unblock(key) {
    if (!key) return;
    await this.people.set(key, { isBlocked: false });
    announce(`${this.people.name(key)} is not blocked any more.`);
    this.render();
    this.changed();
  }

  async saveBackup() {
    const question = { title: "Save a backup", text: "The file holds your keys and your people, no messages. Only this passphrase opens it; nobody can reset it.", yes: "Save", isNew: true };
    await askPassphrase(question, async (passphrase) => {
      const text = await this.#sealed(passphrase, this.people.all());
      save(`merk-backup-${this.client.id.slice(0, 8)}.txt`, new Blob([text], { type: "text/plain" }));
      announce("The backup is saved.");
    });
  }

  async showBackupLink() {
    const question = { title: "Use a second device", text: "The link holds your keys. Only this passphrase opens it, so tell nobody both. Of two devices the one that "
      + "connected last gets the messages.", yes: "Show link and code", isNew: true };
    let link = "";
    const isDone = await askPassphrase(question, async (passphrase) => { link = `${location.origin}/#backup=${await this.#sealed(passphrase)}`; });
    if (!isDone) return;
    byId("backup-text").textContent = link;
    byId("backup-qr").replaceChildren(qrPicture(link, "QR code of your keys, sealed with the passphrase", "L"));
    byId("backup-dialog").showModal();
  }

  async #sealed(passphrase, people) {
    return sealBackup(passphrase, { keys: await this.client.exportKeys(), name: this.history.settings.name ?? "", people });
  }

  async #onFile() {
    const text = await byId("restore-file").files[0]?.text();
    byId("restore-file").value = "";
    if (text !== undefined) await this.#guard(() => this.restore(text));
  }

  /** Takes a backup, or a key file of the original, in place of this identity. @param {string} text */
  async restore(text) {
    if (text.trim().startsWith("{")) {
      await this.#replace({ keys: text, name: "", people: [] });
      return;
    }
    if (!/^[\w-]{40,}$/.test(backupIn(text))) throw new NoBackup();
    let opened = null;
    const question = { title: "Restore from a backup", text: "The passphrase that it was saved with:", yes: "Open", isNew: false, knows: (problem) => isForPeople(problem, this.sdk) };
    await askPassphrase(question, async (passphrase) => { opened = await openBackup(passphrase, text); });
    if (opened) await this.#replace(opened);
  }

  async #replace({ keys, name, people }) {
    const trial = `${this.identity}-trial`; // keys that are none must not cost those that are there
    await this.sdk.MerkClient.forgetIdentity(trial);
    await this.sdk.MerkClient.importIdentity(keys, { identity: trial });
    await this.sdk.MerkClient.forgetIdentity(trial);
    const isFresh = this.history.entries.size === 0 && this.people.all().every(({ isKnown }) => !isKnown);
    if (!isFresh && !(await ask({ title: "Replace your identity?", text: this.#loss("the keys of the backup"), yes: "Restore" }))) return;
    await this.#change(() => this.sdk.MerkClient.importIdentity(keys, { identity: this.identity, exportable: true }), { name, [PENDING]: people });
  }

  async makeAnother() {
    if (!(await ask({ title: "Replace your identity?", text: this.#loss("new ones"), yes: "Make a new one" }))) return;
    await this.#change(() => this.sdk.MerkClient.createIdentity({ identity: this.identity, exportable: true }), {});
  }

  /** Makes the keys such that no script can read them, for good. */
  async lockKeys() {
    const text = "No script, this page's included, can take the keys out any more. There will be no backup after this one and no second device.";
    if (!(await ask({ title: "Lock the keys into this browser?", text, yes: "Lock" }))) return;
    const keys = await this.client.exportKeys();
    await this.client.close();
    await this.sdk.MerkClient.forgetIdentity(this.identity);
    await this.sdk.MerkClient.importIdentity(keys, { identity: this.identity, exportable: false });
    location.reload();
  }

  #loss(instead) {
    return `The keys of ${this.sdk.shortKey(this.client.id)} and its messages are deleted from this browser, and ${instead} take their place. What `
      + "others still send to the old key reaches nobody without a backup of it.";
  }

  async #change(make_, settings) {
    await this.client.close();
    await this.sdk.MerkClient.forgetIdentity(this.identity);
    await make_();
    await this.history.wipe();
    await this.history.set(settings);
    this.tabs?.postMessage({ reload: true });
    location.reload();
  }

  /** Takes the people that came with a backup, after the page has its keys. */
  async takePeople() {
    const people = this.history.settings[PENDING];
    if (!people) return;
    for (const person of people) await this.people.set(person.key, person);
    await this.history.set({ [PENDING]: undefined });
  }

  async protect() {
    const question = { title: "Protect messages with a passphrase", text: "They are encrypted in this browser, and the page asks for it when it is opened. Nobody can reset it.", yes: "Protect", isNew: true };
    if (await askPassphrase(question, (passphrase) => this.history.protect(passphrase))) {
      announce("Messages are encrypted in this browser now.");
      this.tabs?.postMessage({ reload: true });
    }
    this.render();
    this.changed();
  }

  async unprotect() {
    if (!(await ask({ title: "Take the passphrase away?", text: "Whoever can use this browser can read the messages then.", yes: "Take it away" }))) return;
    await this.history.protect(null);
    this.tabs?.postMessage({ reload: true });
    this.render();
    this.changed();
  }

  async clearHistory() {
    const text = "All messages and files of all conversations are deleted from this browser. People stay. The other sides keep what they have.";
    if (!(await ask({ title: "Delete all messages?", text, yes: "Delete" }))) return;
    await this.history.forget(() => true);
    this.changed();
  }
}

/** Whether a failure is a sentence for people. */
function isForPeople(problem, sdk) {
  return problem instanceof sdk.LocalError || problem instanceof WrongPassphrase || problem instanceof NoBackup;
}
