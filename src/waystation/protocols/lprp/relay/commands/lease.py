"""Grants and ends leases: 104 asks to be a tenant, whose queue the host keeps for the time of the lease.

The relay passes 104 packets, ``work`` those whose proof of work is good; a ``Reply`` or a ``Demand`` for work comes
out. Leases end by wall-clock time, because they survive a restart. Spec: lprp 3 to 6, LPRP-D8, LPRP-D14, LPRP-D19.
"""

from collections.abc import Callable

from waystation.core.facts import Fact, LeaseChanged
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.protocols.lprp.messages import Command, Kind, Packet
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.relay.delivery import Delivery
from waystation.protocols.lprp.relay.ledger import Ledger
from waystation.protocols.lprp.relay.replies import Demand, Reply, Verdict, refuse
from waystation.protocols.lprp.relay.tenants import Grant, Tenant, Tenants

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
            tenants: The leases.
            ledger: Gathers changes for the disk.
            delivery: Stops for tenants whose lease ends.
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
        """Handle a 104: demand work, or refuse."""
        refusal = self._refusal(packet.sender, wall_ms)
        if refusal is not None:
            return refuse(refusal, packet)
        # Spec 4: 104: no room, closed, banned: 404; else 604.
        return Demand(Kind.LEASE, packet, packet.sender, self._tenants.occupancy)

    def worked(self, asked: Packet, wall_ms: int) -> Reply:
        """Grant or renew the lease of a 104 whose work is done."""
        # The table may have filled up, or the key been banned, while the work was done.
        refusal = self._refusal(asked.sender, wall_ms)
        if refusal is not None:
            return refuse(refusal, asked)
        tenant, grant = self._tenants.grant(asked.sender, wall_ms)
        # LPRP-C6: after work the time is that of the packet that the work was for.
        tenant.state_ts = max(tenant.state_ts, asked.time_ms)
        self._ledger.note_tenant(tenant)
        self._note(LeaseChanged("lprp", tenant.key, grant.value, len(tenant.mailbox)))
        return Reply(Command.LEASE_GRANTED, asked)

    def end(self, wall_ms: int, now: Instant) -> list[Tenant]:
        """End leases whose time is over; return the tenants that are forgotten now, mail and all."""
        ended, resumed, forgotten = self._tenants.expire(wall_ms, now)
        for tenant in resumed:
            self._note(LeaseChanged("lprp", tenant.key, Grant.REVIVED.value, len(tenant.mailbox)))
        for tenant in ended:
            self._delivery.stop(tenant)
            self._note(LeaseChanged("lprp", tenant.key, "expired", len(tenant.mailbox)))
        # Spec 5: 2^25 ms after a lease its queue and whitelist are gone.
        for tenant in forgotten:
            self._ledger.forget(tenant)
            self._note(LeaseChanged("lprp", tenant.key, "forgotten", len(tenant.mailbox)))
        return forgotten

    def _refusal(self, key: PublicKey, wall_ms: int) -> Refusal | None:
        # Spec 4: a 104 of a banned key: 404.
        if not self._admits(key):
            return Refusal.LEASE_BANNED
        # A renewal takes no new place, so neither the bound nor ``leases`` stops it.
        if self._tenants.find(key, wall_ms) is not None:
            return None
        if not self._is_open:  # LPRP-CLOSED: a tenant may renew its lease all the same
            return Refusal.LEASES_CLOSED
        return Refusal.TENANTS_FULL if self._tenants.is_full() else None
