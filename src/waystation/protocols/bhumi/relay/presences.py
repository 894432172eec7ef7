"""The table of presences: signed records of which relay a device uses, until they expire.

Each entry is the received record, a tag byte and 140 bytes, so answers and gossip repeat the signed bytes unchanged.
The newest record per device and relay is kept. A record that is not newer is dropped before its signature is verified
(BHUMI-SEEN).

A record expires at the second that its owner signed. Lookups take the time as an argument and skip expired records even
before a sweep removes them. The table is in memory only.

Spec: Bhumi v2 7.1 and 7.2; BHUMI-X, BHUMI-A20.
"""

import heapq
import random
import struct
from enum import Enum, auto
from typing import Final

from waystation.core.ids import KEY_BYTES
from waystation.core.limits import surplus
from waystation.core.settings import InForce
from waystation.protocols.bhumi.limits import BhumiLimits

__all__ = ["RELAYS_PER_DEVICE_MAX", "PresenceTable", "Standing", "times_of"]

RELAYS_PER_DEVICE_MAX: Final = 8  # spec 5, belief
_STALE_FACTOR: Final = 4  # notes of ends per entry before those that lead nowhere are cleared away
_STALE_MIN: Final = 1_024  # small tables are not rewritten

_IDENTITY: Final = slice(1, 1 + KEY_BYTES)  # offsets within tag and record, spec 5
_RELAY: Final = slice(1 + KEY_BYTES, 1 + 2 * KEY_BYTES)  # as above
_ISSUED: Final = slice(1 + 2 * KEY_BYTES, 9 + 2 * KEY_BYTES)  # u64, compared as bytes
"""Big-endian, so that bytes compare as the numbers do."""
_TIMES_AT: Final = 1 + 2 * KEY_BYTES  # of issued_at and ttl
_unpack_times: Final = struct.Struct(">QI").unpack_from


class Standing(Enum):
    """What a table thinks of a record before its signature is checked."""

    NEW = auto()
    KNOWN = auto()
    """It stands already, or something newer does."""
    FULL = auto()
    """There is no room for it."""


def times_of(tagged: bytes) -> tuple[int, int]:
    """Return when a tagged presence was issued, Unix seconds, and how many seconds it lasts."""
    issued_at_s, ttl_s = _unpack_times(tagged, _TIMES_AT)
    return issued_at_s, ttl_s


def _ends_at_s(tagged: bytes) -> int:
    issued_at_s, ttl_s = _unpack_times(tagged, _TIMES_AT)
    return int(issued_at_s + ttl_s)


def _issued(tagged: bytes) -> bytes:
    return tagged[_ISSUED]


