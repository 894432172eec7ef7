"""How far a stream has read, without Spark."""

import random
from pathlib import Path

from tests.journal.build import DAY_US, NODE_ID
from waystation.journal.segment import SegmentName
from waystation.pipeline.journal_files import GrowingFile
from waystation.pipeline.sources.offsets import LATE_US, MARK, Slice, advance, group, slices_between

LINE_BYTES = 10


def file_at(start_us: int, lines: int, *, sealed: bool = True) -> GrowingFile:
    """Return a segment of lines of ten bytes each."""
    name = SegmentName(NODE_ID, start_us, 1).text
    return GrowingFile(name, start_us, Path(f"/j/{name}.jsonl"), lines * LINE_BYTES, sealed)


def end_of(file: GrowingFile, begin: int, rows: int) -> tuple[int, int]:
    """Count lines as arithmetic does."""
    taken = min(rows, (file.ready_bytes - begin) // LINE_BYTES)
    return begin + taken * LINE_BYTES, taken


def test_everything_is_read_without_a_limit() -> None:
    """Each segment is read to its end; reading again changes nothing."""
    files = [file_at(DAY_US, 3), file_at(DAY_US + 5, 4, sealed=False)]
    offset = advance({}, files, end_of)

    assert {offset[file.segment] for file in files} == {30, 40}
    assert advance(offset, files, end_of) == offset


def test_limit_is_never_exceeded_and_all_is_read_in_the_end() -> None:
    """Steps of at most seven lines read every line once, in order of the segments."""
    files = [file_at(DAY_US + index, lines) for index, lines in enumerate((3, 0, 15, 1, 8))]
    offset: dict[str, int] = {}
    read: list[Slice] = []
    while (after := advance(offset, files, end_of, 7)) != offset:
        step = slices_between(offset, after, files)
        assert 0 < sum(one.end - one.begin for one in step) <= 7 * LINE_BYTES
        read += step
        offset = after

    assert sum(one.end - one.begin for one in read) == sum(file.ready_bytes for file in files)
    assert len({(one.segment, one.begin) for one in read}) == len(read)


def test_growth_is_read_from_where_it_began() -> None:
    """What an open segment gained is read alone, and nothing again when it is sealed."""
    before, after = file_at(DAY_US, 3, sealed=False), file_at(DAY_US, 5)
    first = advance({}, [before], end_of)
    second = advance(first, [after], end_of)

    assert slices_between(first, second, [after]) == [Slice(str(after.path), after.segment, 30, 50)]
    assert advance(second, [after], end_of) == second


def test_offset_stays_as_small_as_the_days_it_covers() -> None:
    """Over a year of segments only those of the last days are listed, and each is read once."""
    files: list[GrowingFile] = []
    offset: dict[str, int] = {}
    read = 0
    for hour in range(365 * 24):
        files = [*files[-100:], file_at(DAY_US + hour * 3_600_000_000, 2)]
        after = advance(offset, files, end_of)
        read += sum(one.end - one.begin for one in slices_between(offset, after, files))
        offset = after

    assert read == 365 * 24 * 20
    assert len(offset) <= LATE_US // 3_600_000_000 + 3


def test_late_segment_is_read_within_its_days() -> None:
    """A segment that appears after its successors is read; one that is later than allowed is left to the batch."""
    newest = file_at(20 * DAY_US, 2)
    offset = advance({}, [newest], end_of)
    late, too_late = file_at(20 * DAY_US - LATE_US, 2), file_at(20 * DAY_US - LATE_US - 1, 2)
    after = advance(offset, [too_late, late, newest], end_of)

    assert late.segment in after
    assert too_late.segment not in after


def test_mark_waits_for_what_is_not_read() -> None:
    """With a limit, old segments that wait for their turn are not passed over by the mark."""
    files = [file_at(day * DAY_US, 10) for day in range(1, 30)]
    offset: dict[str, int] = {}
    read = set()
    for _ in range(40):
        after = advance(offset, files, end_of, 10)
        read |= {one.segment for one in slices_between(offset, after, files)}
        offset = after

    assert read == {file.segment for file in files}
    assert offset[MARK] == 29 * DAY_US - LATE_US


def test_any_history_reads_every_line_once() -> None:
    """Segments appear, grow and are sealed in any order while steps of any size read them: each byte once."""
    rng = random.Random(7)
    sizes: dict[int, int] = {}
    offset: dict[str, int] = {}
    seen: dict[str, int] = {}
    for step in range(400):
        start = DAY_US + rng.randrange(max(step - 5, 0), step + 1) * 60_000_000
        sizes[start] = sizes.get(start, 0) + rng.randrange(4)
        files = [file_at(at, lines, sealed=rng.random() < 0.5) for at, lines in sorted(sizes.items())]
        after = advance(offset, files, end_of, rng.choice([None, 1, 3, 50]))
        for one in slices_between(offset, after, files):
            assert seen.get(one.segment, 0) == one.begin
            seen[one.segment] = one.end
        offset = after
    final = advance(offset, files, end_of)
    for one in slices_between(offset, final, files):
        seen[one.segment] = one.end

    assert sum(seen.values()) == sum(sizes.values()) * LINE_BYTES


def test_slices_of_deleted_segments_are_passed_over() -> None:
    """What the node deleted meanwhile cannot be read and does not stop the stream."""
    file = file_at(DAY_US, 3)

    assert slices_between({}, {file.segment: 30, MARK: 1}, []) == []


def test_small_slices_share_a_task() -> None:
    """Many small slices are one task, large ones have their own; none is lost."""
    small = [Slice("p", str(index), 0, 1_000) for index in range(100)]
    large = [Slice("p", f"l{index}", 0, 5 << 20) for index in range(3)]
    groups = group([*small, *large])

    assert [one for members in groups for one in members] == [*small, *large]
    assert len(groups) == 3
    assert group([]) == []
