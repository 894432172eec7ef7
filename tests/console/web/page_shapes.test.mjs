// What the page makes of bytes and times, without a browser: QR codes, pictures, days, addresses.
import assert from "node:assert/strict";
import test from "node:test";

import { day, readHash, when } from "../../../src/waystation/console/web/page/format.js";
import { pictureType, PICTURE_BYTES_MAX } from "../../../src/waystation/console/web/page/pictures.js";
import { encodeQr } from "../../../src/waystation/console/web/page/qr.js";
import { stateOf, STATES } from "../../../src/waystation/console/web/page/words.js";

const bytes = (text) => Uint8Array.from(text, (sign) => sign.charCodeAt(0));

test("a QR code holds its text, padded as the standard says", () => {
  const { rows, size, version } = encodeQr("abc", { level: "L", mask: 1 });
  assert.deepEqual([size, version], [21, 1]);
  // Bits in their order from the lower right corner, the second mask taken off; only the first seven bytes, which lie right of column 12.
  let bits = "";
  for (const [right, isUpward] of [[20, true], [18, false], [16, true]]) {
    for (let step = 0; step < 12; step += 1) {
      const y = isUpward ? 20 - step : 9 + step;
      for (const x of [right, right - 1]) bits += Number(rows[y][x]) ^ Number(y % 2 === 0);
    }
  }
  const first = bits.match(/.{8}/g).slice(0, 7).map((each) => Number.parseInt(each, 2));
  assert.deepEqual(first, [0x40, 0x36, 0x16, 0x26, 0x30, 0xec, 0x11]);
});

test("a text of any length up to the standard's finds room, a longer one is refused", () => {
  assert.equal(encodeQr("x".repeat(2_331)).version, 40);
  assert.equal(encodeQr("x".repeat(2_332)), null);
  assert.equal(encodeQr("x".repeat(2_953), { level: "L" }).version, 40);
  assert.equal(encodeQr("").version, 1);
});

test("a picture is known by its first bytes, never by what it is called", () => {
  const known = { "\x89PNG\r\n\x1a\n": "image/png", "\xff\xd8\xff\xe0": "image/jpeg", GIF89a: "image/gif", "RIFF....WEBPVP8 ": "image/webp", "....ftypavif": "image/avif" };
  for (const [head, type] of Object.entries(known)) assert.equal(pictureType(bytes(head)), type);
  for (const head of ["", "<svg xmlns=", "<!doctype html>", "%PDF-1.7", "\x89PNG", "RIFF....WAVE"]) assert.equal(pictureType(bytes(head)), null, head);
  const large = new Uint8Array(PICTURE_BYTES_MAX + 1);
  large.set(bytes("GIF89a"));
  assert.equal(pictureType(large), null);
});

test("every outcome of the SDK has a state with words, a picture and a tone", () => {
  const names = ["accepted", "stored", "read", "unknown_target", "queue_full", "lookup_timeout", "too_large", "rate", "lost", "untold", "no_notice",
    "cancelled", "not_connected", "something new"];
  for (const name of names) assert.equal(STATES[stateOf(name)].length, 3, name);
  assert.equal(stateOf("unknown_target"), "failed");
  assert.equal(stateOf("something new"), "failed");
});

test("today and yesterday are called so, across midnight", () => {
  const now = new Date(2026, 2, 1, 0, 5).getTime();
  assert.equal(day(now, now), "Today");
  assert.equal(day(new Date(2026, 1, 28, 23, 55).getTime(), now), "Yesterday");
  assert.match(day(new Date(2020, 0, 1, 12).getTime(), now), /2020/);
  assert.equal(when(new Date(2026, 1, 28, 1).getTime(), now), "Yesterday");
});

test("an address says whom to write to, under which name, and as whom", () => {
  assert.deepEqual(readHash("#to=ab&name=Ada%20L"), { to: "ab", name: "Ada L", backup: "", as: "default" });
  assert.deepEqual(readHash("#as=second&backup=x_-"), { to: "", name: "", backup: "x_-", as: "second" });
  assert.equal(readHash("#as=../x").as, "default");
});
