"""The inbox of a client: reports each packet once, and confirms it with 802 once the application has stored it.

The client machine passes each verified packet for us; the SDK stores it and calls ``confirm``. A host repeats a packet
until it gets an 802. A repeat of an unconfirmed packet is ignored. A repeat of a confirmed one gets another 802,
because the first was lost. The packet has its sender's signature and time, so a host can delay it but not forge it. A
packet older than a lease plus the mail retention is dropped, and still confirmed, so that the host frees its queue.
Spec: LPRP-D9, LPRP-D16, LPRP-D19; LPRP-AGE.
"""

from collections import OrderedDict
from typing import Final

from waystation.core.instant import Instant, after_ms
from waystation.crypto.signing import verify
from waystation.protocols.lprp.client.context import ClientContext
from waystation.protocols.lprp.client.events import PacketArrived
from waystation.protocols.lprp.client.seen_packets import SeenPackets
from waystation.protocols.lprp.client.settings import ClientSettings
from waystation.protocols.lprp.messages import CLOCK_WINDOW_MS, Command, Packet
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.wire import signed_part

__all__ = ["ANSWERED_MAX", "ANSWER_AGAIN_MS", "UNCONFIRMED_MAX", "Inbox"]

UNCONFIRMED_MAX: Final = 4_096  # 2 MiB at the owner; the host keeps what we do not take, and sends it again
ANSWER_AGAIN_MS: Final = 50  # ours: an 802 costs a signature, and replayed packets must not set its rate
ANSWERED_MAX: Final = 1_024  # ours; 64 windows of 16 packets


class Inbox:
    """Reports packets to the owner, and confirms them to the host."""

    def __init__(self, context: ClientContext, settings: ClientSettings, seen: SeenPackets) -> None:
        self._context = context
        self._age_ms_max = settings.mail_age_ms_max
        self._seen = seen
        self._unconfirmed: dict[bytes, int] = {}
        """Signature and time of each packet reported and not confirmed."""
        self._answered_until: OrderedDict[bytes, Instant] = OrderedDict()

    @property
    def unconfirmed_count(self) -> int:
        """Packets that were reported and not confirmed."""
        return len(self._unconfirmed)

    def receive(self, packet: Packet, now: Instant) -> None:
        """Take a 102 that is addressed to us and whose sender's key is valid."""
        refusal = self._refusal_of(packet, now)
        if refusal is not None:
            self._context.drop(refusal, packet.sender)
            return
        self._unconfirmed[packet.signature] = packet.time_ms
        self._context.emit(PacketArrived(packet))

    def _refusal_of(self, packet: Packet, now: Instant) -> Refusal | None:
        # LPRP-D9: repeats are known by their signature; the application still works on this one.
        if packet.signature in self._unconfirmed:
            return Refusal.DUPLICATE
        age_ms = self._context.wall_ms(now) - packet.time_ms
        # Spec 7: a packet that is passed on is not newer than the recipient's clock and 2^19 ms.
        if age_ms < -CLOCK_WINDOW_MS:
            return Refusal.CLOCK
        # Spec 7: nor older than a lease, 2^25 and 2^19 ms.
        if age_ms > self._age_ms_max:
            return self._late_refusal(packet, now)
        # Spec 10: 802 is sent again when the packet comes again: the first was lost.
        if self._seen.has(packet.signature):
            self._answer_again(packet.signature, now)
            return Refusal.DUPLICATE
        # LPRP-INBOX: beyond the bound mail stays at the host, which sends it again.
        if len(self._unconfirmed) >= UNCONFIRMED_MAX:
            return Refusal.QUEUE_FULL
        if not verify(packet.sender, signed_part(packet.data), packet.signature):
            return Refusal.BAD_SIGNATURE
        return None

    def _late_refusal(self, packet: Packet, now: Instant) -> Refusal:
        if not verify(packet.sender, signed_part(packet.data), packet.signature):
            return Refusal.BAD_SIGNATURE
        # Spec 7: one that is too old and well signed is confirmed, so that it does not keep its place at the host.
        self._answer_again(packet.signature, now)
        return Refusal.CLOCK

    def confirm(self, signature: bytes, now: Instant) -> None:
        """Confirm to the host that the application has a packet; ignored for one that is not reported."""
        time_ms = self._unconfirmed.pop(signature, None)
        if time_ms is not None:
            # One beyond the last moment at which the clock rule would let the packet in again.
            self._seen.add(signature, time_ms + self._age_ms_max + 1)
            self._answer(signature, now)

    def hand_back(self, signature: bytes) -> None:
        """Forget that a packet was reported: when the host sends it again, it is reported again."""
        self._unconfirmed.pop(signature, None)

    def _answer_again(self, signature: bytes, now: Instant) -> None:
        until = self._answered_until.get(signature)
        if until is None or now >= until:
            self._answer(signature, now)

    def _answer(self, signature: bytes, now: Instant) -> None:
        self._context.send_command(Command.DELIVERED, signature, now)
        self._answered_until[signature] = after_ms(now, ANSWER_AGAIN_MS)
        self._answered_until.move_to_end(signature)
        if len(self._answered_until) > ANSWERED_MAX:
            self._answered_until.popitem(last=False)
