"""The segment writers of a node: one for the journal of events, one for the archive of stored packets.

``NodeServer`` makes it from ``[journal]`` and gives ``note`` and ``keep`` to the recorder, which calls them with each
event and packet. Both are None where the setting is off. The pipeline reads the files.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import structlog

from waystation.journal.archive import ArchivedPacket
from waystation.journal.events import Event
from waystation.server.config.settings import JournalSettings
from waystation.server.home import Home
from waystation.store.segments import ARCHIVE_LINES, JOURNAL_LINES, Lines, SegmentWriter

__all__ = ["Written"]

_MIB: Final = 1_048_576

_log = structlog.get_logger("waystation.server")


class Written:
    """The segment writers that a configuration asks for."""

    def __init__(self, settings: JournalSettings, home: Home, node_id: bytes) -> None:
        """Open what is switched on, in the folders of ``home``."""
        self._journal: SegmentWriter | None = None
        self._archive: SegmentWriter | None = None

        def writer(path: Path, lines: Lines, days: int, mib: int) -> SegmentWriter:
            return SegmentWriter(
                path,
                node_id,
                lines,
                wall_us=_wall_us,
                on_error=lambda error: _log.error(f"{lines.thing}.failed", error=str(error)),
                segment_seconds=settings.segment_seconds,
                segment_rows=settings.segment_rows,
                retention_days=days,
                retention_bytes=mib * _MIB,
            )

        if settings.enabled:
            self._journal = writer(home.journal_path, JOURNAL_LINES, settings.retention_days, settings.retention_mib)
        if settings.enabled and settings.archive:
            self._archive = writer(
                home.archive_path, ARCHIVE_LINES, settings.archive_retention_days, settings.archive_retention_mib
            )

    @property
    def note(self) -> Callable[[Event], None] | None:
        """What takes an event, None when there is no journal."""
        return self._journal.append if self._journal is not None else None

    @property
    def keep(self) -> Callable[[ArchivedPacket], None] | None:
        """What takes a stored packet, None when there is no archive."""
        return self._archive.append if self._archive is not None else None

    def use(self, settings: JournalSettings) -> None:
        """Take over what may change while the node runs."""
        if self._journal is not None:
            self._journal.set_retention(settings.retention_days, settings.retention_mib * _MIB)
        if self._archive is not None:
            self._archive.set_retention(settings.archive_retention_days, settings.archive_retention_mib * _MIB)

    def counts(self) -> dict[str, dict[str, Any]]:
        """Return rows written, dropped and lost by writer."""
        writers = {"journal": self._journal, "archive": self._archive}
        return {name: writer.counts._asdict() for name, writer in writers.items() if writer is not None}

    @property
    def sealed_bytes(self) -> int:
        """Size of the sealed segments of journal and archive."""
        return sum(writer.sealed_bytes for writer in (self._journal, self._archive) if writer is not None)

    def sealed(self) -> dict[str, int]:
        """Return the size of the sealed segments of "journal" and "archive", each where it is on."""
        writers = {"journal": self._journal, "archive": self._archive}
        return {name: writer.sealed_bytes for name, writer in writers.items() if writer is not None}

    async def close(self) -> None:
        """Seal what is open."""
        loop = asyncio.get_running_loop()
        for writer in (self._journal, self._archive):
            if writer is not None:
                await loop.run_in_executor(None, writer.close)


def _wall_us() -> int:
    return time.time_ns() // 1_000
