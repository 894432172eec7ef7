/**
 * The section "Write": to whom, what, and how it is protected.
 * @module
 */

import { byId } from "./dom.js";
import { readRecipient, size } from "./format.js";
import { MODES } from "./words.js";

/**
 * Makes the form send.
 * @param {any} sdk
 * @param {any} client
 * @param {import("./log.js").Log} log Shows what was sent.
 * @returns {(text: string) => void} Fills in a recipient and goes to the message.
 */
export function makeCompose(sdk, client, log) {
  const form = new Compose(sdk, client, log);
  byId("compose").addEventListener("submit", (event) => {
    event.preventDefault();
    void form.submit();
  });
  byId("compose").addEventListener("change", (event) => {
    form.show();
    if (event.target.name !== "mode") return;
    form.modeBefore = "";
    void form.lookUp();
  });
  byId("to").addEventListener("input", () => {
    form.leaveNowhere();
    void form.lookUp();
  });
  if (!byId("keys-note").checkVisibility()) byId("text").removeAttribute("aria-describedby");
  byId("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("compose").requestSubmit();
  });
  client.on("state", () => form.onState());
  byId("write-nowhere").addEventListener("click", () => form.tryNowhere());
  byId("send").disabled = byId("write-nowhere").disabled = false;
  form.show();
  return (text) => form.fillIn(text);
}

class Compose {
  constructor(sdk, client, log) {
    this.sdk = sdk;
    this.client = client;
    this.log = log;
    this.lookUps = 0;
    this.wasReady = false;
    this.modeBefore = "";
  }

  get kind() {
    return byId("compose").elements.kind.value;
  }

  get mode() {
    return byId("compose").elements.mode.value;
  }

  show() {
    const { kind } = this;
    const file = byId("file").files[0];
    byId("text-field").hidden = kind === "file";
    byId("file-field").hidden = kind !== "file";
    byId("text-label").textContent = kind === "json" ? "JSON" : "Message";
    byId("text").classList.toggle("code", kind === "json");
    byId("text").spellcheck = kind !== "json";
    byId("file-note").textContent = file ? `${file.name}, ${size(file.size)}` : "";
    byId("mode-note").textContent = MODES[this.mode];
    byId("send").textContent = kind === "file" ? "Send file" : "Send";
  }

  fillIn(text) {
    const read = readRecipient(text);
    byId("to").value = "key" in read ? read.key : text;
    void this.lookUp();
    byId(this.kind === "file" ? "file" : "text").focus();
  }

  /** Prepares a message that cannot arrive. */
  tryNowhere() {
    this.modeBefore ||= this.mode;
    byId("compose").elements.mode.value = "signed";
    byId("compose").elements.kind.value = "text";
    byId("text").value ||= "Is anybody there?";
    this.show();
    this.fillIn(this.sdk.toHex(crypto.getRandomValues(new Uint8Array(32))));
    byId("send").focus();
  }

  /** Takes back the protection that only nobody needed. */
  leaveNowhere() {
    if (this.modeBefore) byId("compose").elements.mode.value = this.modeBefore;
    this.modeBefore = "";
    this.show();
  }

  onState() {
    const isReady = this.client.state.phase === "ready";
    if (isReady && !this.wasReady) void this.lookUp();
    this.wasReady = isReady;
  }

  /** Says what is known about the recipient, without waiting for the button. */
  async lookUp() {
    const asked = (this.lookUps += 1);
    const read = readRecipient(byId("to").value);
    byId("compose-error").textContent = "";
    byId("to").removeAttribute("aria-invalid");
    byId("agreement-field").hidden = true;
    this.tell("problem" in read ? read.problem : "", "warn");
    if ("problem" in read || this.mode !== "encrypted" || this.client.state.phase !== "ready") return;
    this.tell("Looking for the key to encrypt with …", "");
    const found = await this.client.findKey(read.key).catch((problem) => problem);
    if (asked !== this.lookUps) return; // another recipient stands there by now
    byId("agreement-field").hidden = Boolean(found);
    if (found instanceof Error) this.tell(found.message, "warn");
    else if (found) this.tell(this.knownNote(read.key), "good");
    else this.tell("No key to encrypt with is known for this recipient. It gets one by connecting here once.", "warn");
  }

  knownNote(key) {
    const own = key === this.client.id ? " This is your own key." : "";
    return `Found in the key directory: messages to ${this.sdk.shortKey(key)} can be encrypted.${own}`;
  }

  tell(sentence, tone) {
    byId("to-note").textContent = sentence;
    byId("to-note").dataset.tone = tone;
  }

  refuse(sentence, field) {
    byId("compose-error").textContent = sentence;
    byId(field).focus();
  }

  async submit() {
    byId("compose-error").textContent = "";
    const read = readRecipient(byId("to").value);
    if ("problem" in read) {
      byId("to").setAttribute("aria-invalid", "true");
      this.tell(read.problem || "Who should get it? Put a key in the “To” line.", "bad");
      byId("to").focus();
      return;
    }
    if (this.client.state.phase !== "ready") {
      this.refuse("Not sent: there is no connection right now. What you wrote stays here.", "send");
      return;
    }
    try {
      await this.send(read.key);
      this.leaveNowhere();
    } catch (problem) {
      if (!(problem instanceof this.sdk.LocalError)) throw problem;
      this.refuse(problem.message, this.kind === "file" ? "file" : "text");
    }
  }

  async send(to) {
    const agreementKey = byId("agreement-field").hidden ? "" : byId("agreement").value.trim();
    const options = { mode: this.mode, ...(agreementKey && { agreementKey }) };
    if (this.kind === "file") return this.sendFile(to, options);
    const text = byId("text").value;
    const content = this.kind === "json" ? { json: readJson(text, this.sdk.LocalError) } : { text };
    if (!text) throw new this.sdk.LocalError("There is nothing to send yet.");
    const sent = await ("json" in content ? this.client.sendJson(to, content.json, options)
      : this.client.sendText(to, text, options));
    this.log.addSent({ to, mode: options.mode, kind: this.kind, text, outcome: sent.outcome });
    byId("text").value = "";
    byId("text").focus();
    return undefined;
  }

  async sendFile(to, options) {
    const file = byId("file").files[0];
    if (!file) throw new this.sdk.LocalError("Choose a file first.");
    const cancel = new AbortController();
    const entry = this.log.addSentFile({ to, mode: options.mode, name: file.name, bytes: file.size, cancel });
    try {
      const sent = await this.client.sendFile(to, file,
        { ...options, name: file.name, onProgress: entry.onProgress, signal: cancel.signal });
      entry.wait(sent.outcome);
      byId("file").value = "";
      this.show();
    } catch (problem) {
      entry.remove();
      throw problem;
    }
  }
}

function readJson(text, LocalError) {
  try {
    return JSON.parse(text);
  } catch (problem) {
    throw new LocalError(`This is not JSON: ${problem.message}`);
  }
}
