"""What stands between a relay of the open world and its host, and sees every frame that goes in and comes out.

The relay notices nothing. What it was given is told after it had it, what it says before it leaves, so the order of the
observations is the order in which the relay knew things.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from waystation.core.effects import Close, Dial, Effect, Peer, Send, SendMany
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.protocols.bhumi.relay import BhumiRelay
from waystation.sim import bhumi_open_observations as seen
from waystation.sim import bhumi_open_records as records
from waystation.sim.bhumi_open_records import Slicer, Slip

__all__ = ["Tap"]


@dataclass(slots=True)
class _Line:
    """One connection of the relay."""

    is_ours: bool
    """Whether the relay has dialled it."""
    is_honest: bool
    """Whether the other side keeps to the protocol."""
    given: Slicer = field(default_factory=Slicer)
    said: Slicer = field(default_factory=Slicer)
    asked: int | None = None
    """Features that the side that dialled has asked for; None before any OPTIONS."""
    agreed: int = 0
    asks: bool = False
    """Whether it has asked for a sample of records since the last turn."""
    identity: bytes | None = None
    """Whom the other side says to be."""


class Tap:
    """A ``BhumiRelay`` that is listened to; see ``engine.node.Relay`` for the inputs and commands."""

    def __init__(
        self,
        relay: BhumiRelay,
        node: int,
        wall_offset_us: int,
        observe: Callable[[Any], None],
        is_honest: Callable[[str], bool],
    ) -> None:
        """Listen to ``relay``.

        Args:
            relay: Fresh.
            node: Its number.
            wall_offset_us: Its wall clock less the simulated instant, microseconds.
            observe: Gets every observation.
            is_honest: Says of a host's address, or of what was dialled, whether an honest peer is there.
        """
        self.relay = relay
        self._node = node
        self._wall_offset_us = wall_offset_us
        self._observe = observe
        self._is_honest = is_honest
        self._lines: dict[Peer, _Line] = {}
        self._dialled: dict[str, str] = {}
        self._asking: list[_Line] = []
        self._turn_began: Instant | None = None
        self._now = Instant(0)

    # Inputs

    def connect(self, peer: Peer, now: Instant, address: str = "") -> None:
        """Pass it on."""
        self._lines[peer] = _Line(is_ours=False, is_honest=self._is_honest(address))
        self._at(now).connect(peer, now, address)

    def connect_upstream(self, peer: Peer, name: str, now: Instant) -> None:
        """Pass it on."""
        url = self._dialled.pop(name, "")
        self._lines[peer] = _Line(is_ours=True, is_honest=self._is_honest(url))
        self._at(now).connect_upstream(peer, name, now)

    def upstream_failed(self, name: str, now: Instant) -> None:
        """Pass it on."""
        self._dialled.pop(name, None)
        self._at(now).upstream_failed(name, now)

    def receive(self, peer: Peer, data: bytes, now: Instant) -> None:
        """Pass it on, and look at what it was."""
        line = self._lines.get(peer)
        self._at(now).receive(peer, data, now)
        if line is not None:
            for kind, payload in line.given.feed(data):
                self._on_given(peer, line, kind, payload)

    def disconnect(self, peer: Peer, now: Instant) -> None:
        """Pass it on."""
        self._at(now).disconnect(peer, now)
        self._part(peer)

    def congested(self, peer: Peer, now: Instant) -> None:
        """Pass it on."""
        self._at(now).congested(peer, now)

    def drained(self, peer: Peer, now: Instant) -> None:
        """Pass it on."""
        self._at(now).drained(peer, now)

    def committed(self, ticket: int, now: Instant) -> None:
        """Pass it on."""
        self._at(now).committed(ticket, now)

    def verified(self, ticket: int, answers: Sequence[int], now: Instant) -> None:
        """Pass it on."""
        self._at(now).verified(ticket, answers, now)

    def wake(self, now: Instant) -> None:
        """Pass it on."""
        self._at(now).wake(now)

    def deadline(self) -> Instant | None:
        """Pass it on."""
        return self.relay.deadline()

    def take(self) -> list[Effect]:
        """Pass it on, and look at what it says."""
        effects = self.relay.take()
        wall_s = self._wall_s()
        self._turn_began = None
        for effect in effects:
            if isinstance(effect, Send | SendMany):
                line = self._lines.get(effect.peer)
                chunks = (effect.data,) if isinstance(effect, Send) else effect.messages
                for chunk in chunks if line is not None else ():
                    assert line is not None
                    for kind, payload in line.said.feed(chunk):
                        self._on_said(effect.peer, line, kind, payload, wall_s)
            elif isinstance(effect, Close):
                self._part(effect.peer)
            elif isinstance(effect, Dial):
                self._dialled[effect.name] = effect.url
        for line in self._asking:
            line.asks = False
        self._asking.clear()
        return effects

    # Commands

    def retire(self) -> None:
        """Pass it on."""
        self.relay.retire()

    def settled(self) -> bool:
        """Pass it on."""
        return self.relay.settled()

    def shut(self, now: Instant) -> None:
        """Pass it on."""
        self._at(now).shut(now)

    def expel(self, identity: PublicKey, now: Instant) -> None:
        """Pass it on."""
        self._at(now).expel(identity, now)

    def sizes(self) -> dict[str, int]:
        """Pass it on."""
        return self.relay.sizes()

    # What is seen

    def _at(self, now: Instant) -> BhumiRelay:
        """Note the first instant at which the relay did something in this turn, and return it."""
        if self._turn_began is None:
            self._turn_began = now
        self._now = now
        return self.relay

    def _wall_s(self) -> int:
        """Return the relay's clock when this turn of it began, Unix seconds."""
        began = self._turn_began if self._turn_began is not None else self._now
        return (began + self._wall_offset_us) // MICROSECONDS_PER_SECOND

    def _part(self, peer: Peer) -> None:
        if self._lines.pop(peer, None) is not None:
            self._observe(seen.Parted(self._node, peer))

    def _on_given(self, peer: Peer, line: _Line, kind: int, payload: bytes) -> None:
        if kind == records.OPTIONS:
            features = records.read_features(payload)
            if line.is_ours:
                line.agreed = features & (line.asked or 0)
            else:
                line.asked = features
        elif kind == records.I_AM and not line.is_ours and line.identity is None:
            # Whoever lies here is thrown out for it.
            line.identity = payload[:32]
        elif self._may(line):
            self._on_extension(peer, line, kind, payload)

    def _on_extension(self, peer: Peer, line: _Line, kind: int, payload: bytes) -> None:
        if kind == records.WHERE:
            self._observe(seen.Questioned(self._node, peer, payload))
            return
        given = self._read(kind, payload) or []
        if kind == records.GOSSIP and not given:
            line.asks = True
            self._asking.append(line)
        if kind in (records.GOSSIP, records.PRESENCE, records.RELAY_AD):
            for slip in given:
                self._take(peer, line, slip, is_gossip=kind == records.GOSSIP)

    def _may(self, line: _Line) -> bool:
        """Return whether the side that was not asked for anything may use the frames of presence here."""
        return bool((line.asked or 0) & records.PRESENCE_BIT)

    def _take(self, peer: Peer, line: _Line, slip: Slip, *, is_gossip: bool) -> None:
        is_owner = line.identity == slip.owner
        is_sure = line.is_honest and (is_gossip or is_owner)
        wall_s = (self._now + self._wall_offset_us) // MICROSECONDS_PER_SECOND
        self._observe(seen.Took(self._node, peer, slip, wall_s, is_gossip, is_owner, is_sure))

    def _on_said(self, peer: Peer, line: _Line, kind: int, payload: bytes, wall_s: int) -> None:
        if kind < records.EXTENSIONS_FROM:
            return
        if kind == records.OPTIONS:
            features = records.read_features(payload)
            if line.is_ours:
                line.asked = features
            else:
                line.agreed = features & (line.asked or 0)
        agreed = line.agreed if line.asked is not None else None
        given = self._read(kind, payload)
        self._observe(seen.Said(self._node, peer, kind, agreed, is_readable=given is not None))
        for slip in given or ():
            is_news = kind == records.GOSSIP and not line.asks
            self._observe(seen.Gave(self._node, peer, slip, wall_s, is_news))
        if kind == records.WHERE_RESULT and given is not None:
            self._observe(seen.Answered(self._node, peer, payload[:32], tuple(given), wall_s))

    def _read(self, kind: int, payload: bytes) -> list[Slip] | None:
        """Return the records that an extension frame gives away, or None when it is malformed."""
        if kind == records.GOSSIP:
            return records.read_gossip(payload)
        if kind == records.RELAYS:
            return records.read_relays(payload)
        if kind == records.WHERE_RESULT:
            result = records.read_where_result(payload)
            return None if result is None else [slip for slip, _ in result[1]]
        if kind in (records.PRESENCE, records.RELAY_AD):
            alone = records.read_presence(payload) if kind == records.PRESENCE else records.read_advert(payload)
            return None if alone is None else [alone]
        return []
