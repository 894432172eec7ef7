/**
 * The section "Server": the connection and its state, and the servers to choose from.
 * @module
 */

import { announce, ask, byId, make } from "./dom.js";
import { span } from "./format.js";
import { ORIGINS, PHASES } from "./words.js";

/** Where MERK is at the node of this page when it does not say where. */
const USUAL_ADDRESS = `${location.protocol === "https:" ? "wss:" : "ws:"}//${location.host}/merk`;

/**
 * Shows connection and servers of a client, and connects it for the first time.
 * @param {any} sdk
 * @param {any} client
 * @param {string} [own] Address of the node that served this page.
 */
export async function showServers(sdk, client, own = USUAL_ADDRESS) {
  const view = new Servers(sdk, client, own);
  client.on("state", () => view.showState());
  client.on("servers", () => view.showList());
  byId("connect").addEventListener("click", () => view.guard(() => view.press()));
  byId("forget-server-key").addEventListener("click", () => view.guard(() => view.acceptNewKey()));
  byId("add-server").addEventListener("submit", (event) => {
    event.preventDefault();
    void view.guard(() => view.add());
  });
  byId("ask-servers").addEventListener("click", () => view.guard(() => view.askForMore()));
  byId("servers").addEventListener("change", (event) => view.choose(event.target.value));
  setInterval(() => view.showMore(), 1_000);
  await view.guard(() => view.begin());
}

class Servers {
  constructor(sdk, client, own) {
    this.sdk = sdk;
    this.client = client;
    this.own = own;
    this.chosen = client.state.address ?? own;
  }

  /** Runs what a person asked for, and shows beside the list what went wrong. */
  async guard(work) {
    byId("server-error").textContent = "";
    try {
      await work();
    } catch (problem) {
      if (!(problem instanceof this.sdk.LocalError)) throw problem;
      byId("server-fold").open = true;
      byId("server-error").textContent = problem.message;
    }
  }

  async begin() {
    if (!this.client.servers.some((server) => server.address === this.own)) await this.client.addServer(this.own);
    byId("connect").disabled = false;
    this.showList();
    this.showState();
    if (this.client.state.phase === "idle") await this.connectStored();
    this.chosen = this.client.state.address ?? this.chosen;
    this.showList();
    this.showState();
  }

  /** Connects to the server chosen last time, or else to the node of this page. */
  async connectStored() {
    try {
      await this.client.connect();
    } catch (problem) {
      if (!(problem instanceof this.sdk.LocalError)) throw problem;
      await this.client.connect(this.own); // nothing was ever chosen here
    }
  }

  async press() {
    const { phase, address } = this.client.state;
    if (phase !== "idle" && phase !== "refused" && address === this.chosen) this.client.disconnect();
    else await this.client.connect(this.chosen);
  }

  async acceptNewKey() {
    const { address } = this.client.state;
    const text = `${address} proves another key than before. That is right after the node was set up anew, and wrong if somebody `
      + "took its place. Your encrypted messages stay safe either way.";
    if (!(await ask({ title: "Accept the new key?", text, yes: "Accept" }))) return;
    await this.client.forgetServerKey(address);
    await this.client.connect(address);
  }

  async add() {
    const field = byId("server-address");
    const address = field.value.trim();
    await this.client.addServer(address);
    field.value = "";
    this.showList();
    announce(`${address} is in the list.`);
  }

  async askForMore() {
    const before = this.client.servers.length;
    await this.client.askServers();
    const count = this.client.servers.length - before;
    announce(count > 0 ? `${count} more in the list.` : "This server knows no others.");
    this.showList();
  }

  async remove(address) {
    await this.client.removeServer(address);
    this.showList();
    byId("server-address").focus();
    announce(`${address} is out of the list.`);
  }

  choose(address) {
    this.chosen = address;
    this.showState();
  }

  showState() {
    const { phase, address, sentence, reason, attempt } = this.client.state;
    if (byId("state").dataset.phase !== phase) {
      announce(PHASES[phase]);
    }
    byId("state").dataset.phase = phase;
    setText("state-short", PHASES[phase]);
    setText("state-text", sentence);
    // Somebody has to decide; or nothing goes out or comes in for a while.
    setText("state-trouble", phase === "refused" || (phase === "waiting" && attempt > 1) || phase === "idle" ? sentence : "");
    const isResting = phase === "idle" || phase === "refused";
    setText("connect", isResting ? "Connect" : address === this.chosen ? "Disconnect" : "Switch to the chosen server");
    byId("connect").classList.toggle("strong", isResting);
    byId("ask-servers").disabled = phase !== "ready";
    byId("forget-server-key").hidden = reason !== "wrong_server";
    this.showMore();
  }

  showMore() {
    const { phase, serverKey, authenticated, retryAtMs, tab } = this.client.state;
    let more = "";
    if (phase === "waiting" && retryAtMs) more = `Next try in ${span((retryAtMs - Date.now()) / 1_000 + 1)}.`;
    if (phase === "ready" && authenticated) more = `Its key: ${this.sdk.shortKey(serverKey)}.`;
    if (phase === "ready" && tab === "follower") more += " Another tab of yours holds the connection for both.";
    setText("state-more", more);
  }

  showList() {
    const { servers } = this.client;
    setText("server-count", `(${servers.length})`);
    const focused = document.activeElement?.id;
    byId("servers").replaceChildren(...servers.map((server, index) => this.row(server, `server-${index}`)));
    if (focused?.startsWith("server-")) document.getElementById(focused)?.focus();
  }

  row({ address, origin, key }, id) {
    const radio = make("input", { type: "radio", name: "server", id, value: address });
    radio.checked = address === this.chosen;
    const told = address === this.own ? "the node of this page" : ORIGINS[origin] ?? origin;
    const text = make("span", {}, make("span", { class: "address" }, address),
      make("span", { class: "origin" }, key ? `${told}, key ${this.sdk.shortKey(key)}` : told));
    const item = make("li", {}, make("label", {}, radio, text));
    if (address !== this.own) {
      const button = make("button", { type: "button", class: "slight", "aria-label": `Remove ${address}` }, "Remove");
      button.addEventListener("click", () => this.guard(() => this.remove(address)));
      item.append(button);
    }
    return item;
  }
}

/** Writes a text only where it changes, so that nothing is read out twice. */
function setText(id, text) {
  const element = byId(id);
  if (element.textContent !== text) element.textContent = text;
}
