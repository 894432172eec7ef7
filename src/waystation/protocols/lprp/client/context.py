"""What the parts of one LPRP client share: outgoing packets, events, the packet clock and the key.

``machine`` makes one and gives it to ``tenancy``, ``inbox``, ``outgoing``, ``requests`` and ``whitelist_sync``. One
outbox keeps the order in which they send.
"""

from waystation.core.effects import Effect, Peer, Send
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_MS, Instant
from waystation.crypto.signing import KeyPair
from waystation.protocols.lprp.client.clock import PacketClock
from waystation.protocols.lprp.client.events import Event, PacketDropped
from waystation.protocols.lprp.messages import Command, Packet
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.wire import Codec

__all__ = ["ClientContext"]


class ClientContext:
    """One outbox and one list of events, shared by the parts of one client."""

    __slots__ = ("_clock", "_codec", "_effects", "_events", "_key_pair", "_wall_offset", "host", "peer")

    def __init__(self, key_pair: KeyPair, host: PublicKey, codec: Codec, clock: PacketClock) -> None:
        self._key_pair = key_pair
        self._codec = codec
        self._clock = clock
        self._wall_offset = 0
        self._effects: list[Effect] = []
        self._events: list[Event] = []
        self.host = host
        self.peer: Peer | None = None
        """The connection to the host; None while there is none."""

    def set_wall(self, now: Instant, wall_us: int) -> None:
        """Tie the monotonic clock to the wall clock: ``now`` is ``wall_us`` (microseconds UTC)."""
        self._wall_offset = wall_us - now

    def wall_ms(self, now: Instant) -> int:
        """Return the wall clock in milliseconds."""
        return (now + self._wall_offset) // MICROSECONDS_PER_MS

    def seal(self, command: Command, payload: bytes, now: Instant, recipient: bytes | None = None) -> Packet:
        """Return a signed packet for the host, or for ``recipient`` (32 bytes), newer than all before it."""
        # Spec 10: each packet is newer than all before it, or the host would not take what it changes.
        time_ms = self._clock.next(max(0, self.wall_ms(now)))
        return self._codec.seal(self._key_pair, recipient or self.host, command, payload, time_ms)

    def send(self, packet: Packet) -> None:
        """Send a packet to the host; without a connection the packet is lost, as datagrams may be."""
        if self.peer is not None:
            self._effects.append(Send(self.peer, packet.data))

    def send_command(self, command: Command, payload: bytes, now: Instant) -> Packet:
        """Seal a packet for the host, send it, and return it."""
        packet = self.seal(command, payload, now)
        self.send(packet)
        return packet

    def emit(self, event: Event) -> None:
        """Report an event to the owner."""
        self._events.append(event)

    def drop(self, refusal: Refusal, sender: PublicKey | None) -> None:
        """Report to the owner that a datagram was dropped."""
        self._events.append(PacketDropped(refusal, sender))

    def take(self) -> list[Effect]:
        """Return and forget the packets to send."""
        effects, self._effects = self._effects, []
        return effects

    def take_events(self) -> list[Event]:
        """Return and forget the events."""
        events, self._events = self._events, []
        return events
