"""The segment writer on real files."""

import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.journal.build import DAY_US, NOON_US, ONE_OF_EACH, name_at, segment_bytes
from waystation.core.errors import HostError
from waystation.journal.archive import ARCHIVE_FORMAT, ArchivedPacket, read_packets
from waystation.journal.events import NodeStopped, Refused
from waystation.journal.segment import SegmentState, classify, encode_lines, inspect_segment, parse_name, read_rows
from waystation.store.segments import ARCHIVE_LINES, JOURNAL_LINES, SegmentWriter

NODE = bytes.fromhex("00112233445566ff")


class Clock:
    """A wall clock that a test sets."""

    def __init__(self, now_us: int = NOON_US) -> None:
        self.now_us = now_us

    def __call__(self) -> int:
        return self.now_us


@contextmanager
def writing(directory: Path, clock: Callable[[], int] | None = None, **settings) -> Iterator[SegmentWriter]:
    """Give a writer whose thread never acts by itself unless told to."""
    settings = {"flush_seconds": 3_600.0, "on_error": lambda error: None, "retention_days": 10_000} | settings
    writer = SegmentWriter(directory, NODE, settings.pop("lines", JOURNAL_LINES), wall_us=clock or Clock(), **settings)
    try:
        yield writer
    finally:
        writer.close()


def files(directory: Path) -> list[Path]:
    """Return all files of segments, oldest first."""
    return sorted(directory.glob("*/*"))


def rows(directory: Path) -> list[dict]:
    """Return the rows of all segments without their first and last lines."""
    found = [row for path in files(directory) for row in read_rows(path.read_bytes())]
    return [row for row in found if not row["kind"].startswith("segment_")]


def test_closed_writer_leaves_complete_segments(tmp_path: Path) -> None:
    """Everything appended is in a sealed segment after close, in order."""
    with writing(tmp_path) as writer:
        for event in ONE_OF_EACH:
            writer.append(event)
    (path,) = files(tmp_path)

    assert inspect_segment(path.name, path.read_bytes()).state is SegmentState.COMPLETE
    assert path.parent.name == "event_date=2026-05-29"
    assert [row["ts"] for row in rows(tmp_path)] == [event.ts_us for event in ONE_OF_EACH]
    assert writer.counts.rows_written == len(ONE_OF_EACH)


def test_open_segment_has_another_name(tmp_path: Path) -> None:
    """While a segment grows, its rows are on disk under a name that says so."""
    with writing(tmp_path) as writer:
        writer.append(ONE_OF_EACH[0])
        writer.flush()
        (path,) = files(tmp_path)

        assert path.name.endswith(".jsonl.open")
        assert inspect_segment(path.name, path.read_bytes()).state is SegmentState.UNSEALED


def test_nothing_appended_leaves_no_file(tmp_path: Path) -> None:
    """A node without events writes no empty segments."""
    with writing(tmp_path) as writer:
        writer.flush()

    assert files(tmp_path) == []


def test_full_segment_is_sealed(tmp_path: Path) -> None:
    """A segment holds at most the given rows; the rest begins the next one."""
    with writing(tmp_path, segment_rows=3) as writer:
        for event in ONE_OF_EACH[:7]:
            writer.append(event)
        writer.flush()
        states = [inspect_segment(path.name, path.read_bytes()) for path in files(tmp_path)]

    assert [(s.state.value, s.rows_good) for s in states] == [("complete", 5)] * 2 + [("unsealed", 2)]


@pytest.mark.parametrize("step_s", [60, -60])
def test_old_segment_is_sealed(tmp_path: Path, step_s: int) -> None:
    """A segment is sealed at its age, also without new rows, also when the clock steps back."""
    clock = Clock()
    with writing(tmp_path, clock, segment_seconds=60) as writer:
        writer.append(ONE_OF_EACH[0])
        writer.flush()
        clock.now_us += step_s * 1_000_000
        writer.flush()

        assert [path.suffix for path in files(tmp_path)] == [".jsonl"]


