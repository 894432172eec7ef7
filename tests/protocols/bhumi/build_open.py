"""Relays with keys in one hand: several of them, the connections between them, and guests that speak frames.

``Country`` does for many relays what ``build.World`` does for one: it dials what they ask for, carries bytes both ways,
and lets time pass. Every record that any relay sends is noted, so that a test can look at all of them.
"""

import functools
import random
from typing import Any

from tests.protocols.bhumi.build import KEYS, i_am
from waystation.core.effects import Close, Dial, Hold, Peer, Send
from waystation.core.facts import Refused
from waystation.core.instant import Instant
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi import extension_wire, messages, wire
from waystation.protocols.bhumi.extension_messages import (
    BindChallenge,
    ExtensionMessage,
    Gossip,
    Presence,
    RelayAd,
    Relays,
    RelaysRequest,
    Where,
    WhereEntry,
    WhereResult,
)
from waystation.protocols.bhumi.limits import DEFAULT_LIMITS, BhumiLimits
from waystation.protocols.bhumi.messages import Feature, FrameType
from waystation.protocols.bhumi.relay.machine import BhumiRelay
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.protocols.bhumi.signed_records import sign_advert, sign_presence

SECOND = 1_000_000
WALL_S = 1_700_000_000
RELAY_KEYS = [KeyPair.from_seed(bytes([200 + number]) * 32) for number in range(12)]
OPEN = Feature.PRESENCE
_DECODERS = {
    FrameType.HELLO: wire.decode_hello,
    FrameType.OPTIONS: wire.decode_options,
    FrameType.SEND_RESULT: wire.decode_send_result,
    FrameType.KEEPALIVE: lambda _payload: messages.Keepalive(),
    FrameType.DELIVER: lambda payload: wire.decode_deliver(payload, with_preimage=False),
    FrameType.BIND: extension_wire.decode_bind_challenge,
    FrameType.I_AM_OK: extension_wire.decode_i_am_ok,
    FrameType.WHERE_RESULT: extension_wire.decode_where_result,
    FrameType.RELAYS: extension_wire.decode_relays,
    FrameType.QA_REQUEST: extension_wire.decode_qa_request,
    FrameType.GOSSIP: extension_wire.decode_gossip,
}


def address_of(number: int) -> str:
    """Return where relay ``number`` says that it is."""
    return f"tls://relay{number}.example:8443"


def presence(device: KeyPair, relay: int, issued_s: int = 0, ttl_s: int = 600) -> Presence:
    """Return the word of a device that it is at a relay, so many seconds after the start."""
    return sign_presence(device, RELAY_KEYS[relay].public, WALL_S + issued_s, ttl_s)


def advert(relay: int, issued_s: int = 0, ttl_s: int = 3_600, address: str | None = None) -> RelayAd:
    """Return the word of a relay about its address."""
    where = address_of(relay) if address is None else address
    return sign_advert(RELAY_KEYS[relay], where, WALL_S + issued_s, ttl_s)


class Guest:
    """One connection from outside to one relay."""

    def __init__(self, country: "Country", relay: int, peer: Peer) -> None:
        self.country, self.relay, self.peer = country, relay, peer
        self.frames = wire.FrameBuffer(wire.client_frame_limits(65_536))
        self.heard: list[Any] = []
        self.closed: Any = None
        self.nonce = 0

    def say(self, *spoken: Any) -> "Guest":
        """Send whole messages."""
        for message in spoken:
            known = isinstance(message, ExtensionMessage)
            self.say_bytes(extension_wire.encode_extension(message) if known else wire.encode(message))
        return self

    def say_bytes(self, data: bytes) -> "Guest":
        """Send bytes."""
        if self.closed is None:
            self.country.relays[self.relay].receive(self.peer, data, self.country.now)
            self.country.settle()
        return self

    def identify(self, key: KeyPair, commits: tuple[int, ...] = ()) -> "Guest":
        """Say I_AM."""
        return self.say(i_am(key, self.nonce, commits))

    def hear(self) -> list[Any]:
        """Return and forget what has arrived."""
        heard, self.heard = self.heard, []
        return heard

    def where(self, device: KeyPair) -> tuple[WhereEntry, ...]:
        """Ask where a device is, and return the hints."""
        (answer,) = self.say(Where(device.public)).hear()
        assert isinstance(answer, WhereResult)
        assert answer.identity == device.public
        return answer.entries

    def adverts(self) -> list[RelayAd]:
        """Ask for other relays."""
        (answer,) = self.say(RelaysRequest()).hear()
        assert isinstance(answer, Relays)
        return list(answer.adverts)

    def hang_up(self) -> None:
        """End the connection."""
        self.closed = "hung up"
        self.country.relays[self.relay].disconnect(self.peer, self.country.now)
        self.country.settle()


