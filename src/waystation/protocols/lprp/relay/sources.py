"""Accounts for the source addresses of datagrams: credit, proof and score per address, limits per network.

``intake`` counts each datagram here; the relay and ``commands.work`` ask what may be sent. Source addresses can be
spoofed, so an address is trusted only as far as evidence supports it:

- a *prefix* (IPv4 /24, IPv6 /56) has credit: bytes received minus bytes sent to visitors, never below zero. So this
  host sends no network more than arrived in its name (LPRP-D17). It limits signature checks and refusals;
- a *source* (address and port) is sent at most four times the bytes that it sent. Answering a challenge that was sent
  to it *proves* it, for the key that did the work (LPRP-D18);
- its *score* rises with accepted packets and falls with bad signatures. A source above zero is trusted, and is served
  even when forged traffic has used up the limits of its prefix (LPRP-STANDING).

A source that is silent for 2**17 ms is reset, because the address may belong to another device by then (LPRP-D21). Both
tables evict the longest silent entries. Trusted or proved sources are skipped a few times, because a flood of spoofed
addresses would otherwise evict every tenant (LPRP-SPARED). Spec: lprp 6 (LPRP-D17, LPRP-D18, LPRP-D21), 7.
"""

import ipaddress
from collections import OrderedDict
from typing import Final

from waystation.core.effects import Address
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_MS, Instant
from waystation.core.limits import TokenBucket, surplus
from waystation.core.settings import InForce
from waystation.protocols.lprp.limits import LprpLimits
from waystation.protocols.lprp.messages import CHALLENGE_LIFE_MS, STALE_ADDRESS_MS, Command
from waystation.protocols.lprp.relay.difficulty import MovingCount

__all__ = [
    "ROOM_UNLIMITED",
    "SCORE_MAX",
    "UNPROVED_FACTOR",
    "Prefix",
    "Source",
    "Sources",
    "prefix_key",
]

UNPROVED_FACTOR: Final = 4  # LPRP-D18
ROOM_UNLIMITED: Final = 1 << 62  # bytes; a proved source is limited by its window alone
SCORE_MAX: Final = 64  # LPRP-STANDING: so many forged packets in a row cost a source its trust
SCORE_PER_ACCEPTED: Final = 8  # LPRP-STANDING: seven forged packets for each accepted one cost no trust

_STALE_US: Final = STALE_ADDRESS_MS * MICROSECONDS_PER_MS
_ISSUED_SLOTS: Final = 8  # LPRP-ISSUED
_ISSUED_SLOT_US: Final = CHALLENGE_LIFE_MS * MICROSECONDS_PER_MS // _ISSUED_SLOTS
_PROTECTED_MAX: Final = 4  # LPRP-SPARED: passed over for one newcomer, so that room is made in constant time


class Prefix:
    """One network: the credit, rations, and challenges that all its addresses share.

    Rations are made at their first use, since most prefixes of a flood never get that far; new limits make them anew.
    """

    __slots__ = (
        "_checks",
        "_failures",
        "_issued",
        "_limits",
        "_made_for",
        "_refusals",
        "checking_count",
        "credit",
        "doubted_count",
        "key",
        "made_at",
    )

    def __init__(self, key: str, limits: InForce[LprpLimits], now: Instant) -> None:
        self.key = key
        self._limits = limits
        self._made_for = limits.now
        """The limits that the rations below have."""
        self.made_at = now
        self.credit = 0
        """Bytes that came in minus bytes sent to visitors; never negative."""
        self.checking_count = 0
        """Signature checks under way."""
        self.doubted_count = 0
        """Those of them for untrusted sources: each may yet cost one of ``failures``."""
        self._refusals: dict[Command, TokenBucket] = {}
        self._failures: TokenBucket | None = None
        self._checks: TokenBucket | None = None
        self._issued: MovingCount | None = None

    def take_refusal(self, command: Command, now: Instant) -> bool:
        """Spend one of the refusals of this kind that may go there, if one is left.

        Each of 401, 402 and 404 has a ration of its own: a sender that writes to keys without a lease must not keep a
        newcomer of its network from getting a 401 (LPRP-REFUSALS).
        """
        limits = self._current()
        bucket = self._refusals.get(command)
        if bucket is None:
            # Spec 7: 10 each of 401, 402 and 404 per second and network.
            rate = limits.refusals_per_second
            bucket = self._refusals[command] = TokenBucket(rate, rate, self.made_at)
        return bucket.take(now)

    @property
    def failures(self) -> TokenBucket:
        """Bad signatures that are tolerated; without a token only trusted sources get a check."""
        limits = self._current()
        if self._failures is None:
            # Spec 7: 256 bad ones of a network at once, 100 a second.
            rate, burst = limits.bad_signatures_per_second, limits.bad_signatures_burst
            self._failures = TokenBucket(rate, burst, self.made_at)
        return self._failures

    @property
    def checks(self) -> TokenBucket:
        """Signature checks of any kind."""
        limits = self._current()
        if self._checks is None:
            # Spec 7: 4,000 a second and network.
            rate = limits.checks_per_second
            self._checks = TokenBucket(rate, rate, self.made_at)
        return self._checks

    def _current(self) -> LprpLimits:
        """Return the limits in force; rations of others are dropped."""
        limits = self._limits.now
        if limits is not self._made_for:
            self._made_for = limits
            self._refusals, self._failures, self._checks = {}, None, None
        return limits

    def issue(self, now: Instant) -> None:
        """Count a challenge."""
        if self._issued is None:
            self._issued = MovingCount(_ISSUED_SLOTS, _ISSUED_SLOT_US, now)
        self._issued.add(now)

    def issued(self, now: Instant) -> int:
        """Return how many challenges went there in the last 2**19 ms, in eighths of which the oldest is cut short."""
        return 0 if self._issued is None else self._issued.total(now)


