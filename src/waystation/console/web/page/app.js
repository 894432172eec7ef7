/**
 * Starts the page: opens the identity, then hands the client to each section.
 * @module
 */

import { makeCompose } from "./compose.js";
import { byId, make } from "./dom.js";
import { readHash } from "./format.js";
import { showIdentity } from "./identity.js";
import { Log } from "./log.js";
import { showMesh } from "./mesh.js";
import { showServers } from "./servers.js";

/** Shows a sentence at the head of the page until it is left. */
function notice(sentence) {
  byId("notices").append(make("p", { class: "notice" }, sentence));
}

/** Opens the settings where they stand beside the messages; below them each is one line. */
function unfold() {
  const wide = matchMedia("(min-width: 60rem)");
  const show = () => document.querySelectorAll(".fold").forEach((one) => { one.toggleAttribute("open", wide.matches); });
  wide.addEventListener("change", show);
  show();
}

/** Says why there is no cryptography, with a link to this node's page over https where it has one. */
async function leadToHttps(sdk, problem) {
  if (problem instanceof sdk.NoCryptoError && problem.reason === "insecure") {
    const { securePage } = await sdk.nodeInfo();
    if (securePage) byId("notices").append(make("p", { class: "notice" }, make("a", { href: securePage + location.hash }, `Open ${securePage}`)));
  }
  throw problem;
}

async function start() {
  unfold();
  byId("sdk-line").textContent = `import { MerkClient } from "${location.origin}/sdk/merk.js";`;
  const { to, as: identity } = readHash(location.hash);
  const sdk = await import("/sdk/merk.js");
  const client = await sdk.MerkClient.open({ identity }).catch((problem) => leadToHttps(sdk, problem));
  client.warnings.forEach(notice);
  client.on("warning", ({ sentence }) => notice(sentence));
  showIdentity(sdk, client, identity, notice);
  let writeTo = (/** @type {string} */ _text) => {};
  const log = new Log(sdk, (key) => writeTo(key));
  client.on("message", (message) => log.addMessage(message));
  client.on("dropped", (dropped) => log.addDropped(dropped));
  client.on("transfer", (transfer) => log.addTransfer(transfer));
  writeTo = makeCompose(sdk, client, log);
  showMesh(sdk, client);
  if (to) writeTo(to);
  addEventListener("hashchange", () => {
    const asked = readHash(location.hash);
    if (asked.as !== identity) location.reload();
    else if (asked.to) writeTo(asked.to);
  });
  await showServers(sdk, client);
}

start().catch((problem) => {
  console.error(problem);
  notice(`The page could not start: ${problem.message}`);
});
