"""A relay and a client that behave as the first implementation of MERK-BREP was seen to, on the `websockets` library.

Nothing here comes from waystation: headers are packed by `struct`, keys and ciphers are those of `cryptography`. So
what both sides take for the protocol has two witnesses. The faults of the original are kept on purpose (specs/merk.md
0 and 2 to 6): a relay strips the target on delivery, forgets type and signature, believes whoever answers, never
forgets a client, and cannot link with its like unless it is ``mended``.
"""

import asyncio
import contextlib
import functools
import hashlib
import json
import os
import struct

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

HEADER = struct.Struct(">BBBxI16x32s64s")
HANDSHAKE, DATA, NODE_INFO, SIGNED_DATA, ENCRYPTED_DATA = 1, 2, 3, 4, 5
RAW, TEXT, JSON, FILE = 0, 1, 2, 3
REQUEST_SERVERS, RESPONSE_SERVERS, ADD_SERVER, QUERY_CLIENT, QUERY_RESPONSE = 2, 3, 4, 5, 6
NO_KEY, NO_SIGNATURE = bytes(32), bytes(64)
FRAME_BYTES_MAX = 100 * 2**20
QUERY_S = 5.0


def in_a_loop(test):
    """Make a test of an async function, with a loop of its own."""

    @functools.wraps(test)
    def run(*arguments, **named):
        asyncio.run(test(*arguments, **named))

    return run


def pack(kind, payload, sender=NO_KEY, signature=NO_SIGNATURE):
    """Return a frame."""
    return HEADER.pack(0x58, 1, kind, len(payload), sender, signature) + payload


def unpack(data):
    """Return kind, sender, signature and payload; trailing bytes, version and reserved bytes are nobody's business."""
    data = data.encode() if isinstance(data, str) else data
    if len(data) < HEADER.size or data[0] != 0x58:
        raise ValueError("no frame")
    _, _, kind, size, sender, signature = HEADER.unpack_from(data)
    if size > len(data) - HEADER.size:
        raise ValueError("cut off")
    return kind, sender, signature, data[HEADER.size : HEADER.size + size]


