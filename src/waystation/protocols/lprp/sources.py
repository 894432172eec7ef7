"""What an address has earned: how much may be sent to it, whether it is heard in a crowd, what its prefix may cost us.

Whoever sends a datagram can write any source address on it, so an address counts by what can be known about it:

- a *prefix* (IPv4 /24, IPv6 /56) has credit: what came in minus what went out to strangers, never below zero, so that
  this host sends nobody more than arrived in its name (LPRP-D17). Checks of signatures, and refusals, are rationed by
  it;
- a *source* (address and port) is sent at most four times what came from it, until it is *proved* by answering a
  challenge that was sent to it, for the key that did the work (LPRP-D18);
- its *standing* grows with packets that were accepted and sinks with bad signatures; a source that has some is
  trusted, and is still heard when forged traffic uses up what its prefix may cost (LPRP-STANDING).

A source that says nothing for 2**17 ms begins anew: the address may be somebody else's by now (LPRP-D21). Both tables
forget whom they have not heard for longest; a trusted or proved source is passed over a few times first, because a
flood of invented addresses would otherwise take from every tenant what only it can earn (LPRP-SPARED). Spec: lprp 6
(LPRP-D17, LPRP-D18, LPRP-D21), 7, 10.1.
"""

import ipaddress
from collections import OrderedDict
from typing import Final

from waystation.core.effects import Address
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_MS, Instant
from waystation.core.limits import TokenBucket
from waystation.protocols.lprp.difficulty import MovingCount
from waystation.protocols.lprp.messages import CHALLENGE_LIFE_MS, STALE_ADDRESS_MS, Command

__all__ = [
    "PREFIXES_MAX",
    "ROOM_UNLIMITED",
    "SOURCES_MAX",
    "STANDING_MAX",
    "UNPROVED_FACTOR",
    "Prefix",
    "Source",
    "Sources",
    "prefix_key",
]

SOURCES_MAX: Final = 65_536  # ours: as many as tenants, and as prefixes
PREFIXES_MAX: Final = 65_536  # lprp 7, source credit
UNPROVED_FACTOR: Final = 4  # LPRP-D18
ROOM_UNLIMITED: Final = 1 << 62  # bytes; what a proved source may be sent is limited by its window alone
STANDING_MAX: Final = 64  # LPRP-STANDING: so many forged packets in a row cost a source its trust
STANDING_PER_ACCEPTED: Final = 8  # LPRP-STANDING: whoever forges seven packets for each of ours does not take our trust
REFUSALS_PER_S: Final = 10  # lprp 7, of each kind (LPRP-REFUSALS)
FAILURES_PER_S: Final = 100  # LPRP-RATION: bad signatures; half a per cent of what a core can check
FAILURES_BURST: Final = 256
CHECKS_PER_S: Final = 4_000  # LPRP-RATION: a fifth of what a core can check, for one prefix

_STALE_US: Final = STALE_ADDRESS_MS * MICROSECONDS_PER_MS
_ISSUED_SLOTS: Final = 8  # LPRP-ISSUED
_ISSUED_SLOT_US: Final = CHALLENGE_LIFE_MS * MICROSECONDS_PER_MS // _ISSUED_SLOTS
_SPARED_MAX: Final = 4  # LPRP-SPARED: passed over for one newcomer, so that room is made in constant time


