// @ts-check
/**
 * Starts the page: opens the identity and its history, connects, and lets the parts hear of each other.
 * @module
 */

import { Composer } from "./composer.js";
import { Conversations } from "./conversations.js";
import { announce, byId, make } from "./dom.js";
import { readHash, readRecipient } from "./format.js";
import { History } from "./history.js";
import { Invite } from "./invite.js";
import { Mail } from "./mail.js";
import { showMailbox } from "./mailbox.js";
import { showMesh } from "./mesh.js";
import { askPassphrase } from "./passphrase.js";
import { People, tameName } from "./people.js";
import { PersonDialog } from "./person.js";
import { showServers } from "./servers.js";
import { Settings } from "./settings.js";
import { openStore } from "./store.js";
import { Thread } from "./thread.js";

const NOTICES_MAX = 3;
const RENDER_AFTER_MS = 60;
const LOOK_UP_AGAIN_MS = 3_000;

/** Shows a sentence at the head of the page until it is put away. */
function notice(...sentence) {
  const close = make("button", { type: "button", class: "slight" }, "Close");
  const one = make("div", { class: "notice" }, make("p", {}, ...sentence), close);
  close.addEventListener("click", () => one.remove());
  byId("notices").append(one);
  while (byId("notices").children.length > NOTICES_MAX) byId("notices").firstChild.remove();
}

/** Opens the client; its keys can leave the browser in a backup until they are locked. */
async function openClient(sdk, identity) {
  return sdk.MerkClient.open({ identity, exportable: true, receipts: "manual" }); // mail.js confirms what it has written down
}

/** Opens the history, asking for its passphrase as often as it takes; "Start afresh" deletes it. */
async function openHistory(identity) {
  const history = new History(await openStore(identity));
  byId("lock-wipe").addEventListener("click", async () => {
    await history.wipe();
    location.reload();
  });
  while (await history.isLocked()) {
    document.body.dataset.view = "locked";
    const question = { title: "Your messages are locked", text: "The passphrase of this browser's messages:", yes: "Open", isNew: false };
    if (!(await askPassphrase(question, (passphrase) => history.unlock(passphrase)))) {
      await new Promise((resolve) => byId("lock-again").addEventListener("click", resolve, { once: true }));
    }
  }
  await history.load();
  return history;
}

class Page {
  constructor(sdk, client, history, identity) {
    Object.assign(this, { sdk, client, history, identity });
    this.people = new People(history, client.id);
    this.tabs = "BroadcastChannel" in globalThis && history.isPersistent ? new BroadcastChannel(`waystation-page-${identity}`) : null;
    this.mail = new Mail({ sdk, client, history, people: this.people, show: (change) => this.onChange(change), tabs: this.tabs });
    const around = { sdk, mail: this.mail, nameOf: (key) => this.people.name(key), isKnown: (key) => this.people.get(key).isKnown };
    this.thread = new Thread({ history, people: this.people, around, onSeen: () => this.onSeen() });
    this.conversations = new Conversations(history, this.people, (key) => this.open(key));
    this.composer = new Composer(sdk, this.mail);
    this.invite = new Invite(client.id, history);
    const shared = { history, people: this.people, client };
    this.person = new PersonDialog({ ...shared, changed: () => this.renderAll(), gone: () => this.show("list") });
    this.settings = new Settings({ ...shared, sdk, identity, complain: notice, changed: () => this.renderAll(), tabs: this.tabs });
    history.onRefused = () => {
      if (!this.isRefused) notice("The browser keeps nothing more for this page: what comes now is gone when it is closed. Delete what you do not need.");
      this.isRefused = true;
    };
    this.listen();
  }