def signed_by(key, signature, message):
    """Return whether the holder of ``key`` signed ``message``."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


class Person:
    """Two key pairs of one identity."""

    def __init__(self, seed, agreement_secret=None):
        self._signing = Ed25519PrivateKey.from_private_bytes(seed)
        self._agreement = X25519PrivateKey.from_private_bytes(agreement_secret or hashlib.sha256(seed).digest())
        self.key = self._signing.public_key().public_bytes_raw()
        self.agreement_key = self._agreement.public_key().public_bytes_raw()

    def sign(self, message):
        """Return a signature."""
        return self._signing.sign(message)

    def data(self, target, content):
        """Return a DATA frame; its content has no type byte."""
        return pack(DATA, target + content, self.key)

    def signed(self, target, kind, body):
        """Return a SIGNED_DATA frame: only the content is signed, and RAW content has no type byte."""
        content = body if kind == RAW else bytes((kind,)) + body
        return pack(SIGNED_DATA, target + self.sign(content) + content, self.key)

    def encrypted(self, target, agreement_key, kind, body, *, whole=False):
        """Return an ENCRYPTED_DATA frame; the original signs it without the target, a mended one the ``whole``."""
        ephemeral, nonce = X25519PrivateKey.generate(), os.urandom(12)
        shared = ephemeral.exchange(X25519PublicKey.from_public_bytes(agreement_key))
        hidden = AESGCM(hashlib.sha256(shared).digest()).encrypt(nonce, bytes((kind,)) + body, None)
        package = ephemeral.public_key().public_bytes_raw() + nonce + hidden
        signature = self.sign(target + package if whole else package)
        return pack(ENCRYPTED_DATA, target + package, self.key, signature)

    def opened(self, package):
        """Return kind and body of what follows the target in an ENCRYPTED_DATA payload."""
        shared = self._agreement.exchange(X25519PublicKey.from_public_bytes(package[:32]))
        content = AESGCM(hashlib.sha256(shared).digest()).decrypt(package[32:44], package[44:], None)
        return content[0], content[1:]


def file_body(name, data):
    """Return the body of FILE content."""
    return bytes((len(name.encode()),)) + name.encode() + data


class _Link:
    """One connection of a relay."""

    def __init__(self, connection, challenge, *, dialled):
        self.connection = connection
        self.dialled = dialled
        self.challenge = challenge
        self.key = None
        self.is_server = False

    async def say(self, *frame):
        """Send a frame; a connection that is gone swallows it."""
        with contextlib.suppress(ConnectionClosed):
            await self.connection.send(pack(*frame))


class OriginalRelay:
    """The original relay; ``mended`` has the one line that lets two of them link as they were meant to.

    Its challenges are random but for their beginning: one in sixty of the original's reads as signed content, and
    whoever is careful hangs up then.
    """

    def __init__(self, seed, *, mended=False, challenge_begins=b"\x80"):
        self.person = Person(seed)
        self.key = self.person.key
        self.clients = {}
        self.servers = {}
        self.addresses = {}
        """Addresses of servers that others told of, by key."""
        self.dialled = []
        self.infos = []
        """First payload byte of every NODE_INFO that came, in order."""
        self.queries = []
        """Keys that others asked for."""
        self._mended = mended
        self._challenge_begins = challenge_begins
        self._pending = {}
        self._tasks = set()

    async def __aenter__(self):
        self._server = await serve(self._accept, "127.0.0.1", 0, max_size=FRAME_BYTES_MAX)
        self.url = f"ws://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        for _, timer in self._pending.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._server.close()
        await self._server.wait_closed()

    def dial(self, url):
        """Connect to another relay, once."""
        self.dialled.append(url)
        self._tasks.add(asyncio.get_running_loop().create_task(self._dial(url)))

    async def _dial(self, url):
        with contextlib.suppress(OSError, ConnectionClosed):
            async with connect(url, max_size=FRAME_BYTES_MAX) as connection:
                await self._talk(self._link(connection, dialled=True))

    async def _accept(self, connection):
        await self._talk(self._link(connection, dialled=False))

    def _link(self, connection, *, dialled):
        begins = self._challenge_begins
        return _Link(connection, begins + os.urandom(32 - len(begins)), dialled=dialled)

    async def _talk(self, link):
        await link.say(HANDSHAKE, link.challenge)
        with contextlib.suppress(ConnectionClosed):
            async for data in link.connection:
                try:
                    frame = unpack(data)
                except ValueError:
                    break
                if not await self._dispatch(link, *frame):
                    break
            await link.connection.close(code=None)

    async def _dispatch(self, link, kind, sender, signature, payload):
        """Return whether the connection may stay."""
        if kind == HANDSHAKE:
            return await self._on_handshake(link, sender, signature, payload)
        if link.key is None:
            return False
        if kind == NODE_INFO and payload:
            self.infos.append(payload[0])
            await self._on_info(link, payload)
        elif kind in (DATA, SIGNED_DATA, ENCRYPTED_DATA) and len(payload) >= 32:
            await self._on_data(sender, payload)
        return True

    async def _on_handshake(self, link, sender, signature, payload):
        if len(payload) == 1:
            return payload == b"\x01"
        if len(payload) != 32:
            return False
        if self._mended and signature == NO_SIGNATURE:
            await link.say(HANDSHAKE, payload, self.key, self.person.sign(payload))
            return True
        if not signed_by(sender, signature, payload) or payload != link.challenge:
            return False
        link.challenge, link.key = None, sender
        await self._store(link)
        await link.say(HANDSHAKE, b"\x01", self.key)
        return True

    async def _store(self, link):
        if link.dialled or link.key in self.addresses:
            link.is_server = True
            self.servers[link.key] = link
            return
        old, self.clients[link.key] = self.clients.get(link.key), link
        if old is not None:
            await old.connection.close(code=None)

    async def _on_data(self, sender, payload):
        target = payload[:32]
        if target in self.clients:
            await self.clients[target].say(DATA, payload[32:], sender)
        elif target not in self._pending:
            timer = asyncio.get_running_loop().call_later(QUERY_S, self._pending.pop, target, None)
            self._pending[target] = ((sender, payload), timer)
            for server in list(self.servers.values()):
                await server.say(NODE_INFO, bytes((QUERY_CLIENT,)) + target, self.key)

    async def _on_info(self, link, payload):
        kind, body = payload[0], payload[1:]
        if kind == REQUEST_SERVERS:
            await link.say(NODE_INFO, self._server_list(), self.key)
        elif kind == RESPONSE_SERVERS and link.is_server:
            self._on_servers(body)
        elif kind == ADD_SERVER:
            self.dial(body[1 : 1 + body[0]].decode())
        elif kind == QUERY_CLIENT:
            self.queries.append(body[:32])
            found = body[:32] in self.clients
            answer = bytes((QUERY_RESPONSE, found)) + body[:32] + (self.key if found else b"")
            await link.say(NODE_INFO, answer, self.key)
        elif kind == QUERY_RESPONSE:
            await self._on_answer(body)

    def _server_list(self):
        entries = [key + bytes((len(url),)) + url.encode() for key, url in self.addresses.items()]
        return bytes((RESPONSE_SERVERS,)) + struct.pack(">H", len(entries)) + b"".join(entries)

    def _on_servers(self, body):
        count, at = int.from_bytes(body[:2], "big"), 2
        for _ in range(count):
            key, size = body[at : at + 32], body[at + 32]
            url, at = body[at + 33 : at + 33 + size].decode(), at + 33 + size
            if key not in self.addresses and key != self.key:
                self.addresses[key] = url
                self.dial(url)

    async def _on_answer(self, body):
        waiting, timer = self._pending.pop(body[1:33], (None, None))
        if waiting is None:
            return
        timer.cancel()
        sender, payload = waiting
        if body[0] and body[33:65] in self.servers:
            await self.servers[body[33:65]].say(DATA, payload, sender)


class OriginalClient:
    """The original client: one connection to one relay."""

    def __init__(self, url, person):
        self.url = url
        self.person = person
        self.key = person.key
        self.arrived = asyncio.Queue()
        """Sender, kind and body of each message that it believes."""
        self.complaints = []
        self.server_lists = asyncio.Queue()
        self.added = []
        self.relay_key = None
        self.challenges_count = 0

    async def __aenter__(self):
        self._connected = asyncio.get_running_loop().create_future()
        self.connection = await connect(self.url, max_size=FRAME_BYTES_MAX)
        self._reading = asyncio.get_running_loop().create_task(self._read())
        await asyncio.wait_for(self._connected, QUERY_S)
        return self

    async def __aexit__(self, *_):
        await self.connection.close()
        await self._reading

    async def say(self, frame):
        """Send a whole frame."""
        await self.connection.send(frame)

    async def say_text(self, target, text):
        """Send signed text."""
        await self.say(self.person.signed(target, TEXT, text.encode()))

    async def say_json(self, target, value):
        """Send signed JSON."""
        await self.say(self.person.signed(target, JSON, json.dumps(value).encode()))

    async def say_file(self, target, name, data):
        """Send a signed file."""
        await self.say(self.person.signed(target, FILE, file_body(name, data)))

    async def ask_servers(self):
        """Ask for the relay's list and return it as {key: address}."""
        await self.say(pack(NODE_INFO, bytes((REQUEST_SERVERS,)), self.key))
        return await asyncio.wait_for(self.server_lists.get(), QUERY_S)

    async def next(self):
        """Return sender, kind and body of the next message."""
        return await asyncio.wait_for(self.arrived.get(), QUERY_S)

    async def closed(self):
        """Wait for the end and return its code."""
        await asyncio.wait_for(self._reading, QUERY_S)
        return self.connection.close_code

    async def _read(self):
        with contextlib.suppress(ConnectionClosed):
            async for data in self.connection:
                try:
                    await self._on_frame(*unpack(data))
                except ValueError as error:
                    self.complaints.append(str(error))
        if not self._connected.done():
            self._connected.set_exception(ConnectionError(f"closed with {self.connection.close_code}"))

    async def _on_frame(self, kind, sender, signature, payload):
        if kind == HANDSHAKE and signature == NO_SIGNATURE:
            await self._on_handshake(sender, payload)
        elif kind == DATA:
            self.arrived.put_nowait((sender, RAW, payload[32:]))
        elif kind == SIGNED_DATA:
            self._on_signed(sender, payload[32:96], payload[96:])
        elif kind == ENCRYPTED_DATA:
            self._on_encrypted(sender, signature, payload)
        elif kind == NODE_INFO and payload[:1] == bytes((RESPONSE_SERVERS,)):
            self.server_lists.put_nowait(dict(_entries(payload[3:])))
        elif kind == NODE_INFO and payload[:1] == bytes((ADD_SERVER,)):
            self.added.append(payload[2:].decode())

    async def _on_handshake(self, sender, payload):
        if len(payload) == 32:
            self.challenges_count += 1
            await self.say(pack(HANDSHAKE, payload, self.key, self.person.sign(payload)))
        elif payload == b"\x01" and not self._connected.done():
            self.relay_key = sender
            self._connected.set_result(None)

    def _on_signed(self, sender, signature, content):
        if not signed_by(sender, signature, content):
            raise ValueError("invalid signature")
        typed = content[:1] in (b"\x01", b"\x02", b"\x03")
        self.arrived.put_nowait((sender, content[0], content[1:]) if typed else (sender, RAW, content))

    def _on_encrypted(self, sender, signature, payload):
        if not signed_by(sender, signature, payload):
            raise ValueError("invalid signature")
        self.arrived.put_nowait((sender, *self.person.opened(payload[32:])))


def _entries(body):
    at = 0
    while at + 33 <= len(body):
        size = body[at + 32]
        yield body[at : at + 32], body[at + 33 : at + 33 + size].decode()
        at += 33 + size
