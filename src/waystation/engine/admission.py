"""Who may connect: ceilings on connections in all, per address, and without any address.

Counting is all that happens here, and it happens before a TLS handshake or a signature is paid for.
Spec: BHUMI-L (10 000 total, 64 per IP, 256 in the pool that has no IP; choice BHUMI-POOL).
"""

import ipaddress
from enum import Enum
from typing import Final

__all__ = [
    "ADDRESSLESS_MAX",
    "CONNECTIONS_MAX",
    "HANDSHAKES_MAX",
    "HANDSHAKES_PER_ADDRESS_MAX",
    "PER_ADDRESS_MAX",
    "Admission",
    "AdmissionRefusal",
    "Handshakes",
    "address_key",
]

CONNECTIONS_MAX: Final = 10_000
PER_ADDRESS_MAX: Final = 64
ADDRESSLESS_MAX: Final = 256
HANDSHAKES_MAX: Final = 256  # the pool of connections nobody knows yet, BHUMI-POOL
HANDSHAKES_PER_ADDRESS_MAX: Final = 16  # so that it takes many addresses to fill the pool
_IPV6_SITE_BITS: Final = 64  # one household or server gets at least this much; counting less is counting nothing


class AdmissionRefusal(Enum):
    """Why a connection is closed before it may say anything."""

    FULL = "connections_full"
    ADDRESS_FULL = "address_full"
    HANDSHAKES_FULL = "handshakes_full"
    ADDRESS_HANDSHAKES_FULL = "address_handshakes_full"
    ADDRESSLESS_FULL = "addressless_full"
    ADDRESS_BANNED = "address_banned"
    POLICY_BLOCKED = "policy_blocked"
    POLICY_RATE = "policy_rate"
    RETIRING = "retiring"


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

    def __init__(self, *, per_address: bool) -> None:
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


class Handshakes(_Tally):
    """Counts connections that were admitted and do not stand yet.

    A silent handshake costs an attacker nothing and lasts ten seconds, so one address may only have a few of the pool.
    """

    def __init__(self, *, per_address: bool = True) -> None:
        """Make an empty count; ``per_address`` False lifts the share per address, not the pool."""
        super().__init__(per_address=per_address)

    def begin(self, key: str) -> AdmissionRefusal | None:
        """Count a handshake in, or say why not."""
        if self.total >= HANDSHAKES_MAX:
            return AdmissionRefusal.HANDSHAKES_FULL
        if self.per_address and self._count(key) >= HANDSHAKES_PER_ADDRESS_MAX:
            return AdmissionRefusal.ADDRESS_HANDSHAKES_FULL
        self._enter(key)
        return None

    def end(self, key: str) -> None:
        """Count a handshake out, however it ended."""
        self._leave(key)


class Admission(_Tally):
    """Counts open connections."""

    def __init__(
        self,
        *,
        per_address: bool = True,
        connections_max: int = CONNECTIONS_MAX,
        per_address_max: int = PER_ADDRESS_MAX,
    ) -> None:
        """Make an empty count.

        Args:
            per_address: False lifts the ceilings per address, not the one on the total.
            connections_max: The ceiling on the total.
            per_address_max: The ceiling of each address.
        """
        super().__init__(per_address=per_address)
        self._connections_max = connections_max
        self._per_address_max = per_address_max

    def admit(self, key: str) -> AdmissionRefusal | None:
        """Count a connection in, or say why not."""
        if self.total >= self._connections_max:
            return AdmissionRefusal.FULL
        if self.per_address and not key and self._count(key) >= ADDRESSLESS_MAX:
            return AdmissionRefusal.ADDRESSLESS_FULL
        if self.per_address and key and self._count(key) >= self._per_address_max:
            return AdmissionRefusal.ADDRESS_FULL
        self._enter(key)
        return None

    def release(self, key: str) -> None:
        """Count a connection out that was admitted under ``key``."""
        self._leave(key)
