"""Wraps a Bhumi relay and observes every frame that it receives and sends, without changing its behaviour.

The simulated host of a relay puts one around it. A received frame is observed after the relay has processed it, a sent
frame before it is delivered. The order of the observations is therefore the order of the relay's knowledge.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from waystation.core.effects import Close, Dial, Effect, Peer, Send, SendMany
from waystation.core.instant import Instant
from waystation.protocols.bhumi.relay.machine import BhumiRelay
from waystation.sim.bhumi import codec
from waystation.sim.bhumi import observations as seen
from waystation.sim.bhumi.codec import Slicer, WireRecord
from waystation.sim.bhumi.context import Clock

__all__ = ["Tap"]


@dataclass(slots=True)
class _Connection:
    """One connection of the relay."""

    is_ours: bool
    """Whether the relay has dialled it."""
    is_honest: bool
    """Whether the other side keeps to the protocol."""
    received: Slicer = field(default_factory=Slicer)
    sent: Slicer = field(default_factory=Slicer)
    asked: int | None = None
    """Features that the side that dialled has asked for; None before any OPTIONS."""
    agreed: int = 0
    asks: bool = False
    """Whether it has asked for a sample of records since the last turn."""
    identity: bytes | None = None
    """The identity that the other side claims."""


class Tap:
    """A ``BhumiRelay`` whose frames are observed; see ``engine.node.Relay`` for the inputs and commands."""

    def __init__(
        self,
        relay: BhumiRelay,
        node: int,
        clock: Clock,
        observe: Callable[[Any], None],
        is_honest: Callable[[str], bool],
    ) -> None:
        """Observe ``relay``.

        Args:
            relay: Fresh.
            node: Its number.
            clock: Its wall clock.
            observe: Gets every observation.
            is_honest: Returns of a host's address, or of what was dialled, whether an honest peer is there.
        """
        self.relay = relay
        self._node = node
        self._clock = clock
        self._observe = observe
        self._is_honest = is_honest
        self._connections: dict[Peer, _Connection] = {}
        self._dialled: dict[str, str] = {}
        self._asking: list[_Connection] = []
        self._turn_wall_s: int | None = None
        """The relay's clock when this turn of it began, Unix seconds."""

    def __getattr__(self, name: str) -> Any:
        """Pass on inputs, which begin a turn, and commands that nothing is observed of."""
        return getattr(self._at_work() if name in _INPUTS else self.relay, name)

    def connect(self, peer: Peer, now: Instant, address: str = "") -> None:
        """Pass it on."""
        self._connections[peer] = _Connection(is_ours=False, is_honest=self._is_honest(address))
        self._at_work().connect(peer, now, address)

    def connect_upstream(self, peer: Peer, name: str, now: Instant) -> None:
        """Pass it on."""
        url = self._dialled.pop(name, "")
        self._connections[peer] = _Connection(is_ours=True, is_honest=self._is_honest(url))
        self._at_work().connect_upstream(peer, name, now)

    def upstream_failed(self, name: str, now: Instant) -> None:
        """Pass it on."""
        self._dialled.pop(name, None)
        self._at_work().upstream_failed(name, now)

    def receive(self, peer: Peer, data: bytes, now: Instant) -> None:
        """Pass it on, and look at the frames."""
        connection = self._connections.get(peer)
        self._at_work().receive(peer, data, now)
        if connection is not None:
            for kind, payload in connection.received.feed(data):
                self._on_received(peer, connection, kind, payload)

    def disconnect(self, peer: Peer, now: Instant) -> None:
        """Pass it on."""
        self._at_work().disconnect(peer, now)
        self._forget(peer)

    def take(self) -> list[Effect]:
        """Pass it on, and look at what the relay sends."""
        effects = self._at_work().take()
        wall_s, self._turn_wall_s = self._turn_wall_s, None
        assert wall_s is not None
        for effect in effects:
            if isinstance(effect, Send | SendMany):
                connection = self._connections.get(effect.peer)
                chunks = (effect.data,) if isinstance(effect, Send) else effect.messages
                for chunk in chunks if connection is not None else ():
                    assert connection is not None
                    for kind, payload in connection.sent.feed(chunk):
                        self._on_sent(effect.peer, connection, kind, payload, wall_s)
            elif isinstance(effect, Close):
                self._forget(effect.peer)
            elif isinstance(effect, Dial):
                self._dialled[effect.name] = effect.url
        for connection in self._asking:
            connection.asks = False
        self._asking.clear()
        return effects

    # What is seen

    def _at_work(self) -> BhumiRelay:
        """Note when this turn of the relay began, and return it."""
        if self._turn_wall_s is None:
            self._turn_wall_s = self._clock.unix_s
        return self.relay

    def _forget(self, peer: Peer) -> None:
        if self._connections.pop(peer, None) is not None:
            self._observe(seen.Parted(self._node, peer))

    def _on_received(self, peer: Peer, connection: _Connection, kind: int, payload: bytes) -> None:
        if kind == codec.OPTIONS:
            features = codec.read_features(payload)
            if connection.is_ours:
                connection.agreed = features & (connection.asked or 0)
            else:
                connection.asked = features
        elif kind == codec.I_AM and not connection.is_ours and connection.identity is None:
            # A connection with a false claim is closed for it.
            connection.identity = payload[:32]
        elif self._may(connection):
            self._on_extension(peer, connection, kind, payload)

    def _on_extension(self, peer: Peer, connection: _Connection, kind: int, payload: bytes) -> None:
        if kind == codec.WHERE:
            self._observe(seen.QueryReceived(self._node, peer, payload))
            return
        records = codec.read_records(kind, payload) or []
        if kind == codec.GOSSIP and not records:
            connection.asks = True
            self._asking.append(connection)
        if kind in (codec.GOSSIP, codec.PRESENCE, codec.RELAY_AD):
            for record in records:
                self._take(peer, connection, record, is_gossip=kind == codec.GOSSIP)

    def _may(self, connection: _Connection) -> bool:
        """Return whether the side that was not asked for anything may use the frames of presence here."""
        return bool((connection.asked or 0) & codec.PRESENCE_BIT)

    def _take(self, peer: Peer, connection: _Connection, record: WireRecord, *, is_gossip: bool) -> None:
        is_owner = connection.identity == record.owner
        is_sure = connection.is_honest and (is_gossip or is_owner)
        self._observe(seen.RecordReceived(self._node, peer, record, self._clock.unix_s, is_gossip, is_owner, is_sure))

    def _on_sent(self, peer: Peer, connection: _Connection, kind: int, payload: bytes, wall_s: int) -> None:
        if kind < codec.EXTENSIONS_FROM:
            return
        if kind == codec.OPTIONS:
            features = codec.read_features(payload)
            if connection.is_ours:
                connection.asked = features
            else:
                connection.agreed = features & (connection.asked or 0)
        agreed = connection.agreed if connection.asked is not None else None
        records = codec.read_records(kind, payload)
        self._observe(seen.FrameSent(self._node, peer, kind, agreed, is_readable=records is not None))
        for record in records or ():
            is_news = kind == codec.GOSSIP and not connection.asks
            self._observe(seen.RecordSent(self._node, peer, record, wall_s, is_news))
        if kind == codec.WHERE_RESULT and records is not None:
            self._observe(seen.QueryAnswered(self._node, peer, payload[:32], tuple(records), wall_s))


_INPUTS: Final = frozenset({"congested", "drained", "wake", "shut", "expel"})
