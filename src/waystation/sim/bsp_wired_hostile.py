"""How hostile peers get at a party on byte streams: they prove their keys like anybody else, then say what they like.

Some do not even prove anything: a few bytes of rubbish, and silence. Whoever is shut out comes again.
"""

import random
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.protocols.bsp.handshake import HELLO_BYTES, NONCE_BYTES, VERDICT_BYTES, Dialler, decode_hello
from waystation.sim.bsp_line import Line, Take
from waystation.sim.bsp_party import key_of, key_pair_of
from waystation.sim.bsp_wired import WiredParty, certificate_of
from waystation.sim.datagram import DatagramSettings
from waystation.sim.link import LinkSettings, Port, Stream
from waystation.sim.schedule import Schedule

__all__ = ["BackDoor"]

AGAIN_US: Final = MICROSECONDS_PER_SECOND
RUDE: Final = 0.2  # chance to say something else than a proof
_HEADER: Final = 4


class BackDoor(Line):
    """What joins a hostile peer to a wired party: connections that it dials again and again."""

    def __init__(
        self, schedule: Schedule, rng: random.Random, link: LinkSettings, party: WiredParty, name: str, take: Take
    ) -> None:
        """Join ``name`` to a party; whole records that it hears go to ``take``."""
        self._link = link
        self._party = party
        self._name = name
        self._take = take
        self._chance = rng
        self._port: Port | None = None
        self._heard = b""
        self._proof: Dialler | None = None
        self._is_let_in = False
        self.entered = 0
        """How often it was let in."""
        super().__init__(schedule, rng, DatagramSettings(), {name: take, party.name: party.take})

    def come(self) -> None:
        """Dial, unless it is connected; once more later if nobody answers."""
        if not self.is_up or self._port is not None:
            return
        if not self._party.is_up:
            self._schedule.after(AGAIN_US, self.come)
            return
        stream = Stream(self._schedule, self._chance, self._link, self, self)
        self._port, self._heard, self._is_let_in = stream.client, b"", False
        nonce = self._chance.randbytes(NONCE_BYTES)
        self._proof = Dialler(
            key_pair_of(self._name), nonce, key_of(self._party.name), certificate_of(self._party.name)
        )
        self._party.accept(stream.client)

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
        self._heard += data
        if self._proof is not None and len(self._heard) >= HELLO_BYTES:
            hello, self._heard = self._heard[:HELLO_BYTES], self._heard[HELLO_BYTES:]
            proof, self._proof = self._proof.answer(decode_hello(hello)), None
            if self._port is not None:
                self._port.write(proof)
        if self._proof is None and not self._is_let_in and len(self._heard) >= VERDICT_BYTES:
            self._heard = self._heard[VERDICT_BYTES:]
            self._is_let_in = True
            self.entered += 1
        while self._is_let_in and len(self._heard) >= _HEADER:
            end = _HEADER + int.from_bytes(self._heard[2:_HEADER], "big")
            if len(self._heard) < end:
                break
            record, self._heard = self._heard[:end], self._heard[end:]
            self._take(self._party.name, record)

    def congested(self) -> None:
        """Say more all the same."""

    def drained(self) -> None:
        """Say no more than before."""

    def ended(self) -> None:
        """Come again."""
        self._port = None
        self._is_let_in = False
        self._schedule.after(AGAIN_US, self.come)
