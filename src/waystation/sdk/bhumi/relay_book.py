"""The relays that a Bhumi participant knows, stored in ``bhumi.db``, with the source of each address.

Sources are the user, signed adverts, the local network and peers. An address may have several sources, each with its
own expiry; ``entries`` lists it once. Each source has its own limit, so a flood from one source evicts nothing of
another. Relays named by the user are never evicted. By default, private addresses (``is_open_place`` is false) are
accepted only from the user or the local network (BHUMI-BOOK).
"""

import contextlib
import ipaddress
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

from waystation.core.errors import LocalError
from waystation.core.ids import PublicKey
from waystation.protocols.bhumi.extension_messages import RelayAd
from waystation.protocols.bhumi.extension_wire import is_address
from waystation.protocols.bhumi.relay_addresses import is_open_place
from waystation.protocols.bhumi.signed_records import CLOCK_TOLERANCE_S, expires_at_s, is_signed, untimely
from waystation.sdk.private_database import PrivateDatabase
from waystation.transport.dial import RelayUrl

__all__ = [
    "ENTRIES_MAX",
    "LAN_MAX",
    "NEUTRAL_SCORE",
    "PEER_PLACES_MAX",
    "SEEDS_MAX",
    "RelayBook",
    "RelayEntry",
    "Source",
]

ENTRIES_MAX: Final = 256
"""Rows in all; above it the adverts issued longest ago leave."""
SEEDS_MAX: Final = 64
LAN_MAX: Final = 64
"""While so many are live, no further one is taken: a flood on the local network must not displace what is known."""
PEER_PLACES_MAX: Final = 64
"""Above it the place that was named longest ago leaves."""
NEUTRAL_SCORE: Final = 0.5
"""Of a relay never tried."""
LAN_TTL_MAX_S: Final = 4_500  # RFC 6762 10: the longest that it recommends
_PEER_PLACE_TTL_S: Final = 604_800  # ours: a place that no peer has named for a week is no news
_LAN_SCORE_MIN: Final = 0.25  # ours: one that mostly failed is preferred no longer
_UNTRIED_CHANCE: Final = 4  # ours: one place in four goes to a relay never tried while good ones are left
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS relay_book (
    address TEXT NOT NULL, source TEXT NOT NULL, relay_id BLOB, issued INTEGER NOT NULL, expires INTEGER,
    added INTEGER NOT NULL, PRIMARY KEY (address, source)
) WITHOUT ROWID;
"""
_PUT: Final = """
INSERT INTO relay_book VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (address, source) DO UPDATE SET
    relay_id = excluded.relay_id, issued = excluded.issued, expires = excluded.expires"""
_TRIM: Final = """
DELETE FROM relay_book WHERE (address, source) IN (
    SELECT address, source FROM relay_book WHERE source = ?1 ORDER BY issued, added, address
    LIMIT max((SELECT count(*) FROM relay_book WHERE ?2 OR source = ?1) - ?3, 0))"""


class Source(Enum):
    """Where an address is known from, the weightiest first."""

    SEED = "seed"
    """The user named it."""
    ADVERT = "advert"
    """The relay said so itself, signed."""
    LAN = "lan"
    """The local network showed it."""
    PEER = "peer"
    """A peer said that it can be reached there."""


@dataclass(frozen=True, slots=True)
class RelayEntry:
    """One relay; times are whole Unix seconds."""

    address: str
    """``tls://host:port`` or ``tcp://host:port``."""
    relay_id: PublicKey | None
    """32-byte key: of an advert it signed, else what the local network claims, else None."""
    source: Source
    """The weightiest of those that are live."""
    is_local: bool
    """Whether the local network shows it now."""
    expires_s: int | None
    """When the last of its sources ends; None with a seed."""
    added_s: int
    """When it was known first."""

    @property
    def may_be_private(self) -> bool:
        """Whether it may be dialled wherever it leads: the user named it, or the local network shows it."""
        return self.source is Source.SEED or self.is_local


class _Row(NamedTuple):
    address: str
    source: Source
    relay_id: PublicKey | None
    expires_s: int | None
    added_s: int


