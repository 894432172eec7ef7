"""The floor: a forwarder on waystation's own transport that knows nothing of any protocol.

The first half of the connections are left ends, the second half right ends; left end number i is tied to right end
number i, and whatever comes in on one goes out on the other. A connection's first byte says which end it is (``L`` or
``R``), the next two its number.
"""

import asyncio
import json
import sys
from pathlib import Path

import uvloop

from waystation.transport.listen import Listener
from waystation.transport.pipe import Pipe
from waystation.transport.tls import server_context

_TICKET_BYTES = 3


class Forwarder:
    """Ties pipes in pairs; writes once per pipe and loop turn, as the node does."""

    def __init__(self) -> None:
        self._ends: dict[tuple[int, int], Pipe] = {}
        self._partner: dict[Pipe, tuple[int, int]] = {}
        self._outgoing: dict[Pipe, list[bytes]] = {}
        self._planned = False

    def connected(self, pipe: Pipe) -> None:
        """Greet, as a relay would."""
        pipe.write([b"HELLO"])

    def received(self, pipe: Pipe, data: bytes) -> None:
        """Pass bytes to the other end."""
        partner = self._partner.get(pipe)
        if partner is None:
            self._seat(pipe, data)
            return
        other = self._ends[partner]
        chunks = self._outgoing.get(other)
        if chunks is None:
            self._outgoing[other] = [data]
        else:
            chunks.append(data)
        if not self._planned:
            self._planned = True
            asyncio.get_running_loop().call_soon(self._turn)

    def congested(self, pipe: Pipe) -> None:
        """Nothing to decide."""

    def drained(self, pipe: Pipe) -> None:
        """Nothing to decide."""

    def lost(self, pipe: Pipe, _error: Exception | None) -> None:
        """Forget the pipe."""
        self._partner.pop(pipe, None)

    def _seat(self, pipe: Pipe, data: bytes) -> None:
        side, number = data[0], int.from_bytes(data[1:_TICKET_BYTES], "big")
        self._ends[side, number] = pipe
        self._partner[pipe] = (ord("R") if side == ord("L") else ord("L"), number)

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
