"""Relays of the open world that link themselves to others in good order and then abuse gossip.

Anybody may become a contact. What such a relay changes, others must drop; what it repeats must move nothing; what it
swallows, others must know from elsewhere.
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
from waystation.sim.bhumi_open_commons import PROTOCOL, Clock, OpenCommons
from waystation.sim.bhumi_open_forgery import PRIVATE_ADDRESSES, altered, prolonged, resigned, stolen_advert
from waystation.sim.bhumi_open_records import Slicer
from waystation.sim.chance import fork, spread
from waystation.sim.link import End, Port, Stream

__all__ = ["HostileRelay"]

BACK_US: Final = 20 * MICROSECONDS_PER_SECOND
NEXT_US: Final = 3 * MICROSECONDS_PER_SECOND
VISITS_MAX: Final = 3
CAPTURED_MAX: Final = 200
BATCH: Final = 8
FLOOD_STRANGERS: Final = 40
FLOOD_REPEATS: Final = 400
ASKS: Final = 30
TTL_S: Final = 600
AD_TTL_S: Final = 3_600
NONSENSE_BYTES_MAX: Final = 200


class HostileRelay:
    """One relay with one trick, see ``bhumi_open_plan.HOSTILE_RELAYS``; others dial it, and it dials others."""

    is_honest = False

    def __init__(self, commons: OpenCommons, rng: random.Random, place: int, kind: str) -> None:
        """Make a relay; ``come`` lets it loose.

        Args:
            commons: The world.
            rng: Source of its malice.
            place: Which of the hostile relays it is.
            kind: One of ``HOSTILE_RELAYS``.
        """
        self.commons = commons
        self.rng = rng
        self.key_pair = KeyPair.from_seed(rng.randbytes(32))
        self.clock = Clock(commons.schedule, rng, commons.plan.clocks_off_ms)
        self.address = f"tcp://evil-{place}.sim:4819"
        self.captured: list[SignedRecord] = []
        """Records that it was given, oldest first."""
        self.is_gone = False
        self._host = f"10.8.0.{place}"
        self._links: list[_Link] = []
        self._tricks: dict[str, Callable[[], list[bytes]]] = {
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
        self._trick = self._tricks[kind]
        commons.sites[self.address] = self

    def come(self) -> None:
        """Dial some relay, and do so again later, unless it left for good."""
        if self.is_gone:
            return
        commons = self.commons
        self._links = [link for link in self._links if link.port.is_open]
        if len(self._links) < VISITS_MAX:
            link = _Link(self, is_dialler=True)
            link.port = self.rng.choice(commons.worlds).dial(PROTOCOL, self._host, link, commons.plan.trunk)
            self._links.append(link)
        commons.schedule.after(1 + spread(self.rng, BACK_US), self.come)

    def leave(self) -> None:
        """Go for good."""
        self.is_gone = True
        for link in self._links:
            link.leave()

    def is_there(self, caller: int) -> bool:  # noqa: ARG002 - nothing cuts it off
        """Return whether it can be dialled."""
        return not self.is_gone

    def reach(self, caller: int, end: End) -> Port:  # noqa: ARG002 - everybody is welcome
        """Return the caller's port of a new connection."""
        commons = self.commons
        link = _Link(self, is_dialler=False)
        stream = Stream(commons.schedule, fork(self.rng), commons.plan.trunk, end, link)
        link.port = stream.node
        self._links.append(link)
        commons.schedule.after(3 * commons.plan.trunk.latency_us + 1, link.greet)
        return stream.client

    def capture(self, record: SignedRecord) -> None:
        """Keep what somebody gave; the oldest ones stay, as they have expired by now."""
        if len(self.captured) < CAPTURED_MAX:
            self.captured.append(record)
        else:
            self.captured[self.rng.randrange(BATCH, CAPTURED_MAX)] = record

    def play(self) -> list[bytes]:
        """Return the frames of one trick."""
        return self._trick()

    def advert(self) -> list[bytes]:
        """Return a GOSSIP with its own advert, so that it is dialled."""
        return self._gossip([sign_advert(self.key_pair, self.address, self.clock.unix_s, AD_TTL_S)])

    def _some(self) -> list[SignedRecord]:
        return [self.rng.choice(self.captured) for _ in range(BATCH)] if self.captured else []

    def _gossip(self, listed: list[SignedRecord]) -> list[bytes]:
        if not listed:
            return []
        return [extension_wire.encode_gossip([extension_wire.encode_tagged(record) for record in listed])]

    # Tricks

    def _flood(self) -> list[bytes]:
        """Give many people that nobody knows, and the same old records again and again."""
        now_s, strangers = self.clock.unix_s, []
        for _ in range(FLOOD_STRANGERS):
            key_pair = KeyPair.from_seed(self.rng.randbytes(32))
            relay = self.rng.choice(self.commons.keys)
            strangers.append(self.commons.sign(key_pair, relay, now_s, TTL_S, is_honest=False))
        repeats = [self.rng.choice(self.captured) for _ in range(FLOOD_REPEATS)] if self.captured else []
        return self._gossip([*strangers]) + self._gossip(repeats)

    def _advertise(self) -> list[bytes]:
        """Name addresses that lead inside, under its own name and under honest ones."""
        now_s, address = self.clock.unix_s, self.rng.choice(PRIVATE_ADDRESSES)
        victim: PublicKey = self.rng.choice(self.commons.keys)
        return self._gossip(
            [
                sign_advert(self.key_pair, address, now_s, AD_TTL_S),
                sign_advert(KeyPair.from_seed(self.rng.randbytes(32)), address, now_s, AD_TTL_S),
                stolen_advert(self.key_pair, victim, self.address, now_s),
                sign_advert(self.key_pair, self.address, now_s, 1 << 31),
            ]
        )

    def _babble(self) -> list[bytes]:
        """Send a frame that is almost right."""
        frame = bytearray(b"".join(self._gossip(self._some())) or wire.encode(messages.Keepalive()))
        frame[self.rng.randrange(len(frame))] ^= 1 << self.rng.randrange(8)
        nonsense = self.rng.randbytes(self.rng.randrange(NONSENSE_BYTES_MAX))
        return [bytes(frame), *([nonsense] if self.rng.random() < 1 / 2 else [])]


