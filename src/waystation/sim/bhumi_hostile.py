"""Peers of the simulated town that mean no good: each kind has one trick and comes back after it was thrown out."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.crypto.signing import KeyPair, sign
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.messages import PREIMAGE_BYTES
from waystation.sim.bhumi_commons import PROTOCOL, Commons
from waystation.sim.chance import spread
from waystation.sim.link import Port

__all__ = ["Hostile"]

BACK_US: Final = 180 * MICROSECONDS_PER_SECOND
DRIP_US: Final = MICROSECONDS_PER_SECOND
GARBAGE_BYTES_MAX: Final = 2_000
FLOOD_SENDS: Final = 500  # more than the burst of 400 that a relay allows
DEAF_SENDS: Final = 64
DEAF_WINDOW_BYTES: Final = 128
SPOOFED_ACKS: Final = 20  # more than the 16 strikes


class Hostile:
    """One peer with one trick: garbage, slowloris, flood, deaf, spoofer or mutant."""

    def __init__(self, commons: Commons, rng: random.Random, host: str, kind: str, victims: list[PublicKey]) -> None:
        """Make a peer; ``come`` lets it loose.

        Args:
            commons: The town.
            rng: Source of its malice.
            host: Its address.
            kind: One of ``plan.HOSTILE_KINDS``.
            victims: Identities it may name.
        """
        self._commons = commons
        self._rng = rng
        self._host = host
        link = commons.plan.link
        # Who does not read is noticed only when the window is full.
        self._link = replace(link, window_bytes=DEAF_WINDOW_BYTES) if kind == "deaf" else link
        tricks: dict[str, Callable[[int], None]] = {
            "garbage": self._garbage,
            "slowloris": self._slowloris,
            "flood": self._flood,
            "deaf": self._deaf,
            "spoofer": self._spoofer,
            "mutant": self._mutant,
        }
        self._trick = tricks[kind]
        self._victims = victims
        self._key_pair = KeyPair.from_seed(rng.randbytes(32))
        self.identity = self._key_pair.public
        """Under which it logs in, if it does; 32 bytes."""
        self._frames = wire.FrameBuffer(wire.client_frame_limits(1 << 20))
        self._port: Port | None = None
        self._is_leaving = False

    def come(self) -> None:
        """Connect, unless it left for good."""
        if not self._is_leaving:
            self._frames = wire.FrameBuffer(wire.client_frame_limits(1 << 20))
            self._port = self._commons.world.dial(PROTOCOL, self._host, self, self._link)

    def leave(self) -> None:
        """Go for good."""
        self._is_leaving = True
        if self._port is not None:
            self._port.abort()

    def received(self, data: bytes) -> None:
        """Play the trick when the relay has greeted; ignore everything else."""
        self._frames.feed(data)
        while (frame := self._frames.next_frame()) is not None:
            if frame[0] == messages.FrameType.HELLO:
                self._trick(wire.decode_hello(frame[1]).relay_nonce)

    def congested(self) -> None:
        """Do not care."""

    def drained(self) -> None:
        """Do not care."""

    def ended(self) -> None:
        """Come back after a while."""
        self._commons.world.schedule.after(spread(self._rng, BACK_US), self.come)

    def _say(self, data: bytes) -> None:
        if self._port is not None:
            self._port.write(data)

    def _leave_soon(self) -> None:
        port = self._port

        def hang_up() -> None:
            if port is not None and port.is_open:
                port.abort()
                self.ended()

        self._commons.world.schedule.after(spread(self._rng, BACK_US), hang_up)

    def _send_frame(self, preimage: bytes) -> bytes:
        return wire.encode(messages.Send(self._rng.choice(self._victims), preimage, b"hostile"))

    # Tricks

    def _garbage(self, _nonce: int) -> None:
        self._say(self._rng.randbytes(self._rng.randint(1, GARBAGE_BYTES_MAX)))
        self._leave_soon()

    def _slowloris(self, _nonce: int) -> None:
        frame = self._send_frame(self._rng.randbytes(PREIMAGE_BYTES))
        port = self._port

        def drip(at: int) -> None:
            if port is not None and port.is_open and at < len(frame):
                port.write(frame[at : at + 1])
                self._commons.world.schedule.after(DRIP_US, lambda: drip(at + 1))

        drip(0)

    def _flood(self, _nonce: int) -> None:
        self._say(b"".join(self._send_frame(self._rng.randbytes(PREIMAGE_BYTES)) for _ in range(FLOOD_SENDS)))
        self._leave_soon()

    def _deaf(self, _nonce: int) -> None:
        assert self._port is not None
        self._port.pause()
        frames = [self._send_frame(self._rng.randbytes(PREIMAGE_BYTES)) for _ in range(DEAF_SENDS)]
        self._say(b"".join(frames + [wire.encode(messages.Keepalive())] * DEAF_SENDS))
        self._leave_soon()

    def _spoofer(self, nonce: int) -> None:
        """Log in properly, answer what others were asked, then try to be somebody else; or try that at once."""
        signature = sign(self._key_pair, wire.signed_bytes(nonce, self._key_pair.public))
        if self._rng.random() < 1 / 3:
            self._say(wire.encode(messages.IAm(self._rng.choice(self._victims), signature)))
            self._leave_soon()
            return
        self._say(wire.encode(messages.IAm(self._key_pair.public, signature)))
        count = self._rng.randint(1, SPOOFED_ACKS)
        acks = [wire.encode(messages.Ack(self._rng.getrandbits(32), b"forged")) for _ in range(count)]
        self._say(b"".join(acks))
        self._say(wire.encode(messages.IAm(self._rng.choice(self._victims), signature)))
        self._leave_soon()

    def _mutant(self, nonce: int) -> None:
        """Say something almost right."""
        victim = self._rng.choice(self._victims)
        frame = bytearray(
            self._rng.choice(
                (
                    self._send_frame(self._rng.randbytes(PREIMAGE_BYTES)),
                    wire.encode(messages.IAm(victim, sign(self._key_pair, wire.signed_bytes(nonce, victim)))),
                    wire.encode(messages.UpdateCommits((self._rng.randbytes(32),))),
                    wire.encode(messages.Keepalive()),
                )
            )
        )
        frame[self._rng.randrange(len(frame))] ^= 1 << self._rng.randrange(8)
        self._say(bytes(frame[: self._rng.randint(1, len(frame))]))
        self._leave_soon()
