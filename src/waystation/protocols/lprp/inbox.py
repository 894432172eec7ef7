"""Packets that others sent us: each is told once, and the host hears 802 once the application has it.

A host repeats a packet until it hears 802. A packet told but not yet confirmed is left alone when it comes again; one
confirmed is answered with another 802, because the first was lost. The packet carries its sender's own signature and
time, so the host cannot make it up, only deliver it late: as late as a lease and the time for which mail is kept behind
it. What is later still is dropped, and confirmed all the same, since the host would keep its place for ever.
Spec: LPRP-D9, LPRP-D16, LPRP-D19; LPRP-AGE.
"""

from collections import OrderedDict
from typing import Final

from waystation.core.instant import Instant, after_ms
from waystation.crypto.signing import verify
from waystation.protocols.lprp.client_events import PacketArrived
from waystation.protocols.lprp.client_settings import ClientSettings
from waystation.protocols.lprp.client_voice import Voice
from waystation.protocols.lprp.messages import CLOCK_WINDOW_MS, Command, Packet
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.seen_packets import SeenPackets
from waystation.protocols.lprp.wire import signed_part

__all__ = ["ANSWERED_MAX", "ANSWER_AGAIN_MS", "UNCONFIRMED_MAX", "Inbox"]

UNCONFIRMED_MAX: Final = 4_096  # 2 MiB at the owner; the host keeps what we do not take, and sends it again
ANSWER_AGAIN_MS: Final = 50  # ours: an 802 costs a signature, and whoever replays packets must not set its rate
ANSWERED_MAX: Final = 1_024  # ours; 64 windows of 16 packets


class Inbox:
    """Tells packets to the owner, and the host that they are kept."""

    def __init__(self, voice: Voice, settings: ClientSettings, seen: SeenPackets) -> None:
        self._voice = voice
        self._age_ms_max = settings.mail_age_ms_max
        self._seen = seen
        self._unconfirmed: dict[bytes, int] = {}
        """Signature and time of each packet told and not confirmed."""
        self._answered_until: OrderedDict[bytes, Instant] = OrderedDict()

    @property
    def unconfirmed_count(self) -> int:
        """How many packets were told and not confirmed."""
        return len(self._unconfirmed)

    def receive(self, packet: Packet, now: Instant) -> None:
        """Take a 102 whose recipient we are and whose sender's key is a key."""
        refusal = self._judge(packet, now)
        if refusal is not None:
            self._voice.drop(refusal, packet.sender)
            return
        self._unconfirmed[packet.signature] = packet.time_ms
        self._voice.tell(PacketArrived(packet))

    def _judge(self, packet: Packet, now: Instant) -> Refusal | None:
        if packet.signature in self._unconfirmed:
            return Refusal.DUPLICATE
        age_ms = self._voice.wall_ms(now) - packet.time_ms
        if age_ms < -CLOCK_WINDOW_MS:
            return Refusal.CLOCK
        if age_ms > self._age_ms_max:
            return self._judge_late(packet, now)
        if self._seen.has(packet.signature):
            self._answer_again(packet.signature, now)
            return Refusal.DUPLICATE
        if len(self._unconfirmed) >= UNCONFIRMED_MAX:
            return Refusal.QUEUE_FULL
        if not verify(packet.sender, signed_part(packet.data), packet.signature):
            return Refusal.BAD_SIGNATURE
        return None

    def _judge_late(self, packet: Packet, now: Instant) -> Refusal:
        if not verify(packet.sender, signed_part(packet.data), packet.signature):
            return Refusal.BAD_SIGNATURE
        self._answer_again(packet.signature, now)
        return Refusal.CLOCK

    def confirm(self, signature: bytes, now: Instant) -> None:
        """Tell the host that the application has a packet; ignored for one that does not wait for it."""
        time_ms = self._unconfirmed.pop(signature, None)
        if time_ms is not None:
            # One beyond the last moment at which the clock rule would let the packet in again.
            self._seen.add(signature, time_ms + self._age_ms_max + 1)
            self._answer(signature, now)

    def hand_back(self, signature: bytes) -> None:
        """Forget that a packet was told: when the host sends it again, it is told again."""
        self._unconfirmed.pop(signature, None)

    def _answer_again(self, signature: bytes, now: Instant) -> None:
        until = self._answered_until.get(signature)
        if until is None or now >= until:
            self._answer(signature, now)

    def _answer(self, signature: bytes, now: Instant) -> None:
        self._voice.say(Command.DELIVERED, signature, now)
        self._answered_until[signature] = after_ms(now, ANSWER_AGAIN_MS)
        self._answered_until.move_to_end(signature)
        if len(self._answered_until) > ANSWERED_MAX:
            self._answered_until.popitem(last=False)