def test_midnight_begins_a_new_segment(tmp_path: Path) -> None:
    """A segment covers one UTC date."""
    with writing(tmp_path) as writer:
        writer.append(NodeStopped(NOON_US, "a"))
        writer.append(NodeStopped(NOON_US + DAY_US, "b"))
    dates = [(path.parent.name, len(list(read_rows(path.read_bytes())))) for path in files(tmp_path)]

    assert dates == [("event_date=2026-05-29", 3), ("event_date=2026-05-30", 3)]


def test_thread_writes_by_itself(tmp_path: Path) -> None:
    """Rows reach the disk without anybody asking."""
    with writing(tmp_path, flush_seconds=0.001) as writer:
        writer.append(ONE_OF_EACH[0])
        deadline = time.monotonic() + 5
        while not rows(tmp_path) and time.monotonic() < deadline:
            pass

        assert len(rows(tmp_path)) == 1


def test_full_buffer_drops_and_says_so(tmp_path: Path) -> None:
    """Rows over the limit are dropped, counted, and told in the journal."""
    with writing(tmp_path, buffer_rows_max=5) as writer:
        for event in ONE_OF_EACH:
            writer.append(event)
    last, over = rows(tmp_path)[-1], len(ONE_OF_EACH) - 5

    assert len(rows(tmp_path)) == 6
    assert (last["kind"], last["reason"], last["attrs"]) == ("refused", "journal_buffer_full", {"n": f"{over}"})
    assert writer.counts.rows_dropped == over


