// What a node says of itself: paths as its operator chose them, and only what has the form of an address.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import { sdk } from "./support.mjs";

const answering = (document, ok = true) => async (address) => ({ ok, address, json: async () => (document === undefined ? JSON.parse("<") : document) });
const said = (merk, name = "n") => ({ name, protocols: { merk } });

test("the path is the node's own, /merk where it has that one", async () => {
  const at = async (paths, origin = "http://relay.test:8080") => (await sdk.nodeInfo(origin, answering(said({ paths, url: null })))).address;
  assert.equal(await at(["/chat"]), "ws://relay.test:8080/chat");
  assert.equal(await at(["/", "/merk"]), "ws://relay.test:8080/merk");
  assert.equal(await at(["/"], "https://relay.test"), "wss://relay.test/");
});

test("the page over https is that of the node's public address, and only of a wss one", async () => {
  const page = async (url) => (await sdk.nodeInfo("http://a.test", answering(said({ paths: ["/"], url })))).securePage;
  assert.equal(await page("wss://relay.example:8443/merk"), "https://relay.example:8443/");
  for (const url of [null, 7, "", "ws://relay.example/", "javascript:alert(1)", "wss//"]) assert.equal(await page(url), null, String(url));
});

test("what describes no node with MERK is refused with a sentence", async () => {
  for (const document of [undefined, null, 7, {}, said(undefined), said({ paths: [] }), said({ paths: ["chat", 7] }), said({ paths: "/merk" })]) {
    await assert.rejects(sdk.nodeInfo("http://a.test", answering(document)), sdk.LocalError, JSON.stringify(document));
  }
  await assert.rejects(sdk.nodeInfo("http://a.test", answering(said({ paths: ["/"] }), false)), sdk.LocalError);
  for (const origin of [undefined, 7, "", "ftp://a", "a.test"]) await assert.rejects(sdk.nodeInfo(origin, answering(said({ paths: ["/"] }))), sdk.LocalError);
});

test("it is read over HTTP", async () => {
  const server = createServer((request, response) => response.end(JSON.stringify({ ...said({ paths: ["/x"], url: null }), asked: request.url })));
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  const { port } = server.address();
  assert.deepEqual(await sdk.nodeInfo(`http://127.0.0.1:${port}`), { name: "n", address: `ws://127.0.0.1:${port}/x`, securePage: null });
  server.closeAllConnections();
  await new Promise((closed) => server.close(closed));
  await assert.rejects(sdk.nodeInfo(`http://127.0.0.1:${port}`), sdk.LocalError);
});
