"""The local table ``relay_scores``: this client's scores, bans and pins of the relays it knows, in one SQLite file.

Strata's and Bhumi's clients load it at the start and save what they observed; ``waystation strata relays`` shows it.
The file has mode 0600 and is never shared, because it shows which relays a client uses (RFC-0004 7). It is synchronised
less strictly than a key file: a power cut may lose the last minutes. Several programs may use it at once. A pin set by
one program is never undone when another saves an older entry.
"""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from waystation.core.errors import HostError, LocalError
from waystation.rules.relay_entry import RelayEntry
from waystation.rules.relay_state import pin, standing_from_plain, standing_to_plain, unpin
from waystation.rules.relay_window import window_from_plain, window_to_plain
from waystation.sdk.private_database import EXIT_STORE, PrivateDatabase

__all__ = ["ENTRIES_MAX", "RelayEntry", "RelayScores"]

ENTRIES_MAX: Final = 512
"""Relays remembered; above it the one neither active nor pinned that was saved longest ago is forgotten.

Ours: far above the 20 backups of specs/strata.md 18, so that only the memory of bans and of hostile lists can reach it.
"""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS relay_scores (
    url TEXT PRIMARY KEY, relay_id TEXT, state TEXT NOT NULL, score REAL NOT NULL, window TEXT NOT NULL,
    standing TEXT NOT NULL, pinned INTEGER NOT NULL, last_tried INTEGER, updated INTEGER NOT NULL
) WITHOUT ROWID"""
_SAVE: Final = """
INSERT INTO relay_scores VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (url) DO UPDATE SET
    relay_id = excluded.relay_id, state = excluded.state, score = excluded.score, window = excluded.window,
    standing = excluded.standing, last_tried = excluded.last_tried, updated = excluded.updated"""
_TRIM: Final = """
DELETE FROM relay_scores WHERE url IN (
    SELECT url FROM relay_scores WHERE NOT pinned AND state != 'active' AND url != ?
    ORDER BY state = 'blacklisted', updated, url LIMIT max((SELECT count(*) FROM relay_scores) - ?, 0))"""


class RelayScores(PrivateDatabase):
    """The table of one client; close it when done."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        """Open the file, making it and its folder if absent.

        Raises:
            HostError: The file cannot be used.
        """
        self._clock = clock
        super().__init__(path, _SCHEMA, synchronous="NORMAL")

    def load(self, url: str) -> RelayEntry | None:
        """Return what is known of a relay, or None; raises HostError for a damaged entry."""
        row = self.first("SELECT * FROM relay_scores WHERE url = ?", url)
        return None if row is None else self._entry_of(row)

    def list(self) -> "list[RelayEntry]":
        """Return every relay, by URL; raises HostError for a damaged entry."""
        return [self._entry_of(row) for row in self.all("SELECT * FROM relay_scores ORDER BY url")]

    def save(self, entry: RelayEntry) -> None:
        """Record what is known of a relay; of a relay known before, the pin in the table stays as it is."""
        with self.transaction():
            self._save(entry)

    def pin(self, url: str, pinned: bool = True) -> RelayEntry | None:
        """Note that the user wants a relay whatever it does, or no longer; a relay not known yet is made known.

        Returns:
            The entry as it is now; None when a relay that is not known is no longer wanted.
        """
        with self.transaction():
            known = self.load(url)
            if known is None and not pinned:
                return None
            entry = known or RelayEntry.new(url, int(self._clock()))
            entry = replace(entry, standing=pin(entry.standing) if pinned else unpin(entry.standing))
            self._save(entry)
            self.run("UPDATE relay_scores SET pinned = ? WHERE url = ?", pinned, url)
        return self.load(url)

    def forget(self, url: str) -> None:
        """Drop a relay with everything known of it, its pin and its bans included."""
        with self.transaction():
            self.run("DELETE FROM relay_scores WHERE url = ?", url)

    def _save(self, entry: RelayEntry) -> None:
        standing = entry.standing
        window, plain = json.dumps(window_to_plain(entry.window)), json.dumps(standing_to_plain(standing))
        facts = (entry.url, entry.relay_id, standing.state.value, entry.score, window, plain)
        self.run(_SAVE, *facts, standing.pinned, entry.last_tried_s, int(self._clock()))
        self.run(_TRIM, entry.url, ENTRIES_MAX)

    def _entry_of(self, row: Any) -> RelayEntry:
        url, relay_id, _, score, window, standing, pinned, last_tried_s, updated_s = row
        try:
            kept = standing_from_plain(json.loads(standing))
            # The column is the authority: another program may have pinned or unpinned since the standing was saved.
            if kept.pinned != bool(pinned):
                kept = pin(kept) if pinned else unpin(kept)
            seen = window_from_plain(json.loads(window))
        except (LocalError, ValueError) as error:
            text = f"the entry of {url} in {self.path} is damaged, forget it: {error}"
            raise HostError(text, exit_code=EXIT_STORE) from error
        return RelayEntry(url, relay_id, kept, score, seen, last_tried_s, updated_s)
