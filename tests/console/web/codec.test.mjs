// Frames, NODE_INFO and contents: round trip, truncation at every byte, lengths that lie, junk behind.

import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, hex, native, sdk } from "./support.mjs";

const KEY = new Uint8Array(32).fill(7);
const OTHER = new Uint8Array(32).fill(9);
const SIGNATURE = new Uint8Array(64).fill(3);

const INFOS = [
  { type: "request_servers" },
  { type: "servers", entries: [] },
  { type: "servers", entries: [{ key: KEY, address: "ws://a" }, { key: OTHER, address: "wss://ü.example/merk" }] },
  { type: "add_server", address: "ws://a" },
  { type: "query_client", key: KEY },
  { type: "client_found", key: KEY, server: OTHER },
  { type: "client_absent", key: KEY },
  { type: "hello", features: 0xffffffff, role: 1, key: KEY, nonce: OTHER, address: "" },
  { type: "hello", features: 7, role: 0, key: KEY, nonce: OTHER, address: "ws://me" },
  { type: "auth", signature: SIGNATURE },
  { type: "delivery", code: 3, target: KEY, frameHash: new Uint8Array(16).fill(1) },
  { type: "key_advert", key: KEY, agreementKey: OTHER, timeMs: 1_700_000_000_123, signature: SIGNATURE },
  { type: "key_query", key: KEY },
  { type: "key_unknown", key: KEY },
];

const PART = { kind: "file_part", transferId: new Uint8Array(16).fill(2), digest: KEY, index: 1, count: 3, totalBytes: 9, name: "ä.bin", data: Uint8Array.of(1, 2) };
const SIMPLE = [
  { kind: "raw", data: Uint8Array.of(1, 2, 3) },
  { kind: "text", text: "héllo" },
  { kind: "json", text: '{"a":[1,2]}' },
  { kind: "file", name: "a.bin", data: Uint8Array.of(0, 255) },
  { kind: "file", name: "", data: new Uint8Array() },
];
const EXTENDED = [...SIMPLE, PART].map((content) => ({ kind: "extended", timeMs: 1_700_000_000_123, messageId: new Uint8Array(16).fill(4), content }));

const malformed = (refusal) => (error) => error instanceof sdk.MalformedError && error.refusal === refusal;

test("a frame cut off at any byte is refused", () => {
  const frame = sdk.encodeFrame(2, KEY, KEY, SIGNATURE);
  for (let length = 0; length < frame.length; length += 1) {
    assert.throws(() => sdk.decodeFrame(frame.slice(0, length)), malformed(length < 120 ? "short" : "bad_length"), `${length} bytes`);
  }
});

test("a frame with a byte too many, another magic or version is refused", () => {
  const frame = sdk.encodeFrame(2, KEY);
  const changed = (index, value) => frame.map((byte, at) => (at === index ? value : byte));

  assert.throws(() => sdk.decodeFrame(bytes(`${hex(frame)}00`)), malformed("bad_length"));
  assert.throws(() => sdk.decodeFrame(changed(0, 0x59)), malformed("bad_magic"));
  assert.throws(() => sdk.decodeFrame(changed(1, 2)), malformed("bad_version"));
  assert.throws(() => sdk.decodeFrame(changed(4, 255)), malformed("bad_length"));
});

test("reserved bytes are ignored on receipt and covered by the header signature", () => {
  const frame = sdk.encodeFrame(2, KEY);
  frame[3] = 1;
  frame[20] = 1;

  assert.deepEqual(sdk.decodeFrame(frame).header56, frame.slice(0, 56));
});

test("a frame is read from the middle of a larger buffer", () => {
  const frame = sdk.encodeFrame(2, KEY, OTHER);
  const large = new Uint8Array(frame.length + 20);
  large.set(frame, 10);

  assert.deepEqual(sdk.decodeFrame(large.subarray(10, 10 + frame.length)).payload, KEY);
});

test("a frame's hash is the first half of its SHA-256", async () => {
  assert.equal(hex(await sdk.frameHash(native, new TextEncoder().encode("abc"))), "ba7816bf8f01cfea414140de5dae2223");
});

for (const info of INFOS) {
  const name = `${info.type} ${hex(sdk.encodeInfo(info)).slice(0, 12)}`;

  test(`${name}: round trip`, () => {
    assert.deepEqual(sdk.decodeInfo(sdk.encodeInfo(info)), info);
  });

  test(`${name}: cut off or lengthened it is refused or something else, never itself`, () => {
    const payload = sdk.encodeInfo(info);
    for (let length = 1; length < payload.length; length += 1) {
      const cut = payload.slice(0, length);
      if (info.type === "servers" && length >= 3) assert.ok(sdk.decodeInfo(cut).entries.length < info.entries.length);
      else if (info.type === "key_unknown" && length === 33) assert.equal(sdk.decodeInfo(cut).type, "key_query");
      else assert.throws(() => sdk.decodeInfo(cut), malformed("malformed_info"), `${length} bytes`);
    }
    if (info.type === "key_query") assert.equal(sdk.decodeInfo(bytes(`${hex(payload)}00`)).type, "key_unknown");
    else assert.throws(() => sdk.decodeInfo(bytes(`${hex(payload)}00`)), malformed("malformed_info"));
  });
}

test("subtypes and HELLO versions that nobody knows are no error", () => {
  for (const payload of ["", "00", "01ff", "07", "83", "86", "ff00", "8002"]) assert.equal(sdk.decodeInfo(bytes(payload)), null);
});