class Country:
    """Relays, what lies between them, and one clock."""

    def __init__(
        self,
        *,
        relays: int = 1,
        peers: dict[int, list[int]] | None = None,
        limits: BhumiLimits = DEFAULT_LIMITS,
        **settings: Any,
    ) -> None:
        """Build relays; ``peers`` says who is configured with whom."""
        self.now = Instant(1_000 * SECOND)
        self.began = self.now
        self.relays: list[BhumiRelay] = []
        self.refused: list[tuple[int, Refused]] = []
        self.closes: list[tuple[int, Close]] = []
        self.dials: list[tuple[int, Dial]] = []
        self.records: list[tuple[int, bytes]] = []
        """Every record that a relay has sent, tagged, and which relay."""
        self.down: set[int] = set()
        """Relays that nobody can reach."""
        self.guests: dict[tuple[int, int], Guest] = {}
        self._ways: dict[tuple[int, int], tuple[int, int]] = {}
        self._next = 1
        self.kept_out: set[tuple[int, bytes]] = set()
        """Keys that the operator of a relay refuses."""
        self.unlimited: set[bytes] = set()
        """Keys that no rate touches at any relay."""
        for number in range(relays):
            named = [address_of(other) for other in (peers or {}).get(number, [])]
            chosen = {"advertise": address_of(number), "peers": named} | settings
            rng, key_pair = random.Random(number), RELAY_KEYS[number]
            admits = functools.partial(self._admits, number)
            relay = BhumiRelay(
                BhumiSettings(**chosen),
                rng,
                limits=limits,
                key_pair=key_pair,
                admits=admits,
                is_unlimited=lambda key: key in self.unlimited,
            )
            relay.set_wall(self.now, WALL_S * SECOND)
            self.relays.append(relay)
        self.pass_s(0)

    def _admits(self, relay: int, key: bytes) -> bool:
        return (relay, key) not in self.kept_out

    def guest(
        self, relay: int = 0, features: Feature | None = OPEN, key: KeyPair | None = None, host: str = ""
    ) -> Guest:
        """Connect somebody, agree on features, and identify them."""
        guest = Guest(self, relay, self._number())
        self.guests[relay, guest.peer] = guest
        self.relays[relay].connect(guest.peer, self.now, host)
        self.settle()
        (hello,) = guest.hear()
        guest.nonce = hello.relay_nonce
        if features is not None:
            guest.say(messages.Options(features))
            answer, *challenges = guest.hear()
            assert answer == messages.Options(features)
            assert all(isinstance(challenge, BindChallenge) for challenge in challenges)
            guest.heard = challenges
        return guest.identify(key) if key is not None else guest

    def contact(self, relay: int = 0, number: int = 11, host: str = "") -> Guest:
        """Connect another relay by hand, up to its first GOSSIP; its question to us has been read."""
        guest = self.guest(relay, OPEN, RELAY_KEYS[number], host)
        guest.say(Gossip(())).hear()
        return guest

    def settle(self) -> None:
        """Do what the relays ask for until they ask for nothing."""
        busy = True
        while busy:
            busy = sum(self._perform(number, relay.take()) for number, relay in enumerate(self.relays)) > 0

    def _perform(self, number: int, effects: list[Any]) -> bool:
        for effect in effects:
            if isinstance(effect, Send):
                self._note(number, effect.data)
                self._carry(number, effect)
            elif isinstance(effect, Close):
                self.closes.append((number, effect))
                self._end(number, effect.peer, effect.reason)
            elif isinstance(effect, Dial):
                self.dials.append((number, effect))
                self._dial(number, effect)
            elif isinstance(effect, Refused):
                self.refused.append((number, effect))
            else:
                assert not isinstance(effect, Hold)
        return bool(effects)

    def _note(self, number: int, frame: bytes) -> None:
        kind, payload = int.from_bytes(frame[:2], "big"), frame[6:]
        if kind == FrameType.GOSSIP:
            self.records += [(number, tagged) for tagged in extension_wire.split_gossip(payload)]
        elif kind == FrameType.WHERE_RESULT:
            entries = extension_wire.decode_where_result(payload).entries
            self.records += [(number, extension_wire.encode_tagged(entry.presence)) for entry in entries]
        elif kind == FrameType.RELAYS:
            adverts = extension_wire.decode_relays(payload).adverts
            self.records += [(number, extension_wire.encode_tagged(advert)) for advert in adverts]

    def _carry(self, number: int, effect: Send) -> None:
        guest = self.guests.get((number, effect.peer))
        if guest is not None:
            guest.frames.feed(effect.data)
            while (frame := guest.frames.next_frame()) is not None:
                guest.heard.append(_DECODERS[FrameType(frame[0])](frame[1]))
        elif (number, effect.peer) in self._ways:
            other, peer = self._ways[number, effect.peer]
            self.relays[other].receive(Peer(peer), effect.data, self.now)

    def _end(self, number: int, peer: int, reason: Any) -> None:
        guest = self.guests.get((number, peer))
        if guest is not None:
            guest.closed = reason
        elif (number, peer) in self._ways:
            other = self._ways.pop((number, peer))
            self._ways.pop(other, None)
            self.relays[other[0]].disconnect(Peer(other[1]), self.now)

    def _dial(self, number: int, effect: Dial) -> None:
        name = effect.url.removeprefix("tls://relay").partition(".")[0]
        if not name.isdecimal() or int(name) >= len(self.relays) or {int(name), number} & self.down:
            self.relays[number].upstream_failed(effect.name, self.now)
            return
        ours, theirs = self._number(), self._number()
        self._ways[number, ours] = (int(name), theirs)
        self._ways[int(name), theirs] = (number, ours)
        self.relays[number].connect_upstream(ours, effect.name, self.now)
        self.relays[int(name)].connect(theirs, self.now)

    def cut(self, number: int) -> None:
        """Take a relay off the network: its connections end, and nobody reaches it."""
        self.down.add(number)
        for (relay, peer), (other, other_peer) in list(self._ways.items()):
            if number in (relay, other) and (relay, peer) in self._ways:
                del self._ways[relay, peer]
                self._ways.pop((other, other_peer), None)
                self.relays[relay].disconnect(Peer(peer), self.now)
                self.relays[other].disconnect(Peer(other_peer), self.now)
        self.settle()

    def pass_s(self, seconds: float) -> None:
        """Let time pass, waking each relay at its deadlines."""
        until, wakes = Instant(self.now + round(seconds * SECOND)), 0
        self.settle()
        while True:
            due = [at for relay in self.relays if (at := relay.deadline()) is not None]
            if not due or min(due) > until:
                break
            self.now = max(self.now, min(due))
            for relay in self.relays:
                if (at := relay.deadline()) is not None and at <= self.now:
                    relay.wake(self.now)
            self.settle()
            wakes += 1
            assert wakes < 100_000, "woken without end"
        self.now = until

    def refusals(self, number: int = 0) -> dict[str, int]:
        """Return how often a relay has counted each refusal."""
        counts: dict[str, int] = {}
        for relay, fact in self.refused:
            if relay == number:
                counts[fact.reason] = counts.get(fact.reason, 0) + fact.times
        return counts

    def contacts(self) -> list[int]:
        """Return how many contacts each relay has."""
        return [relay.sizes()["contacts"] for relay in self.relays]

    def _number(self) -> Peer:
        self._next += 1
        return Peer(self._next)


ALICE, BOB, CAROL = KEYS[:3]
