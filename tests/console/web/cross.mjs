// Run by pytest: opens frames that Python made, and makes frames for Python to open. JSON in, JSON out.

import { readFileSync } from "node:fs";
import { bytes, hex, keysOf, sdk } from "./support.mjs";

const given = JSON.parse(readFileSync(0, "utf8"));
const alice = await keysOf("alice");
const bob = await keysOf("bob");

/** Writes a content as JSON, bytes as hex. */
const plain = (value) => JSON.parse(JSON.stringify(value, (_, part) => (part instanceof Uint8Array ? hex(part) : part)));

/** Reads what `plain` wrote. */
function content(value) {
  const read = { ...value };
  for (const name of ["data", "messageId", "transferId", "digest", "to"]) if (name in read) read[name] = bytes(read[name]);
  if ("ids" in read) read.ids = read.ids.map(bytes);
  if ("content" in read) read.content = content(read.content);
  return read;
}

const opened = [];
for (const frame of given.frames) {
  const { sender, mode, auth, content: inside } = await sdk.openFrame(bob, sdk.decodeFrame(bytes(frame)));
  opened.push({ sender: hex(sender), mode, auth, content: plain(inside) });
}
const infos = given.infos.map((payload) => ({ info: plain(sdk.decodeInfo(bytes(payload))), again: hex(sdk.encodeInfo(sdk.decodeInfo(bytes(payload)))) }));
const target = bob.signing.public;
const made = [];
for (const said of given.contents.map(content)) {
  made.push(await sdk.signedFrame(alice, target, said, { headerSignature: false }), await sdk.signedFrame(alice, target, said));
  made.push(await sdk.encryptedFrame(alice, target, bob.agreement.public, said));
}
const advert = sdk.encodeInfo(await sdk.makeAdvert(alice, 1_700_000_000_000));
const presence = await sdk.makePresence(alice, 1, new Uint8Array(32).fill(0x6e), 1_700_000_000_000, 1_700_000_600_000);
const said = sdk.encodeInfo({ type: "presence", ...presence });
console.log(JSON.stringify({ opened, infos, made: made.map(hex), advert: hex(advert), presence: hex(said) }));
