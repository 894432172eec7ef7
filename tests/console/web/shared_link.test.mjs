// Tabs of one identity: one of them holds the socket, all of them send and receive.

import assert from "node:assert/strict";
import { test } from "node:test";
import { completeEnvironment } from "../../../src/waystation/console/web/sdk/environment.js";
import { ServerBook } from "../../../src/waystation/console/web/sdk/servers.js";
import { NO_LOCKS_WARNING } from "../../../src/waystation/console/web/sdk/shared_link.js";
import { ADDRESS, collect, connected, environmentOf, keysOf, quiet, sdk, TestChannels, TestLocks, TestPage, TestRelay, until } from "./support.mjs";

const keys = await keysOf("alice");
const bob = await keysOf("bob");

/** A browser in which tabs share locks, channels and storage. */
async function browser() {
  const relay = await TestRelay.make();
  const shared = { locks: new TestLocks(), broadcastChannel: new TestChannels().make, storage: new sdk.MemoryStorage() };
  const openTab = async (overrides = {}) => {
    const environment = await completeEnvironment(environmentOf(relay, { ...shared, page: new TestPage(), ...overrides }));
    const link = new sdk.SharedLink({ keys, environment, pins: new ServerBook(environment.storage, false) });
    const frames = collect(link, "frame");
    await link.open();
    return { link, environment, frames };
  };
  return { relay, openTab };
}

async function twoTabs() {
  const run = await browser();
  const first = await run.openTab();
  const second = await run.openTab();
  await first.link.start(ADDRESS);
  for (const { link } of [first, second]) await until(() => link.state.phase === "ready", "ready");
  return { ...run, first, second };
}

const frameTo = (target, byte = 0) => sdk.encodeFrame(2, Uint8Array.from([...target, byte]), keys.signing.public);

test("the first tab owns the socket, the second follows; both see one connection", async () => {
  const { relay, first, second } = await twoTabs();
  assert.deepEqual([first.link.state.tab, second.link.state.tab, relay.sockets.length], ["owner", "follower", 1]);
  assert.deepEqual({ ...second.link.state, tab: "owner" }, first.link.state);
});

test("what arrives reaches every tab, byte for byte", async () => {
  const { relay, first, second } = await twoTabs();
  const frame = sdk.encodeFrame(2, keys.signing.public, bob.signing.public);
  relay.live[0].deliver(frame);
  for (const { frames } of [first, second]) await until(() => frames.length === 1);
  assert.deepEqual([first.frames, second.frames], [[frame], [frame]]);
});

test("a follower sends through the owner and learns the outcome, or the caller's error", async () => {
  const { relay, second } = await twoTabs();
  assert.equal((await second.link.send(frameTo(bob.signing.public))).name, "unknown_target");
  assert.equal(relay.heard.filter(({ frame: { kind } }) => kind === 2).length, 1);
  await assert.rejects(second.link.send(new Uint8Array(8_388_609)), sdk.LocalError);
});

test("a follower connects and disconnects for all", async () => {
  const { first, second, relay } = await twoTabs();
  await second.link.stop();
  await until(() => first.link.state.phase === "idle" && second.link.state.phase === "idle");
  await second.link.start(ADDRESS);
  for (const { link } of [first, second]) await until(() => link.state.phase === "ready");
  assert.equal(relay.live.length, 1);
});

test("when the owner closes another tab takes over and connects to the same server", async () => {
  const { relay, first, second } = await twoTabs();
  first.link.close();
  await until(() => second.link.state.tab === "owner" && second.link.state.phase === "ready");
  assert.deepEqual([relay.sockets.length, relay.live.length], [2, 1]);
  assert.equal((await second.link.send(frameTo(bob.signing.public))).name, "unknown_target");
});

test("what a follower sent and the owner did not answer before it closed is lost, and said so", async () => {
  const { relay, first, second } = await twoTabs();
  relay.onContent = () => {};
  const sent = second.link.send(frameTo(bob.signing.public));
  await until(() => relay.heard.some(({ frame: { kind } }) => kind === 2));
  first.link.close();
  assert.equal((await sent).name, "lost");
});

test("a tab opened later learns the state at once", async () => {
  const { openTab } = await twoTabs();
  const third = await openTab();
  await until(() => third.link.state.phase === "ready");
  assert.equal(third.link.state.tab, "follower");
});

test("taking over a connection that was stopped does not start it", async () => {
  const { relay, first, second } = await twoTabs();
  await first.link.stop();
  await until(() => second.link.state.phase === "idle");
  first.link.close();
  await until(() => second.link.state.tab === "owner");
  await quiet();
  assert.deepEqual([second.link.state.phase, relay.live.length], ["idle", 0]);
});