class Prefix:
    """What all addresses of one network share: credit, rations, and the challenges they were given.

    Rations come into being when they are first asked for, since most prefixes of a flood never get that far.
    """

    __slots__ = (
        "_checks",
        "_failures",
        "_issued",
        "_refusals",
        "checking_count",
        "credit",
        "doubted_count",
        "key",
        "made_at",
    )

    def __init__(self, key: str, now: Instant) -> None:
        self.key = key
        self.made_at = now
        self.credit = 0
        """Bytes that came in minus bytes sent to strangers; never negative."""
        self.checking_count = 0
        """Signature checks under way."""
        self.doubted_count = 0
        """Those of them for sources without standing: each may yet cost one of ``failures``."""
        self._refusals: dict[Command, TokenBucket] = {}
        self._failures: TokenBucket | None = None
        self._checks: TokenBucket | None = None
        self._issued: MovingCount | None = None

    def take_refusal(self, command: Command, now: Instant) -> bool:
        """Spend one of the refusals of this kind that may go there, if one is left.

        Each of 401, 402 and 404 has a ration of its own: a neighbour who asks for mail to nobody must not keep a
        newcomer from hearing that its work was too little (LPRP-REFUSALS).
        """
        bucket = self._refusals.get(command)
        if bucket is None:
            bucket = self._refusals[command] = TokenBucket(REFUSALS_PER_S, REFUSALS_PER_S, self.made_at)
        return bucket.take(now)

    @property
    def failures(self) -> TokenBucket:
        """Bad signatures that are forgiven; without a token only trusted sources are heard."""
        if self._failures is None:
            self._failures = TokenBucket(FAILURES_PER_S, FAILURES_BURST, self.made_at)
        return self._failures

    @property
    def checks(self) -> TokenBucket:
        """Signatures that are checked at all."""
        if self._checks is None:
            self._checks = TokenBucket(CHECKS_PER_S, CHECKS_PER_S, self.made_at)
        return self._checks

    def issue(self, now: Instant) -> None:
        """Count a challenge."""
        if self._issued is None:
            self._issued = MovingCount(_ISSUED_SLOTS, _ISSUED_SLOT_US, now)
        self._issued.add(now)

    def issued(self, now: Instant) -> int:
        """Return how many challenges went there in the last 2**19 ms, in eighths of which the oldest is cut short."""
        return 0 if self._issued is None else self._issued.total(now)


class Source:
    """One address and port, since it was heard first or began anew."""

    __slots__ = ("address", "bytes_in", "bytes_out", "heard_at", "prefix", "proved_by", "standing")

    def __init__(self, address: Address, prefix: Prefix, now: Instant) -> None:
        self.address = address
        self.prefix = prefix
        self.heard_at = now
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget everything but the address: whoever is there now has earned nothing."""
        self.bytes_in = 0
        self.bytes_out = 0
        self.proved_by: PublicKey | None = None
        """Whose work showed that it hears what is sent here; nobody else may have its mail sent here for it."""
        self.standing = 0

    def is_stale(self, now: Instant) -> bool:
        """Return whether nothing was heard for more than 2**17 ms, so that nothing may be sent there."""
        return now - self.heard_at > _STALE_US

    @property
    def trusted(self) -> bool:
        """Whether packets that were accepted outweigh the bad signatures (LPRP-STANDING)."""
        return self.standing > 0

    def tenant_room(self, tenant: PublicKey) -> int:
        """Return how many bytes this tenant may be sent here, 0 or more; answers are to be counted before mail."""
        return ROOM_UNLIMITED if self.proved_by == tenant else self._unproved_room()

    def sent_to_tenant(self, size: int) -> None:
        """Count ``size`` bytes sent here; nothing is taken from the credit of strangers."""
        self.bytes_out += size

    def may_answer_stranger(self, size: int) -> bool:
        """Return whether the prefix has credit for ``size`` bytes and the source room, mail counted (LPRP-C1)."""
        return self.prefix.credit >= size and (self.proved_by is not None or self._unproved_room() >= size)

    def _unproved_room(self) -> int:
        room = UNPROVED_FACTOR * self.bytes_in - self.bytes_out
        return room if room > 0 else 0

    def sent_to_stranger(self, size: int) -> None:
        """Count ``size`` bytes sent here, for which there must be credit."""
        assert self.prefix.credit >= size
        self.prefix.credit -= size
        self.bytes_out += size

    def prove(self, worker: PublicKey) -> None:
        """Take note that ``worker`` answered a challenge which went only here: whoever asks can also hear.

        Only the last one counts: a tenant could else name the address of another, which has proved it, as its own
        (LPRP-PROOF).
        """
        self.proved_by = worker

    def note_accepted(self) -> None:
        """Raise the standing for a packet that a lease, a whitelist or work let in; a signature alone is anybody's."""
        self.standing = min(self.standing + STANDING_PER_ACCEPTED, STANDING_MAX)

    def note_forged(self) -> None:
        """Lower the standing for a bad signature, which anyone can send in this address's name."""
        if self.standing > 0:
            self.standing -= 1


