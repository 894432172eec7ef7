"""The baseline of the Bhumi benchmark: a byte forwarder on waystation's transport, without any protocol.

The first half of the connections are left ends, the second half right ends. Left end number i is paired with right end
number i, and bytes from one go to the other. A connection's first byte is its side (``L`` or ``R``); the next two bytes
are its number.
"""

import asyncio
import json
import sys
from pathlib import Path

import uvloop

from waystation.transport.listen import Listener
from waystation.transport.pipe import Pipe
from waystation.transport.tls import server_context

_NUMBER_BYTES = 3
_HELLO = b"\0\1\0\0\0\x08" + bytes(8)


class Forwarder:
    """Ties pipes in pairs; writes once per pipe and loop turn, as the node does."""

    def __init__(self) -> None:
        self._ends: dict[tuple[int, int], Pipe] = {}
        self._other: dict[Pipe, tuple[int, int]] = {}
        self._outgoing: dict[Pipe, list[bytes]] = {}
        self._planned = False

    def connected(self, pipe: Pipe) -> None:
        """Send a HELLO first, as a relay would."""
        pipe.write([_HELLO])

    def received(self, pipe: Pipe, data: bytes) -> None:
        """Pass bytes to the other end."""
        partner = self._other.get(pipe)
        if partner is None:
            self._introduce(pipe, data)
            return
        self._outgoing.setdefault(self._ends[partner], []).append(data)
        if not self._planned:
            self._planned = True
            asyncio.get_running_loop().call_soon(self._turn)

    def congested(self, pipe: Pipe) -> None:
        """Nothing to decide."""

    def drained(self, pipe: Pipe) -> None:
        """Nothing to decide."""

    def lost(self, pipe: Pipe, _error: Exception | None) -> None:
        """Forget the pipe."""
        self._other.pop(pipe, None)

    def _introduce(self, pipe: Pipe, data: bytes) -> None:
        side, number = data[0], int.from_bytes(data[1:_NUMBER_BYTES], "big")
        self._ends[side, number] = pipe
        self._other[pipe] = (ord("R") if side == ord("L") else ord("L"), number)

    def _turn(self) -> None:
        self._planned = False
        outgoing, self._outgoing = self._outgoing, {}
        for pipe, chunks in outgoing.items():
            pipe.write(chunks)


async def _serve(folder: Path) -> None:
    listener = Listener(
        Forwarder(),
        lambda _host: True,
        lambda _host: None,
        server_context(folder / "cert.pem", folder / "key.pem"),
    )
    await listener.open("127.0.0.1", 0)
    print(json.dumps({"listeners": {"bhumi": f"tls://127.0.0.1:{listener.port}"}}), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve(Path(sys.argv[1])))