test("a tab that is looked at wakes the owner, and takes the lock from one that does not answer", async () => {
  const { relay, openTab, first } = await twoTabs();
  const channels = new TestChannels();
  const frozen = await openTab({ broadcastChannel: channels.make });
  await until(() => frozen.environment.clock.waits.includes(5_000));
  frozen.environment.clock.advance(5_000);
  await until(() => frozen.link.state.tab === "owner");
  await until(() => first.link.state.tab === "follower");
  assert.equal(relay.live.length, 0);
});

test("a hidden tab takes nothing by force", async () => {
  const { openTab } = await twoTabs();
  const page = new TestPage();
  page.visibilityState = "hidden";
  const hidden = await openTab({ broadcastChannel: new TestChannels().make, page });
  await until(() => hidden.environment.clock.waits.includes(5_000));
  hidden.environment.clock.advance(5_000);
  await quiet();
  assert.equal(hidden.link.state.tab, "follower");
});

test("a follower that becomes visible makes the owner try at once", async () => {
  const { relay, first, second } = await twoTabs();
  relay.isUp = false;
  relay.restart();
  await until(() => second.link.state.phase === "waiting");
  relay.isUp = true;
  second.environment.page.show();
  await until(() => first.link.state.phase === "ready" && second.link.state.phase === "ready");
  assert.equal(relay.live.length, 1);
});

test("without locks each tab is alone and says what that means", async () => {
  const { openTab } = await browser();
  const { link } = await openTab({ locks: null });
  assert.deepEqual([link.state.tab, link.warning], ["alone", NO_LOCKS_WARNING]);
});

test("a closed tab refuses commands", async () => {
  const { first } = await twoTabs();
  first.link.close();
  await assert.rejects(first.link.send(frameTo(bob.signing.public)), sdk.LocalError);
});

test("tabs that begin at once make one identity, and another maker of the same name is refused", async () => {
  const relay = await TestRelay.make();
  const shared = { locks: new TestLocks(), broadcastChannel: new TestChannels().make, storage: new sdk.MemoryStorage() };
  const tab = () => environmentOf(relay, { ...shared, page: new TestPage() });
  const made = await Promise.allSettled([1, 2].map(() => sdk.MerkClient.createIdentity({ identity: "made", environment: tab() })));
  const opened = await Promise.all([1, 2, 3].map(() => sdk.MerkClient.open({ environment: tab() })));

  assert.deepEqual(made.map(({ status, reason }) => [status, reason instanceof sdk.LocalError]), [["fulfilled", false], ["rejected", true]]);
  assert.deepEqual(opened.map(({ id }) => id), Array(3).fill(opened[0].id));
  assert.equal((await sdk.MerkClient.listIdentities({ environment: tab() })).find(({ identity }) => identity === "default").id, opened[0].id);
  for (const client of opened) await client.close();
});

test("of two tabs each gets a message once, and its sender one receipt", async () => {
  const relay = await TestRelay.make();
  const shared = { locks: new TestLocks(), broadcastChannel: new TestChannels().make, storage: new sdk.MemoryStorage() };
  const tabs = [];
  for (const _ of [1, 2]) {
    const environment = environmentOf(relay, { ...shared, page: new TestPage() });
    const client = await sdk.MerkClient.open({ environment });
    const taken = [];
    client.on("message", async (message) => taken.push(message.text));
    tabs.push({ client, taken, clock: environment.clock });
  }
  await tabs[0].client.connect(ADDRESS);
  await until(() => relay.adverts.has(tabs[0].client.id));
  const sender = await connected(relay, "bob");
  const sent = await sender.client.sendText(tabs[0].client.id, "hi");
  await until(() => tabs.every(({ taken }) => taken.length === 1));
  await until(() => tabs[0].clock.waits[0] <= 1_000, "a receipt that is owed");
  for (const { clock } of tabs) clock.advance(1_000);

  assert.equal(await sent.read, true);
  for (const { clock } of tabs) clock.advance(2_000);
  await quiet();
  assert.equal(relay.heard.filter(({ frame }) => frame.kind === 5 && sdk.toHex(frame.sender) === tabs[0].client.id).length, 1);
  assert.deepEqual(tabs.map(({ taken, client }) => [taken, client.state.tab]), [[["hi"], "owner"], [["hi"], "follower"]]);
  for (const { client } of [...tabs, sender]) await client.close();
});
