"""Stores the positions at which a reader resumes after a restart: one per name and relay, next to the relay scores.

``ManyRelays`` keeps one ``Places`` for each named reader. A position advances when the program asks for the next
packet. After a crash the packet being processed is delivered again, and none is lost. Recently delivered packet ids are
stored too, because a slower relay may send those packets later. A position is valid only for the same filters, because
a cursor depends on them.
"""

from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from waystation.core.errors import LocalError
from waystation.protocols.strata.messages import Filters
from waystation.sdk.private_database import PrivateDatabase

__all__ = ["NAME_CHARS_MAX", "Place", "Places"]

NAME_CHARS_MAX: Final = 64
_GIVEN_MAX: Final = 10_000  # as many as a running program remembers
_TRIM_EVERY: Final = 1_000
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS reading_places (
    name TEXT NOT NULL, url TEXT NOT NULL, filters TEXT NOT NULL, cursor TEXT NOT NULL, received_at INTEGER NOT NULL,
    PRIMARY KEY (name, url)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS reading_given (number INTEGER PRIMARY KEY, name TEXT NOT NULL, packet_id BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS reading_given_name ON reading_given (name, number)"""
_TRIM: Final = """
DELETE FROM reading_given WHERE name = ?1 AND number <= (
    SELECT number FROM reading_given WHERE name = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2)"""


class Place(NamedTuple):
    """What ``RelayClient.subscribe`` takes to go on."""

    cursor: str
    received_at: int
    """Unix seconds, of the packet that bore the cursor."""


class Places(PrivateDatabase):
    """The places of one name; close it when done."""

    def __init__(self, path: Path, name: str, filters: Filters) -> None:
        """Open the places kept under a name.

        Args:
            path: The file of ``RelayScores``, which is there.
            name: 1 to 64 printable characters.
            filters: What is read; the same each time.

        Raises:
            LocalError: The name is none, or belongs to other filters, or these lead backwards in time.
            HostError: The file cannot be used.
        """
        if not 0 < len(name) <= NAME_CHARS_MAX or not name.isprintable():
            raise LocalError(f"a name to resume by has 1 to {NAME_CHARS_MAX} printable characters")
        if filters.descending:
            raise LocalError("newest first cannot be resumed: what is new comes before the place")
        self._name, self._filters = name, repr(filters)
        self._moves = 0
        super().__init__(path, _SCHEMA, synchronous="NORMAL")
        rows = self.all("SELECT url, filters, cursor, received_at FROM reading_places WHERE name = ?", name)
        if any(filters_text != self._filters for _, filters_text, _, _ in rows):
            self.close()
            raise LocalError(f"{name!r} stands for other filters; give these another name to resume by")
        self._known = {url: Place(cursor, received_at) for url, _, cursor, received_at in rows}

    def of(self, url: str) -> Place | None:
        """Return where to go on with a relay; None when it was never read under this name."""
        return self._known.get(url)

    def given(self) -> list[bytes]:
        """Return the ids of the packets handed over lately, oldest first, 10,000 at most; raises HostError."""
        newest = "SELECT packet_id FROM reading_given WHERE name = ? ORDER BY number DESC LIMIT ?"
        return [packet_id for (packet_id,) in reversed(self.all(newest, self._name, _GIVEN_MAX))]

    def move(self, url: str, place: Place | None, packet_id: bytes | None) -> None:
        """Note that a packet was read, so that it outlives this program, though maybe not a power cut.

        Args:
            url: The relay that sent it.
            place: Behind it; None when the relay did not say.
            packet_id: 32 bytes when it was handed over just now; None when another relay had been first.

        Raises:
            HostError: The disk refuses; it is written with a later one, see ``PrivateDatabase.change_later``.
        """
        if place is not None:
            self._known[url] = place
        self._moves += 1
        self.change_later(partial(self._write, url, place, packet_id, is_to_trim=self._moves % _TRIM_EVERY == 0))

    def _write(self, url: str, place: Place | None, packet_id: bytes | None, *, is_to_trim: bool) -> None:
        if place is not None:
            row = (self._name, url, self._filters, place.cursor, place.received_at)
            self.run("INSERT OR REPLACE INTO reading_places VALUES (?, ?, ?, ?, ?)", *row)
        if packet_id is not None:
            self.run("INSERT INTO reading_given (name, packet_id) VALUES (?, ?)", self._name, packet_id)
        if is_to_trim:
            self.run(_TRIM, self._name, _GIVEN_MAX)
