"""A real Strata relay on real sockets: the node's machine over a memory store, served by the `websockets` library.

``RelayServer`` serves the machine; ``ScriptedServer`` sends what a test tells it to, for relays that misbehave.
"""

import asyncio
import contextlib
import http
import random
import time

import orjson
from websockets.asyncio.server import serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Response

from waystation.core.effects import Close, Commit, Peer, Send, Verify
from waystation.core.instant import Instant
from waystation.crypto.signing import KeyPair, verify_any
from waystation.protocols.strata.relay.machine import StrataRelay
from waystation.protocols.strata.settings import StrataSettings
from waystation.store.memory import MemoryStore

ALICE, BOB, CAROL, RELAY_1, RELAY_2 = (KeyPair.from_seed(bytes([number]) * 32) for number in range(1, 6))


class RelayServer:
    """``async with`` it; ``url`` is where it listens."""

    def __init__(self, key=RELAY_1, *, store=None, rate_limits=False, port=0, **settings):
        self.store = store if store is not None else MemoryStore()
        self.relay = StrataRelay(StrataSettings(**settings), key, self.store, random.Random(1), rate_limits=rate_limits)
        self.relay.set_wall(self.now, time.time_ns() // 1_000)
        self._port = port
        self._peers = {}
        self._count = 0
        self._writers = {}

    @property
    def now(self):
        """The monotonic clock."""
        return Instant(time.monotonic_ns() // 1_000)

    async def __aenter__(self):
        self._server = await serve(
            self._serve, "127.0.0.1", self._port, process_request=self._answer, max_size=2**22, compression=None
        )
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()
        await self._server.wait_closed()

    @property
    def url(self):
        """Where clients connect."""
        return f"ws://127.0.0.1:{self._port}/strata"

    @property
    def connections(self):
        """How many clients are connected."""
        return len(self._peers)

    async def cut(self):
        """Close every connection, as a relay that restarts does."""
        for connection in list(self._peers.values()):
            await connection.close(1001)

    def _answer(self, _connection, request):
        if "Upgrade" in request.headers:
            return None
        answer = self.relay.answer(request.path, "127.0.0.1", self.now)
        headers = Headers([("Content-Length", str(len(answer.body))), ("Connection", "close")])
        return Response(answer.status, http.HTTPStatus(answer.status).phrase, headers, answer.body)

    async def _serve(self, connection):
        self._count += 1
        peer = Peer(self._count)
        self._peers[peer] = connection
        self._writers[peer] = asyncio.Queue()
        writing = asyncio.create_task(self._write(peer, connection))
        self.relay.connect(peer, self.now, "127.0.0.1")
        self._settle()
        with contextlib.suppress(ConnectionClosed):
            async for message in connection:
                data = message.encode() if isinstance(message, str) else b""
                self.relay.receive(peer, data, self.now)
                self._settle()
        self.relay.disconnect(peer, self.now)
        self._settle()
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        del self._peers[peer], self._writers[peer]

    async def _write(self, peer, connection):
        queue = self._writers[peer]
        while True:
            effect = await queue.get()
            if isinstance(effect, Close):
                await connection.close(effect.status or 1000)
                return
            await connection.send(effect.data, text=True)
            if effect.receipt:
                self.relay.drained(peer, self.now)
                self._settle()

    def _settle(self):
        while effects := self.relay.take():
            for effect in effects:
                self._perform(effect)

    def _perform(self, effect):
        if isinstance(effect, Send | Close):
            queue = self._writers.get(effect.peer)
            if queue is not None:
                queue.put_nowait(effect)
        elif isinstance(effect, Verify):
            answers = [verify_any(check.keys, check.message, check.signature) for check in effect.checks]
            self.relay.verified(effect.ticket, answers, self.now)
        elif isinstance(effect, Commit):
            self.store.commit(effect.changes)
            self.relay.committed(effect.ticket, self.now)


class ScriptedServer:
    """A relay that answers each message as ``script(message)`` says: a list of objects to send."""

    def __init__(self, script, greeting=()):
        self.script = script
        self.greeting = greeting
        self.got = []
        self.pages = {}
        """Path -> status and object, for plain GET."""

    async def __aenter__(self):
        self._server = await serve(self._serve, "127.0.0.1", 0, process_request=self._answer, compression=None)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"ws://127.0.0.1:{port}/strata"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        await self._server.wait_closed()

    def _answer(self, _connection, request):
        if "Upgrade" in request.headers:
            return None
        status, page = self.pages.get(request.path, (404, {}))
        body = page if isinstance(page, bytes) else orjson.dumps(page)
        headers = Headers([("Content-Length", str(len(body))), ("Connection", "close")])
        return Response(status, http.HTTPStatus(status).phrase, headers, body)

    async def _serve(self, connection):
        with contextlib.suppress(ConnectionClosed):
            for message in self.greeting:
                await connection.send(orjson.dumps(message), text=True)
            async for data in connection:
                message = orjson.loads(data)
                self.got.append(message)
                for answer in self.script(message):
                    await connection.send(answer if isinstance(answer, bytes) else orjson.dumps(answer), text=True)
