"""Hostile Bhumi clients: each plays one attack from the list of the run's plan, and reconnects when disconnected.

``BhumiScenario`` starts them. They speak bytes, without a client machine, because they must send what that would not.
Relays must refuse or ignore them; the invariants check that.
"""

import random
from collections.abc import Callable
from typing import Final

from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.crypto.signing import sign
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.extension_messages import Gossip, Presence, RelaysRequest, Where
from waystation.protocols.bhumi.extension_wire import decode_where_result, encode_extension
from waystation.protocols.bhumi.messages import PREIMAGE_BYTES, Feature, FrameType
from waystation.sim import hostile
from waystation.sim.bhumi.codec import Slicer
from waystation.sim.bhumi.context import BhumiContext, Clock
from waystation.sim.bhumi.forgery import claim_of
from waystation.sim.chance import spread
from waystation.sim.net.link import Port
from waystation.sim.site import draw_key_pair

__all__ = ["HostileClient"]

STAY_US: Final = 180 * MICROSECONDS_PER_SECOND  # longer than the relay's timers
NEXT_US: Final = 4 * MICROSECONDS_PER_SECOND
DRIP_US: Final = MICROSECONDS_PER_SECOND
GARBAGE_BYTES_MAX: Final = 2_000
FLOOD_SENDS: Final = 500  # more than the burst of 400 that a relay allows
DEAF_SENDS: Final = 64
SPOOFED_ACKS: Final = 20  # more than the 16 strikes
QUESTIONS: Final = 120  # many more than the 20 that a relay answers at once
CLAIMS: Final = 6
ROVED_RELAYS: Final = 12  # more than the 8 that a relay keeps for one identity
CARRIED_MAX: Final = 32
TTL_S: Final = 600
FAR_S: Final = 10_000  # beyond every tolerance