class _Link:
    """One connection of a hostile relay."""

    def __init__(self, owner: HostileRelay, *, is_dialler: bool) -> None:
        self._owner = owner
        self._is_dialler = is_dialler
        self._frames = Slicer()
        self.port: Port

    def greet(self) -> None:
        """Say HELLO, as a relay that was dialled does."""
        self._say([wire.encode(messages.Hello(self._owner.rng.getrandbits(32), 65_536))])

    def leave(self) -> None:
        """End it."""
        if self.port.is_open:
            self.port.abort()

    def received(self, data: bytes) -> None:
        """Shake hands, and capture what comes."""
        for kind, payload in self._frames.feed(data):
            self._on_frame(kind, payload)

    def congested(self) -> None:
        """Do not care."""

    def drained(self) -> None:
        """Do not care."""

    def ended(self) -> None:
        """Somebody else will do."""

    def _on_frame(self, kind: int, payload: bytes) -> None:
        owner = self._owner
        if kind == FrameType.HELLO:
            identity = owner.key_pair.public
            signature = sign(owner.key_pair, wire.signed_bytes(wire.decode_hello(payload).relay_nonce, identity))
            self._say([wire.encode(messages.Options(Feature.PRESENCE)), wire.encode(messages.IAm(identity, signature))])
            self._begin()
        elif kind == FrameType.OPTIONS and not self._is_dialler:
            self._say([wire.encode(messages.Options(Feature.PRESENCE))])
            self._begin()
        elif kind == FrameType.GOSSIP:
            for record in extension_wire.decode_gossip(payload).records:
                owner.capture(record)

    def _begin(self) -> None:
        self._say([*self._owner.advert(), extension_wire.encode_gossip(())])
        self._play()

    def _play(self) -> None:
        owner = self._owner
        if self.port.is_open and not owner.is_gone:
            self._say(owner.play())
            owner.commons.schedule.after(1 + spread(owner.rng, NEXT_US), self._play)

    def _say(self, frames: list[bytes]) -> None:
        if frames:
            self.port.write(b"".join(frames))
