/**
 * The section "Mesh": the node that served this page and whom it is linked with, as a picture and in words.
 * @module
 */

import { byId, draw, make } from "./dom.js";
import { span } from "./format.js";

const WIDTH = 320;
const CENTRE = { x: WIDTH / 2, y: 0 };
const REACH = { x: 118, y: 74 };
const MARGIN = 36; // room for words above and below
const LABELS_MAX = 12; // more than that write over each other
const EVERY_MS = 10_000;
let lastTold = "";

/**
 * Shows the mesh now and keeps it fresh while somebody looks.
 * @param {any} sdk
 * @param {any} client
 */
export function showMesh(sdk, client) {
  const look = () => {
    if (!document.hidden) void refresh(sdk, client);
  };
  client.on("state", ({ phase }) => phase === "ready" && look());
  document.addEventListener("visibilitychange", look);
  setInterval(look, EVERY_MS);
  look();
}

async function refresh(sdk, client) {
  try {
    const answer = await fetch("/.well-known/merk-mesh.json", { cache: "no-store" });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    show(sdk, client, await answer.json());
  } catch {
    byId("mesh-summary").textContent = lastTold ? `When it last answered: ${lastTold}` : "Nothing is known of it right now.";
  }
}

function show(sdk, client, mesh) {
  const { node, nodes, links, clients } = mesh;
  lastTold = `This page comes from node ${sdk.shortKey(node)}. ${count(clients, "client")} connected, `
    + `${nodes.length ? `linked with ${count(nodes.length, "node")}` : "linked with no other node"}.`;
  byId("mesh-summary").textContent = lastTold;
  byId("mesh-list").replaceChildren(...nodes.map((peer) => describe(sdk, peer)));
  const places = placesOf(node, nodes);
  const isCrowded = nodes.length > LABELS_MAX;
  const heights = [...places.values()].map(({ y }) => y);
  const top = Math.min(...heights) - MARGIN;
  byId("mesh-picture").setAttribute("viewBox", `0 ${top} ${WIDTH} ${Math.max(...heights) + MARGIN - top}`);
  byId("mesh-picture").replaceChildren(
    ...linesOf(node, nodes, links, places),
    ...[...places].map(([key, place]) => dot(sdk, key, place, key === node, isCrowded)),
  );
}

function describe(sdk, { key, address, trust, up_s: upS }) {
  const known = trust === "mutual" ? "proved its key" : "an original relay, proves no key";
  return make("li", {}, make("code", {}, sdk.shortKey(key)), make("span", { class: "detail" },
    [address, known, `linked for ${span(upS)}`].filter(Boolean).join(", ")));
}

/** Puts the node in the middle and its peers around it, in the order of their keys, so that they stay where they are. */
function placesOf(node, nodes) {
  const keys = nodes.map(({ key }) => key).sort();
  if (keys.length === 1) return new Map([[node, { x: WIDTH / 4, y: 0 }], [keys[0], { x: (WIDTH * 3) / 4, y: 0 }]]);
  const places = new Map([[node, CENTRE]]);
  keys.forEach((key, index) => {
    const turn = (index / keys.length) * 2 * Math.PI - (keys.length === 2 ? 0 : Math.PI / 2);
    places.set(key, { x: CENTRE.x + REACH.x * Math.cos(turn), y: CENTRE.y + REACH.y * Math.sin(turn) });
  });
  return places;
}

function linesOf(node, nodes, links, places) {
  const own = nodes.map(({ key, trust }) => [node, key, trust === "legacy" ? "link legacy" : "link"]);
  const others = links.filter(([one, other]) => one !== node && other !== node).map(([one, other]) => [one, other, "link"]);
  return [...own, ...others].filter(([one, other]) => places.has(one) && places.has(other)).map(([one, other, look]) => {
    const [from, to] = [places.get(one), places.get(other)];
    return draw("line", { class: look, x1: `${from.x}`, y1: `${from.y}`, x2: `${to.x}`, y2: `${to.y}` });
  });
}

function dot(sdk, key, { x, y }, isSelf, isCrowded) {
  const circle = draw("circle", { class: isSelf ? "node self" : "node", cx: `${x}`, cy: `${y}`, r: isSelf ? "9" : "7" });
  const isAbove = y < -1; // words of those above stand above them, away from the lines
  const label = draw("text", { x: `${x}`, y: `${isAbove ? y - 14 : y + 24}` }, isSelf ? "this node" : key.slice(0, 8));
  return isCrowded && !isSelf ? circle : draw("g", {}, circle, label);
}

function count(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}
