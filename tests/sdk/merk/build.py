"""MERK relays for SDK tests, served by the `websockets` library.

``RelayServer`` is the node's own machine, ``OriginalServer`` does what the original relay does to frames,
``ScriptedServer`` says only what a test tells it to.
"""

import asyncio
import contextlib
import random
import time

from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from tests.protocols.merk.build import ALICE, BOB, CAROL, NODE, OTHER_NODE, as_original_relays
from waystation.core.effects import Close, Commit, Peer, Send
from waystation.core.instant import Instant
from waystation.protocols.merk import wire
from waystation.protocols.merk.messages import CONFIRMATION, InfoType, MessageType
from waystation.protocols.merk.relay.machine import MerkRelay
from waystation.protocols.merk.settings import MerkSettings
from waystation.sdk.merk import MerkClient
from waystation.store.memory import MemoryStore

__all__ = ["ALICE", "BOB", "CAROL", "NODE", "OTHER_NODE", "OriginalServer", "RelayServer", "ScriptedServer", "client"]

NOWHERE = "ws://127.0.0.1:1/merk"
QUICK = {"retry_first_s": 0.01, "retry_cap_s": 0.05}


def client(relay, keys=ALICE, **options):
    """Return a client of one server that does not wait long between connections."""
    urls = options.pop("urls", None)
    return MerkClient(relay.url if urls is None else urls, keys=keys, **QUICK, **options)


class _Server:
    """A port, and who is connected to it."""

    def __init__(self, port=0):
        self._port = port
        self.connections = {}
        self.connects_count = 0

    async def __aenter__(self):
        self._server = await serve(self._serve, "127.0.0.1", self._port, max_size=2**26, compression=None)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()
        await self._server.wait_closed()

    @property
    def url(self):
        """Where clients connect."""
        return f"ws://127.0.0.1:{self._port}/merk"

    @property
    def port(self):
        """The port, for another server to take over."""
        return self._port

    async def cut(self, status=1001):
        """Close every connection."""
        for connection in list(self.connections.values()):
            await connection.close(status)

    async def _serve(self, connection):
        self.connects_count += 1
        peer = Peer(self.connects_count)
        self.connections[peer] = connection
        try:
            with contextlib.suppress(ConnectionClosed):
                await self.talk(peer, connection)
        finally:
            del self.connections[peer]


class RelayServer(_Server):
    """The real relay machine."""

    def __init__(self, key=NODE, *, port=0, rate_limits=False, **settings):
        super().__init__(port)
        store = MemoryStore()
        self.relay = MerkRelay(MerkSettings(**settings), key, store, random.Random(1), rate_limits=rate_limits)
        self.relay.set_wall(self.now, time.time_ns() // 1_000)
        self._store = store
        self._queues = {}
        self._timer = None
        self.frames = []
        """Every frame that came in."""
        self._handled = asyncio.Event()
        self.hold = asyncio.Event()
        """While it is cleared, nothing is handed to the machine."""
        self.hold.set()

    async def __aexit__(self, *details):
        if self._timer is not None:
            self._timer.cancel()
        await super().__aexit__(*details)

    @property
    def now(self):
        """The monotonic clock."""
        return Instant(time.monotonic_ns() // 1_000)

    def of_kind(self, kind):
        """Return the frames of a type that came in."""
        return [frame for frame in self.frames if frame[2] == kind]

    async def until_proved(self, count):
        """Wait until the machine has had so many proofs of clients' keys: only then can those clients be reached."""
        while sum(frame[120] == InfoType.AUTH for frame in self.of_kind(MessageType.NODE_INFO)) < count:
            self._handled.clear()
            await self._handled.wait()

    async def talk(self, peer, connection):
        self._queues[peer] = asyncio.Queue()
        writing = asyncio.create_task(self._write(peer, connection))
        self.relay.connect(peer, self.now, "127.0.0.1")
        self._settle()
        try:
            async for message in connection:
                await self.hold.wait()
                self.frames.append(message)
                self.relay.receive(peer, message, self.now)
                self._settle()
                self._handled.set()
        finally:
            self.relay.disconnect(peer, self.now)
            self._settle()
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            del self._queues[peer]

    async def _write(self, peer, connection):
        while True:
            effect = await self._queues[peer].get()
            if isinstance(effect, Close):
                await connection.close(effect.status or 1000)
                return
            await connection.send(effect.data)
            if self._queues[peer].empty():
                self.relay.drained(peer, self.now)
                self._settle()

    def _settle(self):
        while effects := self.relay.take():
            for effect in effects:
                if isinstance(effect, Send | Close) and effect.peer in self._queues:
                    self._queues[effect.peer].put_nowait(effect)
                elif isinstance(effect, Commit):
                    self._store.commit(effect.changes)
                    self.relay.committed(effect.ticket, self.now)
        if self._timer is not None:
            self._timer.cancel()
        due = self.relay.deadline()
        wait_s = None if due is None else max(0.0, (due - self.now) / 1e6)
        self._timer = None if wait_s is None else asyncio.get_running_loop().call_later(wait_s, self._wake)

    def _wake(self):
        self._timer = None
        self.relay.wake(self.now)
        self._settle()


class OriginalServer(_Server):
    """What an original relay does: no extensions, and every frame arrives as DATA without its target."""

    def __init__(self, *, verbatim=False):
        super().__init__()
        self._clients = {}
        self._verbatim = verbatim

    async def talk(self, peer, connection):
        challenge = b"\x80" + bytes(31)
        await connection.send(wire.encode_frame(MessageType.HANDSHAKE, challenge))
        answer = wire.decode_frame(await connection.recv())
        self._clients[answer.sender] = connection
        await connection.send(wire.encode_frame(MessageType.HANDSHAKE, CONFIRMATION, sender=NODE.public))
        async for data in connection:
            target = self._clients.get(wire.target_of(data))
            if data[2] != MessageType.NODE_INFO and target is not None:
                await target.send(data if self._verbatim else as_original_relays(data))


class ScriptedServer(_Server):
    """Sends ``greeting``, then for each message what ``script(frame)`` returns; counts what clients answer."""

    def __init__(self, greeting=(), script=lambda _frame: (), close=None):
        super().__init__()
        self.greeting = greeting
        self.script = script
        self.close = close
        self.got = []

    async def talk(self, peer, connection):
        for frame in self.greeting:
            await connection.send(frame)
        if self.close is not None:
            await connection.close(self.close)
        async for data in connection:
            frame = wire.decode_frame(data)
            self.got.append(frame)
            for answer in self.script(frame):
                await connection.send(answer)


class Events(list):
    """Collects what a client tells; ``until`` waits for one of a type."""

    def __init__(self):
        super().__init__()
        self._changed = asyncio.Event()

    def __call__(self, event):
        self.append(event)
        self._changed.set()

    def of_type(self, *kinds):
        """Return those of some types."""
        return [event for event in self if isinstance(event, kinds)]

    async def until(self, *kinds, count=1):
        """Wait for so many of some types, and return them."""
        async with asyncio.timeout(20):
            while len(self.of_type(*kinds)) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.of_type(*kinds)


async def first(merk, count=1):
    """Return the next messages of a client."""
    async with asyncio.timeout(20):
        found = []
        async for message in merk.messages():
            found.append(message)
            if len(found) == count:
                return found
    return found
