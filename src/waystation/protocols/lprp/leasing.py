"""Commands 104 and the work for it, and the end of leases. Spec: lprp 3 to 6, LPRP-D8, LPRP-D14, LPRP-D19."""

from collections.abc import Callable

from waystation.core.facts import Fact, LeaseChanged
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.protocols.lprp.delivery import Delivery
from waystation.protocols.lprp.ledger import Ledger
from waystation.protocols.lprp.messages import Command, Kind, Packet
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.replies import Demand, Reply, Verdict, refuse
from waystation.protocols.lprp.tenants import Grant, Tenant, Tenants

__all__ = ["Leasing"]


class Leasing:
    """Grants leases for work, and ends them in time."""

    def __init__(
        self,
        tenants: Tenants,
        ledger: Ledger,
        delivery: Delivery,
        *,
        is_open: bool,
        admits: Callable[[PublicKey], bool],
        note: Callable[[Fact], None],
    ) -> None:
        """Work on the tables of one host.

        Args:
            tenants: Who holds a lease.
            ledger: Told what changed.
            delivery: Told whose mail stays.
            is_open: Whether newcomers get a lease.
            admits: Whether an identity may have one.
            note: Takes facts.
        """
        self._tenants = tenants
        self._ledger = ledger
        self._delivery = delivery
        self._is_open = is_open
        self._admits = admits
        self._note = note

    def asked(self, packet: Packet, wall_ms: int) -> Verdict:
        """Judge a 104."""
        refusal = self._refusal(packet.sender, wall_ms)
        if refusal is not None:
            return refuse(refusal, packet)
        return Demand(Kind.LEASE, packet, packet.sender, self._tenants.occupancy)

    def worked(self, asked: Packet, wall_ms: int) -> Reply:
        """Grant or renew what the 104 ``asked`` for: the work is done."""
        refusal = self._refusal(asked.sender, wall_ms)
        if refusal is not None:
            return refuse(refusal, asked)
        tenant, grant = self._tenants.grant(asked.sender, wall_ms)
        tenant.state_ts = max(tenant.state_ts, asked.time_ms)
        self._ledger.note_tenant(tenant)
        self._note(LeaseChanged("lprp", tenant.key, grant.value, len(tenant.mailbox)))
        return Reply(Command.LEASE_GRANTED, asked)

    def end(self, wall_ms: int, now: Instant) -> list[Tenant]:
        """End leases whose time is over; return who is forgotten now, mail and all."""
        ended, resumed, forgotten = self._tenants.expire(wall_ms, now)
        for tenant in resumed:
            self._note(LeaseChanged("lprp", tenant.key, Grant.REVIVED.value, len(tenant.mailbox)))
        for tenant in ended:
            self._delivery.stop(tenant)
            self._note(LeaseChanged("lprp", tenant.key, "expired", len(tenant.mailbox)))
        for tenant in forgotten:
            self._ledger.forget(tenant)
            self._note(LeaseChanged("lprp", tenant.key, "forgotten", len(tenant.mailbox)))
        return forgotten

    def _refusal(self, key: PublicKey, wall_ms: int) -> Refusal | None:
        if not self._admits(key):
            return Refusal.LEASE_BANNED
        if self._tenants.find(key, wall_ms) is not None:
            return None
        if not self._is_open:  # LPRP-CLOSED: who holds a lease may renew it all the same
            return Refusal.LEASES_CLOSED
        return Refusal.TENANTS_FULL if self._tenants.is_full() else None
