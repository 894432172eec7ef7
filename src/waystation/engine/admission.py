"""Connection limits: in total, per address, for connections without an address, and for unfinished handshakes.

Listeners ask through ``engine.node`` when a connection arrives: its address goes in, None or a refusal comes out.
Admission only counts, so it runs before the cost of a TLS handshake or a signature. Unfinished handshakes share one
pool. When it is full, a new handshake takes the place of the oldest one of the network that has most of them. So no set
of silent connections closes a port for others (NODE-HANDSHAKES).
Spec: BHUMI-L (10 000 total, 64 per IP, 256 in the pool that has no IP; choice BHUMI-POOL).
"""

import ipaddress
from collections import OrderedDict, deque
from dataclasses import dataclass
from enum import Enum
from typing import Final

from waystation.core.networks import network_of
from waystation.core.settings import InForce, limit

__all__ = [
    "DEFAULT_LIMITS",
    "KNOWN_MAX",
    "Admission",
    "AdmissionLimits",
    "AdmissionRefusal",
    "Handshakes",
    "address_key",
]

KNOWN_MAX: Final = 4_096
"""Addresses that have completed a handshake; the one that did so longest ago is forgotten for a new one."""
_RESERVE: Final = 4  # a quarter of the pool is for known addresses
_IPV6_SITE_BITS: Final = 64  # one household or server gets at least this much; counting less is counting nothing


class AdmissionRefusal(Enum):
    """Reasons to close a connection before it sends anything, and to refuse a GET of a public page."""

    FULL = "connections_full"
    ADDRESS_FULL = "address_full"
    HANDSHAKES_FULL = "handshakes_full"
    HANDSHAKE_DISPLACED = "handshake_displaced"
    ADDRESS_HANDSHAKES_FULL = "address_handshakes_full"
    ADDRESSLESS_FULL = "addressless_full"
    ADDRESS_BANNED = "address_banned"
    DENIED = "denied"
    NOT_ALLOWED = "not_allowed"
    POLICY_BLOCKED = "policy_blocked"
    POLICY_RATE = "policy_rate"
    RETIRING = "retiring"
    PROXY_HEADER = "proxy_header"
    PROXY_HEADER_NOT_READ = "proxy_header_not_read"
    PROXY_NAMES_NOBODY = "proxy_names_nobody"
    GETS_RATE = "gets_rate"


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """Connections of all protocols together: a part of ``[limits]``."""

    connections: int = limit(
        10_000,
        "Connections over all addresses.",
        at_most=100_000,
        refusal=AdmissionRefusal.FULL,
        use="connections",
    )
    connections_per_address: int = limit(
        64,
        "Connections of one IPv4 address or IPv6 /64.",
        at_most=100_000,
        refusal=AdmissionRefusal.ADDRESS_FULL,
    )
    connections_addressless: int = limit(
        256, "Connections that have no address.", at_most=100_000, refusal=AdmissionRefusal.ADDRESSLESS_FULL
    )
    handshakes: int = limit(
        256,
        "Unfinished handshakes; a further one takes the place of the oldest of the network that has most of them.",
        at_least=16,
        at_most=4_096,
        refusal=AdmissionRefusal.HANDSHAKE_DISPLACED,
        use="handshakes",
    )
    handshakes_per_address: int = limit(
        16, "Unfinished handshakes of one address.", at_most=4_096, refusal=AdmissionRefusal.ADDRESS_HANDSHAKES_FULL
    )


DEFAULT_LIMITS: Final = AdmissionLimits()


def address_key(host: str) -> str:
    """Return what connections of ``host`` are counted under: the IPv4 address, the IPv6 /64, or "" for no address."""
    if not host:
        return ""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _IPV6_SITE_BITS), strict=False))


class _Tally:
    """Counts by ``address_key``. Cost: O(1); memory O(addresses counted)."""

    def __init__(self, limits: InForce[AdmissionLimits], *, per_address: bool) -> None:
        self.limits = limits
        """Replaced by a reload."""
        self.per_address = per_address
        """Whether the ceilings per address hold."""
        self._counts: dict[str, int] = {}
        self.total = 0
        """How many are counted in, over all addresses."""

    def _count(self, key: str) -> int:
        return self._counts.get(key, 0)

    def _enter(self, key: str) -> None:
        self._counts[key] = self._count(key) + 1
        self.total += 1

    def _leave(self, key: str) -> None:
        left = self._counts[key] - 1
        if left:
            self._counts[key] = left
        else:
            del self._counts[key]
        self.total -= 1


