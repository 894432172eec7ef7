/**
 * Small helpers around the document. Text of others enters it through `textContent` only; the page's policy makes the browser
 * refuse everything else.
 * @module
 */

const SVG = "http://www.w3.org/2000/svg";

/**
 * Returns the element with this id.
 * @param {string} id
 * @returns {any}
 */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found;
}

/**
 * Makes an element.
 * @param {string} tag
 * @param {Record<string, string>} [attributes] None may come from others, but for texts like `aria-label`.
 * @param {...(Node | string)} children Strings become text.
 * @returns {any}
 */
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/**
 * Makes an element of a picture; as `make`.
 * @param {string} tag
 * @param {Record<string, string>} [attributes]
 * @param {...(Node | string)} children
 */
export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/**
 * Has a sentence read to people who hear the page.
 * @param {string} sentence
 */
export function announce(sentence) {
  byId("announcer").textContent = sentence;
}

/**
 * Asks a question that must be answered.
 * @param {{ title: string, text: string, yes: string }} question
 * @returns {Promise<boolean>} Whether the answer was yes; closing the dialog is no.
 */
export function ask({ title, text, yes }) {
  const dialog = byId("question");
  byId("question-title").textContent = title;
  byId("question-text").textContent = text;
  byId("question-yes").textContent = yes;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((answer) => {
    dialog.addEventListener("close", () => answer(dialog.returnValue === "yes"), { once: true });
  });
}

/**
 * Copies a text when the button is pressed, and says so on the button for a moment.
 * @param {HTMLButtonElement} button
 * @param {() => string} text
 */
export function copies(button, text) {
  const label = button.textContent;
  button.addEventListener("click", async () => {
    const done = await copied(text());
    button.textContent = done ? "Copied" : "Select and copy it by hand";
    announce(button.textContent);
    setTimeout(() => { button.textContent = label; }, 2_000);
  });
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedByHand(text); // plain http gives no clipboard, and a person may have forbidden it
  }
}

function copiedByHand(text) {
  const before = document.activeElement;
  const field = make("textarea", { class: "hidden", readonly: "" }, text);
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  if (before instanceof HTMLElement) before.focus();
  return done;
}
