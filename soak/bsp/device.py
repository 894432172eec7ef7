"""A BSP device under load in its own process; it logs every message copy that it receives or sends before going on.

It prints an empty object when it is ready. It reads commands from standard input, one per line: ``dial URL``,
``go COUNT`` (add so many messages), ``how`` (print status) and ``end``. ``dial`` and ``how`` answer with one line of
JSON. The log is an append-only file, so a kill loses no entry: event, monotonic milliseconds, message, order.

Author ``number`` uses timestamps number * 2 or number * 2 + 1. Each message depends on its author's previous message
and on the newest delivered message of the other author.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.protocols.bsp.device.ledger import Ledger
from waystation.protocols.bsp.device.links import LinkTerms
from waystation.protocols.bsp.device.sync import WRITE_BYTES, BspDevice
from waystation.protocols.bsp.messages import HEADER_BYTES, ID_BYTES, Message, RecordType
from waystation.protocols.bsp.messages import Record as WireRecord
from waystation.protocols.bsp.profile import SEED
from waystation.sdk.bsp import BspHome, BspPeer, Delivered, Mode, deps_v1_body

GROUP: Final = SEED.group(bytes(32), b"soak", "deps_v1")
LOG_FILE: Final = "soak.log"
BODY_BYTES: Final = 300
BURST: Final = 10
PAUSE_S: Final = 0.01


class Log:
    """Appends to a file, and leaves nothing in this process."""

    def __init__(self, path: Path) -> None:
        """Go on with a file."""
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, what: str, message_id: bytes = b"", order: int = 0) -> None:
        """Write one line."""
        line = f"{what} {time.monotonic_ns() // 1_000_000} {message_id.hex()} {order}\n"
        os.write(self._file, line.encode())


def tap(log: Log) -> None:
    """Write down each link that comes up, and each copy of a message that a device receives or sends."""
    receive, send_due, link_up = BspDevice.receive, BspDevice.send_due, BspDevice.link_up

    def tapped_receive(
        device: BspDevice, peer: PublicKey, record: WireRecord, now: Instant, link: int | None = None
    ) -> None:
        if isinstance(record, Message):
            log.write("received", SEED.message_id(*record))
        receive(device, peer, record, now, link)

    def tapped_send(device: BspDevice, peer: PublicKey, now: Instant, bytes_max: int = WRITE_BYTES) -> list[bytes]:
        sent = send_due(device, peer, now, bytes_max)
        for record in sent:
            if record[1] == RecordType.MESSAGE:
                log.write("sent", _id_of(record[HEADER_BYTES:]))
        return sent

    def tapped_link_up(device: BspDevice, peer: PublicKey, terms: LinkTerms, now: Instant) -> int:
        log.write("up")
        return link_up(device, peer, terms, now)

    BspDevice.receive = tapped_receive  # type: ignore[method-assign, assignment]
    BspDevice.send_due = tapped_send  # type: ignore[method-assign, assignment]
    BspDevice.link_up = tapped_link_up  # type: ignore[method-assign, assignment]


def _id_of(payload: bytes) -> bytes:
    timestamp = int.from_bytes(payload[ID_BYTES : ID_BYTES + 8], "big")
    return SEED.message_id(payload[:ID_BYTES], timestamp, payload[ID_BYTES + 8 :])


class Author:
    """The application of one device."""

    def __init__(self, peer: BspPeer, log: Log, number: int, home: BspHome) -> None:
        """Go on where the last life ended."""
        self._peer = peer
        self._log = log
        self._number = number
        kept = sorted(Ledger(home.store).read_messages(GROUP.group_id), key=lambda vertex: vertex.order)
        ours = [vertex for vertex in kept if vertex.timestamp % 2 == number]
        theirs = [vertex for vertex in kept if vertex.timestamp % 2 != number and vertex.order]
        self._count = len(ours)
        self._own = ours[-1].message_id if ours else b""
        self._other = theirs[-1].message_id if theirs else b""
        self._loading: asyncio.Task[None] | None = None

    async def listen(self) -> None:
        """Write down what is delivered."""
        async for event in self._peer.news():
            if isinstance(event, Delivered):
                self._log.write("delivered", event.message_id, event.order)
                if event.timestamp % 2 != self._number:
                    self._other = event.message_id

    def go(self, count: int) -> None:
        """Begin to add so many messages."""
        self._loading = asyncio.get_running_loop().create_task(self._load(count))

    def how(self) -> dict[str, Any]:
        """Return how far it is."""
        if self._loading is not None and self._loading.done():
            self._loading.result()
        status = self._peer.status()
        return {
            "busy": self._loading is not None and not self._loading.done(),
            "own": self._count,
            "delivered": sum(group.delivered_count for group in status.groups),
            "owes": sum(peer.owed_count for peer in status.peers),
            "offered": status.sizes["offered"],
        }

    async def _load(self, count: int) -> None:
        for _ in range(count // BURST):
            await asyncio.gather(*(self._add() for _ in range(BURST)))
            await asyncio.sleep(PAUSE_S)

    async def _add(self) -> None:
        timestamp = 2 * self._count + self._number
        self._count += 1
        above = [each for each in (self._own, self._other) if each]
        body = deps_v1_body(above, os.urandom(BODY_BYTES))
        self._own = SEED.message_id(GROUP.group_id, timestamp, body)
        await self._peer.send(GROUP, body, timestamp=timestamp)
        self._log.write("added", self._own)


async def live(path: Path, number: int, mode: Mode) -> None:
    """Be a device until ordered to end."""
    log = Log(path / LOG_FILE)
    tap(log)
    home = BspHome(path, makes=False)
    loop = asyncio.get_running_loop()
    async with BspPeer(home, mode=mode) as peer:
        author = Author(peer, log, number, home)
        listening = loop.create_task(author.listen())
        print("{}", flush=True)
        while True:
            words = (await loop.run_in_executor(None, sys.stdin.readline)).split()
            if not words or words[0] == "end":
                break
            if words[0] == "go":
                author.go(int(words[1]))
                continue
            if words[0] == "dial":
                peer.connect("node", words[1])
            print(json.dumps(author.how()), flush=True)
    await listening
    home.close()


if __name__ == "__main__":
    asyncio.run(live(Path(sys.argv[1]), int(sys.argv[2]), Mode(sys.argv[3])))
