"""Journals and archives on disk, and the plain counting that the tables are compared with."""

import datetime
import hashlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.journal.build import DAY_US, NOON_US, name_at, segment_bytes, traffic
from waystation.crypto.signing import KeyPair
from waystation.journal.archive import ARCHIVE_FORMAT, ArchivedPacket, encode_archive, read_packets
from waystation.journal.events import Event, Refused, SegmentOpened, SegmentSealed
from waystation.journal.segment import SegmentName, read_rows
from waystation.pipeline.jobs.step import Context, DateRange
from waystation.pipeline.lake import Lake
from waystation.protocols.strata.packet import make_packet

TORN = name_at(NOON_US + 5 * 3_600_000_000, 3)
BAD_LINES = (b"not json", b'{"ts":1,"seq":9001}', b'{"ts":1,"seq":9002,"protocol":"bhumi","kind":"gossip"}')


AS_OF = datetime.datetime(2026, 5, 31, tzinfo=datetime.UTC)
"""End of the two days that the rough journal tells of."""


def context_of(spark: Any, lake: Lake, run_id: str, dates: DateRange | None = None) -> Context:
    """Return what a step is given."""
    return Context(spark, lake, run_id, dates or DateRange(), AS_OF)


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


def archived(number: int, at_us: int = NOON_US, content_type: str = "POST", **extra: Any) -> ArchivedPacket:
    """Return a valid packet of one of three authors as a node archives it; the same number is the same packet."""
    author = KeyPair.from_seed(hashlib.sha256(b"author %d" % (number % 3)).digest())
    content = {"type": content_type, "text": f'packet {number} "ü" \u2028'}
    packet = make_packet(author, content, timestamp=1_780_000_000 + number, **extra)
    return ArchivedPacket(
        at_us,
        "strata",
        packet.packet_id,
        at_us // 1_000_000,
        packet.author_id,
        content_type,
        packet.timestamp,
        packet.expires_at,
        author.public,
        packet.canonical,
    )


def forged(number: int, at_us: int = NOON_US) -> ArchivedPacket:
    """Return a packet whose signature is somebody else's."""
    good, other = archived(number, at_us), archived(number + 1, at_us)
    mark = b'"signature":"0x'
    head, _, tail = good.canonical.partition(mark)
    foreign = other.canonical.partition(mark)[2][:128]
    return good._replace(canonical=head + mark + foreign + tail[128:])


def archive_bytes(name: SegmentName, packets: Iterable[ArchivedPacket | Refused], *, sealed: bool = True) -> bytes:
    """Return the whole file of an archive's segment."""
    rows: list[Any] = [SegmentOpened(name.start_us, ARCHIVE_FORMAT, name.node_id, name.text), *packets]
    if sealed:
        rows.append(SegmentSealed(name.start_us, len(rows) + 1))
    return encode_archive(rows, 0)


OTHER_NODE = "ffeeddccbbaa9988"


def rough_archive(archive: Path) -> dict[bytes, str]:
    """Write what two nodes archived, with everything that may be wrong; return each packet's verdict."""
    mislabelled = archived(23)._replace(content_type="CONFIG")
    mine = [*map(archived, range(20)), archived(20, content_type="MESSAGE"), archived(21, expires_at=1_790_000_000)]
    mine += [forged(22), mislabelled]
    gap = Refused(NOON_US, "node", None, "archive_disk_error", 4)
    first = name_at(NOON_US, 1)
    head, rest = archive_bytes(first, [*mine, gap]).split(b"\n", 1)
    put(archive, first, b"\n".join([head, *BAD_LINES, rest]))
    theirs = SegmentName(OTHER_NODE, NOON_US + DAY_US, 1)
    later = [archived(number, NOON_US + DAY_US) for number in range(10, 40) if number not in {20, 21, 22, 23}]
    put(archive, theirs, archive_bytes(theirs, later, sealed=False)[:-100])
    put(archive, name_at(NOON_US, 9), segment_bytes(name_at(NOON_US, 9), traffic(1, NOON_US, 5)))
    verdicts = {packet.packet_id: "valid" for packet in (*mine, *later[:-1])}
    return verdicts | {forged(22).packet_id: "bad_signature", mislabelled.packet_id: "mislabelled"}


def plain_packets(archive: Path) -> list[dict[str, Any]]:
    """Read the rough archive without Spark."""
    return [row for path in sorted(archive.glob("event_date=*/*")) for row in read_packets(path.read_bytes())]


def verdicts_of(rows: Iterable[dict[str, Any]]) -> Counter[tuple[int, str, str]]:
    """Return packets by hour (seconds UTC), verdict and detail."""
    counts: Counter[tuple[int, str, str]] = Counter()
    for row in rows:
        if row["kind"] == "packet_judged":
            hour = row["ts"] // 3_600_000_000 * 3_600
            counts[hour, row["outcome"], row["reason"] or ""] += int(row["attrs"]["n"])
    return counts


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


def attempts_of(rows: Iterable[dict[str, Any]]) -> dict[tuple[str, str], dict[str, dict[str, Any]]]:
    """Return by protocol and attempt what was recorded of it, by kind."""
    attempts: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for row in rows:
        if row["kind"].startswith("delivery_"):
            attempts.setdefault((row["protocol"], row["attrs"]["attempt_ref"]), {})[row["kind"]] = row
    return attempts


def outcomes_of(rows: Iterable[dict[str, Any]]) -> Counter[tuple[int, str]]:
    """Return attempts by hour (seconds UTC) and outcome."""
    counts: Counter[tuple[int, str]] = Counter()
    for kinds in attempts_of(rows).values():
        began = kinds.get("delivery_accepted", kinds.get("delivery_finished"))
        assert began is not None
        finished = kinds.get("delivery_finished")
        hour = began["ts"] // 3_600_000_000 * 3_600
        immediate = finished is not None and finished["latency_us"] is None
        times = int(finished["attrs"].get("tries", 1)) if finished and immediate else 1
        counts[hour, finished["outcome"] if finished else "unfinished"] += times
    return counts
