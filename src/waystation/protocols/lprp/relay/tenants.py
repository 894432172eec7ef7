"""The tenants of a host (keys that have a queue here): their leases, addresses, whitelists and queues.

The relay's commands find a ``Tenant`` by its key and change it, ``delivery`` sends to its address. Lease times are
wall-clock milliseconds, because a lease survives a restart. A tenant's address does not: the tenant is inactive until
it sends a packet. Spec: lprp 5, LPRP-D13, LPRP-D14, LPRP-D19; LPRP-C6, LPRP-C7.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import chain
from typing import Final, NamedTuple

from waystation.core.effects import Address
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_MS, Instant
from waystation.protocols.lprp.messages import KEEP_AFTER_LEASE_MS, STALE_ADDRESS_MS, Packet
from waystation.protocols.lprp.relay.mailbox import Mailbox
from waystation.protocols.lprp.relay.sources import Source

__all__ = ["Changes", "Grant", "State", "Tenant", "Tenants", "charge"]

_DOUBT_US: Final = (1 << 22) * MICROSECONDS_PER_MS  # 70 min: a wall clock that shows a time for so long is believed
_STALE_US: Final = STALE_ADDRESS_MS * MICROSECONDS_PER_MS


class State(Enum):
    """The state of a tenant towards its host."""

    INACTIVE = "inactive"  # its address is unknown
    ACTIVE = "active"
    DORMANT = "dormant"  # it did not answer for all tries
    EXPIRED = "expired"  # its mail is kept for a while, nothing is sent or accepted


class Grant(Enum):
    """The kind of a granted lease; facts show the value."""

    GRANTED = "granted"
    RENEWED = "renewed"
    REVIVED = "revived"


class Changes(NamedTuple):
    """The leases that time has changed."""

    ended: list["Tenant"]
    resumed: list["Tenant"]
    """Those that had ended by a clock that was ahead."""
    forgotten: list["Tenant"]


class Tenant:
    """One key and everything that belongs to its lease."""

    __slots__ = (
        "address",
        "dormant",
        "ended_at",
        "heartbeat",
        "kept_ts",
        "key",
        "last_ts",
        "lease_at_ms",
        "mailbox",
        "number",
        "seen_at",
        "sent_at",
        "source",
        "state_ts",
        "tries",
        "whitelist",
        "whitelist_at_ms",
    )

    def __init__(self, key: PublicKey, number: int, lease_at_ms: int) -> None:
        """Describe a tenant that has sent no packet yet."""
        self.key = key
        self.number = number
        """Names it among the alarms; never used twice by one process."""
        self.lease_at_ms = lease_at_ms
        self.ended_at = Instant(0)
        """When its lease was found over."""
        self.last_ts = 0
        """Time of the newest packet that noted contact (LPRP-D13)."""
        self.kept_ts = 0
        """``last_ts`` on disk, or with the next commit: never less (LPRP-AHEAD)."""
        self.state_ts = 0
        """Time of the newest 104, 108 or 808 that was accepted (LPRP-D14)."""
        self.whitelist: frozenset[PublicKey] = frozenset()
        self.whitelist_at_ms = 0
        """When the whitelist last changed, 0 for never."""
        self.mailbox = Mailbox()
        self.source: Source | None = None
        """The source of its newest packet."""
        self.address: Address = ("", 0)
        """That source's address as that packet came, so that mail leaves from the address that the tenant asked."""
        self.seen_at = Instant(0)
        self.sent_at = Instant(0)
        """When its window was last sent."""
        self.tries = 0
        """How often the window was sent since the last contact."""
        self.dormant = False
        self.heartbeat: tuple[bytes, bytes] | None = None
        """The last accepted 100 and its answer, once that may leave (LPRP-C3)."""

    def is_reachable(self, now: Instant) -> bool:
        """Return whether the address on file was active lately (LPRP-D21)."""
        return self.source is not None and now - self.seen_at < _STALE_US

    def is_allow_listed(self, sender: bytes) -> bool:
        """Return whether this sender need not work; a tenant is on its own list (LPRP-C8)."""
        return sender in self.whitelist or sender == self.key

    def state(self, now: Instant) -> State:
        """Return its state while its lease lasts."""
        if not self.is_reachable(now):
            return State.INACTIVE
        return State.DORMANT if self.dormant else State.ACTIVE

    def update_contact(self, packet: Packet, source: Source, address: Address, now: Instant) -> bool:
        """Note contact if the packet is newer than all before it; return whether it was."""
        # LPRP-D13: only a packet newer than the last one moves the address: a replayed one must not.
        if packet.time_ms <= self.last_ts:
            return False
        self.last_ts = packet.time_ms
        if self.source is None or self.source.address != source.address:
            # LPRP-MOVED: it was sent to the old address.
            self.mailbox.mark_unsent()
        self.source, self.address = source, address
        self.refresh(now)
        return True

    def refresh(self, now: Instant) -> None:
        """Count as active at the address on file."""
        self.seen_at = now
        self.tries = 0
        self.dormant = False

    def lose_address(self) -> None:
        """Count as inactive until its next packet."""
        self.source = None
        self.heartbeat = None


