// @ts-check
/**
 * Dialogs that ask for a passphrase: a new one twice, a known one once.
 * @module
 */

import { byId } from "./dom.js";
import { PASSPHRASE_CHARS_MIN } from "./vault.js";

/**
 * Asks for a passphrase and works with it; what it throws is shown, and the question stays.
 * @param {{ title: string, text: string, yes: string, isNew: boolean, knows?: (problem: any) => boolean }} question `knows` tells which
 *   failures are sentences for people.
 * @param {(passphrase: string) => Promise<unknown>} work
 * @returns {Promise<boolean>} Whether it was done; false when the dialog was closed.
 */
export function askPassphrase({ title, text, yes, isNew, knows = () => true }, work) {
  const dialog = byId("passphrase-dialog");
  const form = byId("passphrase-form");
  byId("passphrase-title").textContent = title;
  byId("passphrase-text").textContent = text;
  byId("passphrase-yes").textContent = yes;
  byId("passphrase-again-field").hidden = !isNew;
  byId("passphrase").autocomplete = isNew ? "new-password" : "current-password";
  byId("passphrase-error").textContent = "";
  byId("passphrase-no").onclick = () => dialog.close();
  form.reset();
  dialog.showModal();
  byId("passphrase").focus();
  return new Promise((answer) => {
    let isDone = false;
    const submit = async (event) => {
      event.preventDefault();
      const given = byId("passphrase").value;
      const problem = isNew ? problemOf(given, byId("passphrase-again").value) : "";
      if (problem) {
        complain(problem);
        return;
      }
      byId("passphrase-yes").disabled = true;
      try {
        await work(given);
        isDone = true;
        dialog.close();
      } catch (failure) {
        if (!knows(failure)) throw failure;
        complain(failure.message);
      } finally {
        byId("passphrase-yes").disabled = false;
      }
    };
    form.addEventListener("submit", submit);
    dialog.addEventListener("close", () => {
      form.removeEventListener("submit", submit);
      form.reset();
      answer(isDone);
    }, { once: true });
  });
}

function complain(sentence) {
  byId("passphrase-error").textContent = sentence;
  byId("passphrase").focus();
}

function problemOf(given, again) {
  if ([...given].length < PASSPHRASE_CHARS_MIN) return `At least ${PASSPHRASE_CHARS_MIN} characters, better four words that do not belong together.`;
  return given === again ? "" : "The two are not the same.";
}