def test_killed_writer_leaves_a_segment_that_the_next_one_seals(tmp_path: Path) -> None:
    """After kill -9 the flushed rows are there, and the next start gives the file its final name, torn line and all."""
    program = (
        "import sys,pathlib\n"
        "from tests.journal.build import NOON_US, ONE_OF_EACH\n"
        "from waystation.store.segments import SegmentWriter\n"
        "w = SegmentWriter(pathlib.Path(sys.argv[1]), bytes(8), wall_us=lambda: NOON_US, on_error=print)\n"
        "[w.append(e) for e in ONE_OF_EACH]; w.flush(); print('ready', flush=True); sys.stdin.read()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGKILL)
    (left,) = files(tmp_path)
    with left.open("ab") as file:
        file.write(b'{"seq":99,"ki')
    with writing(tmp_path):
        (path,) = files(tmp_path)

    assert left.name == f"{path.name}.open"
    assert inspect_segment(path.name, path.read_bytes()).state is SegmentState.TORN
    assert len(rows(tmp_path)) == len(ONE_OF_EACH)


def test_second_writer_is_refused(tmp_path: Path) -> None:
    """Two nodes never write one journal."""
    with writing(tmp_path), pytest.raises(HostError, match="another node") as caught:
        SegmentWriter(tmp_path, NODE, wall_us=Clock(), on_error=print)

    assert caught.value.exit_code == 5


def test_unusable_folder_is_refused(tmp_path: Path) -> None:
    """A folder that cannot be made is one clear error."""
    (tmp_path / "file").write_text("")

    with pytest.raises(HostError, match="cannot keep the journal"):
        SegmentWriter(tmp_path / "file" / "journal", NODE, wall_us=Clock(), on_error=print)


def test_released_folder_can_be_taken_again(tmp_path: Path) -> None:
    """After close the next writer may begin, and continues beside what is there."""
    for start_us in (NOON_US, NOON_US + 1):
        with writing(tmp_path) as writer:
            writer.append(NodeStopped(start_us, "again"))

    assert len(files(tmp_path)) == 2


def test_old_segments_are_deleted(tmp_path: Path) -> None:
    """Sealed segments over the age are deleted with their empty folder; foreign files stay."""
    name = name_at(NOON_US - 3 * DAY_US)
    path = tmp_path / name.folder / f"{name.text}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(segment_bytes(name, ONE_OF_EACH))
    (tmp_path / "event_date=2026-05-25").mkdir()
    (tmp_path / "event_date=2026-05-25" / "notes.jsonl").write_text("mine")
    with writing(tmp_path, retention_days=2) as writer:
        writer.append(ONE_OF_EACH[0])

    assert not path.parent.exists()
    assert [file.name[:5] for file in files(tmp_path)] == ["notes", "00112"]
    assert writer.counts.segments_deleted == 1


def test_retention_can_change_while_writing(tmp_path: Path) -> None:
    """A shorter retention deletes at the next look what the longer one would have kept."""
    name = name_at(NOON_US - 3 * DAY_US)
    path = tmp_path / name.folder / f"{name.text}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(segment_bytes(name, ONE_OF_EACH))
    with writing(tmp_path) as writer:
        kept_before = path.exists()
        writer.set_retention(2, 1 << 30)
        writer.append(ONE_OF_EACH[0])
        writer.flush()

    assert kept_before
    assert not path.exists()


def test_large_journal_is_trimmed_from_its_old_end(tmp_path: Path) -> None:
    """Over the total size the oldest sealed segments go first."""
    with writing(tmp_path, segment_rows=1, retention_bytes=900) as writer:
        for event in ONE_OF_EACH:
            writer.append(event)
    kept = files(tmp_path)

    assert writer.sealed_bytes == sum(path.stat().st_size for path in kept) <= 900
    assert rows(tmp_path)[-1]["ts"] == ONE_OF_EACH[-1].ts_us
    assert writer.counts.segments_deleted == len(ONE_OF_EACH) - len(kept)


@contextmanager
def disk_full_at(size_bytes: int) -> Iterator[None]:
    """Let the operating system refuse to grow any file beyond a size, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_full_disk_is_told_once_and_survived(tmp_path: Path) -> None:
    """What the disk refuses is counted and told in the journal once it works again; the callback hears of it once."""
    errors: list[OSError] = []
    with writing(tmp_path, on_error=errors.append) as writer:
        writer.append(ONE_OF_EACH[0])
        writer.flush()
        with disk_full_at(64):
            for event in ONE_OF_EACH[1:4]:
                writer.append(event)
                writer.flush()
        writer.append(ONE_OF_EACH[4])
    kinds = [(row["kind"], (row["attrs"] or {}).get("n")) for row in rows(tmp_path)]

    assert len(errors) == 1
    assert kinds == [("node_started", None), ("delivery_finished", None), ("refused", "3")]
    assert writer.counts.rows_lost == 3
    assert writer.counts.lost_ago_s is not None and writer.counts.lost_ago_s >= 0
    assert all(path.read_bytes().endswith(b"\n") and path.suffix == ".jsonl" for path in files(tmp_path))


def test_row_that_cannot_be_written_ends_neither_thread_nor_journal(tmp_path: Path) -> None:
    """It is told and counted, and the next row is written."""
    errors: list[Exception] = []
    with writing(tmp_path, on_error=errors.append) as writer:
        writer.append(ONE_OF_EACH[0]._replace(ts_us=10**40))
        writer.flush()
        writer.append(ONE_OF_EACH[0])
        writer.flush()

    assert len(errors) == 1
    assert writer.counts.rows_lost == 1
    assert [row["kind"] for row in rows(tmp_path)].count(rows(tmp_path)[-1]["kind"]) >= 1


def test_segment_whose_last_line_does_not_fit_is_kept(tmp_path: Path) -> None:
    """Its rows count as written, and it has its final name for readers and retention to find."""
    errors: list[Exception] = []
    with writing(tmp_path, on_error=errors.append, segment_rows=2) as writer:
        writer.append(ONE_OF_EACH[0])
        writer.flush()
        size = files(tmp_path)[0].stat().st_size
        writer.append(ONE_OF_EACH[0])
        with disk_full_at(size + len(encode_lines([ONE_OF_EACH[0]], 2)) + 8):
            writer.flush()
        found = files(tmp_path)

    assert len(errors) == 1
    assert [file.suffix for file in found] == [".jsonl"]
    assert (writer.counts.rows_lost, writer.counts.lost_ago_s) == (0, None)


def test_close_twice_is_harmless(tmp_path: Path) -> None:
    """A second close does nothing."""
    with writing(tmp_path) as writer:
        writer.append(Refused(NOON_US, "bhumi", None, "oversize"))
        writer.close()
        writer.close()

    assert len(rows(tmp_path)) == 1


def test_lock_ends_with_the_writer(tmp_path: Path) -> None:
    """Closing leaves no descriptor open."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    with writing(tmp_path) as writer:
        writer.append(ONE_OF_EACH[0])

    assert len(list(Path("/proc/self/fd").iterdir())) == before


# The archive


def packet(number: int, size_bytes: int = 0) -> ArchivedPacket:
    """Return a packet whose canonical form has the members that its line needs."""
    canonical = b'{"content":"%s","signature":"0x%s"}' % (b"x" * size_bytes, b"5" * 128)
    return ArchivedPacket(
        NOON_US + number, "strata", bytes([number]) * 32, 1_000, "did:strata:a", "POST", 999, None, b"k" * 32, canonical
    )


def archived(directory: Path) -> list[int]:
    """Return which packets all segments hold, by number."""
    return [row["ts"] - NOON_US for path in files(directory) for row in read_packets(path.read_bytes())]


def test_archive_is_a_folder_of_segments_of_its_own_format(tmp_path: Path) -> None:
    """Packets lie sealed under a segment's name, and no reader of journals takes the file for one."""
    with writing(tmp_path, lines=ARCHIVE_LINES) as writer:
        for number in range(3):
            writer.append(packet(number))
    (path,) = files(tmp_path)
    data = path.read_bytes()
    first, name = data.partition(b"\n")[0], parse_name(path.name)

    assert archived(tmp_path) == [0, 1, 2]
    assert classify(name, first, data, ARCHIVE_FORMAT) == (SegmentState.COMPLETE, 5)
    assert inspect_segment(path.name, data).state is SegmentState.FOREIGN


def test_archive_segment_is_sealed_at_its_size(tmp_path: Path) -> None:
    """Large packets begin a new segment long before the rows would."""
    with writing(tmp_path, lines=ARCHIVE_LINES, segment_bytes=300_000) as writer:
        for number in range(6):
            writer.append(packet(number, 200_000))
        writer.flush()

        assert [path.suffix for path in files(tmp_path)] == [".jsonl"] * 3
        assert archived(tmp_path) == list(range(6))


def test_archive_buffer_is_bounded_by_bytes(tmp_path: Path) -> None:
    """What does not fit is counted and told; what is written makes room again."""
    with writing(tmp_path, lines=ARCHIVE_LINES, buffer_bytes_max=2_000) as writer:
        for number in range(4):
            writer.append(packet(number, 800))
        writer.flush()
        writer.append(packet(4, 800))
    lines = [row for path in files(tmp_path) for row in read_rows(path.read_bytes())]
    gaps = [(row["reason"], row["attrs"]["n"]) for row in lines if row["kind"] == "refused"]

    assert archived(tmp_path) == [0, 1, 4]
    assert gaps == [("archive_buffer_full", "2")]
    assert writer.counts.rows_dropped == 2


def test_what_is_no_packet_is_told_and_survived(tmp_path: Path) -> None:
    """Bytes that are no packet cost themselves, and the gap is told."""
    errors: list[Exception] = []
    with writing(tmp_path, lines=ARCHIVE_LINES, on_error=errors.append) as writer:
        writer.append(packet(0)._replace(canonical=b"{}"))
        writer.flush()
        writer.append(packet(1))

    assert len(errors) == 1
    assert archived(tmp_path) == [1]
    assert writer.counts.rows_lost == 1


def test_journal_buffer_is_not_weighed(tmp_path: Path) -> None:
    """Events are small; only their number counts."""
    with writing(tmp_path, buffer_bytes_max=1, segment_bytes=1) as writer:
        for event in ONE_OF_EACH:
            writer.append(event)
            writer.flush()
    (path,) = files(tmp_path)

    assert len(rows(tmp_path)) == len(ONE_OF_EACH)
    assert path.suffix == ".jsonl"


def test_home_that_was_moved_away_is_not_made_again(tmp_path: Path) -> None:
    """A folder that stands in its place would be in the way when it is moved back; then rows are written again."""
    home, away, errors = tmp_path / "home", tmp_path / "away", []
    with writing(home / "journal", on_error=errors.append) as writer:
        home.rename(away)
        writer.append(ONE_OF_EACH[0])
        writer.flush()
        is_made = home.exists()
        away.rename(home)
        writer.append(ONE_OF_EACH[1])

    assert not is_made
    assert len(errors) == 1
    assert next(row["ts"] for row in rows(home / "journal")) == ONE_OF_EACH[1].ts_us