class Tenants:
    """All leases, those that last and those that are over and still kept.

    Both tables are in the order in which their leases began. The wall clock decides, but no tenant is forgotten before
    it has shown so for 70 minutes of the monotonic clock: one that is days ahead for a while ends leases and, once
    it is right again, restores them with all that belongs to them (LPRP-CLOCK).

    Cost: O(1) per call, O(leases) for one granted while the wall clock has gone back. Memory is bounded by
    ``count_max`` tenants that live and as many that are kept (LPRP-KEPT).
    """

    def __init__(self, lease_ms: int, count_max: int) -> None:
        """Start empty.

        Args:
            lease_ms: How long a lease lasts.
            count_max: How many may live at once.
        """
        self._lease_ms = lease_ms
        self._keep_ms = lease_ms + KEEP_AFTER_LEASE_MS
        self._count_max = count_max
        self._live: OrderedDict[PublicKey, Tenant] = OrderedDict()
        self._kept: OrderedDict[PublicKey, Tenant] = OrderedDict()
        self._numbers = 0

    def __len__(self) -> int:
        """Return how many leases last, as of the last ``expire``."""
        return len(self._live)

    def __iter__(self) -> Iterator[Tenant]:
        """Yield every tenant, live and kept."""
        return chain(self._live.values(), self._kept.values())

    @property
    def kept_count(self) -> int:
        """Leases that are over and still kept."""
        return len(self._kept)

    @property
    def occupancy(self) -> float:
        """Share of the table that is taken, 0 to 1."""
        return len(self._live) / self._count_max if self._count_max else 1.0

    def is_full(self) -> bool:
        """Return whether there is no room for a newcomer."""
        return len(self._live) >= self._count_max

    def find(self, key: bytes, wall_ms: int) -> Tenant | None:
        """Return the tenant with this key, None when it holds no lease now."""
        tenant = self._live.get(PublicKey(key))
        # Spec 5: a lease lasts 2^29 ms; between two calls of ``expire`` the table may have one that is over.
        return tenant if tenant is not None and wall_ms - tenant.lease_at_ms <= self._lease_ms else None

    def grant(self, key: PublicKey, wall_ms: int) -> tuple[Tenant, Grant]:
        """Begin a lease, or begin it anew; the caller has checked for room."""
        tenant = self._live.pop(key, None)
        grant = Grant.RENEWED
        if tenant is None:
            tenant = self._kept.pop(key, None)
            grant = Grant.REVIVED
        if tenant is None:
            tenant = self._new(key, wall_ms)
            grant = Grant.GRANTED
        tenant.lease_at_ms = wall_ms
        _put(self._live, (tenant,))
        return tenant, grant

    def load(self, key: PublicKey, lease_at_ms: int) -> Tenant:
        """Add a tenant from the disk; call in the order of ``lease_at_ms``, then ``expire``."""
        tenant = self._live[key] = self._new(key, lease_at_ms)
        return tenant

    def expire(self, wall_ms: int, now: Instant) -> Changes:
        """Return the leases that ended since the last call, those that go on after all, and those forgotten now."""
        resumed: list[Tenant] = []
        while self._kept and wall_ms - (newest := next(reversed(self._kept.values()))).lease_at_ms <= self._lease_ms:
            # LPRP-CLOCK: a lease that has not ended by the right clock goes on with all that belongs to it.
            resumed.append(self._kept.pop(newest.key))
        _put(self._live, reversed(resumed))
        ended: list[Tenant] = []
        while self._live and wall_ms - (oldest := next(iter(self._live.values()))).lease_at_ms > self._lease_ms:
            ended.append(self._live.pop(oldest.key))
            oldest.lose_address()
            oldest.ended_at = now
        _put(self._kept, ended)
        forgotten: list[Tenant] = []
        while self._kept:
            oldest = next(iter(self._kept.values()))
            # Spec 5: kept for 2^25 ms after the lease, and as many as there may be tenants (LPRP-KEPT).
            is_due = wall_ms - oldest.lease_at_ms > self._keep_ms and now - oldest.ended_at > _DOUBT_US
            if not is_due and len(self._kept) <= self._count_max:
                break
            forgotten.append(self._kept.pop(oldest.key))
        return Changes(ended, resumed, forgotten)

    def next_end_ms(self) -> int | None:
        """Return the wall-clock time at which the next lease ends, or None."""
        return next(iter(self._live.values())).lease_at_ms + self._lease_ms + 1 if self._live else None

    def next_forgetting(self) -> tuple[int, Instant] | None:
        """Return the wall-clock time and the instant that must both have come before a tenant is forgotten, or None."""
        if not self._kept:
            return None
        oldest = next(iter(self._kept.values()))
        return oldest.lease_at_ms + self._keep_ms + 1, Instant(oldest.ended_at + _DOUBT_US + 1)

    def _new(self, key: PublicKey, lease_at_ms: int) -> Tenant:
        self._numbers += 1
        return Tenant(key, self._numbers, lease_at_ms)


def _put(table: OrderedDict[PublicKey, Tenant], tenants: Iterable[Tenant]) -> None:
    """Insert tenants, oldest lease first, in the order of leases; nearly always that is the end."""
    last = next(reversed(table.values()), None)
    in_order = True
    for tenant in tenants:
        in_order = in_order and (last is None or last.lease_at_ms <= tenant.lease_at_ms)
        table[tenant.key] = tenant
    if not in_order:
        for tenant in sorted(table.values(), key=lambda each: each.lease_at_ms):
            table.move_to_end(tenant.key)


def charge(tenant: Tenant | None, source: Source, size: int) -> bool:
    """Take ``size`` bytes from the credit of an address, if it has them (LPRP-D17, LPRP-D18).

    Args:
        tenant: The tenant that is answered, None for a visitor.
        source: The destination; a tenant counts as a visitor at any but its last address.
        size: Bytes of the answer.
    """
    if tenant is not None and tenant.source is source:
        if source.tenant_room(tenant.key) < size:
            return False
        source.sent_to_tenant(size)
        return True
    if not source.may_answer_visitor(size):
        return False
    source.sent_to_visitor(size)
    return True