  listen() {
    this.client.on("transfer", (transfer) => this.thread.transfer(transfer));
    this.client.on("dropped", (dropped) => this.onDropped(dropped));
    this.tabs?.addEventListener("message", ({ data }) => this.onOtherTab(data));
    byId("back").addEventListener("click", () => this.show("list"));
    byId("settings-back").addEventListener("click", () => this.show("list"));
    byId("settings-open").addEventListener("click", () => this.show("settings"));
    byId("state").addEventListener("click", () => {
      this.show("settings");
      byId("server-fold").open = true;
      byId("server-title").scrollIntoView();
    });
    byId("find").addEventListener("submit", (event) => {
      event.preventDefault();
      void this.find(byId("to").value);
    });
    byId("to").addEventListener("input", () => this.sayFind(""));
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !document.querySelector("dialog[open]") && document.body.dataset.view !== "list") this.show("list");
    });
    addEventListener("hashchange", () => this.readAddress());
    addEventListener("beforeunload", (event) => { if (!this.history.isPersistent && this.history.entries.size > 0) event.preventDefault(); });
  }

  async begin() {
    await this.settings.takePeople();
    this.renderAll();
    this.show("list");
    void this.readAddress(); // it may ask something, and mail comes meanwhile
    await this.mail.begin();
  }

  /** Follows a link of somebody, or one of a backup. */
  async readAddress() {
    const { to, name, backup, as: identity } = readHash(location.hash);
    if (identity !== this.identity) {
      location.reload();
      return;
    }
    if (to || backup) history.replaceState(null, "", identity === "default" ? location.pathname : `${location.pathname}#as=${identity}`);
    if (backup) await this.settings.restore(backup).catch((problem) => notice(problem.message));
    else if (to) await this.find(to, name);
  }

  /** Begins a conversation with whom a key or link names. */
  async find(text, said = readHash(text.replace(/^[^#]*/, "")).name) {
    const read = readRecipient(text);
    if ("problem" in read) {
      this.sayFind(read.problem || "Paste the link or key that somebody gave you.");
      return;
    }
    const name = tameName(said);
    const person = this.people.get(read.key);
    const isOwn = read.key === this.client.id;
    await this.people.set(read.key, { isKnown: true, ...(name && !person.said && !isOwn && { said: name }) });
    byId("to").value = "";
    this.sayFind("");
    this.open(read.key);
  }

  sayFind(sentence) {
    byId("to-note").textContent = sentence;
    if (sentence) byId("to").setAttribute("aria-invalid", "true");
    else byId("to").removeAttribute("aria-invalid");
    if (sentence) byId("to").focus();
  }

  open(key) {
    delete byId("thread").dataset.key;
    byId("key-trouble").hidden = true;
    this.person.about(key);
    this.composer.open(key);
    this.show("thread");
    this.thread.open(key);
    this.conversations.render(key);
    if (!byId("compose").hidden) byId("text").focus();
    void this.lookUp(key);
  }

  /** Says when nothing can be encrypted to this person yet, and asks again as long as the conversation is open. */
  async lookUp(key) {
    const found = this.people.get(key).agreementKey ?? (await this.mail.findKey(key));
    if (this.thread.peer !== key) return;
    byId("thread").dataset.key = found ? "found" : "missing";
    byId("key-trouble").hidden = Boolean(found) || this.client.state.phase !== "ready";
    if (!found) setTimeout(() => this.thread.peer === key && this.lookUp(key), LOOK_UP_AGAIN_MS);
  }

  /** @param {"list" | "thread" | "settings"} view */
  show(view) {
    const before = this.thread.peer;
    document.body.dataset.view = view;
    byId("welcome").hidden = view !== "list";
    byId("thread").hidden = view !== "thread";
    byId("settings").hidden = view !== "settings";
    if (view !== "thread") {
      this.thread.close();
      this.conversations.render(null);
    }
    if (view === "settings") {
      this.settings.render();
      byId("settings-title").focus();
    }
    if (view === "list" && before) byId("conversations").querySelector(`[data-key="${before}"]`)?.focus();
  }

  onSeen() {
    const key = this.thread.peer;
    const last = this.history.with(key).findLast(({ way }) => way === "in");
    if (last === undefined || (this.people.get(key).readMs ?? 0) >= last.ms) return;
    void this.people.set(key, { readMs: last.ms }).then(() => {
      this.tabs?.postMessage({ person: key, record: this.people.get(key) });
      this.renderSoon();
    });
  }

  /** Draws the list anew once for all that comes in a moment. */
  renderSoon() {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      this.conversations.render(this.thread.peer);
    }, RENDER_AFTER_MS);
  }

  onChange({ entry, isNew = false, progress, person }) {
    if (progress) {
      this.thread.progress(progress);
      return;
    }
    if (entry) this.thread.show(entry, isNew);
    if (person && person === this.thread.peer) this.thread.renderHead();
    this.renderSoon();
    if (isNew && entry.way === "in" && entry.peer !== this.thread.peer) announce(`A message from ${this.people.name(entry.peer)}.`);
  }

  /** Another tab of this identity has written something down. */
  onOtherTab({ entry, isNew, person, record, reload }) {
    if (reload) location.reload();
    if (record) this.history.people.set(record.key, record);
    if (entry) this.history.take(entry);
    this.onChange({ entry, isNew, person });
  }

  onDropped({ refusal, sender, sentence }) {
    if (refusal === "duplicate") return; // it was shown when it came first
    if (sender && this.people.get(sender).isBlocked) return;
    notice(sender ? `${sentence} It came under the name of ${this.people.name(sender)}.` : sentence);
  }

  renderAll() {
    this.thread.render();
    this.conversations.render(this.thread.peer);
    this.invite.render();
    this.settings.render();
  }
}

async function start() {
  byId("sdk-line").textContent = `import { MerkClient } from "${location.origin}/sdk/merk.js";`;
  const { as: identity } = readHash(location.hash);
  const sdk = await import("/sdk/merk.js");
  const node = await sdk.nodeInfo().catch(() => null); // an original relay, or none: the page then tries /merk
  const client = await openClient(sdk, identity).catch((problem) => {
    if (!(problem instanceof sdk.NoCryptoError)) throw problem;
    document.body.dataset.view = "helpless";
    const link = node?.securePage ? [" ", make("a", { href: node.securePage + location.hash }, `Open ${node.securePage}`)] : [];
    notice(problem.message, ...link);
    return null;
  });
  if (client === null) return;
  client.warnings.forEach((sentence) => notice(sentence));
  client.on("warning", ({ sentence }) => notice(sentence));
  const page = new Page(sdk, client, await openHistory(identity), identity);
  await page.begin();
  showMesh(sdk, client);
  showMailbox(sdk, client, page.history);
  await showServers(sdk, client, node?.address);
}

start().catch((problem) => {
  console.error(problem);
  notice(`The page could not start: ${problem.message}`);
});
