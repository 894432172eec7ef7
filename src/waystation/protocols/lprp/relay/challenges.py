"""The table of a host's open challenges (demands for proof of work), with four limits and their eviction.

``commands.work`` adds one for each demand and finds it again when the solution arrives. A challenge costs its requester
one signed packet and the host half a kilobyte. A key or prefix over its limit evicts its own oldest challenge. At the
limits of the table and per recipient, the source with the most challenges loses one. Expired challenges are evicted
first. Until then they are kept for another 2**19 ms, so that a late answer gets a 401 (LPRP-D6). Spec: lprp 7.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from waystation.core.effects import Address
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_MS, Instant
from waystation.core.limits import surplus
from waystation.core.settings import InForce
from waystation.protocols.lprp.limits import LprpLimits
from waystation.protocols.lprp.messages import CHALLENGE_LIFE_MS, Kind, Packet

__all__ = [
    "KEEP_EXPIRED_MS",
    "PROTECTED_MS",
    "PROTECTED_OF_PREFIX_MAX",
    "Challenge",
    "Challenges",
    "is_expired",
]

KEEP_EXPIRED_MS: Final = 1 << 19  # LPRP-C5

_Key = TypeVar("_Key")
_Item = TypeVar("_Item")

PROTECTED_OF_PREFIX_MAX: Final = 2  # ours, among the challenges for one recipient
PROTECTED_MS: Final = 60_000  # ours: as long as the most work takes

_PROTECTED_US: Final = PROTECTED_MS * MICROSECONDS_PER_MS
_LIFE_US: Final = CHALLENGE_LIFE_MS * MICROSECONDS_PER_MS
_KEPT_US: Final = _LIFE_US + KEEP_EXPIRED_MS * MICROSECONDS_PER_MS


@dataclass(slots=True, eq=False)
class Challenge:
    """One demand for work, and everything that its answer will need."""

    packet: bytes
    """The 602, 604 or 608 as it was sent, 208 bytes: the input of the hash."""
    signature: bytes
    """Its first 64 bytes, by which the answer names it."""
    kind: Kind
    worker: PublicKey
    """The key that has to do the work: no other may answer."""
    address: Address | None
    """The address that it was sent to; an answer from there proves the address. None once it was sent to a second one:
    it then proves nothing, since the sender of one may answer in the name of the other."""
    prefix: str
    """Network of that address."""
    asked: Packet
    """The 102, 104 or 108 it was made for, which is carried out once the work is done."""
    recipient: bytes
    """Recipient of ``asked``, 32 bytes: for a 102 the tenant whose mail it would be."""
    bits: int
    """Leading zero bits demanded."""
    made_at: Instant
    refusals: int = 0
    """Packets 401 sent for it."""
    tried_at: Instant | None = None
    """When its worker last sent a 101 from that address, which a spoofed address cannot do."""
    vouches: int = 0
    """How many packets it has vouched for."""

    def may_refuse(self, refusals_max: int) -> bool:
        """Count one more 401, and return whether it may be sent: beyond ``refusals_max`` there is silence."""
        self.refusals += 1
        # Spec 4: too few bits: 401, 32 times; then silence.
        return self.refusals <= refusals_max


def is_expired(challenge: Challenge, now: Instant) -> bool:
    """Return whether it is older than 2**19 ms; at exactly that age work is still taken."""
    # Spec 4: older than 2^19 ms: 401.
    return now - challenge.made_at > _LIFE_US


_Group = dict[bytes, Challenge]
"""Challenges of one key, prefix or recipient by signature, in the order in which they were made."""


class Challenges:
    """All challenges that wait, in the order in which they were made.

    Since all live equally long, the oldest of any group is the one that expires first.
    """

    __slots__ = ("_all", "_by_fullness", "_by_key", "_by_prefix", "_by_recipient", "_limits")

    def __init__(self, limits: InForce[LprpLimits]) -> None:
        """Start empty, with room for as many as ``limits`` say."""
        self._limits = limits
        self._all: OrderedDict[bytes, Challenge] = OrderedDict()
        self._by_key: dict[bytes, _Group] = {}
        self._by_prefix: dict[str, _Group] = {}
        self._by_recipient: dict[bytes, _Group] = {}
        # The prefixes with so many challenges, each row in the order in which they came to that number.
        self._by_fullness: list[OrderedDict[str, None]] = []

    def __len__(self) -> int:
        return len(self._all)

    def add(self, challenge: Challenge, now: Instant) -> list[Challenge]:
        """Add one that was made now and return those that it evicts, at most two for each limit.

        The newcomer counts already when the fullest prefix is searched, and is never evicted itself. Prefixes that
        are equally full: for one recipient the one with the oldest challenge loses it, in the whole table the one that
        has been at that number for longest. The very packet a second time takes the place of the first.

        Cost: O(c), the challenges of its key, its network and its recipient, and those of the fullest prefix.
        """
        self.remove(challenge.signature)
        self._insert(challenge)
        pushed_out = []
        limits = self._limits.now
        # Spec 7: 4 challenges of a key, 32 of a network, 64 for mail to one recipient, 16,384 in all.
        of_key = self._by_key[challenge.worker]
        for _ in range(surplus(len(of_key), limits.challenges_per_key)):
            pushed_out += [self._take_out(_idlest(of_key, challenge, now))]
        of_prefix = self._by_prefix[challenge.prefix]
        for _ in range(surplus(len(of_prefix), limits.challenges_per_network)):
            pushed_out += [self._take_out(_idlest(of_prefix, challenge, now))]
        if challenge.kind is Kind.RELAY:
            for_recipient = self._by_recipient[challenge.recipient]
            for _ in range(surplus(len(for_recipient), limits.challenges_per_recipient)):
                pushed_out += [self._take_out(_loser(for_recipient, challenge, now))]
        for _ in range(surplus(len(self._all), limits.challenges)):
            pushed_out += [self._take_out(self._loser_of_all(challenge, now))]
        return pushed_out

    def find(self, signature: bytes) -> Challenge | None:
        """Return the challenge of this signature, expired or not; None when there is none."""
        return self._all.get(signature)

    def remove(self, signature: bytes) -> None:
        """Drop the challenge of this signature, if there is one: it is answered, or was refused too often."""
        challenge = self._all.get(signature)
        if challenge is not None:
            self._take_out(challenge)

    def oldest(self) -> Challenge | None:
        """Return the one that was made first, None while there are none."""
        return _first(self._all.values()) if self._all else None

    def expire(self, now: Instant) -> list[Challenge]:
        """Drop those that expired more than 2**19 ms ago, and return them."""
        dropped = []
        while (due := self.next_expiry()) is not None and due <= now:
            dropped.append(self._take_out(_first(self._all.values())))
        return dropped

    def next_expiry(self) -> Instant | None:
        """Return when ``expire`` has something to drop next, None while there are no challenges."""
        oldest = self.oldest()
        return None if oldest is None else Instant(oldest.made_at + _KEPT_US + 1)

    def _loser_of_all(self, newcomer: Challenge, now: Instant) -> Challenge:
        oldest = _first(self._all.values())
        # An expired challenge can only be answered with 401: it goes before any that can still be met.
        if is_expired(oldest, now):
            return oldest
        fullest = next(row for row in reversed(self._by_fullness) if row)
        # The newcomer stands first where others have just come down to one challenge, after a limit was lowered.
        groups = (self._by_prefix[prefix] for prefix in fullest)
        group = next(group for group in groups if len(group) > 1 or newcomer.signature not in group)
        return _idlest(group, newcomer, now)

    def _insert(self, challenge: Challenge) -> None:
        self._all[challenge.signature] = challenge
        self._by_key.setdefault(challenge.worker, {})[challenge.signature] = challenge
        group = self._by_prefix.setdefault(challenge.prefix, {})
        group[challenge.signature] = challenge
        self._move(challenge.prefix, len(group) - 1, len(group))
        if challenge.kind is Kind.RELAY:
            self._by_recipient.setdefault(challenge.recipient, {})[challenge.signature] = challenge

    def _take_out(self, challenge: Challenge) -> Challenge:
        del self._all[challenge.signature]
        count = len(self._by_prefix[challenge.prefix])
        self._move(challenge.prefix, count, count - 1)
        _drop(self._by_prefix, challenge.prefix, challenge)
        _drop(self._by_key, challenge.worker, challenge)
        if challenge.kind is Kind.RELAY:
            _drop(self._by_recipient, challenge.recipient, challenge)
        return challenge

    def _move(self, prefix: str, count_before: int, count: int) -> None:
        if count_before:
            del self._by_fullness[count_before][prefix]
        if count:
            while len(self._by_fullness) <= count:
                self._by_fullness.append(OrderedDict())
            self._by_fullness[count][prefix] = None


def _loser(group: _Group, newcomer: Challenge, now: Instant) -> Challenge:
    """Return the oldest if it is expired, else the first evictable one of the prefix that has most of those."""
    others = [challenge for challenge in group.values() if challenge is not newcomer]
    if is_expired(others[0], now):
        return others[0]
    # LPRP-FULLEST: two of a network among those for one mailbox are protected.
    candidates = _evictable(others, PROTECTED_OF_PREFIX_MAX, now)
    counts = Counter(challenge.prefix for challenge in (*candidates, newcomer))
    fullest = max((challenge.prefix for challenge in candidates), key=counts.__getitem__)
    return next(challenge for challenge in candidates if challenge.prefix == fullest)


def _idlest(group: _Group, newcomer: Challenge, now: Instant) -> Challenge:
    """Return the oldest evictable one, and never the newcomer; up to half of a group are protected from eviction."""
    others = [challenge for challenge in group.values() if challenge is not newcomer]
    # LPRP-FULLEST: half of those of a key or network are protected.
    return _evictable(others, len(group) // 2, now)[0]


def _evictable(challenges: list[Challenge], protected_max: int, now: Instant) -> list[Challenge]:
    """Return those that may be evicted, or all where there are none.

    A worker that answered lately exists, while a spoofed address never answers. But answers cost nothing where they
    need not be right, so only a few of each prefix are protected, and not for long.
    """
    protected: Counter[str] = Counter()
    candidates = []
    for challenge in challenges:
        at = challenge.tried_at
        if at is not None and now - at <= _PROTECTED_US and protected[challenge.prefix] < protected_max:
            protected[challenge.prefix] += 1
        else:
            candidates.append(challenge)
    return candidates or challenges


def _first(items: Iterable[_Item]) -> _Item:
    return next(iter(items))


def _drop(groups: dict[_Key, _Group], key: _Key, challenge: Challenge) -> None:
    group = groups[key]
    del group[challenge.signature]
    if not group:
        del groups[key]
