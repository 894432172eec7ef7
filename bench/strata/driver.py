"""Generates the load for the Strata benchmark with minimal WebSocket clients, so that the server is the bottleneck.

Frames are prepared before the clock starts, as text frames with a zero mask. Replies are split by their length bytes
and parsed no further than a benchmark needs.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice

import orjson

from bench import websocket
from bench.websocket import client_frame, open_connections, split_frames
from waystation.crypto.signing import KeyPair
from waystation.protocols.strata.packet import make_packet

PACKET_BYTES = 600
AUTHORS = 64
TURNS_MAX = 1_000


def publish_frames(count: int, timestamp: int, first: int = 0, size: int = PACKET_BYTES) -> list[bytes]:
    """Return PUBLISH frames of signed packets whose canonical form has ``size`` bytes."""
    keys = [KeyPair.from_seed(number.to_bytes(32, "big")) for number in range(1, AUTHORS + 1)]
    empty = make_packet(keys[0], {"text": "", "type": "POST"}, timestamp=timestamp).canonical
    frames = []
    for number in range(first, first + count):
        content = {"text": f"{number} ".ljust(size - len(empty), "x"), "type": "POST"}
        packet = make_packet(keys[number % AUTHORS], content, timestamp=timestamp)
        frames.append(client_frame(b'{"type":"PUBLISH","packet":%b}' % packet.canonical))
    return frames


class Client(websocket.Client):
    """One connection; ``on_messages`` gets every batch of whole messages that one read brought."""

    def __init__(self, path: str, host: str) -> None:
        super().__init__(path, host)
        self.on_messages: Callable[[list[bytes]], None] = lambda _messages: None
        self.on_bytes = self._cut
        self._buffer = b""

    def _cut(self, data: bytes) -> None:
        frames, self._buffer = split_frames(self._buffer + data if self._buffer else data)
        messages = [payload for first_byte, payload in frames if first_byte == 0x81]
        if messages:
            self.on_messages(messages)


async def connect(url: str, count: int) -> list[Client]:
    """Return so many open connections."""
    return await open_connections(url, lambda path, host, _: Client(path, host), count)


async def drop(*clients: Client) -> None:
    """Cut connections, and return when they are gone."""
    for client in clients:
        client.transport.abort()
    for client in clients:
        for _ in range(TURNS_MAX):
            if client.lost:
                break
            await asyncio.sleep(0)


class Publisher:
    """Publishes frames over some connections, so many in flight, and knows what was acknowledged."""

    def __init__(
        self, frames: Sequence[bytes], in_flight: int, on_mark: tuple[int, Callable[[], object]] | None = None
    ) -> None:
        """Prepare; ``on_mark`` names a count of acknowledged packets, and what is called when it is reached."""
        self.acknowledged: set[str] = set()
        self._on_mark = on_mark
        self.refused: list[bytes] = []
        self.done = asyncio.Event()
        self._waiting = iter(frames)
        self._left = len(frames)
        self._in_flight = in_flight
        self._clients: list[Client] = []

    async def begin(self, url: str, connections: int) -> None:
        """Connect and publish."""
        self.use(await connect(url, connections))

    def use(self, clients: list[Client]) -> None:
        """Publish over connections."""
        if not self._left:
            self.done.set()
        self._clients = clients
        for client in self._clients:
            client.on_messages = partial(self._on_messages, client)
            self._write(client, self._in_flight)

    def _on_messages(self, client: Client, messages: list[bytes]) -> None:
        answers = [text for text in messages if b'"AUTH_CHALLENGE"' not in text]
        for text in answers:
            message = orjson.loads(text)
            if message["type"] == "OK":
                self.acknowledged.add(message.get("packet_id", ""))  # a bare server has none
            else:
                self.refused.append(text)
        if self._on_mark is not None and len(self.acknowledged) >= self._on_mark[0]:
            self._on_mark[1]()
            self._on_mark = None
        self._left -= len(answers)
        self._write(client, len(answers))
        if self._left <= 0:
            self.done.set()

    def _write(self, client: Client, count: int) -> None:
        more = list(islice(self._waiting, count))
        if more and not client.lost:
            client.transport.write(b"".join(more))

    @property
    def cut_off(self) -> bool:
        """Whether every connection is gone."""
        return all(client.lost for client in self._clients)

    async def close(self) -> None:
        """Drop the connections."""
        await drop(*self._clients)


async def publish_all(clients: list[Client], frames: list[bytes], in_flight: int) -> float:
    """Publish every frame with so many in flight on each connection; return the seconds it took."""
    loop = asyncio.get_running_loop()
    publisher, began = Publisher(frames, in_flight), loop.time()
    publisher.use(clients)
    await publisher.done.wait()
    assert not publisher.refused, publisher.refused[:3]
    return loop.time() - began


async def read_history(client: Client, on_event: Callable[[bytes], None] | None = None) -> int:
    """Read all of history in pages of 500, hand on each EVENT if asked to, and return how many came."""
    done = asyncio.get_running_loop().create_future()
    events = 0

    def ask(cursor: str | None) -> None:
        filters = {"limit": 500} if cursor is None else {"limit": 500, "cursor": cursor}
        text = orjson.dumps({"type": "SUBSCRIBE", "subscription_id": "h", "filters": filters, "want_eose": True})
        client.transport.write(client_frame(text))

    def on_messages(messages: list[bytes]) -> None:
        nonlocal events
        for message in messages:
            if message.endswith(b'"type":"EVENT"}'):
                events += 1
                if on_event is not None:
                    on_event(message)
            elif message.startswith(b'{"type":"EOSE"'):
                end = orjson.loads(message)
                if end["has_more"]:
                    ask(end["cursor"])
                elif not done.done():
                    done.set_result(None)
            elif b'"ERROR"' in message and not done.done():
                done.set_exception(AssertionError(message))

    client.on_messages = on_messages
    ask(None)
    await done
    return events
