// Run by pytest against two linked nodes, over real sockets: node --experimental-websocket live.mjs ws://first ws://second

import { collect, sdk, until } from "./support.mjs";

const [first, second] = process.argv.slice(2);

async function person(address) {
  const client = await sdk.MerkClient.open({ environment: { storage: new sdk.MemoryStorage(), locks: null } });
  await client.connect(address);
  await client.whenReady(10_000);
  return { client, messages: collect(client, "message"), dropped: collect(client, "dropped") };
}

const alice = await person(first);
const bob = await person(second);
const key = await until(() => alice.client.findKey(bob.client.id), "bob's key");
const data = Uint8Array.from({ length: 1_000_000 }, (_, index) => (index * 31) % 256);
const outcomes = [];
const readOf = [];
for (const sent of [
  await alice.client.sendText(bob.client.id, "héllo"),
  await alice.client.sendJson(bob.client.id, { a: 1 }, { mode: "signed" }),
  await alice.client.sendBytes(bob.client.id, Uint8Array.of(1, 2), { mode: "plain" }),
  await alice.client.sendFile(bob.client.id, data, { name: "büro.bin" }),
  await alice.client.sendText("ab".repeat(32), "nobody", { mode: "signed" }),
]) {
  outcomes.push((await sent.outcome).name);
  readOf.push({ id: sent.id, read: sent.read });
}
await until(() => bob.messages.length === 4, "four messages");
// The text and the file were encrypted, so that their receipts come; both sides name them alike.
const reads = [await readOf[0].read, await readOf[1].read, await readOf[3].read];
const isIdShared = [readOf[0], readOf[3]].every(({ id }) => bob.messages.some((message) => message.id === id));
await until(async () => (await alice.client.askServers()).length > 0, "servers");
const file = bob.messages.find(({ kind }) => kind === "file");
console.log(
  JSON.stringify({
    outcomes,
    reads,
    isIdShared,
    messages: bob.messages.map(({ kind, mode, auth, text, name, bytes: size, sender }) => ({ kind, mode, auth, text, name, bytes: size, isAlice: sender === alice.client.id })),
    isFileWhole: Buffer.compare(file.data, data) === 0,
    isKeyRight: key.agreementKey === bob.client.agreementKey,
    states: [alice, bob].map(({ client: { state } }) => ({ phase: state.phase, authenticated: state.authenticated, serverKey: state.serverKey })),
    dropped: [...alice.dropped, ...bob.dropped],
  }),
);
for (const { client } of [alice, bob]) await client.close();