class Source:
    """One address and port, since its first packet or its last reset."""

    __slots__ = ("address", "bytes_in", "bytes_out", "prefix", "proved_by", "received_at", "score")

    def __init__(self, address: Address, prefix: Prefix, now: Instant) -> None:
        self.address = address
        self.prefix = prefix
        self.received_at = now
        self.reset()

    def reset(self) -> None:
        """Forget everything but the address: the device that is there now has earned nothing."""
        self.bytes_in = 0
        self.bytes_out = 0
        self.proved_by: PublicKey | None = None
        """The key whose work proved that it reads this address; no other key's mail is sent here on that proof."""
        self.score = 0

    def is_stale(self, now: Instant) -> bool:
        """Return whether it was silent for more than 2**17 ms, so that nothing may be sent there."""
        return now - self.received_at > _STALE_US

    @property
    def trusted(self) -> bool:
        """Whether packets that were accepted outweigh the bad signatures (LPRP-STANDING)."""
        return self.score > 0

    def tenant_room(self, tenant: PublicKey) -> int:
        """Return how many bytes this tenant may be sent here, 0 or more; answers are to be counted before mail."""
        # Spec 6: the proof holds for the key that did the work, and for the last such key only.
        return ROOM_UNLIMITED if self.proved_by == tenant else self._unproved_room()

    def sent_to_tenant(self, size: int) -> None:
        """Count ``size`` bytes sent here; the credit for visitors stays."""
        self.bytes_out += size

    def may_answer_visitor(self, size: int) -> bool:
        """Return whether the prefix has credit for ``size`` bytes and the source room, mail counted (LPRP-C1)."""
        # Spec 6: a network gets no more bytes in answers to visitors than came from it.
        return self.prefix.credit >= size and (self.proved_by is not None or self._unproved_room() >= size)

    def _unproved_room(self) -> int:
        # Spec 6: at most four times the bytes that came from it, until it is proved.
        room = UNPROVED_FACTOR * self.bytes_in - self.bytes_out
        return room if room > 0 else 0

    def sent_to_visitor(self, size: int) -> None:
        """Count ``size`` bytes sent here, for which there must be credit."""
        assert self.prefix.credit >= size
        self.prefix.credit -= size
        self.bytes_out += size

    def prove(self, worker: PublicKey) -> None:
        """Note that ``worker`` answered a challenge that was sent only here, so it reads this address.

        Only the last one counts: a tenant could else name the address of another, which has proved it, as its own
        (LPRP-PROOF).
        """
        self.proved_by = worker

    def note_accepted(self) -> None:
        """Raise the score for a packet that a lease, a whitelist or work let in; a signature alone proves nothing."""
        self.score = min(self.score + SCORE_PER_ACCEPTED, SCORE_MAX)

    def note_forged(self) -> None:
        """Lower the score for a bad signature, which anyone can send in this address's name."""
        if self.score > 0:
            self.score -= 1


class Sources:
    """All sources and prefixes that are remembered."""

    __slots__ = ("_limits", "_prefixes", "_sources")

    def __init__(self, limits: InForce[LprpLimits]) -> None:
        """Start empty; there are as many sources and prefixes as ``limits`` say, and a prefix for every source."""
        self._limits = limits
        self._sources: OrderedDict[Address, Source] = OrderedDict()
        self._prefixes: OrderedDict[str, Prefix] = OrderedDict()

    def receive(self, address: Address, size: int, now: Instant) -> Source:
        """Count a datagram of good form and return the source it names, which is new or begins anew where it must.

        Cost: O(1); every datagram that passed the first checks comes through here.
        """
        source = self._sources.get(address)
        if source is None:
            source = self._add(address, now)
        else:
            self._sources.move_to_end(address)
            self._prefixes.move_to_end(source.prefix.key)
            # Spec 6: after 2^17 ms of silence both begin anew.
            if now - source.received_at > _STALE_US:
                source.reset()
            source.received_at = now
        source.bytes_in += size
        # LPRP-C1: bytes count as credit from stage 1 on.
        source.prefix.credit += size
        return source

    def find(self, address: Address) -> Source | None:
        """Return the source of an address without counting a packet; None when it is unknown or forgotten."""
        return self._sources.get(address)

    def sizes(self) -> dict[str, int]:
        """Return how much of each bounded thing there is."""
        return {"sources": len(self._sources), "prefixes": len(self._prefixes)}

    def _add(self, address: Address, now: Instant) -> Source:
        # Room for the source comes first: then the prefix that has to go is never one of a source that stays.
        limits = self._limits.now
        for _ in range(surplus(len(self._sources) + 1, limits.sources)):
            self._forget_one(now)
        key = prefix_key(address[0])
        prefix = self._prefixes.get(key)
        if prefix is None:
            # With more prefixes than sources, the one that was silent longest has no source that stays.
            for _ in range(surplus(len(self._prefixes) + 1, max(limits.networks, len(self._sources) + 1))):
                self._prefixes.popitem(last=False)
            prefix = self._prefixes[key] = Prefix(key, self._limits, now)
        else:
            self._prefixes.move_to_end(key)
        source = self._sources[address] = Source(address, prefix, now)
        return source

    def _forget_one(self, now: Instant) -> None:
        for _ in range(_PROTECTED_MAX):
            address, source = next(iter(self._sources.items()))
            # LPRP-SPARED: up to four proved or trusted sources are passed over for each newcomer.
            if not (source.proved_by or source.score) or source.is_stale(now):
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
