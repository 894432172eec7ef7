"""Sets and maps of IP networks (CIDR) that answer which network an address is in.

The ban list, the operator's access lists and the trusted proxies look up the address of every connection here. The cost
depends on the number of prefix lengths in use and not on the number of networks, so a long ban list slows nothing down.
"""

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Final, Generic, TypeVar

from waystation.core.errors import LocalError

__all__ = ["Network", "NetworkMap", "NetworkSet", "Place", "parse_network", "place_of"]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

Place = tuple[int, int]
"""An address as numbers: its version, 4 or 6, and its value."""

_Value = TypeVar("_Value")

_BITS: Final = {4: 32, 6: 128}


def place_of(host: str) -> Place | None:
    """Return an address, or the first one of a network that is written as address/length, as numbers.

    An IPv4 address within IPv6 is the IPv4 address; text that is no address has no numbers.
    """
    try:
        address = ipaddress.ip_address(host.partition("/")[0].partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.version, int(address)


def parse_network(text: str) -> Network:
    """Return the network that an address or a prefix names, such as "203.0.113.7", "10.0.0.0/8" or "2001:db8::/32".

    Raises:
        LocalError: It is neither, or the prefix has bits of a host.
    """
    try:
        found = ipaddress.ip_network(text.strip())
    except ValueError as error:
        raise LocalError(f"{text!r} is no IP address and no network such as 10.0.0.0/8: {error}") from error
    if isinstance(found, ipaddress.IPv6Network) and (inner := found.network_address.ipv4_mapped) is not None:
        if found.prefixlen < 96:
            raise LocalError(f"{text!r} is an IPv4 network in IPv6 form; write it as an IPv4 network")
        return ipaddress.IPv4Network((inner, found.prefixlen - 96))
    return found


class NetworkMap(Generic[_Value]):
    """Values by network, of both families; an IPv4 address within IPv6 counts as the IPv4 address.

    Cost of a look-up: one for each prefix length in use, at most 33 and 129.
    """

    __slots__ = ("_masked", "_members")

    def __init__(self) -> None:
        self._members: set[Network] = set()
        self._masked: dict[int, dict[int, dict[int, _Value]]] = {4: {}, 6: {}}
        """By version, then by the count of host bits: values by the networks' numbers without those bits."""

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Network]:
        return iter(self._members)

    def put(self, network: Network, value: _Value) -> None:
        """Take a network in, or replace its value."""
        self._members.add(network)
        host_bits, number = _masked(network)
        self._masked[network.version].setdefault(host_bits, {})[number] = value

    def discard(self, network: Network) -> None:
        """Leave a network out; one that is not in is fine."""
        if network not in self._members:
            return
        self._members.discard(network)
        host_bits, number = _masked(network)
        values = self._masked[network.version][host_bits]
        del values[number]
        if not values:
            del self._masked[network.version][host_bits]

    def found(self, place: Place) -> Iterator[_Value]:
        """Yield the values of the networks that an address, as ``place_of`` gives it, is in."""
        version, number = place
        for host_bits, values in self._masked[version].items():
            masked = number >> host_bits
            if masked in values:
                yield values[masked]


class NetworkSet(NetworkMap[None]):
    """Networks without values."""

    __slots__ = ()

    def __init__(self, networks: Iterable[Network] = ()) -> None:
        """Begin with ``networks``."""
        super().__init__()
        for network in networks:
            self.add(network)

    def add(self, network: Network) -> None:
        """Take a network in; one that is in stays."""
        self.put(network, None)

    def holds(self, host: str) -> bool:
        """Return whether an address is in one of the networks; text that is no address is in none."""
        if not len(self):
            return False
        place = place_of(host)
        return place is not None and self.holds_place(place)

    def holds_place(self, place: Place) -> bool:
        """Return whether an address, as ``place_of`` gives it, is in one of the networks."""
        return any(True for _ in self.found(place))


def _masked(network: Network) -> tuple[int, int]:
    """Return the count of host bits of a network, and its number without them."""
    host_bits = _BITS[network.version] - network.prefixlen
    return host_bits, int(network.network_address) >> host_bits
