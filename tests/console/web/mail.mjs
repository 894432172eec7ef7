// Run by pytest against a real node, over real sockets: node --experimental-websocket mail.mjs ws://node

import { sdk, until } from "./support.mjs";

const [address] = process.argv.slice(2);

/** Somebody with a storage; `take` is the program's listener. */
async function person(storage, take = () => {}) {
  const client = await sdk.MerkClient.open({ environment: { storage, locks: null } });
  client.on("message", take);
  await client.connect(address);
  await client.whenReady(10_000);
  return client;
}

const storage = new sdk.MemoryStorage();
const handed = [];
const bob = await person(storage);
const opened = (await bob.openMailbox()).state;
await bob.close();
const alice = await person(new sdk.MemoryStorage());
await until(() => alice.findKey(bob.id), "bob's key");

/** Sends until the node knows that Bob left. */
async function stored(send) {
  for (;;) {
    const sent = await send();
    const { name } = await sent.outcome;
    if (name === "stored") return sent;
  }
}

const sent = [await stored(() => alice.sendText(bob.id, "while away")), await alice.sendFile(bob.id, new Uint8Array(200_000).fill(7), { name: "a" })];
const outcomes = await Promise.all(sent.map(async ({ outcome }) => (await outcome).name));
// A program that keeps nothing: everything comes again.
const refusing = await person(storage, ({ id }) => { handed.push(["refused", id]); return Promise.reject(new Error("full")); });
await until(() => handed.length === 2, "the mail");
const waiting = refusing.mailbox.messages;
await refusing.close();
const back = await person(storage, async ({ id }) => { handed.push(["taken", id]); });
const reads = await Promise.all(sent.map(({ read }) => read));
await back.close();
const again = await person(storage, async ({ id }) => { handed.push(["again", id]); });
const { state, messages } = await again.openMailbox();
const closed = (await again.closeMailbox()).state;
console.log(JSON.stringify({ opened, outcomes, waiting, reads, handed, ids: sent.map(({ id }) => id), state, messages, closed }));
for (const client of [alice, again]) await client.close();
