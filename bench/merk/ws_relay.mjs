// A minimal MERK relay on the `ws` library, for bench/merk/__main__.py: challenge, confirmation, and frames handed on verbatim by
// their target. It believes every answer to a challenge, so that only forwarding is compared.
//
// Usage: node bench/merk/ws_relay.mjs FILE_BESIDE_NODE_MODULES
import { randomBytes } from "node:crypto";
import { createRequire } from "node:module";

const { WebSocketServer } = createRequire(process.argv[2])("ws");
const HEADER_BYTES = 120;
const HANDSHAKE = 1;
const NODE_INFO = 3;
const OWN_KEY = randomBytes(32);
const clients = new Map();

function frame(kind, payload, sender) {
  const bytes = Buffer.alloc(HEADER_BYTES + payload.length);
  bytes.set([0x58, 1, kind]);
  bytes.writeUInt32BE(payload.length, 4);
  if (sender) sender.copy(bytes, 24);
  payload.copy(bytes, HEADER_BYTES);
  return bytes;
}

function isFrame(data) {
  const whole = data.length >= HEADER_BYTES && data[0] === 0x58 && data[1] === 1;
  return whole && data.readUInt32BE(4) === data.length - HEADER_BYTES;
}

const server = new WebSocketServer({ host: "127.0.0.1", port: 0, perMessageDeflate: false });

server.on("connection", (socket) => {
  let key = null;
  socket.send(frame(HANDSHAKE, randomBytes(32)));
  socket.on("message", (data) => {
    if (!isFrame(data)) {
      socket.close(1002);
    } else if (data[2] === HANDSHAKE) {
      key = data.toString("latin1", 24, 56);
      clients.set(key, socket);
      socket.send(frame(HANDSHAKE, Buffer.of(1), OWN_KEY));
    } else if (data[2] !== NODE_INFO && data.toString("latin1", 24, 56) === key) {
      clients.get(data.toString("latin1", 120, 152))?.send(data);
    }
  });
  socket.on("close", () => clients.get(key) === socket && clients.delete(key));
});

server.on("listening", () => {
  console.log(JSON.stringify({ listeners: { merk: `ws://127.0.0.1:${server.address().port}/merk` } }));
});