class RelayBook(PrivateDatabase):
    """The book of one participant; close it when done."""

    def __init__(self, home: Path, *, clock: Callable[[], float] = time.time, allow_private: bool = False) -> None:
        """Open the book, making the folder and the database if absent.

        Args:
            home: The participant's folder; a program may have it open as ``BhumiState``, too.
            clock: Unix seconds.
            allow_private: Believe adverts and peers that name private addresses.

        Raises:
            HostError: The folder or the database cannot be used.
        """
        self._clock = clock
        self.allows_private = allow_private
        """Whether adverts and peers that name private addresses are believed."""
        super().__init__(home / "bhumi.db", _SCHEMA)

    def add_seed(self, address: str) -> None:
        """Keep a relay that the user names, until ``remove``; raises LocalError for no address or too many seeds."""
        spelled = _canonical(address)
        now_s = self._now_s()
        with self.transaction():
            if self._row_of(spelled, Source.SEED) is not None:
                return
            if self._count(Source.SEED) >= SEEDS_MAX:
                raise LocalError(f"the book holds {SEEDS_MAX} seeds; remove one first")
            self._put(spelled, Source.SEED, None, 0, None, now_s)

    def learn(self, advert: RelayAd) -> bool:
        """Take an advert, and return whether it can be believed and is kept.

        Only the newest advert of a relay counts. While one is live, no other relay may claim its address.
        Cost: one verification, after everything that is cheaper.
        """
        now_s = self._now_s()
        address = _spelled(advert.address)
        if address is None or untimely(advert, now_s) is not None or not self._is_allowed(address):
            return False
        with self._changing():
            if self._is_superseded(advert, address) or not is_signed(advert):
                return False
            self.run(
                "DELETE FROM relay_book WHERE source = 'advert' AND relay_id = ? AND address != ?",
                advert.relay_id, address,
            )  # fmt: skip
            self._put(address, Source.ADVERT, advert.relay_id, advert.issued_at_s, expires_at_s(advert), now_s)
            return self._row_of(address, Source.ADVERT) is not None

    def found_on_lan(self, address: str, relay_id: PublicKey | None, ttl_s: float) -> bool:
        """Note what the local network shows; nothing of it is verified. Return whether it is kept.

        Args:
            address: ``tls://host:port`` or ``tcp://host:port``, private or not.
            relay_id: 32-byte key that it claims; None when it claims none.
            ttl_s: Seconds from now, at most ``LAN_TTL_MAX_S`` count; 0 and less is a goodbye.
        """
        spelled = _spelled(address)
        if spelled is None or math.isnan(ttl_s):
            return False
        now_s = self._now_s()
        with self._changing():
            if ttl_s <= 0:
                self.run("DELETE FROM relay_book WHERE source = 'lan' AND address = ?", spelled)
                return False
            if self._row_of(spelled, Source.LAN) is None and self._count(Source.LAN) >= LAN_MAX:
                return False
            ends_s = math.ceil(now_s + min(ttl_s, LAN_TTL_MAX_S))
            self._put(spelled, Source.LAN, relay_id, now_s, ends_s, now_s)
            return True

    def note_peer_place(self, address: str) -> bool:
        """Note where a peer said that it can be reached; return whether it is kept, for a week."""
        spelled = _spelled(address)
        if spelled is None or not self._is_allowed(spelled):
            return False
        now_s = self._now_s()
        with self._changing():
            self._put(spelled, Source.PEER, None, now_s, now_s + _PEER_PLACE_TTL_S, now_s)
            self.run(_TRIM, Source.PEER.value, 0, PEER_PLACES_MAX)
        return True

    def remove(self, address: str) -> bool:
        """Forget a relay, whatever it is known from, and return whether it was known; raises LocalError."""
        with self.transaction():
            return self.run("DELETE FROM relay_book WHERE address = ?", _canonical(address)) > 0

    def entries(self, *, with_private: bool = False) -> list[RelayEntry]:
        """Return every relay that is known now, by address; raises HostError.

        Args:
            with_private: Those, too, that are not to be used because they are private.
        """
        known: dict[str, list[_Row]] = {}
        for row in self._live(with_private=with_private):
            known.setdefault(row.address, []).append(row)
        return [_merged(known[address]) for address in sorted(known)]

    def entry(self, address: str) -> RelayEntry | None:
        """Return what is known now of a relay, in whatever spelling; None for an unknown one, or no address."""
        try:
            spelled = _canonical(address)
        except LocalError:
            return None
        return next((entry for entry in self.entries() if entry.address == spelled), None)

    def knows(self, address: str) -> bool:
        """Return whether the user named this relay, or it has a live advert: only then may others send us there."""
        known = self.entry(address)
        return known is not None and known.source in (Source.SEED, Source.ADVERT)

    def by_gossip(self, address: str) -> bool:
        """Return whether a relay is known from afar only, so that its name may lead to the open internet at most."""
        known = None if self.allows_private else self.entry(address)
        return known is not None and not known.may_be_private

    def order(self, score: Callable[[str], float], rng: random.Random) -> list[RelayEntry]:
        """Return the relays in the order in which to try them.

        Those of the local network come first, unless they mostly failed; then the best, with those never tried
        strewn in, lest the first good relay is kept for ever (BHUMI-ROTATION).

        Args:
            score: 0 to 1 for an address; ``NEUTRAL_SCORE`` when it was never tried.
            rng: Strews, and decides between equals.
        """
        scored = [(entry, score(entry.address)) for entry in self.entries()]
        near = [each for each in scored if each[0].is_local and each[1] >= _LAN_SCORE_MIN]
        far = [each for each in scored if each not in near]
        return [*_strewn(near, rng), *_strewn(far, rng)]

    def _now_s(self) -> int:
        return int(self._clock())

    def _is_allowed(self, address: str) -> bool:
        return self.allows_private or is_open_place(address)

    def _is_superseded(self, advert: RelayAd, address: str) -> bool:
        known = self.first(
            "SELECT max(issued) FROM relay_book WHERE source = 'advert' AND relay_id = ?", advert.relay_id
        )
        holder = self.first("SELECT relay_id FROM relay_book WHERE source = 'advert' AND address = ?", address)
        is_older = known[0] is not None and advert.issued_at_s < known[0]
        return is_older or (holder is not None and holder[0] != advert.relay_id)

    def _row_of(self, address: str, source: Source) -> Any:
        return self.first("SELECT 1 FROM relay_book WHERE address = ? AND source = ?", address, source.value)

    def _count(self, source: Source) -> int:
        (count,) = self.first("SELECT count(*) FROM relay_book WHERE source = ?", source.value)
        return int(count)

    def _put(
        self, address: str, source: Source, relay_id: bytes | None, issued_s: int, ends_s: int | None, now_s: int
    ) -> None:
        self.run(_PUT, address, source.value, relay_id, issued_s, ends_s, now_s)
        self.run(_TRIM, Source.ADVERT.value, 1, ENTRIES_MAX)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        with self.transaction():
            self.run("DELETE FROM relay_book WHERE expires <= ?", self._now_s())
            yield

    def _live(self, *, with_private: bool = False) -> list[_Row]:
        # A clock that was set back may have left what is from the future now; an advert's owner did not say that.
        now_s = self._now_s()
        rows = self.all(
            "SELECT address, source, relay_id, expires, added FROM relay_book"
            " WHERE (expires IS NULL OR expires > ?) AND issued <= ?",
            now_s, now_s + CLOCK_TOLERANCE_S,
        )  # fmt: skip
        read = [_Row(row[0], Source(row[1]), row[2] and PublicKey(row[2]), row[3], row[4]) for row in rows]
        own = (Source.SEED, Source.LAN)
        return [row for row in read if with_private or row.source in own or self._is_allowed(row.address)]


