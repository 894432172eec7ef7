"""What the tests of WebSockets share: a site on a free port, and sinks that remember."""

import asyncio
import contextlib
import datetime
import socket

import websockets

from waystation.core.answers import HttpAnswer
from waystation.crypto.certificates import make_local_certificates
from waystation.transport.listen import Listener
from waystation.transport.websocket.site import Endpoint, WebSocketSite

PATIENCE_S = 20
UPGRADE_HEADERS = (
    ("Host", "localhost"),
    ("Upgrade", "websocket"),
    ("Connection", "Upgrade"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("Sec-WebSocket-Version", "13"),
)


def request_bytes(path="/quiet", headers=UPGRADE_HEADERS):
    """Return a GET."""
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def frame(first, payload=b"", *, masked=True, size=None):
    """Return a client's frame by its first byte; the mask is zero, so that the payload stays legible."""
    length = len(payload) if size is None else size
    mask = 0x80 if masked else 0
    if length < 126:
        head = bytes((first, mask | length))
    elif length < 65_536:
        head = bytes((first, mask | 126)) + length.to_bytes(2, "big")
    else:
        head = bytes((first, mask | 127)) + length.to_bytes(8, "big")
    return head + (bytes(4) if masked else b"") + payload


def certificates(path):
    """Write certificates for localhost and return the folder."""
    made = make_local_certificates(["localhost", "127.0.0.1"], datetime.datetime.now(datetime.UTC))
    for name, pem in (("ca", made.ca_pem), ("cert", made.cert_pem), ("key", made.key_pem)):
        (path / name).write_bytes(pem)
    return path


class SmallListener(Listener):
    """A listener whose connections have small kernel buffers, so that a slow reader is felt soon."""

    def _greet(self, accepted, host):
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        super()._greet(accepted, host)


class Sink:
    """Remembers what its pipes report, in order; says every message back when it is asked to."""

    def __init__(self, *, echoes=False):
        self.pipes = []
        self.heard = []
        self.reports = []
        self.echoes = echoes
        self._changed = asyncio.Event()

    @property
    def pipe(self):
        return self.pipes[-1]

    def connected(self, pipe):
        self.pipes.append(pipe)
        self.note("connected")

    def received(self, pipe, data):
        self.heard.append(data)
        self.note("received")
        if self.echoes:
            pipe.write([data])

    def congested(self, pipe):
        self.note("congested")

    def drained(self, pipe):
        self.note("drained")

    def lost(self, pipe, error):
        self.note("lost")

    def note(self, report):
        self.reports.append(report)
        self._changed.set()

    async def stood(self):
        """Wait for the first pipe and return it."""
        await self.until(lambda: self.pipes)
        return self.pipe

    async def until(self, holds):
        """Wait until a report makes ``holds`` true."""
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                self._changed.clear()
                await self._changed.wait()


class Site:
    """A WebSocket site with a text and a binary endpoint and whatever else is asked for, in this loop.

    ``options`` are those of its endpoints.
    """

    def __init__(self, *, context=None, send_buffer_bytes=None, answer=None, more=None, **options):
        self.sink = Sink(echoes=True)
        self.quiet = Sink()
        self.binary = Sink(echoes=True)
        self.asked = []
        self.named = []
        self.released = []
        self.troubles = []
        like = Endpoint(self.sink, **options)
        endpoints = {
            "/text": like,
            "/quiet": like._replace(sink=self.quiet),
            "/binary": like._replace(sink=self.binary, text=False),
        }
        self.site = WebSocketSite(endpoints | (more or {}), answer or self._answer)
        make = SmallListener if send_buffer_bytes else Listener
        self.listener = make(self.sink, self._admit, self._release, context, self.site.arrive)
        self.scheme = "wss" if context else "ws"

    def _admit(self, host):
        self.sink.note("admitted")
        return True

    def _release(self, host):
        self.released.append(host)
        self.sink.note("released")

    def _answer(self, path, address, host):
        self.asked.append((path, address))
        self.named.append(host)
        return HttpAnswer(200, (("Content-Type", "application/json"), ("Access-Control-Allow-Origin", "*")), b"{}")

    async def __aenter__(self):
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: self.troubles.append(context))
        await self.listener.open("127.0.0.1", 0)
        return self

    async def __aexit__(self, *_):
        self.listener.close()
        for sink in (self.sink, self.quiet, self.binary):
            for pipe in sink.pipes:
                pipe.abort()
            await sink.until(lambda sink=sink: sink.reports.count("lost") == len(sink.pipes))

    def url(self, path="/text"):
        """Return the address of an endpoint."""
        return f"{self.scheme}://127.0.0.1:{self.listener.port}{path}"

    async def ask(self, request):
        """Send bytes as they are and return everything that comes back until the end."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.listener.port)
        try:
            async with asyncio.timeout(PATIENCE_S):
                writer.write(request)
                return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def upgrade(self, path="/quiet", headers=UPGRADE_HEADERS):
        """Shake hands by hand; return the streams and the head of the response."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.listener.port)
        writer.write(request_bytes(path, headers))
        async with asyncio.timeout(PATIENCE_S):
            head = await reader.readuntil(b"\r\n\r\n")
        return reader, writer, head


def run(story, loop_factory=None, **options):
    """Run a story with a site; nothing may have gone wrong in the loop meanwhile."""

    async def main():
        async with Site(**options) as site:
            result = await story(site)
        assert site.troubles == []
        return result

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(main())


def connect(site, path="/text", **options):
    """Dial with the foreign client."""
    return websockets.connect(site.url(path), proxy=None, **options)