class Sources:
    """All sources and prefixes that are remembered."""

    __slots__ = ("_prefixes", "_prefixes_max", "_sources", "_sources_max")

    def __init__(self, sources_max: int = SOURCES_MAX, prefixes_max: int = PREFIXES_MAX) -> None:
        """Start empty.

        Args:
            sources_max: Addresses that are remembered, at least 1.
            prefixes_max: Prefixes that are remembered, at least as many: only then no source outlives its prefix.
        """
        assert sources_max >= 1
        assert sources_max <= prefixes_max
        self._sources_max = sources_max
        self._prefixes_max = prefixes_max
        self._sources: OrderedDict[Address, Source] = OrderedDict()
        self._prefixes: OrderedDict[str, Prefix] = OrderedDict()

    def hear(self, address: Address, size: int, now: Instant) -> Source:
        """Count a datagram of good form and return the source it names, which is new or begins anew where it must.

        Cost: O(1); every datagram that passed the first checks comes through here.
        """
        source = self._sources.get(address)
        if source is None:
            source = self._meet(address, now)
        else:
            self._sources.move_to_end(address)
            self._prefixes.move_to_end(source.prefix.key)
            if now - source.heard_at > _STALE_US:
                source.begin_anew()
            source.heard_at = now
        source.bytes_in += size
        source.prefix.credit += size
        return source

    def find(self, address: Address) -> Source | None:
        """Return what is known of an address without hearing it; None when it was never heard or is forgotten."""
        return self._sources.get(address)

    def sizes(self) -> dict[str, int]:
        """Return how much of each bounded thing there is."""
        return {"sources": len(self._sources), "prefixes": len(self._prefixes)}

    def _meet(self, address: Address, now: Instant) -> Source:
        # Room for the source comes first: then the prefix that has to go is never one of a source that stays.
        if len(self._sources) >= self._sources_max:
            self._forget_one(now)
        key = prefix_key(address[0])
        prefix = self._prefixes.get(key)
        if prefix is None:
            if len(self._prefixes) >= self._prefixes_max:
                self._prefixes.popitem(last=False)
            prefix = self._prefixes[key] = Prefix(key, now)
        else:
            self._prefixes.move_to_end(key)
        source = self._sources[address] = Source(address, prefix, now)
        return source

    def _forget_one(self, now: Instant) -> None:
        for _ in range(_SPARED_MAX):
            address, source = next(iter(self._sources.items()))
            if not (source.proved_by or source.standing) or source.is_stale(now):
                break
            self._sources.move_to_end(address)
            self._prefixes.move_to_end(source.prefix.key)
        self._sources.popitem(last=False)


def prefix_key(host: str) -> str:
    """Return the network of an address as text: IPv4 /24, IPv6 /56, an IPv4-mapped address as IPv4.

    Args:
        host: Address as text, without brackets; a text that is no address is a network of its own.
    """
    if ":" in host:
        return _prefix_key_v6(host)
    if host.count(".") == 3:
        return host[: host.rindex(".")] + ".0/24"
    return host


def _prefix_key_v6(host: str) -> str:
    groups = host.split(":", 4)
    if len(groups) == 5:
        # A third of what a full parse costs, for all addresses whose network is written out.
        try:
            return _network_v6(*(int(group, 16) for group in groups[:4]))
        except ValueError:
            pass
    try:
        parsed = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    if parsed.ipv4_mapped is not None:
        return prefix_key(str(parsed.ipv4_mapped))
    number = int(parsed)
    return _network_v6(number >> 112, number >> 96 & 0xFFFF, number >> 80 & 0xFFFF, number >> 64 & 0xFFFF)


def _network_v6(first: int, second: int, third: int, fourth: int) -> str:
    return f"{first:x}:{second:x}:{third:x}:{fourth & 0xFF00:x}::/56"
