// A program in TypeScript against the package's declarations: it must compile, and each marked line must not.

import { LocalError, MemoryStorage, MerkClient, NoCryptoError, nodeInfo, TextStorage, type MerkClient as Client } from "waystation-merk";
import { FileStorage, nodeEnvironment } from "waystation-merk/node";

async function main(key: string): Promise<void> {
  const environment = await nodeEnvironment("./me");
  const client: Client = await MerkClient.open({ identity: "me", receipts: "manual", environment });
  const off: () => void = client.on("message", (message) => {
    const sender: string = message.sender;
    const text: string | undefined = message.text;
    const id: string = message.id;
    if (message.auth === "bound") client.confirm(message);
    console.log(sender, text, id);
    // @ts-expect-error There is no such level.
    if (message.auth === "sure") return;
  });
  client.on("receipt", ({ sender, ids }) => console.log(sender, ids.length));
  await client.connect("wss://relay.example/merk");
  const { id, outcome, read } = await client.sendText(key, "hello", { mode: "signed" });
  const { name, accepted } = await outcome;
  const isRead: boolean = await read;
  if (name === "stored" || accepted) console.log(id, isRead, client.mailbox.state);
  const reply = await client.ask(key, { json: { n: 1 } }, { timeoutMs: 5_000 });
  const answers: string | undefined = reply.answers;
  console.log(answers, (await client.answer(reply, "thanks")).id);
  // @ts-expect-error A number is no content.
  await client.ask(key, 7);
  await client.sendBytes(key, new Uint8Array(3));
  await client.sendBytes(key, new ArrayBuffer(3));
  await client.sendFile(key, new Blob(["x"]), { name: "x.txt", onProgress: ({ bytesDone }) => console.log(bytesDone) });
  // @ts-expect-error Text is no bytes.
  await client.sendBytes(key, "hello");
  // @ts-expect-error A number is no text.
  await client.sendText(key, 7);
  // @ts-expect-error There is no such mode.
  await client.sendText(key, "x", { mode: "secret" });
  // @ts-expect-error There is no such event.
  client.on("mesage", () => undefined);
  off();
  await client.close();
  const storages = [new MemoryStorage(), new TextStorage(localStorage), await FileStorage.open("./me")];
  console.log(storages.map(({ isPersistent }) => isPersistent), (await nodeInfo("https://relay.example")).securePage);
}

main("ab".repeat(32)).catch((error: unknown) => {
  if (error instanceof NoCryptoError) console.log(error.reason);
  else if (error instanceof LocalError) console.log(error.sentence);
});
