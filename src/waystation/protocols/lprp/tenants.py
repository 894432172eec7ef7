"""Who holds a lease, and what the host knows of them.

Lease times are wall-clock milliseconds, because a lease outlives the process. Where a tenant is reached is not kept
over a restart: it is inactive until it speaks. Spec: lprp 5, LPRP-D13, LPRP-D14, LPRP-D19; LPRP-C6, LPRP-C7.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import chain
from typing import Final, NamedTuple

from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_MS, Instant
from waystation.protocols.lprp.mailbox import Mailbox
from waystation.protocols.lprp.messages import KEEP_AFTER_LEASE_MS, STALE_ADDRESS_MS, Packet
from waystation.protocols.lprp.sources import Source

__all__ = ["Changes", "Grant", "State", "Tenant", "Tenants"]

_DOUBT_US: Final = (1 << 22) * MICROSECONDS_PER_MS  # 70 min: what a wall clock says for so long is believed
_STALE_US: Final = STALE_ADDRESS_MS * MICROSECONDS_PER_MS


class State(Enum):
    """What the host does for a tenant."""

    INACTIVE = "inactive"  # nobody knows where it is
    ACTIVE = "active"
    DORMANT = "dormant"  # it did not answer for all tries
    EXPIRED = "expired"  # its mail is kept for a while, nothing is sent or taken


class Grant(Enum):
    """What a lease that was granted is; the value is what facts show."""

    GRANTED = "granted"
    RENEWED = "renewed"
    REVIVED = "revived"


class Changes(NamedTuple):
    """What time has done to leases."""

    ended: list["Tenant"]
    resumed: list["Tenant"]
    """Those that had ended by a clock that was ahead."""
    forgotten: list["Tenant"]


class Tenant:
    """One key and everything that belongs to its lease."""

    __slots__ = (
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
        """Describe a tenant that nobody has heard from."""
        self.key = key
        self.number = number
        """Names it among the alarms; never used twice by one process."""
        self.lease_at_ms = lease_at_ms
        self.ended_at = Instant(0)
        """When its lease was found over."""
        self.last_ts = 0
        """Time of the newest packet that noted contact (LPRP-D13)."""
        self.kept_ts = 0
        """What the disk knows of it, or will with the next commit: never less (LPRP-AHEAD)."""
        self.state_ts = 0
        """Time of the newest 104, 108 or 808 that was accepted (LPRP-D14)."""
        self.whitelist: frozenset[PublicKey] = frozenset()
        self.whitelist_at_ms = 0
        """When the whitelist last changed, 0 for never."""
        self.mailbox = Mailbox()
        self.source: Source | None = None
        """Where it was heard from."""
        self.seen_at = Instant(0)
        self.sent_at = Instant(0)
        """When its window was last sent."""
        self.tries = 0
        """How often the window was sent since the last contact."""
        self.dormant = False
        self.heartbeat: tuple[bytes, bytes] | None = None
        """The last accepted 100 and the answer to it, once that may be told (LPRP-C3)."""

    def is_reachable(self, now: Instant) -> bool:
        """Return whether the address on file was heard from lately (LPRP-D21)."""
        return self.source is not None and now - self.seen_at < _STALE_US

    def is_friend(self, sender: bytes) -> bool:
        """Return whether this sender need not work; a tenant is its own friend (LPRP-C8)."""
        return sender in self.whitelist or sender == self.key

    def state(self, now: Instant) -> State:
        """Return what the host does for it while its lease lasts."""
        if not self.is_reachable(now):
            return State.INACTIVE
        return State.DORMANT if self.dormant else State.ACTIVE

    def meet(self, packet: Packet, source: Source, now: Instant) -> bool:
        """Note contact if the packet is newer than all before it; return whether it was."""
        if packet.time_ms <= self.last_ts:
            return False
        self.last_ts = packet.time_ms
        if self.source is None or self.source.address != source.address:
            self.mailbox.call_back()
        self.source = source
        self.refresh(now)
        return True

    def refresh(self, now: Instant) -> None:
        """Count as heard from at the address on file."""
        self.seen_at = now
        self.tries = 0
        self.dormant = False

    def lose_address(self) -> None:
        """Count as inactive until it speaks."""
        self.source = None
        self.heartbeat = None


class Tenants:
    """All leases, those that last and those that are over and still kept.

    Both tables are in the order in which their leases began. The wall clock decides, but nobody is forgotten before it
    has said so for 70 minutes of the monotonic clock: one that is days ahead for a while ends leases and, once it is
    right again, gives them back with all that belongs to them (LPRP-CLOCK).

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
        """Yield everyone who is known."""
        return chain(self._live.values(), self._kept.values())

    @property
    def kept_count(self) -> int:
        """How many leases are over and still kept."""
        return len(self._kept)

    @property
    def occupancy(self) -> float:
        """How much of the table is taken, 0 to 1."""
        return len(self._live) / self._count_max if self._count_max else 1.0

    def is_full(self) -> bool:
        """Return whether there is no room for a newcomer."""
        return len(self._live) >= self._count_max

    def find(self, key: bytes, wall_ms: int) -> Tenant | None:
        """Return who holds a lease with this key now."""
        tenant = self._live.get(PublicKey(key))
        return tenant if tenant is not None and wall_ms - tenant.lease_at_ms <= self._lease_ms else None

    def grant(self, key: PublicKey, wall_ms: int) -> tuple[Tenant, Grant]:
        """Begin a lease, or begin it anew; the caller has looked whether there is room."""
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
        """Take in a tenant of an earlier life; call in the order of ``lease_at_ms``, then ``expire``."""
        tenant = self._live[key] = self._new(key, lease_at_ms)
        return tenant

    def expire(self, wall_ms: int, now: Instant) -> Changes:
        """Return whose lease ended since the last call, whose goes on after all, and who is forgotten now."""
        resumed: list[Tenant] = []
        while self._kept and wall_ms - (newest := next(reversed(self._kept.values()))).lease_at_ms <= self._lease_ms:
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
            is_due = wall_ms - oldest.lease_at_ms > self._keep_ms and now - oldest.ended_at > _DOUBT_US
            if not is_due and len(self._kept) <= self._count_max:
                break
            forgotten.append(self._kept.pop(oldest.key))
        return Changes(ended, resumed, forgotten)

    def next_end_ms(self) -> int | None:
        """Return the wall-clock time at which the next lease ends, or None."""
        return next(iter(self._live.values())).lease_at_ms + self._lease_ms + 1 if self._live else None

    def next_forgetting(self) -> tuple[int, Instant] | None:
        """Return the wall-clock time and the instant that must both have come before somebody is forgotten, or None."""
        if not self._kept:
            return None
        oldest = next(iter(self._kept.values()))
        return oldest.lease_at_ms + self._keep_ms + 1, Instant(oldest.ended_at + _DOUBT_US + 1)

    def _new(self, key: PublicKey, lease_at_ms: int) -> Tenant:
        self._numbers += 1
        return Tenant(key, self._numbers, lease_at_ms)


def _put(table: OrderedDict[PublicKey, Tenant], tenants: Iterable[Tenant]) -> None:
    """Put tenants, oldest lease first, where their leases belong; nearly always that is the end."""
    last = next(reversed(table.values()), None)
    in_order = True
    for tenant in tenants:
        in_order = in_order and (last is None or last.lease_at_ms <= tenant.lease_at_ms)
        table[tenant.key] = tenant
    if not in_order:
        for tenant in sorted(table.values(), key=lambda each: each.lease_at_ms):
            table.move_to_end(tenant.key)
