"""Byzantine Bhumi relays, which link to other relays correctly and then abuse gossip.

``BhumiScenario`` starts them. Gossip is how relays exchange signed records. Any relay may become a gossip peer. Honest
relays must drop a modified record and must not act on a repeated one. Suppressed records must reach them by another
path.
"""

import random
from collections.abc import Callable
from typing import Final

from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.crypto.signing import KeyPair, sign
from waystation.protocols.bhumi import extension_wire, messages, wire
from waystation.protocols.bhumi.extension_messages import SignedRecord
from waystation.protocols.bhumi.messages import Feature, FrameType
from waystation.protocols.bhumi.signed_records import sign_advert
from waystation.sim.bhumi.codec import Slicer
from waystation.sim.bhumi.context import BhumiContext, Clock
from waystation.sim.bhumi.forgery import PRIVATE_ADDRESSES, altered, prolonged, resigned, stolen_advert
from waystation.sim.chance import spread
from waystation.sim.hostile import HostileLink, HostileNode

__all__ = ["HostileRelay"]

NEXT_US: Final = 3 * MICROSECONDS_PER_SECOND
CAPTURED_MAX: Final = 200
BATCH: Final = 8
FLOOD_UNKNOWN: Final = 40
FLOOD_REPEATS: Final = 400
ASKS: Final = 30
TTL_S: Final = 600
AD_TTL_S: Final = 3_600
NONSENSE_BYTES_MAX: Final = 200


class HostileRelay(HostileNode[BhumiContext, "_Link"]):
    """One relay with one trick, of ``plan.RELAY_TRICKS``."""

    visit_least_us = 1

    def __init__(self, context: BhumiContext, rng: random.Random, place: int, kind: str) -> None:
        """Make a relay with a trick of this kind; see ``HostileNode``."""
        super().__init__(context, rng, place, f"tcp://evil-{place}.sim:4819")
        self.clock = Clock(context.schedule, rng, context.plan.clocks_off_ms)
        self.captured: list[SignedRecord] = []
        """Records that it was given, oldest first."""
        tricks: dict[str, Callable[[], list[bytes]]] = {
            "alterer": lambda: self._gossip([altered(rng, record) for record in self._some()]),
            "resigner": lambda: self._gossip(
                [resigned(self.key_pair, record, self.clock.unix_s) for record in self._some()]
            ),
            "prolonger": lambda: self._gossip([prolonged(rng, record) for record in self._some()]),
            "replayer": lambda: self._gossip(self._some() + self.captured[:BATCH]),
            "flooder": self._flood,
            "advertiser": self._advertise,
            "mute": list,
            "babbler": self._babble,
            "asker": lambda: [extension_wire.encode_gossip(())] * ASKS,
        }
        self._trick = tricks[kind]

    def capture(self, record: SignedRecord) -> None:
        """Keep a record that a relay sent; the oldest ones stay, as they have expired by now."""
        if len(self.captured) < CAPTURED_MAX:
            self.captured.append(record)
        else:
            self.captured[self.rng.randrange(BATCH, CAPTURED_MAX)] = record

    def play(self) -> list[bytes]:
        """Return the frames of one trick."""
        return self._trick()

    def advert(self) -> list[bytes]:
        """Return a GOSSIP with its own advert, so that it is dialled."""
        return self._gossip([sign_advert(self.key_pair, self.url, self.clock.unix_s, AD_TTL_S)])

    def _some(self) -> list[SignedRecord]:
        return [self.rng.choice(self.captured) for _ in range(BATCH)] if self.captured else []

    def _gossip(self, listed: list[SignedRecord]) -> list[bytes]:
        if not listed:
            return []
        return [extension_wire.encode_gossip([extension_wire.encode_tagged(record) for record in listed])]

    def _make_link(self, *, is_dialler: bool) -> "_Link":
        return _Link(self, is_dialler=is_dialler)

    # Tricks

    def _flood(self) -> list[bytes]:
        """Give presences of many unknown devices, and the same old records again and again."""
        now_s, unknown = self.clock.unix_s, []
        for _ in range(FLOOD_UNKNOWN):
            key_pair = KeyPair.from_seed(self.rng.randbytes(32))
            relay = self.rng.choice(self.context.keys)
            unknown.append(self.context.sign(key_pair, relay, now_s, TTL_S, is_honest=False))
        repeats = [self.rng.choice(self.captured) for _ in range(FLOOD_REPEATS)] if self.captured else []
        return self._gossip([*unknown]) + self._gossip(repeats)

    def _advertise(self) -> list[bytes]:
        """Name addresses that lead inside, under its own name and under honest ones."""
        now_s, address = self.clock.unix_s, self.rng.choice(PRIVATE_ADDRESSES)
        victim: PublicKey = self.rng.choice(self.context.keys)
        return self._gossip(
            [
                sign_advert(self.key_pair, address, now_s, AD_TTL_S),
                sign_advert(KeyPair.from_seed(self.rng.randbytes(32)), address, now_s, AD_TTL_S),
                stolen_advert(self.key_pair, victim, self.url, now_s),
                sign_advert(self.key_pair, self.url, now_s, 1 << 31),
            ]
        )

    def _babble(self) -> list[bytes]:
        """Send a frame that is almost right."""
        frame = bytearray(b"".join(self._gossip(self._some())) or wire.encode(messages.Keepalive()))
        frame[self.rng.randrange(len(frame))] ^= 1 << self.rng.randrange(8)
        nonsense = self.rng.randbytes(self.rng.randrange(NONSENSE_BYTES_MAX))
        return [bytes(frame), *([nonsense] if self.rng.random() < 1 / 2 else [])]


class _Link(HostileLink):
    """One connection of a hostile relay."""

    def __init__(self, owner: HostileRelay, *, is_dialler: bool) -> None:
        super().__init__(is_dialler=is_dialler)
        self._owner = owner
        self._frames = Slicer()

    def greet(self) -> None:
        """Send HELLO, as a relay that was dialled does."""
        self._send([wire.encode(messages.Hello(self._owner.rng.getrandbits(32), 65_536))])

    def received(self, data: bytes) -> None:
        """Shake hands, and capture what comes."""
        for kind, payload in self._frames.feed(data):
            self._on_frame(kind, payload)

    def _on_frame(self, kind: int, payload: bytes) -> None:
        owner = self._owner
        if kind == FrameType.HELLO:
            identity = owner.key_pair.public
            signature = sign(owner.key_pair, wire.signed_bytes(wire.decode_hello(payload).relay_nonce, identity))
            self._send(
                [wire.encode(messages.Options(Feature.PRESENCE)), wire.encode(messages.IAm(identity, signature))]
            )
            self._begin()
        elif kind == FrameType.OPTIONS and not self._is_dialler:
            self._send([wire.encode(messages.Options(Feature.PRESENCE))])
            self._begin()
        elif kind == FrameType.GOSSIP:
            for record in extension_wire.decode_gossip(payload).records:
                owner.capture(record)

    def _begin(self) -> None:
        self._send([*self._owner.advert(), extension_wire.encode_gossip(())])
        self._play()

    def _play(self) -> None:
        owner = self._owner
        if self.port.is_open and not owner.is_gone:
            self._send(owner.play())
            owner.context.schedule.after(1 + spread(owner.rng, NEXT_US), self._play)

    def _send(self, frames: list[bytes]) -> None:
        if frames:
            self.port.write(b"".join(frames))
