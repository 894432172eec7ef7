"""Access: who may use the node at all, and whom no rate touches.

``engine.node`` asks for each connection and each proved identity; an address or identity goes in, a bool comes out. The
operator's lists of ``[access]`` and the bans answer here, for every protocol. A ban wins over both lists, and ``deny``
wins over ``allow`` (NODE-ACCESS). Networks in ``allow`` narrow the addresses, identities in it narrow the identities: a
list with both demands both.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from waystation.core.dids import is_did, key_of_did
from waystation.core.errors import LocalError
from waystation.core.network_set import NetworkSet, Place, place_of
from waystation.engine.admission import AdmissionRefusal
from waystation.engine.bans import BanList, network_of_subject, parse_subject

__all__ = ["Access", "AccessRules", "Names", "parse_access", "parse_names"]

PLACES_MAX: Final = 65_536  # hosts whose number is remembered; as many as LPRP knows sources


class Names(NamedTuple):
    """One list of the operator."""

    identities: frozenset[bytes] = frozenset()
    """As ``core.dids.identity_of`` has them."""
    networks: NetworkSet = NetworkSet()
    """Never changed."""


class AccessRules(NamedTuple):
    """The lists of ``[access]``."""

    allow: Names = Names()
    """Empty: everybody."""
    deny: Names = Names()
    unlimited: frozenset[bytes] = frozenset()
    """Identities whose rates do not bind."""


def parse_names(texts: Iterable[str]) -> Names:
    """Read a list of keys (id52, hexadecimal), DIDs, IP addresses and networks in CIDR.

    Raises:
        LocalError: One of them is none of these.
    """
    identities: set[bytes] = set()
    networks = NetworkSet()
    for text in texts:
        if is_did(text) and key_of_did(text) is None:
            identities.add(text.encode())
            continue
        subject = parse_subject(text)
        network = network_of_subject(subject)
        if network is not None:
            networks.add(network)
        else:
            identities.add(bytes.fromhex(subject.removeprefix("id:")))
    return Names(frozenset(identities), networks)


def parse_access(allow: Iterable[str], deny: Iterable[str], unlimited: Iterable[str]) -> AccessRules:
    """Read the three lists.

    Raises:
        LocalError: An entry is none that its list takes; begins with the name of the list.
    """
    found = {}
    for name, texts in (("allow", allow), ("deny", deny), ("unlimited", unlimited)):
        try:
            found[name] = parse_names(texts)
        except LocalError as error:
            raise LocalError(f"{name}: {error}") from error
    if len(found["unlimited"].networks):
        raise LocalError("unlimited: an address proves nobody; allowed: keys (id52 or hexadecimal) and DIDs")
    return AccessRules(found["allow"], found["deny"], found["unlimited"].identities)


class Access:
    """Bans and lists with one answer. Cost: O(prefix lengths in use) per address, O(1) per identity."""

    def __init__(self, bans: BanList, rules: AccessRules = AccessRules()) -> None:  # noqa: B008 - immutable
        """Answer by ``bans``, whatever changes in them, and by ``rules`` until others are used."""
        self._bans = bans
        self._rules = rules
        self._places: dict[str, Place | None] = {}

    def use(self, rules: AccessRules) -> None:
        """Go by these lists from now on; the caller then has those ended who are refused by them."""
        self._rules = rules

    @property
    def judges_addresses(self) -> bool:
        """Whether any address can be refused; ask this before many of them."""
        rules = self._rules
        return bool(self._bans.addresses or len(rules.deny.networks) or len(rules.allow.networks))

    def refuses_address(self, host: str, wall_us: int) -> AdmissionRefusal | None:
        """Return why no connection or datagram of a host is taken, or None.

        Args:
            host: An address, or what ``address_key`` makes of one; any other text is in no network.
            wall_us: Wall clock, microseconds UTC.
        """
        if not self.judges_addresses:
            return None
        place = self._place(host)
        allow, deny = self._rules.allow.networks, self._rules.deny.networks
        if place is None:
            return AdmissionRefusal.NOT_ALLOWED if len(allow) else None
        if self._bans.refuses_place(place, wall_us):
            return AdmissionRefusal.ADDRESS_BANNED
        if deny.holds_place(place):
            return AdmissionRefusal.DENIED
        return AdmissionRefusal.NOT_ALLOWED if len(allow) and not allow.holds_place(place) else None

    def refuses_identity(self, identity: bytes, wall_us: int) -> bool:
        """Return whether an identity that has proved itself may not use the node.

        Args:
            identity: Its key, or its DID where that is no key.
            wall_us: Wall clock, microseconds UTC.
        """
        return bool(self.why_refused(identity, wall_us))

    def why_refused(self, identity: bytes, wall_us: int) -> str:
        """Return what refuses an identity, for the operator's eyes; "" when nothing does. Arguments as above."""
        allow, deny, _ = self._rules
        if len(self._bans) and self._bans.refuses(f"id:{identity.hex()}", wall_us):
            return "banned"
        if identity in deny.identities:
            return "in access.deny"
        return "not in access.allow" if allow.identities and identity not in allow.identities else ""

    @property
    def demands_identity(self) -> bool:
        """Whether only listed identities may use the node, so that who proves none may not."""
        return bool(self._rules.allow.identities)

    def admits_did(self, did: str) -> bool:
        """Return whether a DID that is no key may use the node; it has no ban, since bans name keys."""
        return not self.refuses_identity(did.encode(), 0)

    def is_unlimited(self, identity: bytes) -> bool:
        """Return whether no rate binds an identity that has proved itself."""
        return identity in self._rules.unlimited

    def _place(self, host: str) -> Place | None:
        try:
            return self._places[host]
        except KeyError:
            if len(self._places) >= PLACES_MAX:
                self._places.clear()
            place = self._places[host] = place_of(host)
            return place