def _spelled(address: str) -> str | None:
    """Return an address of others in the one spelling the book has; None when it is none."""
    try:
        return _canonical(address) if is_address(address) else None
    except LocalError:
        return None


def _canonical(address: str) -> str:
    url = RelayUrl.parse(address)
    if ":" not in url.host:
        return str(url)
    try:
        return str(RelayUrl(url.scheme, str(ipaddress.IPv6Address(url.host)), url.port))
    except ValueError as error:
        raise LocalError(f"not a relay address: {address!r} ({error})") from error


def _merged(rows: list[_Row]) -> RelayEntry:
    by_weight = sorted(rows, key=lambda row: _WEIGHTS[row.source])
    ends_s = [row.expires_s for row in rows if row.expires_s is not None]
    return RelayEntry(
        address=rows[0].address,
        relay_id=next((row.relay_id for row in by_weight if row.relay_id is not None), None),
        source=by_weight[0].source,
        is_local=any(row.source is Source.LAN for row in rows),
        expires_s=max(ends_s) if len(ends_s) == len(rows) else None,
        added_s=min(row.added_s for row in rows),
    )


def _strewn(scored: Iterable[tuple[RelayEntry, float]], rng: random.Random) -> list[RelayEntry]:
    """Return the tried ones from the best to the worst, the others strewn in among the good ones."""
    shuffled = list(scored)
    rng.shuffle(shuffled)
    untried = [entry for entry, score in shuffled if score == NEUTRAL_SCORE]
    tried = sorted((each for each in shuffled if each[1] != NEUTRAL_SCORE), key=lambda each: -each[1])
    chosen = []
    for entry, score in tried:
        while untried and (score < NEUTRAL_SCORE or rng.randrange(_UNTRIED_CHANCE) == 0):
            chosen.append(untried.pop())
        chosen.append(entry)
    return chosen + untried


_WEIGHTS: Final = {source: weight for weight, source in enumerate(Source)}
