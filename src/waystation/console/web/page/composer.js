// @ts-check
/**
 * Where a message is written: Enter sends, files come by the button, by paste or by drop.
 * @module
 */

import { announce, byId, make } from "./dom.js";
import { safeFileName, size } from "./format.js";
import { icon } from "./icons.js";
import { pictureType } from "./pictures.js";
import { MODES } from "./words.js";

const FILES_MAX = 10;
const FILE_BYTES_MAX = 268_435_456; // the SDK's; a file is held in memory as a whole
const HEIGHT_MAX_PX = 160;

export class Composer {
  /** @type {File[]} */
  #files = [];
  /** What stood in the field of each person. @type {Map<string, string>} */
  #drafts = new Map();
  #peer = "";

  /**
   * @param {any} sdk
   * @param {import("./mail.js").Mail} mail
   */
  constructor(sdk, mail) {
    this.sdk = sdk;
    this.mail = mail;
    const text = byId("text");
    byId("compose").addEventListener("submit", (event) => {
      event.preventDefault();
      void this.submit();
    });
    text.addEventListener("input", () => this.#fit());
    text.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      byId("compose").requestSubmit();
    });
    text.addEventListener("paste", (event) => this.#offer(event, event.clipboardData?.files));
    for (const type of ["dragenter", "dragover"]) byId("thread").addEventListener(type, (event) => this.#onDrag(event));
    byId("thread").addEventListener("dragleave", (event) => event.relatedTarget === null && this.#endDrag());
    byId("thread").addEventListener("drop", (event) => {
      this.#endDrag();
      this.#offer(event, event.dataTransfer?.files);
    });
    byId("attach").addEventListener("click", () => byId("file").click());
    byId("file").addEventListener("change", () => {
      this.add(byId("file").files);
      byId("file").value = "";
    });
    byId("more").addEventListener("click", () => this.#showMore(byId("more-choices").hidden));
    byId("more-choices").addEventListener("change", () => this.#showMode());
  }

  get mode() {
    return byId("compose").elements.mode.value;
  }

  /** Goes to the field, with what stood there for this person. @param {string} peer */
  open(peer) {
    if (this.#peer) this.#drafts.set(this.#peer, byId("text").value);
    if (this.#peer !== peer) this.#files = [];
    byId("compose").elements.mode.value = "encrypted"; // what is readable for relays is chosen anew each time
    byId("as-json").checked = false;
    this.#peer = peer;
    byId("text").value = this.#drafts.get(peer) ?? "";
    this.#showFiles();
    this.#showMore(false);
    this.#say("");
    this.#fit();
  }

  /** @param {Iterable<File> | null | undefined} files */
  add(files) {
    for (const file of files ?? []) {
      if (this.#files.length >= FILES_MAX) this.#say(`${FILES_MAX} files go at once; send these first.`);
      else if (file.size > FILE_BYTES_MAX) this.#say(`${safeFileName(file.name)} has ${size(file.size)}; a file may have ${size(FILE_BYTES_MAX)}.`);
      else this.#files.push(file);
    }
    this.#showFiles();
    byId("text").focus();
  }

  async submit() {
    const peer = this.#peer;
    const text = byId("text").value;
    const { mode } = this;
    this.#say("");
    if (!text.trim() && this.#files.length === 0) return;
    const content = { text };
    if (byId("as-json").checked && text.trim()) {
      try {
        Object.assign(content, { json: JSON.parse(text) });
      } catch (problem) {
        this.#say(`This is not JSON: ${problem.message}`);
        return;
      }
    }
    const files = this.#files;
    this.#files = [];
    this.#showFiles();
    byId("text").value = "";
    this.#drafts.delete(peer);
    this.#fit();
    for (const file of files) await this.mail.write(peer, { file, name: file.name }, mode);
    if (text.trim()) await this.mail.write(peer, content, mode);
    byId("text").focus();
  }

  #offer(event, files) {
    if (!files?.length) return;
    event.preventDefault();
    this.add(files);
  }

  #onDrag(event) {
    if (![...(event.dataTransfer?.types ?? [])].includes("Files")) return;
    event.preventDefault();
    byId("thread").dataset.drop = "";
  }

  #endDrag() {
    delete byId("thread").dataset.drop;
  }

  #showFiles() {
    byId("attached").hidden = this.#files.length === 0;
    byId("attached").replaceChildren(...this.#files.map((file, index) => this.#chip(file, index)));
  }

  #chip(file, index) {
    const name = safeFileName(file.name);
    const remove = make("button", { type: "button", class: "icon-button", "aria-label": `Do not send ${name}` }, icon("close"));
    remove.addEventListener("click", () => {
      this.#files.splice(index, 1);
      this.#showFiles();
      byId("text").focus();
      announce(`${name} is not sent.`);
    });
    const chip = make("li", { class: "chip" }, make("span", { class: "file-name" }, name), make("span", { class: "quiet" }, size(file.size)), remove);
    void thumbnail(file, chip);
    return chip;
  }

  #showMore(isOpen) {
    byId("more-choices").hidden = !isOpen;
    byId("more").setAttribute("aria-expanded", String(isOpen));
    this.#showMode();
  }

  #showMode() {
    byId("mode-note").textContent = MODES[this.mode];
    const isUnusual = this.mode !== "encrypted" || byId("as-json").checked;
    byId("unusual").hidden = !isUnusual || !byId("more-choices").hidden;
    byId("unusual").textContent = `${byId("as-json").checked ? "JSON, " : ""}${this.mode === "encrypted" ? "encrypted" : `${this.mode}: relays can read it`}`;
    byId("text").classList.toggle("code", byId("as-json").checked);
  }

  #say(sentence) {
    byId("compose-error").textContent = sentence;
  }

  /** As high as what stands in it, up to a limit. */
  #fit() {
    const text = byId("text");
    text.style.height = "auto";
    text.style.height = `${Math.min(text.scrollHeight + 2, HEIGHT_MAX_PX)}px`;
  }
}

async function thumbnail(file, chip) {
  const type = pictureType(new Uint8Array(await file.slice(0, 16).arrayBuffer()));
  if (type === null) return;
  const picture = make("img", { class: "thumbnail", alt: "" });
  const address = URL.createObjectURL(new Blob([file], { type }));
  for (const end of ["load", "error"]) picture.addEventListener(end, () => URL.revokeObjectURL(address), { once: true });
  picture.src = address;
  chip.prepend(picture);
}
