"""Journals on disk, and the plain counting that the tables are compared with."""

import datetime
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.journal.build import DAY_US, NOON_US, name_at, segment_bytes, traffic
from waystation.journal.events import Event
from waystation.journal.segment import SegmentName, read_rows

TORN = name_at(NOON_US + 5 * 3_600_000_000, 3)
BAD_LINES = (b"not json", b'{"ts":1,"seq":9001}', b'{"ts":1,"seq":9002,"protocol":"bhumi","kind":"gossip"}')


def put(journal: Path, name: SegmentName, data: bytes, suffix: str = ".jsonl") -> Path:
    """Write one file where a segment of this name belongs."""
    path = journal / name.folder / f"{name.text}{suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def put_events(journal: Path, name: SegmentName, events: list[Event]) -> Path:
    """Write a complete segment."""
    return put(journal, name, segment_bytes(name, events))


def rough_journal(journal: Path) -> Path:
    """Write two days of traffic with everything that may be wrong: torn, foreign, empty, copied, damaged, killed."""
    first, second = name_at(NOON_US, 1), name_at(NOON_US + DAY_US, 2)
    put_events(journal, first, traffic(1, NOON_US, 120))
    put_events(journal, second, traffic(2, NOON_US + DAY_US, 80))
    torn = segment_bytes(TORN, traffic(3, TORN.start_us, 40))
    put(journal, TORN, torn[:-150])
    killed = name_at(NOON_US + 6 * 3_600_000_000, 4)
    put(journal, killed, segment_bytes(killed, traffic(4, killed.start_us, 20), sealed=False), ".jsonl.open")
    damaged = name_at(NOON_US + 7 * 3_600_000_000, 5)
    head, rest = segment_bytes(damaged, traffic(5, damaged.start_us, 20)).split(b"\n", 1)
    put(journal, damaged, b"\n".join([head, *BAD_LINES, rest]))
    # The same lines twice in one file, as at-least-once shipping makes them; and a whole copy in another folder.
    doubled = name_at(NOON_US + 8 * 3_600_000_000, 6)
    data = segment_bytes(doubled, traffic(6, doubled.start_us, 20))
    put(journal, doubled, data + data)
    (journal / "copies").mkdir()
    (journal / "copies" / f"{first.text}.jsonl").write_bytes(
        put_events(journal, first, traffic(1, NOON_US, 120)).read_bytes()
    )
    put(journal, name_at(NOON_US, 7), b"")
    put(journal, name_at(NOON_US, 8), b"\x00\x01\xff" * 100)
    (journal / first.folder / "notes.jsonl").write_text('{"kind":"refused"}\n')
    return journal


def plain_rows(journal: Path) -> list[dict[str, Any]]:
    """Read the rough journal without Spark: each segment once, each event once."""
    taken: dict[tuple[str, int], dict[str, Any]] = {}
    for path in sorted(journal.glob("event_date=*/*-*-*.jsonl*")):
        data = path.read_bytes()
        if b'"segment_opened"' in data.partition(b"\n")[0]:
            taken |= {(path.name, row["seq"]): row for row in read_rows(data)}
    return list(taken.values())


def date_of(ts_us: int) -> datetime.date:
    """Return the UTC date, by the standard library."""
    return datetime.datetime.fromtimestamp(ts_us / 1e6, datetime.UTC).date()


def attempts_of(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return by attempt what was recorded of it, by kind."""
    attempts: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        if row["kind"].startswith("delivery_"):
            attempts.setdefault(row["attrs"]["attempt_ref"], {})[row["kind"]] = row
    return attempts


def outcomes_of(rows: Iterable[dict[str, Any]]) -> Counter[tuple[int, str]]:
    """Return attempts by hour (seconds UTC) and outcome."""
    counts: Counter[tuple[int, str]] = Counter()
    for kinds in attempts_of(rows).values():
        began = kinds.get("delivery_accepted", kinds.get("delivery_finished"))
        assert began is not None
        finished = kinds.get("delivery_finished")
        hour = began["ts"] // 3_600_000_000 * 3_600
        counts[hour, finished["outcome"] if finished else "unfinished"] += 1
    return counts
