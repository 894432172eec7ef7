"""Mail commands of the host: 102 puts a packet into a tenant's queue, 802 confirms that the tenant has it.

The relay passes verified packets, ``work`` those whose proof of work is good; a ``Reply`` or a ``Demand`` for work
comes out. A sender on the tenant's whitelist needs no work. Spec: lprp 4 and 7, LPRP-D9, LPRP-D10, LPRP-D23.
"""

from collections.abc import Callable
from typing import Final

from waystation.core.facts import DeliveryAccepted, DeliveryFinished, Fact, Outcome, make_finished
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_MS
from waystation.core.settings import InForce
from waystation.protocols.lprp.limits import LprpLimits
from waystation.protocols.lprp.messages import CLOCK_WINDOW_MS, HEADER_BYTES, Command, Kind, Packet
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.relay.answers import Seen
from waystation.protocols.lprp.relay.ledger import Ledger
from waystation.protocols.lprp.relay.mailbox import QueuedPacket
from waystation.protocols.lprp.relay.replies import Demand, Reply, Verdict, refuse
from waystation.protocols.lprp.relay.tenants import Tenant, Tenants

__all__ = ["Relaying"]

_OUTCOMES: Final = {Refusal.NO_LEASE: Outcome.OFFLINE}


class Relaying:
    """Queues packets for tenants and reports their outcome."""

    def __init__(
        self,
        tenants: Tenants,
        ledger: Ledger,
        seen: Seen,
        limits: InForce[LprpLimits],
        *,
        admits: Callable[[PublicKey], bool],
        note: Callable[[Fact], None],
    ) -> None:
        """Work on the tables of one host.

        Args:
            tenants: The leases.
            ledger: Gathers changes for the disk.
            seen: Signatures of packets that were accepted lately.
            limits: How much mail there may be.
            admits: Whether an identity may get mail.
            note: Takes facts.
        """
        self._tenants = tenants
        self._ledger = ledger
        self._seen = seen
        self._limits = limits
        self._admits = admits
        self._note = note
        self._attempts = 0
        self.mail_bytes = 0
        """Bytes of queued packets, all queues together."""
        self.mail_count = 0

    def loaded(self) -> None:
        """Count the packets that were accepted before a restart."""
        for tenant in self._tenants:
            for queued in tenant.mailbox:
                self._attempts += 1
                queued.attempt = self._attempts
                self.mail_bytes += len(queued.data)
                self.mail_count += 1
                self._seen.add(queued.signature, queued.accepted_ms + 2 * CLOCK_WINDOW_MS)  # it was at most one ahead

    def asked(self, packet: Packet, wall_ms: int) -> Verdict:
        """Handle a 102."""
        return self._decide(packet, wall_ms, has_worked=False)

    def worked(self, packet: Packet, wall_ms: int) -> Verdict:
        """Handle the 102 that work was done for: its recipient's lease may be over, or there may be no room."""
        return self._decide(packet, wall_ms, has_worked=True)

    def _decide(self, packet: Packet, wall_ms: int, *, has_worked: bool) -> Verdict:
        recipient = self._recipient(packet, wall_ms)
        if recipient is None:
            # Spec 4: no lease for the recipient, or no room: 402; the host itself is no tenant (LPRP-D23).
            return self._refused(Refusal.NO_LEASE, packet)
        # LPRP-D10: a packet that is queued or was accepted lately is accepted again without being queued twice.
        if packet.signature in recipient.mailbox or self._seen.has(packet.signature, wall_ms):
            return Reply(Command.RELAY_ACCEPTED, packet)
        is_allow_listed = recipient.is_allow_listed(packet.sender)
        refusal = self._no_room(recipient, packet, from_unlisted=not is_allow_listed)
        if refusal is not None:  # before any work is asked for, and again when it is done (LPRP-ROOM)
            return self._refused(refusal, packet)
        # Spec 4: a whitelisted sender's packet is queued: 202; any other sender is asked for work: 602.
        if is_allow_listed or has_worked:
            return self._accept(recipient, packet, wall_ms, from_unlisted=not is_allow_listed)
        return Demand(Kind.RELAY, packet, recipient.key, recipient.mailbox.unlisted_share(self._limits.now))

    def delivered(self, tenant: Tenant, packet: Packet, wall_ms: int) -> Refusal | None:
        """Remove a packet from the tenant's own queue, which an 802 of the tenant confirms."""
        # Spec 4: 802 takes that 102 out of the sender's own queue; no tenant can touch another's.
        queued = tenant.mailbox.remove(packet.reference)
        if queued is None:
            return Refusal.UNKNOWN_RELAY
        self._end(queued)
        latency_us = max(0, wall_ms - queued.accepted_ms) * MICROSECONDS_PER_MS
        self._note(make_finished(("lprp", queued.attempt, tenant.key, Outcome.OK, latency_us, 0, 1)))
        return None

    def drop(self, tenant: Tenant) -> None:
        """Give up the mail of a tenant whose lease is over and forgotten."""
        # Spec 5: the queue is kept for 2^25 ms after a lease, and no longer.
        for queued in tenant.mailbox:
            self._end(queued)
            self._note(DeliveryFinished("lprp", queued.attempt, tenant.key, Outcome.GONE, None, 0, 1))

    def _end(self, queued: QueuedPacket) -> None:
        self.mail_bytes -= len(queued.data)
        self.mail_count -= 1
        self._ledger.note_gone(queued)

    def _accept(self, recipient: Tenant, packet: Packet, wall_ms: int, *, from_unlisted: bool) -> Reply:
        self._attempts += 1
        queued = QueuedPacket(
            packet.data,
            packet.signature,
            from_unlisted=from_unlisted,
            accepted_ms=wall_ms,
            attempt=self._attempts,
        )
        recipient.mailbox.add(queued)
        self.mail_bytes += len(packet.data)
        self.mail_count += 1
        self._ledger.note_accepted(queued)
        # Until then the packet passes the clock rule and could be queued again.
        self._seen.add(packet.signature, packet.time_ms + CLOCK_WINDOW_MS)
        payload_bytes = len(packet.data) - HEADER_BYTES
        self._note(DeliveryAccepted("lprp", self._attempts, recipient.key, payload_bytes))
        return Reply(Command.RELAY_ACCEPTED, packet)

    def _recipient(self, packet: Packet, wall_ms: int) -> Tenant | None:
        tenant = self._tenants.find(packet.recipient, wall_ms)
        # Mail to a banned key is refused like mail to a key without a lease.
        return tenant if tenant is not None and self._admits(tenant.key) else None

    def _no_room(self, recipient: Tenant, packet: Packet, *, from_unlisted: bool) -> Refusal | None:
        limits = self._limits.now
        # Spec 7: 512 MiB in all queues.
        if self.mail_bytes + len(packet.data) > limits.mail_bytes:
            return Refusal.STORE_FULL
        return recipient.mailbox.refuses(packet.sender, limits, from_unlisted=from_unlisted)

    def _refused(self, refusal: Refusal, packet: Packet) -> Reply:
        self._attempts += 1
        outcome = _OUTCOMES.get(refusal, Outcome.REFUSED)
        carried = len(packet.data) - HEADER_BYTES
        self._note(DeliveryFinished("lprp", self._attempts, packet.recipient, outcome, None, carried, 1))
        return refuse(refusal, packet)