class _Unfinished:
    """Addresses of unfinished handshakes, by network and in the order in which they began."""

    def __init__(self) -> None:
        self.count = 0
        self._networks: dict[str, OrderedDict[int, str]] = {}
        self._number = 0

    def add(self, key: str) -> tuple[str, int]:
        """Return the network and the number under which ``remove`` finds it."""
        network = network_of(key)
        self.count += 1
        self._number += 1
        self._networks.setdefault(network, OrderedDict())[self._number] = key
        return network, self._number

    def remove(self, network: str, number: int) -> None:
        self.count -= 1
        del self._networks[network][number]
        if not self._networks[network]:
            del self._networks[network]

    def oldest(self) -> str | None:
        """Return the address of the oldest one of the network that has most of them. Cost: O(networks)."""
        largest = max(self._networks.values(), key=len, default=None)
        return None if largest is None else next(iter(largest.values()))


class Handshakes(_Tally):
    """Counts connections that were admitted and are not established yet.

    A silent handshake costs an attacker nothing and lasts ten seconds, so one address has a few of the pool only, and
    the addresses of a network give way together. A quarter of the pool is for addresses that have completed a handshake
    before; those of the others never displace theirs.
    """

    def __init__(self, limits: InForce[AdmissionLimits] | None = None, *, per_address: bool = True) -> None:
        """Make an empty count; ``per_address`` False lifts the share per address, not the pool."""
        super().__init__(limits or InForce(DEFAULT_LIMITS), per_address=per_address)
        self._known: OrderedDict[str, None] = OrderedDict()
        self._of_known, self._of_others = _Unfinished(), _Unfinished()
        self._entries: dict[str, deque[tuple[_Unfinished, str, int]]] = {}
        """Those of each address, the oldest first."""
        self._displaced: dict[str, int] = {}
        """How many of an address lost their place and have not ended yet."""

    def begin(self, key: str) -> tuple[AdmissionRefusal | None, str | None]:
        """Count a handshake in; return the reason why not, and the address whose oldest handshake loses its place."""
        if self.per_address and self._count(key) >= self.limits.now.handshakes_per_address:
            return AdmissionRefusal.ADDRESS_HANDSHAKES_FULL, None
        pool = self.limits.now.handshakes
        is_known, displaced = key in self._known, None
        if self.total >= pool or (not is_known and self._of_others.count >= pool - pool // _RESERVE):
            displaced = self._of_others.oldest()
            if displaced is None and is_known:
                displaced = self._of_known.oldest()
            if displaced is None:
                return AdmissionRefusal.HANDSHAKES_FULL, None
            self._remove(displaced, self._of_others if self._of_others.count else self._of_known)
            self._displaced[displaced] = self._displaced.get(displaced, 0) + 1
        self._enter(key)
        unfinished = self._of_known if is_known else self._of_others
        self._entries.setdefault(key, deque()).append((unfinished, *unfinished.add(key)))
        return None, displaced

    def end(self, key: str, *, established: bool = False) -> None:
        """Count a handshake out; ``established`` makes its address a known one."""
        if established:
            self._known[key] = None
            self._known.move_to_end(key)
            if len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)
        displaced = self._displaced.pop(key, 0)
        if displaced > 1:
            self._displaced[key] = displaced - 1
        if not displaced:  # else it was counted out; which one of the address ends does not matter
            self._remove(key)

    def _remove(self, key: str, pool: _Unfinished | None = None) -> None:
        """Remove the oldest handshake of an address, of one pool or of both."""
        entries = self._entries[key]
        found = next(entry for entry in entries if pool is None or entry[0] is pool)
        entries.remove(found)
        if not entries:
            del self._entries[key]
        unfinished, network, number = found
        unfinished.remove(network, number)
        self._leave(key)


class Admission(_Tally):
    """Counts open connections."""

    def __init__(self, limits: AdmissionLimits = DEFAULT_LIMITS, *, per_address: bool = True) -> None:
        """Make an empty count; ``per_address`` False lifts the ceilings per address, not the one on the total."""
        super().__init__(InForce(limits), per_address=per_address)

    def admit(self, key: str) -> AdmissionRefusal | None:
        """Count a connection in, or return the reason why not."""
        limits = self.limits.now
        if self.total >= limits.connections:
            return AdmissionRefusal.FULL
        if self.per_address and not key and self._count(key) >= limits.connections_addressless:
            return AdmissionRefusal.ADDRESSLESS_FULL
        if self.per_address and key and self._count(key) >= limits.connections_per_address:
            return AdmissionRefusal.ADDRESS_FULL
        self._enter(key)
        return None

    def exempt(self, key: str) -> None:
        """Count a connection that was admitted under ``key`` in the total alone from now on."""
        self._leave(key)
        self.total += 1

    def release(self, key: str, *, is_exempt: bool = False) -> None:
        """Count a connection out that was admitted under ``key``; ``is_exempt`` one that is in the total alone."""
        if is_exempt:
            self.total -= 1
        else:
            self._leave(key)
