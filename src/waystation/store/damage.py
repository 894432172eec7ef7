"""Remembers the damaged rows that reads of a store have met, so that each is reported and counted once (NODE-ROT).

The stores note a row here when its checksum does not fit; ``server.operations`` shows the counts. Such a row reads as
absent, so without this nobody would notice the loss.
"""

from collections.abc import Callable, Sequence
from typing import Final

from waystation.core.records import DamagedRow

__all__ = ["ROWS_NOTED_MAX", "Damage"]

ROWS_NOTED_MAX: Final = 10_000
"""Damaged rows remembered for each table; more of them are left out as well, and not counted."""


class Damage:
    """The damaged rows of one store, as far as they were met since it was opened.

    The thread that writes may note a row while another reads.
    """

    def __init__(self) -> None:
        self._rows: dict[str, dict[bytes, DamagedRow]] = {}
        self._totals: dict[str, int] = {}
        self.on_row: Callable[[DamagedRow], None] = lambda _row: None
        """Called for each row when it is met for the first time, on the thread that met it."""

    @property
    def any(self) -> bool:
        """Whether any row was met."""
        return bool(self._totals)

    def note(self, table: str, key: bytes, *, key_is_good: bool) -> None:
        """Take note of a damaged row; one that is known already, or beyond the limit, changes nothing."""
        rows = self._rows.setdefault(table, {})
        if key in rows or len(rows) >= ROWS_NOTED_MAX:
            return
        row = rows[key] = DamagedRow(table, key, key_is_good)
        self._totals[table] = self._totals.get(table, 0) + 1
        self.on_row(row)

    def mended(self, table: str, key: bytes) -> None:
        """Forget a row that was written anew or removed; one that is not known is ignored."""
        if table in self._rows:
            self._rows[table].pop(key, None)

    def rows(self, table: str) -> Sequence[DamagedRow]:
        """Return the damaged rows of a table that nobody has mended."""
        return list(self._rows.get(table, {}).values())

    def counts(self) -> dict[str, int]:
        """Return how many damaged rows there are now, by table."""
        return {table: len(rows) for table, rows in sorted(self._rows.items()) if rows}

    def totals(self) -> dict[str, int]:
        """Return how many damaged rows were met, mended ones included, by table."""
        return dict(sorted(self._totals.items()))
