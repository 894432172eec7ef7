"""Clients of the open world that abuse presence: each kind has one trick, and comes back when it was thrown out."""

import random
from collections.abc import Callable
from typing import Final

from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.crypto.signing import KeyPair, sign
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.extension_messages import Gossip, Presence, RelaysRequest, Where
from waystation.protocols.bhumi.extension_wire import decode_where_result, encode_extension
from waystation.protocols.bhumi.messages import Feature, FrameType
from waystation.sim.bhumi_open_commons import PROTOCOL, Clock, OpenCommons
from waystation.sim.bhumi_open_forgery import claim_of
from waystation.sim.bhumi_open_records import Slicer
from waystation.sim.chance import spread
from waystation.sim.link import Port

__all__ = ["OpenHostile"]

BACK_US: Final = 30 * MICROSECONDS_PER_SECOND
NEXT_US: Final = 4 * MICROSECONDS_PER_SECOND
QUESTIONS: Final = 120  # many more than the 20 that a relay answers at once
LIES: Final = 6
ROVED_RELAYS: Final = 12  # more than the 8 that a relay keeps for one identity
CARRIED_MAX: Final = 32
TTL_S: Final = 600
FAR_S: Final = 10_000  # beyond every tolerance


class OpenHostile:
    """One peer with one trick, see ``bhumi_open_plan.HOSTILE_CLIENTS``."""

    def __init__(
        self, commons: OpenCommons, rng: random.Random, host: str, kind: str, victims: list[PublicKey]
    ) -> None:
        """Make a peer; ``come`` lets it loose.

        Args:
            commons: The world.
            rng: Source of its malice.
            host: Its address.
            kind: One of ``HOSTILE_CLIENTS``.
            victims: Identities that it may name.
        """
        self._commons = commons
        self._rng = rng
        self._host = host
        self._kind = kind
        tricks: dict[str, Callable[[], list[bytes]]] = {
            "impostor": self._impostor,
            "carrier": self._carrier,
            "prophet": self._prophet,
            "rover": self._rover,
            "nosy": self._nosy,
            "eager": self._eager,
            "whisperer": self._whisperer,
        }
        self._trick = tricks[kind]
        self._victims = victims
        self._key_pair = KeyPair.from_seed(rng.randbytes(32))
        commons.suspects.append(self._key_pair.public)
        self._clock = Clock(commons.schedule, rng, commons.plan.clocks_off_ms)
        self._frames = Slicer()
        self._carried: list[Presence] = []
        """Genuine presences of others, found by asking."""
        self._port: Port | None = None
        self._is_leaving = False

    def come(self) -> None:
        """Connect to some relay, unless it left for good."""
        if not self._is_leaving:
            self._frames = Slicer()
            world = self._rng.choice(self._commons.worlds)
            self._port = world.dial(PROTOCOL, self._host, self, self._commons.plan.link)

    def leave(self) -> None:
        """Go for good."""
        self._is_leaving = True
        if self._port is not None:
            self._port.abort()

    def received(self, data: bytes) -> None:
        """Begin when the relay has greeted, and listen to what it says of others."""
        for kind, payload in self._frames.feed(data):
            if kind == FrameType.HELLO:
                self._begin(wire.decode_hello(payload).relay_nonce)
            elif kind == FrameType.WHERE_RESULT:
                found = decode_where_result(payload).entries
                self._carried = [entry.presence for entry in found] + self._carried[:CARRIED_MAX]

    def congested(self) -> None:
        """Do not care."""

    def drained(self) -> None:
        """Do not care."""

    def ended(self) -> None:
        """Come back after a while."""
        self._commons.schedule.after(1 + spread(self._rng, BACK_US), self.come)

    def _begin(self, nonce: int) -> None:
        identity = self._key_pair.public
        opening = [] if self._kind == "eager" else [wire.encode(messages.Options(Feature.PRESENCE))]
        if self._kind not in ("whisperer", "nosy"):
            signature = sign(self._key_pair, wire.signed_bytes(nonce, identity))
            opening.append(wire.encode(messages.IAm(identity, signature)))
        self._say(self._port, opening)
        self._play(self._port)

    def _play(self, port: Port | None) -> None:
        """Play the trick again and again on this connection; leave it now and then."""
        if port is None or not port.is_open:
            return
        if self._rng.random() < 1 / 8:
            port.abort()
            self.ended()
            return
        self._say(port, self._trick())
        self._commons.schedule.after(1 + spread(self._rng, NEXT_US), lambda: self._play(port))

    def _say(self, port: Port | None, frames: list[bytes]) -> None:
        if port is not None and frames:
            port.write(b"".join(frames))

    def _any_relay(self) -> PublicKey:
        return self._rng.choice(self._commons.keys)

    def _victim(self) -> PublicKey:
        return self._rng.choice(self._victims)

    def _own(self, relay: PublicKey, issued_at_s: int, ttl_s: int) -> bytes:
        """Return a frame with a presence of its own, properly signed."""
        presence = self._commons.sign(self._key_pair, relay, issued_at_s, ttl_s, is_honest=False)
        return encode_extension(presence)

    # Tricks

    def _impostor(self) -> list[bytes]:
        """Say that somebody else is somewhere, under its own signature or under none."""
        now_s = self._clock.unix_s
        lies = [claim_of(self._rng, self._key_pair, self._victim(), self._any_relay(), now_s) for _ in range(LIES)]
        return [encode_extension(lie) for lie in lies]

    def _carrier(self) -> list[bytes]:
        """Hand in what others have signed, which it got by asking."""
        frames = [encode_extension(presence) for presence in self._carried[: self._rng.randint(1, LIES)]]
        return [*frames, encode_extension(Where(self._victim()))]

    def _prophet(self) -> list[bytes]:
        """Sign presences of its own that no time allows: of tomorrow, of yesterday, without end, or of no length."""
        now_s, relay = self._clock.unix_s, self._any_relay()
        times = self._rng.choice(
            ((now_s + FAR_S, TTL_S), (now_s - FAR_S, TTL_S), (now_s - FAR_S, 2 * FAR_S), (now_s, 1 << 31), (now_s, 0))
        )
        return [self._own(relay, *times)]

    def _rover(self) -> list[bytes]:
        """Be at many relays at once, some of which do not exist, for times of its choice."""
        now_s = self._clock.unix_s
        relays = [PublicKey(self._rng.randbytes(32)) for _ in range(ROVED_RELAYS)] + [self._any_relay()]
        ages = [self._rng.randrange(TTL_S // 2) for _ in relays]
        return [
            self._own(relay, now_s - age, self._rng.randint(1, TTL_S)) for relay, age in zip(relays, ages, strict=True)
        ]

    def _nosy(self) -> list[bytes]:
        """Ask for everybody at once."""
        return [encode_extension(Where(self._victim())) for _ in range(QUESTIONS)] + [encode_extension(RelaysRequest())]

    def _eager(self) -> list[bytes]:
        """Use every extension without asking for one."""
        now_s = self._clock.unix_s
        asks = [encode_extension(message) for message in (Where(self._victim()), RelaysRequest(), Gossip())]
        return [*asks, self._own(self._any_relay(), now_s, TTL_S)]

    def _whisperer(self) -> list[bytes]:
        """Say where it is, and pass things on, without saying who it is."""
        own = self._own(self._any_relay(), self._clock.unix_s, TTL_S)
        return [own, encode_extension(Gossip(tuple(self._carried[:LIES]))), encode_extension(Where(self._victim()))]