class HostileClient(hostile.HostileClient[BhumiContext]):
    """One client with one trick, of ``plan.TRICKS`` or ``plan.PRESENCE_TRICKS``."""

    back_us = 30 * MICROSECONDS_PER_SECOND
    back_least_us = 1
    deaf_window_bytes = 128

    def __init__(
        self, context: BhumiContext, rng: random.Random, host: str, kind: str, victims: list[PublicKey]
    ) -> None:
        """Make a client that may name ``victims``; see ``hostile.HostileClient``."""
        super().__init__(context, rng, host, kind)
        self._core_tricks: dict[str, Callable[[int], list[bytes]]] = {
            "garbage": lambda _nonce: [self._rng.randbytes(self._rng.randint(1, GARBAGE_BYTES_MAX))],
            "slowloris": self._slowloris,
            "flood": lambda _nonce: [self._request() for _ in range(FLOOD_SENDS)],
            "deaf": self._deaf,
            "spoofer": self._spoofer,
            "mutant": self._mutant,
        }
        self._presence_tricks: dict[str, Callable[[], list[bytes]]] = {
            "impostor": self._impostor,
            "carrier": self._carrier,
            "prophet": self._prophet,
            "rover": self._rover,
            "nosy": self._nosy,
            "eager": self._eager,
            "whisperer": self._whisperer,
        }
        self._victims = victims
        self._key_pair = draw_key_pair(rng)
        self.identity = self._key_pair.public
        """Under which it logs in, if it does; 32 bytes."""
        context.suspects.append(self.identity)
        self._clock = Clock(context.schedule, rng, context.plan.clocks_off_ms)
        self._frames = Slicer()
        self._carried: list[Presence] = []
        """Genuine presences of others, found by asking."""

    def received(self, data: bytes) -> None:
        """Begin upon HELLO, and keep the presences that the relay gives."""
        for kind, payload in self._frames.feed(data):
            if kind == FrameType.HELLO and self._port is not None:
                nonce = wire.decode_hello(payload).relay_nonce
                if self._kind in self._core_tricks:
                    self._play_once(self._port, nonce)
                else:
                    self._begin(self._port, nonce)
            elif kind == FrameType.WHERE_RESULT:
                found = decode_where_result(payload).entries
                self._carried = [entry.presence for entry in found] + self._carried[:CARRIED_MAX]

    def _on_dialled(self, node: int, port: Port) -> None:  # noqa: ARG002 - all connections begin alike
        self._frames = Slicer()

    def _play_once(self, port: Port, nonce: int) -> None:
        """Play a trick on the core protocol, and leave some time later."""
        self._send(port, self._core_tricks[self._kind](nonce))
        self._context.schedule.after(spread(self._rng, STAY_US), lambda: self._leave(port))

    def _begin(self, port: Port, nonce: int) -> None:
        opening = [] if self._kind == "eager" else [wire.encode(messages.Options(Feature.PRESENCE))]
        if self._kind not in ("whisperer", "nosy"):
            opening.append(self._i_am(nonce, self.identity))
        self._send(port, opening)
        self._play(port)

    def _play(self, port: Port) -> None:
        """Play a trick with presences again and again on this connection; leave it now and then."""
        if not port.is_open:
            return
        if self._rng.random() < 1 / 8:
            self._leave(port)
            return
        self._send(port, self._presence_tricks[self._kind]())
        self._context.schedule.after(1 + spread(self._rng, NEXT_US), lambda: self._play(port))

    def _leave(self, port: Port) -> None:
        if port.is_open:
            port.abort()
            self.ended()

    def _send(self, port: Port, frames: list[bytes]) -> None:
        if frames:
            port.write(b"".join(frames))

    def _any_relay(self) -> PublicKey:
        return self._rng.choice(self._context.keys)

    def _victim(self) -> PublicKey:
        return self._rng.choice(self._victims)

    def _request(self) -> bytes:
        """Return a SEND with a guessed preimage."""
        return wire.encode(messages.Send(self._victim(), self._rng.randbytes(PREIMAGE_BYTES), b"hostile"))

    def _i_am(self, nonce: int, identity: PublicKey) -> bytes:
        """Return an I_AM for an identity, signed with its own key."""
        return wire.encode(messages.IAm(identity, sign(self._key_pair, wire.signed_bytes(nonce, identity))))

    def _own(self, relay: PublicKey, issued_at_s: int, ttl_s: int) -> bytes:
        """Return a frame with a presence of its own, properly signed."""
        presence = self._context.sign(self._key_pair, relay, issued_at_s, ttl_s, is_honest=False)
        return encode_extension(presence)

    # Tricks on the core protocol

    def _slowloris(self, _nonce: int) -> list[bytes]:
        """Send a frame byte by byte."""
        frame, port = self._request(), self._port

        def drip(at: int) -> None:
            if port is not None and port.is_open and at < len(frame):
                port.write(frame[at : at + 1])
                self._context.schedule.after(DRIP_US, lambda: drip(at + 1))

        drip(0)
        return []

    def _deaf(self, _nonce: int) -> list[bytes]:
        """Ask for results and read none."""
        assert self._port is not None
        self._port.pause()
        return [self._request() for _ in range(DEAF_SENDS)] + [wire.encode(messages.Keepalive())] * DEAF_SENDS

    def _spoofer(self, nonce: int) -> list[bytes]:
        """Log in, answer what others were asked, then claim another identity; or claim that at once."""
        stolen = self._i_am(nonce, self._victim())
        if self._rng.random() < 1 / 3:
            return [stolen]
        count = self._rng.randint(1, SPOOFED_ACKS)
        acks = [wire.encode(messages.Ack(self._rng.getrandbits(32), b"forged")) for _ in range(count)]
        return [self._i_am(nonce, self.identity), *acks, stolen]

    def _mutant(self, nonce: int) -> list[bytes]:
        """Send a frame that is almost right."""
        frames = (
            self._request(),
            self._i_am(nonce, self._victim()),
            wire.encode(messages.UpdateCommits((self._rng.randbytes(32),))),
            wire.encode(messages.Keepalive()),
        )
        frame = bytearray(self._rng.choice(frames))
        frame[self._rng.randrange(len(frame))] ^= 1 << self._rng.randrange(8)
        return [bytes(frame[: self._rng.randint(1, len(frame))])]

    # Tricks with presences

    def _impostor(self) -> list[bytes]:
        """Assert the presence of others, under its own signature or under none."""
        now_s = self._clock.unix_s
        claims = [claim_of(self._rng, self._key_pair, self._victim(), self._any_relay(), now_s) for _ in range(CLAIMS)]
        return [encode_extension(claim) for claim in claims]

    def _carrier(self) -> list[bytes]:
        """Hand in what others have signed, which it got by asking."""
        frames = [encode_extension(presence) for presence in self._carried[: self._rng.randint(1, CLAIMS)]]
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
        """Ask for every device at once."""
        return [encode_extension(Where(self._victim())) for _ in range(QUESTIONS)] + [encode_extension(RelaysRequest())]

    def _eager(self) -> list[bytes]:
        """Use every extension without asking for one."""
        now_s = self._clock.unix_s
        asks = [encode_extension(message) for message in (Where(self._victim()), RelaysRequest(), Gossip())]
        return [*asks, self._own(self._any_relay(), now_s, TTL_S)]

    def _whisperer(self) -> list[bytes]:
        """Assert a presence, and pass records on, without an identity."""
        own = self._own(self._any_relay(), self._clock.unix_s, TTL_S)
        return [own, encode_extension(Gossip(tuple(self._carried[:CLAIMS]))), encode_extension(Where(self._victim()))]