test("values that a subtype does not have are refused", () => {
  const key = hex(KEY);
  const hello = sdk.encodeInfo(INFOS[7]);
  hello[6] = 2;
  for (const payload of [hex(hello), `0602${key}`, `0601${key}`, `0600${key}${key}`, `85${key}01`, "0400", "0401ff", `030001${key}00`, `030001${key}01ff`]) {
    assert.throws(() => sdk.decodeInfo(bytes(payload)), malformed("malformed_info"), payload);
  }
});

test("a list of servers is read up to the 1,024th", () => {
  const entries = Array.from({ length: 1_025 }, () => ({ key: KEY, address: "ws://a" }));
  assert.equal(sdk.decodeInfo(sdk.encodeInfo({ type: "servers", entries })).entries.length, 1_024);
});

test("an address over 255 bytes is the caller's error", () => {
  assert.throws(() => sdk.encodeInfo({ type: "add_server", address: "ü".repeat(128) }), sdk.LocalError);
});

for (const content of [...SIMPLE, ...EXTENDED]) {
  const inner = content.content ?? content;

  test(`${content.kind} ${inner.kind} ${inner.name ?? ""}: round trip`, () => {
    assert.deepEqual(sdk.decodeContent(sdk.encodeContent(content)), content);
  });
}

test("type 0x10 cut off within its fixed part is refused", () => {
  for (const content of EXTENDED) {
    const whole = sdk.encodeContent(content);
    for (let length = 0; length < 26; length += 1) assert.throws(() => sdk.decodeContent(whole.slice(0, length)), malformed("bad_content"));
  }
  const part = sdk.encodeContent(EXTENDED.at(-1));
  for (let length = 26; length < part.length - 2; length += 1) assert.throws(() => sdk.decodeContent(part.slice(0, length)), malformed("bad_content"), `${length}`);
});

test("the layout of type 0x10 is time, id, kind, body", () => {
  const text = { kind: "extended", timeMs: 258, messageId: new Uint8Array(16).fill(4), content: { kind: "text", text: "hi" } };
  const part = { ...text, content: PART };

  assert.equal(hex(sdk.encodeContent(text)), `100000000000000102${"04".repeat(16)}016869`);
  assert.equal(
    hex(sdk.encodeContent(part)),
    `100000000000000102${"04".repeat(16)}04${"02".repeat(16)}${"07".repeat(32)}00000001000000030000000000000009${"06c3a42e62696e"}0102`,
  );
});

test("contents that are not what they say are refused", () => {
  const id = "04".repeat(16);
  const partHead = `100000000000000102${id}04${"02".repeat(16)}${"07".repeat(32)}`;
  const cases = {
    "unknown type": "04",
    "unknown kind in 0x10": `100000000000000102${id}05`,
    "0x10 in 0x10": `100000000000000102${id}10`,
    "text that is no UTF-8": "01ff",
    "JSON that is none": "027b",
    "a file's name beyond the end": "030561",
    "a name that is no UTF-8": "0301ff",
    "part 3 of 3": `${partHead}0000000300000003000000000000000900`,
    "no parts at all": `${partHead}0000000000000000000000000000000900`,
    "more data than the file": `${partHead}0000000000000001000000000000000100aabb`,
    "a file over 1 TiB": `${partHead}0000000000000001000001000000000100aa`,
    "a size beyond what numbers hold": `${partHead}0000000000000001ffffffffffffffff00aa`,
  };
  for (const [name, text] of Object.entries(cases)) assert.throws(() => sdk.decodeContent(bytes(text)), malformed("bad_content"), name);
});

test("signed raw bytes have no type byte, and are refused where they would be read as typed", () => {
  assert.deepEqual(sdk.encodeSignedContent({ kind: "raw", data: Uint8Array.of(0, 1) }), Uint8Array.of(0, 1));
  assert.deepEqual(sdk.decodeSignedContent(Uint8Array.of(0, 1)), { kind: "raw", data: Uint8Array.of(0, 1) });
  assert.deepEqual(sdk.decodeSignedContent(new Uint8Array()), { kind: "raw", data: new Uint8Array() });
  const mistakable = [[1], [2], [3], [16], new Array(32).fill(0), new TextEncoder().encode("merk-keys/1")];
  for (const data of mistakable) assert.throws(() => sdk.encodeSignedContent({ kind: "raw", data: Uint8Array.from(data) }), sdk.LocalError, `${data}`);
});

test("signed bytes that only begin like type 0x10 are raw, those that begin like the others are refused", () => {
  assert.deepEqual(sdk.decodeSignedContent(Uint8Array.of(16, 1)), { kind: "raw", data: Uint8Array.of(16, 1) });
  assert.throws(() => sdk.decodeSignedContent(Uint8Array.of(2, 1)), malformed("bad_content"));
});

test("text that has no UTF-8, and JSON that is none, are the caller's errors", () => {
  for (const content of [{ kind: "text", text: "\ud800" }, { kind: "json", text: "{" }, { kind: "json", text: "NaN" }, { kind: "file", name: "\ud800", data: new Uint8Array() }]) {
    assert.throws(() => sdk.encodeContent(content), sdk.LocalError);
  }
});

test("a file's name over 255 bytes is the caller's error", () => {
  assert.throws(() => sdk.encodeContent({ kind: "file", name: "ä".repeat(128), data: new Uint8Array() }), sdk.LocalError);
});

test("hex and keys are shown and read in one way", () => {
  assert.equal(hex(bytes("00FFa1")), "00ffa1");
  assert.equal(sdk.shortKey("d04ab232742bb4ab3a1368bd4615e4e6d0224ab71a016baf8520a332c9778737"), "d04ab232…8737");
  for (const text of ["0", "zz", "00 ", 7]) assert.throws(() => sdk.fromHex(text), sdk.LocalError);
  assert.throws(() => sdk.fromHex("00", 2), sdk.LocalError);
});
