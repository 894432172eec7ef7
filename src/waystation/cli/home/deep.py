"""Checks of ``waystation check --deep``: every row of the store, and every line of sealed segments.

``check`` passes the home and prints each ``Finding``; ``store.deep_check`` and ``store.segment_check`` read the files.
Nothing is repaired.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from waystation.cli.machine_checks import Finding
from waystation.cli.progress import ProgressLines
from waystation.core.errors import HostError

if TYPE_CHECKING:
    from pathlib import Path

    from waystation.server.home import Home
    from waystation.store.deep_check import TableReport

__all__ = ["check_deep"]


def check_deep(home: "Home", *, shown: bool) -> Iterator[Finding]:
    """Yield a finding for each table of the store, for its file, for the journal and for the archive.

    Args:
        home: The home of a node, which may run.
        shown: Whether progress may be drawn.
    """
    from waystation.server.registry import packet_check  # noqa: PLC0415 - only this check needs all of it
    from waystation.store.segment_check import check_archive, check_journal  # noqa: PLC0415 - as above

    check = packet_check()
    if home.store_path.exists():
        yield from _tables(home.store_path, shown=shown)
    with ProgressLines(shown=shown) as lines:
        for name, folder, segments in (
            ("journal", home.journal_path, check_journal(home.journal_path)),
            ("archive", home.archive_path, check_archive(home.archive_path, check)),
        ):
            faults, count, unsealed = [], 0, 0
            for count, segment in enumerate(segments, 1):
                lines.show(name, f"{name}: {count} segments")
                if segment.fault:
                    faults.append(f"{segment.path.relative_to(folder)}: {segment.fault}")
                unsealed += not segment.fault and not segment.is_sealed
            lines.end(name)
            says = "; ".join(faults) or f"{count} segments are whole"
            if unsealed:
                says += f"; {unsealed} of them end without a last line, as after a kill or a full disk: no fault"
            yield Finding(name, good=not faults, says=says, note=bool(unsealed))


def _tables(path: "Path", *, shown: bool) -> Iterator[Finding]:
    from waystation.server.registry import packet_check  # noqa: PLC0415 - as above
    from waystation.store.deep_check import check_rows  # noqa: PLC0415 - as above

    with ProgressLines(shown=shown) as lines:
        try:
            reports = check_rows(path, packet_check(), lambda count: lines.show("rows", f"{count} rows read"))
        except HostError as error:
            yield Finding("rows", good=False, says=str(error))
            return
    yield from map(_finding, reports)


def _finding(report: "TableReport") -> Finding:
    if report.name == "file":
        return Finding("file", good=not report.damaged, says="; ".join(report.shown) or "pages and indexes are whole")
    says = f"{report.rows} rows are whole"
    if report.damaged:
        more = ", …" if report.damaged > len(report.shown) else ""
        says = f"{report.damaged} of {report.rows} rows are damaged: {', '.join(report.shown)}{more}"
    if report.without_checksum:
        says += f"; {report.without_checksum} were written before rows had checksums"
    return Finding(report.name, good=not report.damaged, says=says)
