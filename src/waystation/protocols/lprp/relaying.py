"""Commands 102 and 802: mail comes in, waits, and is confirmed. Spec: lprp 4 and 7, LPRP-D9, LPRP-D10, LPRP-D23."""

from collections.abc import Callable
from typing import Final

from waystation.core.facts import DeliveryAccepted, DeliveryFinished, Fact, Outcome, make_finished
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_MS
from waystation.protocols.lprp.answers import Seen
from waystation.protocols.lprp.ledger import Ledger
from waystation.protocols.lprp.mailbox import Letter
from waystation.protocols.lprp.messages import CLOCK_WINDOW_MS, HEADER_BYTES, Command, Kind, Packet
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.replies import Demand, Reply, Verdict, refuse
from waystation.protocols.lprp.tenants import Tenant, Tenants

__all__ = ["MAIL_BYTES_MAX", "Relaying"]

MAIL_BYTES_MAX: Final = 512 * 1_048_576  # packets of all queues together

_OUTCOMES: Final = {Refusal.NO_LEASE: Outcome.OFFLINE}


class Relaying:
    """Takes packets for tenants and gives account of them."""

    def __init__(
        self,
        tenants: Tenants,
        ledger: Ledger,
        seen: Seen,
        *,
        admits: Callable[[PublicKey], bool],
        note: Callable[[Fact], None],
    ) -> None:
        """Work on the tables of one host.

        Args:
            tenants: Who holds a lease.
            ledger: Told what changed.
            seen: Which packets were accepted lately.
            admits: Whether an identity may get mail.
            note: Takes facts.
        """
        self._tenants = tenants
        self._ledger = ledger
        self._seen = seen
        self._admits = admits
        self._note = note
        self._attempts = 0
        self.mail_bytes = 0
        """Packets that wait, all queues together."""
        self.mail_count = 0

    def loaded(self) -> None:
        """Count in what earlier lives accepted."""
        for tenant in self._tenants:
            for letter in tenant.mailbox:
                self._attempts += 1
                letter.attempt = self._attempts
                self.mail_bytes += len(letter.data)
                self.mail_count += 1
                self._seen.add(letter.signature, letter.accepted_ms + 2 * CLOCK_WINDOW_MS)  # it was at most one ahead

    def asked(self, packet: Packet, wall_ms: int) -> Verdict:
        """Judge a 102."""
        return self._judge(packet, wall_ms, has_worked=False)

    def worked(self, packet: Packet, wall_ms: int) -> Verdict:
        """Judge the 102 that work was done for: there may be nobody to take it any more, or no room."""
        return self._judge(packet, wall_ms, has_worked=True)

    def _judge(self, packet: Packet, wall_ms: int, *, has_worked: bool) -> Verdict:
        recipient = self._recipient(packet, wall_ms)
        if recipient is None:
            return self._refused(Refusal.NO_LEASE, packet)
        if packet.signature in recipient.mailbox or self._seen.has(packet.signature, wall_ms):
            return Reply(Command.RELAY_ACCEPTED, packet)
        is_friend = recipient.is_friend(packet.sender)
        refusal = self._no_room(recipient, packet, from_stranger=not is_friend)
        if refusal is not None:  # before any work is asked for, and again when it is done (LPRP-ROOM)
            return self._refused(refusal, packet)
        if is_friend or has_worked:
            return self._accept(recipient, packet, wall_ms, from_stranger=not is_friend)
        return Demand(Kind.RELAY, packet, recipient.key, recipient.mailbox.strangers_share)

    def delivered(self, tenant: Tenant, packet: Packet, wall_ms: int) -> Refusal | None:
        """Take a letter out of the tenant's own queue, because it says with an 802 that it has it."""
        letter = tenant.mailbox.remove(packet.reference)
        if letter is None:
            return Refusal.UNKNOWN_RELAY
        self._end(letter)
        latency_us = max(0, wall_ms - letter.accepted_ms) * MICROSECONDS_PER_MS
        self._note(make_finished(("lprp", letter.attempt, tenant.key, Outcome.OK, latency_us, 0, 1)))
        return None

    def drop(self, tenant: Tenant) -> None:
        """Give up the mail of a tenant whose lease is over and forgotten."""
        for letter in tenant.mailbox:
            self._end(letter)
            self._note(DeliveryFinished("lprp", letter.attempt, tenant.key, Outcome.GONE, None, 0, 1))

    def _end(self, letter: Letter) -> None:
        self.mail_bytes -= len(letter.data)
        self.mail_count -= 1
        self._ledger.note_gone(letter)

    def _accept(self, recipient: Tenant, packet: Packet, wall_ms: int, *, from_stranger: bool) -> Reply:
        self._attempts += 1
        letter = Letter(
            packet.data,
            packet.signature,
            from_stranger=from_stranger,
            accepted_ms=wall_ms,
            attempt=self._attempts,
        )
        recipient.mailbox.add(letter)
        self.mail_bytes += len(packet.data)
        self.mail_count += 1
        self._ledger.note_letter(letter)
        self._seen.add(packet.signature, packet.time_ms + CLOCK_WINDOW_MS)
        payload_bytes = len(packet.data) - HEADER_BYTES
        self._note(DeliveryAccepted("lprp", self._attempts, recipient.key, payload_bytes))
        return Reply(Command.RELAY_ACCEPTED, packet)

    def _recipient(self, packet: Packet, wall_ms: int) -> Tenant | None:
        tenant = self._tenants.find(packet.recipient, wall_ms)
        return tenant if tenant is not None and self._admits(tenant.key) else None

    def _no_room(self, recipient: Tenant, packet: Packet, *, from_stranger: bool) -> Refusal | None:
        if self.mail_bytes + len(packet.data) > MAIL_BYTES_MAX:
            return Refusal.STORE_FULL
        return recipient.mailbox.refuses(packet.sender, from_stranger=from_stranger)

    def _refused(self, refusal: Refusal, packet: Packet) -> Reply:
        self._attempts += 1
        outcome = _OUTCOMES.get(refusal, Outcome.REFUSED)
        carried = len(packet.data) - HEADER_BYTES
        self._note(DeliveryFinished("lprp", self._attempts, packet.recipient, outcome, None, carried, 1))
        return refuse(refusal, packet)
