"""Ban list: peers, addresses and networks that the operator rejects, each with a reason and an end, kept in the store.

The admin port changes it, ``engine.access`` asks it about every connection; each change returns records to make
durable. A subject is an identity (``id:`` and 64 hexadecimal digits), an address key (``address:`` and the result of
``admission.address_key``) or a network (``network:203.0.113.0/24``). Times are wall-clock microseconds, because a ban
survives a restart.
"""

import ipaddress
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from waystation.core.errors import LocalError
from waystation.core.ids import PublicKey
from waystation.core.network_set import Network, NetworkMap, Place, parse_network
from waystation.core.records import Record, Store
from waystation.engine.admission import address_key

__all__ = [
    "BANS_MAX",
    "DAMAGED_REASON",
    "LASTS_S_MAX",
    "TABLE",
    "Ban",
    "BanList",
    "network_of_subject",
    "parse_subject",
    "why_force",
]

TABLE: Final = "bans"
BANS_MAX: Final = 100_000
REASON_CHARS_MAX: Final = 200
DAMAGED_REASON: Final = "damaged on the disk: the reason and the end are lost"
"""Of a ban of which only the subject is left."""
LASTS_S_MAX: Final = 315_360_000
"""Ten years of 365 days: the longest ban with an end; a longer one is permanent."""
_PAGE: Final = 1_000
_SITE_BITS: Final = 64  # as admission.address_key counts IPv6
_BITS: Final = {4: 32, 6: 128}
_LOOPBACK: Final = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::/64"))
"""This machine; ::1 is counted under its /64."""
_MICROSECONDS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Ban:
    """One entry of the list."""

    subject: str
    reason: str
    since_us: int
    """Wall-clock microseconds, UTC."""
    expires_us: int | None
    """Wall-clock microseconds, UTC, or None for good."""


def parse_subject(text: str) -> str:
    """Return the canonical form of a subject: an id52, a key in hex or as a DID, an IP address, or a network in CIDR.

    An IPv6 address, and a network of one address, stands for its /64.

    Raises:
        LocalError: It is none of these, or an IPv6 network with a prefix of 65 to 127 bits.
    """
    bare = text.removeprefix("id:").removeprefix("address:").removeprefix("network:").strip()
    if not text.startswith("id:"):
        if key := address_key(bare):
            return f"address:{key}"
        if "/" in bare:
            return _network_subject(parse_network(bare))
    try:
        identity = PublicKey.parse(bare)
    except LocalError as error:
        raise LocalError(
            f"{text!r} is neither an IP address, nor a network such as 203.0.113.0/24, nor an id52, nor a key in "
            "hexadecimal, nor a DID that is a key"
        ) from error
    return f"id:{identity.hex()}"


def _network_subject(network: Network) -> str:
    bits = _BITS[network.version]
    if network.prefixlen == bits:
        return f"address:{address_key(str(network.network_address))}"
    if network.version == 6 and network.prefixlen > _SITE_BITS:
        raise LocalError(f"{network} is less than one /64, which is one household; name the /64")
    if network.version == 6 and network.prefixlen == _SITE_BITS:
        return f"address:{network}"
    return f"network:{network}"


def network_of_subject(subject: str) -> Network | None:
    """Return the addresses that a canonical subject covers, None for an identity."""
    kind, _, rest = subject.partition(":")
    if kind not in ("address", "network"):
        return None
    try:
        return ipaddress.ip_network(rest)
    except ValueError:
        return None


def why_force(subject: str) -> str | None:
    """Return in a sentence why a ban of a canonical subject is probably a slip, None where it is not."""
    network = network_of_subject(subject)
    if network is None:
        return None
    if network.prefixlen == 0:
        return f"{network} is every address there is"
    if any(network.version == own.version and network.overlaps(own) for own in _LOOPBACK):
        return f"{subject.partition(':')[2]} covers this machine itself, with a proxy that runs on it"
    return None


class BanList:
    """The list in memory; changes come back as records for the store."""

    def __init__(self, store: Store) -> None:
        """Read the list from ``store``."""
        self._bans: dict[str, Ban] = {}
        self._networks = NetworkMap[Ban]()
        """The bans of addresses and networks."""
        start = b""
        while page := list(store.scan(TABLE, start, _PAGE)):
            for key, value in page:
                self._enter(_decode(key, value))
            start = page[-1][0] + b"\x00"
        # NODE-ROT: how long a damaged ban would last is unknown, so it holds until the operator lifts it.
        for row in store.damaged(TABLE):
            if row.key_is_good:
                self._enter(Ban(row.key.decode(), DAMAGED_REASON, 0, None))

    def __iter__(self) -> Iterator[Ban]:
        """Yield all entries, oldest first, expired ones included until they are lifted."""
        return iter(sorted(self._bans.values(), key=lambda ban: (ban.since_us, ban.subject)))

    @property
    def addresses(self) -> int:
        """How many entries are addresses or networks, expired ones included until they are lifted."""
        return len(self._networks)

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._bans)

    def refuses(self, subject: str, wall_us: int) -> bool:
        """Return whether ``subject`` (canonical) is banned at this moment."""
        ban = self._bans.get(subject)
        return ban is not None and (ban.expires_us is None or ban.expires_us > wall_us)

    def refuses_place(self, place: Place, wall_us: int) -> bool:
        """Return whether an address, as ``place_of`` gives it, is banned by itself or with a network of it.

        Cost: one look-up for each prefix length in use, at most 33 and 65.
        """
        return any(ban.expires_us is None or ban.expires_us > wall_us for ban in self._networks.found(place))

    def add(self, ban: Ban) -> Record:
        """Add or replace an entry and return the record that keeps it.

        Raises:
            LocalError: The list is full, the reason is no printable line of its length, or the end is too far away.
        """
        if not 0 < len(ban.reason) <= REASON_CHARS_MAX or not ban.reason.isprintable():
            raise LocalError(f"a reason is one line of 1 to {REASON_CHARS_MAX} characters that can be printed")
        if ban.expires_us is not None and ban.expires_us - ban.since_us > LASTS_S_MAX * _MICROSECONDS:
            raise LocalError(f"a ban with an end lasts at most {LASTS_S_MAX} seconds")
        if len(self._bans) >= BANS_MAX and ban.subject not in self._bans:
            raise LocalError(f"the list holds at most {BANS_MAX} entries")
        value = json.dumps({"reason": ban.reason, "since_us": ban.since_us, "expires_us": ban.expires_us})
        record = Record(TABLE, ban.subject.encode(), value.encode())
        self._enter(ban)  # last: a ban that cannot be kept must not be in force either
        return record

    def lift(self, subject: str) -> Record | None:
        """Remove an entry and return the record that forgets it, or None when there is none."""
        if self._bans.pop(subject, None) is None:
            return None
        network = network_of_subject(subject)
        if network is not None:
            self._networks.discard(network)
        return Record(TABLE, subject.encode(), None)

    def _enter(self, ban: Ban) -> None:
        self._bans[ban.subject] = ban
        network = network_of_subject(ban.subject)
        if network is not None:
            self._networks.put(network, ban)


def _decode(key: bytes, value: bytes) -> Ban:
    fields = json.loads(value)
    return Ban(key.decode(), fields["reason"], fields["since_us"], fields["expires_us"])
