"""What the node writes for the pipeline: the journal of what happened, and the archive of packets it stored."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import structlog

from waystation.journal.archive import ArchivedPacket
from waystation.journal.events import Event
from waystation.server.home import Home
from waystation.server.settings import JournalSettings
from waystation.store.segments import ARCHIVE_LINES, SegmentWriter

__all__ = ["Written"]

_MIB = 1_048_576

_log = structlog.get_logger("waystation.server")


class Written:
    """The segment writers that a configuration asks for."""

    def __init__(self, settings: JournalSettings, home: Home, node_id: bytes) -> None:
        """Open what is switched on, in the folders of ``home``."""
        self._journal: SegmentWriter | None = None
        self._archive: SegmentWriter | None = None
        if settings.enabled:
            self._journal = SegmentWriter(
                home.journal_path,
                node_id,
                wall_us=_wall_us,
                on_error=lambda error: _log.error("journal.failed", error=str(error)),
                segment_seconds=settings.segment_seconds,
                segment_rows=settings.segment_rows,
                retention_days=settings.retention_days,
                retention_bytes=settings.retention_mib * _MIB,
            )
        if settings.enabled and settings.archive:
            self._archive = SegmentWriter(
                home.archive_path,
                node_id,
                ARCHIVE_LINES,
                wall_us=_wall_us,
                on_error=lambda error: _log.error("archive.failed", error=str(error)),
                segment_seconds=settings.segment_seconds,
                segment_rows=settings.segment_rows,
                retention_days=settings.archive_retention_days,
                retention_bytes=settings.archive_retention_mib * _MIB,
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

    async def close(self) -> None:
        """Seal what is open."""
        loop = asyncio.get_running_loop()
        for writer in (self._journal, self._archive):
            if writer is not None:
                await loop.run_in_executor(None, writer.close)


def _wall_us() -> int:
    return time.time_ns() // 1_000
