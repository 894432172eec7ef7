"""Where a reader goes on after a restart: one place per name and relay, beside the scores of the relays.

A place moves when the program asks for the packet behind, so that a crash loses nothing; the packet that was in hand
comes again. Relays are not equally far, so the packets handed over lately are kept, too, lest the slower relay tells
them again. A place belongs to the filters it was made with, because a cursor means nothing with others.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from waystation.core.errors import HostError, LocalError
from waystation.protocols.strata.messages import Filters
from waystation.sdk.private_database import open_private_database

__all__ = ["NAME_CHARS_MAX", "Place", "Places"]

NAME_CHARS_MAX: Final = 64
_EXIT_STORE: Final = 5
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


class Places:
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
        self._path, self._name, self._filters = path, name, repr(filters)
        self._moves = 0
        with self._translated():
            self._database = open_private_database(path, _SCHEMA, synchronous="NORMAL")
            rows = self._database.execute(
                "SELECT url, filters, cursor, received_at FROM reading_places WHERE name = ?", (name,)
            ).fetchall()
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
        with self._translated():
            rows = self._database.execute(newest, (self._name, _GIVEN_MAX)).fetchall()
        return [packet_id for (packet_id,) in reversed(rows)]

    def move(self, url: str, place: Place | None, packet_id: bytes | None) -> None:
        """Note that a packet was read, so that it outlives this program, though maybe not a power cut.

        Args:
            url: The relay that told it.
            place: Behind it; None when the relay did not say.
            packet_id: 32 bytes when it was handed over just now; None when another relay had been first.

        Raises:
            HostError: The file cannot be used.
        """
        with self._translated(), self._database:
            self._database.execute("BEGIN IMMEDIATE")
            if place is not None:
                self._known[url] = place
                row = (self._name, url, self._filters, place.cursor, place.received_at)
                self._database.execute("INSERT OR REPLACE INTO reading_places VALUES (?, ?, ?, ?, ?)", row)
            if packet_id is not None:
                row_of_packet = (self._name, packet_id)
                self._database.execute("INSERT INTO reading_given (name, packet_id) VALUES (?, ?)", row_of_packet)
            self._moves += 1
            if self._moves % _TRIM_EVERY == 0:
                self._database.execute(_TRIM, (self._name, _GIVEN_MAX))

    def close(self) -> None:
        """Release the file."""
        self._database.close()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            raise HostError(f"cannot use {self._path}: {error}", exit_code=_EXIT_STORE) from error
