"""Challenges whose answer is awaited, and which of them goes when one too many is made.

Making a challenge costs a stranger one signed packet and the host half a kilobyte, so their number is limited four
ways. What is pushed out hits whoever made it necessary: a key or a prefix over its limit loses its own oldest, and
where many compete, for the table or for one recipient's mail, the one with most of them does. A challenge that is too
old to be answered goes before any other; until room is needed it stays for another 2**19 ms, so that whoever answers
too late hears so (LPRP-D6). Spec: lprp 7, 10.5.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from waystation.core.effects import Address
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_MS, Instant
from waystation.protocols.lprp.messages import CHALLENGE_LIFE_MS, Kind, Packet

__all__ = [
    "CHALLENGES_MAX",
    "KEEP_EXPIRED_MS",
    "PER_KEY_MAX",
    "PER_PREFIX_MAX",
    "PER_RECIPIENT_MAX",
    "REFUSALS_MAX",
    "SPARED_MS",
    "SPARED_OF_PREFIX_MAX",
    "Challenge",
    "Challenges",
    "is_expired",
]

CHALLENGES_MAX: Final = 16_384  # this and the next three: lprp 7
PER_PREFIX_MAX: Final = 32
PER_KEY_MAX: Final = 4
PER_RECIPIENT_MAX: Final = 64
REFUSALS_MAX: Final = 32  # LPRP-D6: packets 401 for one challenge
KEEP_EXPIRED_MS: Final = 1 << 19  # LPRP-C5

_Key = TypeVar("_Key")
_Item = TypeVar("_Item")

SPARED_OF_PREFIX_MAX: Final = 2  # ours, among the challenges for one recipient
SPARED_MS: Final = 60_000  # ours: as long as the most work takes

_SPARED_US: Final = SPARED_MS * MICROSECONDS_PER_MS
_LIFE_US: Final = CHALLENGE_LIFE_MS * MICROSECONDS_PER_MS
_KEPT_US: Final = _LIFE_US + KEEP_EXPIRED_MS * MICROSECONDS_PER_MS


@dataclass(slots=True, eq=False)
class Challenge:
    """One demand for work, and everything that its answer will need."""

    packet: bytes
    """The 602, 604 or 608 as it was sent, 208 bytes: what is hashed."""
    signature: bytes
    """Its first 64 bytes, by which the answer names it."""
    kind: Kind
    worker: PublicKey
    """Who has to do the work: no other key may answer."""
    address: Address | None
    """Where it was sent; an answer from there proves the address. None once it was sent elsewhere too: it then proves
    nothing, since whoever asked from there may answer in the name of here."""
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
    """When its worker last sent a 101 from where it went: somebody is there, which no invented address can say."""
    vouches: int = 0
    """For how many packets that name it it has spoken."""

    def may_refuse(self) -> bool:
        """Count one more 401, and return whether it may be sent: beyond 32 there is silence."""
        self.refusals += 1
        return self.refusals <= REFUSALS_MAX


def is_expired(challenge: Challenge, now: Instant) -> bool:
    """Return whether it is older than 2**19 ms; at exactly that age work is still taken."""
    return now - challenge.made_at > _LIFE_US


_Group = dict[bytes, Challenge]
"""Challenges of one key, prefix or recipient by signature, in the order in which they were made."""


class Challenges:
    """All challenges that wait, in the order in which they were made.

    Since all live equally long, the oldest of any group is the one that expires first.
    """

    __slots__ = ("_all", "_by_fullness", "_by_key", "_by_prefix", "_by_recipient", "_count_max")

    def __init__(self, count_max: int = CHALLENGES_MAX) -> None:
        """Start empty, with room for ``count_max``."""
        assert count_max > 0
        self._count_max = count_max
        self._all: OrderedDict[bytes, Challenge] = OrderedDict()
        self._by_key: dict[bytes, _Group] = {}
        self._by_prefix: dict[str, _Group] = {}
        self._by_recipient: dict[bytes, _Group] = {}
        # Which prefixes have so many, each row in the order in which they came to that number.
        self._by_fullness: list[OrderedDict[str, None]] = [OrderedDict() for _ in range(PER_PREFIX_MAX + 2)]

    def __len__(self) -> int:
        return len(self._all)

    def add(self, challenge: Challenge, now: Instant) -> list[Challenge]:
        """Add one that was made now and return what is pushed out for it, at most three.

        The newcomer counts already when the fullest prefix is looked for, and is never pushed out itself. Prefixes that
        are equally full: for one recipient the one with the oldest challenge loses it, in the whole table the one that
        has been at that number for longest. The very packet a second time takes the place of the first.

        Cost: O(1) and at most 65 steps.
        """
        self.remove(challenge.signature)
        self._insert(challenge)
        pushed_out = []
        if len(self._by_key[challenge.worker]) > PER_KEY_MAX:
            pushed_out.append(self._take_out(_idlest(self._by_key[challenge.worker], challenge, now)))
        if len(self._by_prefix[challenge.prefix]) > PER_PREFIX_MAX:
            pushed_out.append(self._take_out(_idlest(self._by_prefix[challenge.prefix], challenge, now)))
        if challenge.kind is Kind.RELAY and len(self._by_recipient[challenge.recipient]) > PER_RECIPIENT_MAX:
            pushed_out.append(self._take_out(_loser(self._by_recipient[challenge.recipient], challenge, now)))
        if len(self._all) > self._count_max:
            pushed_out.append(self._take_out(self._loser_of_all(challenge, now)))
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
        if is_expired(oldest, now):
            return oldest
        fullest = next(row for row in reversed(self._by_fullness) if row)
        return _idlest(self._by_prefix[_first(fullest)], newcomer, now)

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
            self._by_fullness[count][prefix] = None


def _loser(group: _Group, newcomer: Challenge, now: Instant) -> Challenge:
    """Return the oldest if it is expired, else the first that may go of the prefix that has most of those."""
    others = [challenge for challenge in group.values() if challenge is not newcomer]
    if is_expired(others[0], now):
        return others[0]
    candidates = _not_spared(others, SPARED_OF_PREFIX_MAX, now)
    counts = Counter(challenge.prefix for challenge in (*candidates, newcomer))
    fullest = max((challenge.prefix for challenge in candidates), key=counts.__getitem__)
    return next(challenge for challenge in candidates if challenge.prefix == fullest)


def _idlest(group: _Group, newcomer: Challenge, now: Instant) -> Challenge:
    """Return the oldest that may go, and never the newcomer; up to half of a group are spared."""
    others = [challenge for challenge in group.values() if challenge is not newcomer]
    return _not_spared(others, len(group) // 2, now)[0]


def _not_spared(challenges: list[Challenge], spared_max: int, now: Instant) -> list[Challenge]:
    """Return those that may go, or all where there are none.

    Whoever answered lately is there and works, while an invented address never answers. But answers cost nothing where
    they need not be right, so only a few of each prefix are spared, and not for long.
    """
    spared: Counter[str] = Counter()
    candidates = []
    for challenge in challenges:
        at = challenge.tried_at
        if at is not None and now - at <= _SPARED_US and spared[challenge.prefix] < spared_max:
            spared[challenge.prefix] += 1
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
