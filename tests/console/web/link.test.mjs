// The connection that comes back for ever, and what stops it.

import assert from "node:assert/strict";
import { test } from "node:test";
import { FRAMES_AT_ONCE } from "../../../src/waystation/console/web/sdk/delivery/pace.js";
import { completeEnvironment } from "../../../src/waystation/console/web/sdk/environment.js";
import { QUEUED_MAX } from "../../../src/waystation/console/web/sdk/link.js";
import { ServerBook } from "../../../src/waystation/console/web/sdk/servers.js";
import { sentenceOf } from "../../../src/waystation/console/web/sdk/state.js";
import { ADDRESS, collect, environmentOf, hex, keysOf, quiet, sdk, TestRelay, until } from "./support.mjs";

const keys = await keysOf("alice");

async function linked(prepare = () => {}) {
  const relay = await TestRelay.make();
  await prepare(relay);
  const environment = await completeEnvironment(environmentOf(relay));
  const pins = new ServerBook(environment.storage, false);
  const link = new sdk.Link({ keys, environment, pins });
  const states = collect(link, "state");
  link.start(ADDRESS);
  return { relay, environment, clock: environment.clock, pins, link, states };
}

async function ready(prepare) {
  const run = await linked(prepare);
  await until(() => run.link.state.phase === "ready", "ready");
  return run;
}

const phase = (link, wanted) => until(() => link.state.phase === wanted, wanted);

