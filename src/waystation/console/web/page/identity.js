/**
 * The section "You": one's key to pass on, and another identity in its place.
 * @module
 */

import { ask, byId, copies } from "./dom.js";
import { toId52 } from "./format.js";

/**
 * Shows the identity of a client.
 * @param {any} sdk Module of the browser SDK.
 * @param {any} client Open client.
 * @param {string} name Name of the identity in this browser.
 * @param {(sentence: string) => void} complain Shows what went wrong.
 */
export function showIdentity(sdk, client, name, complain) {
  const link = `${location.origin}/#to=${client.id}`;
  const id52 = toId52(client.id);
  byId("you-title").textContent = name === "default" ? "You" : `You, as “${name}”`;
  byId("short-key").textContent = sdk.shortKey(client.id);
  byId("key-hex").textContent = client.id;
  byId("key-id52").textContent = id52;
  byId("key-agreement").textContent = client.agreementKey;
  byId("keys-stored").hidden = !client.isPersistent;
  byId("keys-in-memory").hidden = client.isPersistent;
  byId("another").hidden = !client.isPersistent; // it would be gone with the reload that brings it
  const texts = { "copy-link": link, "copy-key": client.id, "copy-id52": id52, "copy-agreement": client.agreementKey };
  for (const [id, text] of Object.entries(texts)) {
    copies(byId(id), () => text);
    byId(id).disabled = false;
  }
  offerAnother(sdk, client, name, complain);
  offerSecondPerson(client, name);
}

function offerAnother(sdk, client, name, complain) {
  const replace = async (question, make) => {
    try {
      if (!(await ask(question))) return;
      await make();
      location.reload();
    } catch (problem) {
      if (!(problem instanceof sdk.LocalError)) throw problem;
      complain(problem.message);
    }
  };
  const file = byId("import-file");
  file.addEventListener("change", async () => {
    const text = await file.files[0]?.text();
    file.value = "";
    if (text === undefined) return;
    const take = (/** @type {string} */ identity) => sdk.MerkClient.importIdentity(text, { identity });
    const question = { title: "Replace your identity?", text: lossOf(sdk, client, "the keys of this file"), yes: "Import" };
    await replace(question, async () => {
      const trial = `${name}-trial`; // a file that holds no keys must not cost those that are there
      await sdk.MerkClient.forgetIdentity(trial);
      await take(trial);
      await sdk.MerkClient.forgetIdentity(trial);
      await changeIdentity(sdk, client, name, () => take(name));
    });
  });
  byId("new-identity").addEventListener("click", () => replace(
    { title: "Replace your identity?", text: lossOf(sdk, client, "new ones"), yes: "Make a new one" },
    () => changeIdentity(sdk, client, name, () => sdk.MerkClient.createIdentity({ identity: name })),
  ));
  byId("new-identity").disabled = false;
}

function lossOf(sdk, client, instead) {
  return `The keys of ${sdk.shortKey(client.id)} are deleted from this browser, and ${instead} take their place. What others `
    + "still send to the old key reaches nobody.";
}

async function changeIdentity(sdk, client, name, make) {
  await client.close();
  await sdk.MerkClient.forgetIdentity(name);
  await make();
}

function offerSecondPerson(client, name) {
  const second = byId("second-person");
  second.href = name === "default" ? `/#as=second&to=${client.id}` : `/#to=${client.id}`;
  if (name !== "default") second.textContent = "the first person in a new tab";
}