class PresenceTable:
    """All presences of one relay. Cost: O(1) amortised, sampling O(devices)."""

    def __init__(self, limits: InForce[BhumiLimits]) -> None:
        """Make an empty table, with room for as many as ``limits`` say."""
        self._limits = limits
        self._by_device: dict[bytes, tuple[bytes, ...]] = {}
        self._ends: dict[int, list[bytes]] = {}
        """Devices by the second in which an entry of theirs ends; some of them have none any more."""
        self._seconds: list[int] = []
        """Heap of the keys of ``_ends``."""
        self._notes_count = 0
        self._count = 0

    def __len__(self) -> int:
        """Return the number of entries, those that have ended but are not swept included."""
        return self._count

    @property
    def devices_count(self) -> int:
        """How many devices have an entry."""
        return len(self._by_device)

    def standing(self, tagged: bytes, now_s: int) -> Standing:
        """Return what would become of a presence; its times must be in order, its signature is not looked at."""
        held = self._live(tagged[_IDENTITY], now_s)
        relay, issued = tagged[_RELAY], tagged[_ISSUED]
        for other in held:
            # Spec 5: per device and relay only the newest counts; an equal date is no news.
            if other[_RELAY] == relay:
                return Standing.NEW if issued > other[_ISSUED] else Standing.KNOWN
        # Spec 5: at most 8 relays of one device; the oldest leaves.
        if len(held) >= RELAYS_PER_DEVICE_MAX:
            return Standing.NEW if issued > min(map(_issued, held)) else Standing.KNOWN
        # At the table's limit only a presence that lasts longer displaces one; a flood of short ones changes nothing.
        if self._count >= self._limits.now.presences and not self._makes_room(_ends_at_s(tagged)):
            return Standing.FULL
        return Standing.NEW

    def is_mere_renewal(self, tagged: bytes, now_s: int) -> bool:
        """Return whether a presence says what is known, and that is not half over (BHUMI-RENEWAL)."""
        held = self._live(tagged[_IDENTITY], now_s)
        if not held:
            return False
        newest = held[0] if len(held) == 1 else max(held, key=_issued)
        issued_at_s, ttl_s = times_of(newest)
        return newest[_RELAY] == tagged[_RELAY] and 2 * (issued_at_s + ttl_s - now_s) > ttl_s

    def keep(self, tagged: bytes, now_s: int) -> None:
        """Keep a presence whose ``standing`` is NEW and whose signature is right."""
        identity, relay = tagged[_IDENTITY], tagged[_RELAY]
        self._put(identity, tuple(other for other in self._live(identity, now_s) if other[_RELAY] != relay))
        # Spec 5: at most 8 relays per id52.
        if len(self._by_device.get(identity, ())) >= RELAYS_PER_DEVICE_MAX:
            oldest = min(self._by_device[identity], key=_issued)
            self._put(identity, tuple(other for other in self._by_device[identity] if other is not oldest))
        # Spec 5: 100,000 presences.
        for _ in range(surplus(self._count + 1, self._limits.now.presences)):
            self._drop_soonest()
        self._put(identity, (*self._by_device.get(identity, ()), tagged))
        self._note_end(identity, _ends_at_s(tagged))

    def find(self, identity: bytes, now_s: int) -> list[bytes]:
        """Return the presences of a device that have not ended, the newest first, without their tags."""
        # Spec 5: a hop changes no byte; WHERE_RESULT has the records as their owner signed them.
        live = self._live(identity, now_s)
        return [tagged[1:] for tagged in sorted(live, key=_issued, reverse=True)]

    def holds(self, tagged: bytes, now_s: int) -> bool:
        """Return whether this very record stands and has not ended."""
        return tagged in self._by_device.get(tagged[_IDENTITY], ()) and _ends_at_s(tagged) > now_s

    def sample(self, rng: random.Random, count: int, now_s: int) -> list[bytes]:
        """Return at most so many presences that have not ended, of as many devices, drawn at random."""
        # Spec 5: GOSSIP without records asks for a sample.
        devices = list(self._by_device)
        drawn = devices if len(devices) <= count else rng.sample(devices, count)
        newest = (max(live, key=_issued) for identity in drawn if (live := self._live(identity, now_s)))
        return list(newest)

    def sweep(self, now_s: int) -> None:
        """Forget what has ended."""
        while self._seconds and self._seconds[0] <= now_s:
            devices = self._ends.pop(heapq.heappop(self._seconds))
            self._notes_count -= len(devices)
            for identity in devices:
                self._put(identity, self._live(identity, now_s))

    def next_end_s(self) -> int | None:
        """Return the second in which an entry may end next, None for an empty table."""
        return self._seconds[0] if self._seconds else None

    def _live(self, identity: bytes, now_s: int) -> tuple[bytes, ...]:
        held = self._by_device.get(identity, ())
        for tagged in held:  # mostly one, and mostly live: then nothing is built
            if _ends_at_s(tagged) <= now_s:
                return tuple(each for each in held if _ends_at_s(each) > now_s)
        return held

    def _put(self, identity: bytes, held: tuple[bytes, ...]) -> None:
        self._count += len(held) - len(self._by_device.get(identity, ()))
        if held:
            self._by_device[identity] = held
        else:
            self._by_device.pop(identity, None)

    def _note_end(self, identity: bytes, ends_at_s: int) -> None:
        # Notes are not removed when an entry is replaced, so their number is bounded here.
        if self._notes_count >= _STALE_FACTOR * self._count + _STALE_MIN:
            self._clear_notes()
        devices = self._ends.get(ends_at_s)
        if devices is None:
            devices = self._ends[ends_at_s] = []
            heapq.heappush(self._seconds, ends_at_s)
        devices.append(identity)
        self._notes_count += 1

    def _clear_notes(self) -> None:
        """Write the notes of ends anew: a device that renews all the time leaves many that lead nowhere."""
        self._ends, self._notes_count = {}, 0
        for identity, held in self._by_device.items():
            for tagged in held:
                self._ends.setdefault(_ends_at_s(tagged), []).append(identity)
                self._notes_count += 1
        self._seconds = sorted(self._ends)

    def _makes_room(self, ends_at_s: int) -> bool:
        """Return whether an entry ends before this second, so that it may leave for one that lasts longer."""
        soonest = self._soonest()
        return soonest is not None and soonest[0] < ends_at_s

    def _drop_soonest(self) -> None:
        soonest = self._soonest()
        assert soonest is not None
        ends_at_s, identity = soonest
        leaving = next(each for each in self._by_device[identity] if _ends_at_s(each) == ends_at_s)
        self._put(identity, tuple(each for each in self._by_device[identity] if each is not leaving))

    def _soonest(self) -> tuple[int, bytes] | None:
        """Return which entry ends first: its second and its device."""
        while self._seconds:
            second = self._seconds[0]
            devices = self._ends[second]
            while devices:
                held = self._by_device.get(devices[-1], ())
                if any(_ends_at_s(tagged) == second for tagged in held):
                    return second, devices[-1]
                devices.pop()
                self._notes_count -= 1
            del self._ends[second]
            heapq.heappop(self._seconds)
        return None