test("backoff doubles from half a second to thirty, jittered between half and whole, and never ends", () => {
  const steps = (random) => {
    const backoff = new sdk.Backoff(() => random);
    return Array.from({ length: 1_000 }, () => backoff.next());
  };
  assert.deepEqual(steps(1).slice(0, 8), [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
  assert.deepEqual(steps(0).slice(0, 3), [250, 500, 1_000]);
  assert.equal(steps(1).at(-1), 30_000);
});

test("the way to a connection is connecting, handshaking, ready", async () => {
  const { states, relay } = await ready();
  assert.deepEqual(states.filter(({ phase: name }) => name !== "idle").map(({ phase: name }) => name), ["connecting", "handshaking", "ready"]);
  const { serverKey, authenticated, features, sentence } = states.at(-1);
  assert.deepEqual([serverKey, authenticated, features], [hex(relay.key), true, 63]);
  assert.equal(sentence, sentenceOf(states.at(-1)));
});

for (const [address, isSafe] of [["wss://relay.test/", true], ["ws://127.0.0.1:8080/merk", true], ["ws://[::1]/", true], ["ws://relay.test/", false], ["ws://192.168.1.5/merk", false]]) {
  test(`a proof at ${address} ${isSafe ? "is told" : "is not told as safety: others could alter what follows"}`, () => {
    const sentence = sentenceOf({ phase: "ready", address, authenticated: true, features: 15, reason: null });
    assert.deepEqual([/proved its key/.test(sentence), /not encrypted/.test(sentence)], [isSafe, !isSafe]);
  });
}

test("an unreachable server is tried for ever, with growing waits", async () => {
  const { link, clock, relay } = await linked((it) => (it.isUp = false));
  const waits = [];
  for (let attempt = 1; attempt <= 12; attempt += 1) {
    await until(() => link.state.phase === "waiting" && link.state.attempt === attempt);
    waits.push(link.state.retryAtMs - clock.now());
    relay.isUp = attempt === 12;
    clock.advance(waits.at(-1));
  }
  assert.deepEqual(waits.slice(0, 8), [375, 750, 1_500, 3_000, 6_000, 12_000, 22_500, 22_500]);
  await phase(link, "ready");
  assert.equal(link.state.attempt, 0);
});

test("a page that becomes visible, or a network that returns, tries at once", async () => {
  for (const wake of [({ page }) => page.show(), ({ network }) => network.dispatchEvent(new Event("online")), ({ network }) => network.dispatchEvent(new Event("pageshow"))]) {
    const { link, relay, environment } = await linked((it) => (it.isUp = false));
    await phase(link, "waiting");
    relay.isUp = true;
    wake(environment);
    await phase(link, "ready");
  }
});

test("a page that is hidden tries no sooner", async () => {
  const { link, relay, environment } = await linked((it) => (it.isUp = false));
  await phase(link, "waiting");
  environment.page.show("hidden");
  await quiet();
  assert.deepEqual([link.state.phase, relay.sockets.length], ["waiting", 1]);
});

test("a timer that a hidden page delays for minutes still reconnects", async () => {
  const { link, relay, clock } = await ready();
  relay.restart();
  await phase(link, "waiting");
  clock.advance(600_000);
  await phase(link, "ready");
});

test("a visible page asks a silent server for life and reconnects when none comes in five seconds", async () => {
  const { link, relay, environment, clock } = await ready();
  relay.answersServers = false;
  environment.page.show();
  await until(() => relay.heard.some(({ frame }) => frame.kind === 3 && frame.payload[0] === 2));
  clock.advance(4_999);
  assert.equal(relay.sockets.length, 1);
  clock.advance(1);
  await until(() => relay.sockets.length === 2);
  await phase(link, "ready");
  assert.equal(relay.live.length, 1);
});

test("a server that shows life keeps the connection", async () => {
  const { link, relay, environment, clock } = await ready();
  environment.page.show();
  await until(() => relay.heard.some(({ frame }) => frame.payload[0] === 2));
  await quiet();
  clock.advance(20_000);
  assert.deepEqual([link.state.phase, relay.sockets.length], ["ready", 1]);
});

test("a connection on which nothing came for thirty seconds is asked, visible or not", async () => {
  const { relay, clock, link } = await ready();
  relay.answersServers = false;
  clock.advance(65_000);
  await until(() => relay.sockets.length === 2);
  await phase(link, "ready");
});

test("a connection that does not open within fifteen seconds is given up", async () => {
  const relay = await TestRelay.make();
  const environment = await completeEnvironment(environmentOf(relay, { socketFactory: () => ({ close() {}, send() {} }) }));
  const link = new sdk.Link({ keys, environment, pins: new ServerBook(environment.storage, false) });
  link.start(ADDRESS);
  await until(() => environment.clock.waits.includes(15_000));
  environment.clock.advance(15_000);
  assert.equal(link.state.phase, "waiting");
});

test("an address that the browser refuses to open waits like one that is unreachable", async () => {
  const relay = await TestRelay.make();
  const environment = await completeEnvironment(environmentOf(relay, { socketFactory: () => { throw new DOMException("no", "SecurityError"); } }));
  const link = new sdk.Link({ keys, environment, pins: new ServerBook(environment.storage, false) });
  link.start(ADDRESS);
  await phase(link, "waiting");
});

test("hostile challenges: three more tries, then the server is refused, and no bytes were signed", async () => {
  const { link, relay, clock } = await linked((it) => {
    it.onConnect = (socket) => socket.deliver(sdk.encodeFrame(1, new Uint8Array(32).fill(1)));
  });
  for (let attempt = 1; attempt <= 3; attempt += 1) {
    await until(() => link.state.phase === "waiting" && relay.sockets.length === attempt);
    clock.advance(30_000);
  }
  await phase(link, "refused");
  clock.advance(600_000);
  await quiet();
  assert.deepEqual([relay.sockets.length, relay.heard.length, link.state.reason], [4, 0, "hostile_challenge"]);
});

test("a server whose pinned key changed is refused at once, and taken again after its key is forgotten", async () => {
  const { link, relay, pins, clock } = await ready();
  await until(() => pins.pinOf(ADDRESS));
  relay.keys = await sdk.Keys.generate(keys.crypto);
  relay.restart();
  await phase(link, "waiting");
  clock.advance(30_000);
  await phase(link, "refused");
  assert.deepEqual([link.state.reason, relay.live.length], ["wrong_server", 0]);
  await pins.forgetPin(ADDRESS);
  link.start(ADDRESS);
  await phase(link, "ready");
  assert.deepEqual(await until(() => pins.pinOf(ADDRESS)), relay.key);
});

test("a server that proved its key once and stays silent later is not taken for an original relay", async () => {
  const { link, relay, clock, pins } = await ready();
  await until(() => pins.pinOf(ADDRESS));
  relay.saysHello = false;
  relay.restart();
  await phase(link, "waiting");
  clock.advance(1_000);
  await phase(link, "handshaking");
  await until(() => clock.waits.includes(2_000));
  clock.advance(2_000);
  await phase(link, "waiting");
  assert.equal(link.state.reason, "bad_peer_auth");
});

test("an original relay becomes ready unauthenticated, and tells no outcomes", async () => {
  const { link, clock, relay, pins } = await linked((it) => (it.saysHello = false));
  await until(() => clock.waits.includes(2_000));
  clock.advance(2_000);
  await phase(link, "ready");
  const outcome = await link.send(sdk.encodeFrame(2, relay.key, keys.signing.public));
  assert.deepEqual([link.state.authenticated, outcome.name, await pins.pinOf(ADDRESS)], [false, "untold", null]);
});

test("replaced by a newer connection of the identity it waits the longest time, or until the page is looked at", async () => {
  const { link, relay, environment } = await ready();
  relay.restart(4409);
  await phase(link, "waiting");
  assert.deepEqual([link.state.reason, link.state.retryAtMs - environment.clock.now()], ["replaced", 22_500]);
  environment.page.show();
  await phase(link, "ready");
});

test("each frame gets the outcome that the server tells, by its hash", async () => {
  const { link, relay } = await ready();
  const frame = sdk.encodeFrame(2, relay.key, keys.signing.public);
  const names = [];
  for (relay.code = 0; relay.code <= 7; relay.code += 1) {
    if (relay.code === 0) relay.clients.set(hex(relay.key), relay.live[0]);
    names.push((await link.send(Uint8Array.from([...frame.slice(0, 7), 33, ...frame.slice(8), relay.code]))).name);
  }
  assert.deepEqual(names, ["accepted", "unknown_target", "queue_full", "lookup_timeout", "too_large", "rate", "stored", "no_notice"]);
});

test("what was sent when the connection ends is lost, and said so; after thirty seconds nothing was told", async () => {
  const { link, relay, clock } = await ready((it) => (it.onContent = () => {}));
  const frame = sdk.encodeFrame(2, relay.key, keys.signing.public);
  const quietOne = link.send(frame);
  await until(() => relay.heard.some(({ frame: { kind } }) => kind === 2));
  relay.answersServers = true;
  clock.advance(30_000);
  assert.equal((await quietOne).name, "no_notice");
  const lost = link.send(frame);
  await until(() => relay.heard.filter(({ frame: { kind } }) => kind === 2).length === 2);
  relay.restart();
  assert.equal((await lost).name, "lost");
  assert.equal((await link.send(frame)).name, "not_connected");
});

test("the same frame sent twice gets two outcomes", async () => {
  const { link, relay } = await ready();
  const frame = sdk.encodeFrame(2, relay.key, keys.signing.public);
  assert.deepEqual((await Promise.all([link.send(frame), link.send(frame)])).map(({ name }) => name), ["unknown_target", "unknown_target"]);
});

test("frames leave in the order of the calls, whatever their size", async () => {
  const { link, relay } = await ready();
  const frames = [8_000_000, 10, 2_000_000, 1].map((count) => sdk.encodeFrame(2, new Uint8Array(32 + count), keys.signing.public));
  await Promise.all(frames.map((frame) => link.send(frame)));
  assert.deepEqual(relay.heard.filter(({ frame: { kind } }) => kind === 2).map(({ data }) => data.length), frames.map(({ length }) => length));
});

test("a frame that is too large, or a connection that does not keep up, is the caller's error", async () => {
  const { link, relay } = await ready();
  await assert.rejects(link.send(new Uint8Array(8_388_609)), sdk.LocalError);
  relay.live[0].bufferedAmount = 20_000_000;
  await assert.rejects(link.send(sdk.encodeFrame(2, relay.key)), sdk.LocalError);
});

test("the first key that a server proved is kept, whatever it proves later", async () => {
  const pins = new ServerBook(new sdk.MemoryStorage(), false);
  await pins.pin(ADDRESS, keys.signing.public);
  await pins.pin(ADDRESS, keys.agreement.public);
  assert.deepEqual(await pins.pinOf(ADDRESS), keys.signing.public);
});

test("stop lets go of the server, and nothing brings it back but start", async () => {
  const { link, relay, environment } = await ready();
  link.stop();
  environment.page.show();
  environment.clock.advance(600_000);
  await quiet();
  assert.deepEqual([link.state.phase, relay.live.length, relay.sockets.length], ["idle", 0, 1]);
  link.start(ADDRESS);
  await phase(link, "ready");
  link.close();
});

test("what is more than a server takes at once waits for its pace, in the order of the calls, and none is refused", async () => {
  const order = [];
  const { link, clock } = await ready((it) => (it.onContent = (socket, { payload }) => order.push(payload[32] * 256 + payload[33])));
  const sending = Array.from({ length: 1_000 }, (_, index) => link.send(sdk.encodeFrame(2, Uint8Array.of(...new Uint8Array(32), index >> 8, index & 255), keys.signing.public)));
  await until(() => order.length === FRAMES_AT_ONCE && clock.waits[0] < 50, "the burst");
  await until(() => {
    if (clock.waits[0] < 50) clock.advance(clock.waits[0]);
    return order.length === 1_000;
  }, "all");
  assert.deepEqual(order, Array.from({ length: 1_000 }, (_, index) => index));
  link.stop();
  assert.ok((await Promise.all(sending)).every(({ name }) => name === "lost"));
});

test("what waits for the pace is bounded", async () => {
  const { link } = await ready((it) => (it.onContent = () => {}));
  const frame = sdk.encodeFrame(2, new Uint8Array(32), keys.signing.public);
  const sending = Array.from({ length: QUEUED_MAX }, () => link.send(frame).catch((error) => error));
  await assert.rejects(link.send(frame), sdk.LocalError);
  link.stop();
  await Promise.all(sending);
});
