"""The stream connection of a hostile BSP peer: it completes the handshake and then sends arbitrary bytes.

``BspNetwork`` makes one where a hostile peer dials a device on streams. Sometimes it sends a few bytes of garbage and
never proves its key. It reconnects after every disconnect.
"""

import random
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.protocols.bsp.stream.handshake import HELLO_BYTES, NONCE_BYTES, VERDICT_BYTES, Dialler, decode_hello
from waystation.sim.bsp.connection import Connection, Take
from waystation.sim.bsp.host import key_of, key_pair_of
from waystation.sim.bsp.stream_host import StreamHost, certificate_of
from waystation.sim.net.datagram import DatagramSettings
from waystation.sim.net.link import End, LinkSettings, Port
from waystation.sim.schedule import Schedule

__all__ = ["HostileConnection"]

AGAIN_US: Final = MICROSECONDS_PER_SECOND
RUDE: Final = 0.2  # chance to say something else than a proof
_HEADER: Final = 4


class HostileConnection(Connection, End):
    """What joins a hostile peer to a wired host: connections that it dials again and again."""

    def __init__(
        self, schedule: Schedule, rng: random.Random, link: LinkSettings, host: StreamHost, name: str, take: Take
    ) -> None:
        """Join ``name`` to a host; whole records that it receives go to ``take``."""
        self._link = link
        self._host = host
        self._name = name
        self._take = take
        self._chance = rng
        self._port: Port | None = None
        self._received = b""
        self._proof: Dialler | None = None
        self._is_let_in = False
        super().__init__(schedule, rng, DatagramSettings(), {name: take, host.name: host.take})

    def come(self) -> None:
        """Dial, unless it is connected; once more later if nobody answers."""
        if not self.is_up or self._port is not None:
            return
        if not self._host.is_up:
            self._schedule.after(AGAIN_US, self.come)
            return
        self._received, self._is_let_in = b"", False
        nonce = self._chance.randbytes(NONCE_BYTES)
        self._proof = Dialler(key_pair_of(self._name), nonce, key_of(self._host.name), certificate_of(self._host.name))
        self._port = self._host.accept(self._chance, self._link, self).client

    def throw(self, name: str, data: bytes) -> None:
        """Write what the hostile peer says; before it is let in it keeps it to itself, mostly."""
        port = self._port
        if name == self._name and port is not None and data and (self._is_let_in or self._chance.random() < RUDE):
            port.write(data)

    def set_out(self, settings: DatagramSettings | None = None) -> None:
        """End the connection for both sides."""
        super().set_out(settings)
        port, self._port = self._port, None
        if port is not None:
            port.stream.break_off()

    # What the port reports

    def received(self, data: bytes) -> None:
        """Take bytes of the handshake, then records."""
        self._received += data
        if self._proof is not None and len(self._received) >= HELLO_BYTES:
            hello, self._received = self._received[:HELLO_BYTES], self._received[HELLO_BYTES:]
            proof, self._proof = self._proof.answer(decode_hello(hello)), None
            if self._port is not None:
                self._port.write(proof)
        if self._proof is None and not self._is_let_in and len(self._received) >= VERDICT_BYTES:
            self._received = self._received[VERDICT_BYTES:]
            self._is_let_in = True
        while self._is_let_in and len(self._received) >= _HEADER:
            end = _HEADER + int.from_bytes(self._received[2:_HEADER], "big")
            if len(self._received) < end:
                break
            record, self._received = self._received[:end], self._received[end:]
            self._take(self._host.name, record)

    def ended(self) -> None:
        """Come again."""
        self._port = None
        self._is_let_in = False
        self._schedule.after(AGAIN_US, self.come)
