"""The journal's folder as the pipeline finds it."""

import fcntl

from tests.journal.build import NOON_US, ONE_OF_EACH, name_at, segment_bytes
from tests.pipeline.build import put
from waystation.journal.segment import SegmentState
from waystation.pipeline.journal_files import LOCK_FILE, GrowthReader, discover, seal_left_overs

NAME = name_at()
WHOLE = segment_bytes(NAME, ONE_OF_EACH)


def test_states_are_told_from_the_ends(tmp_path) -> None:
    """Each file gets the state that its name and its two ends show."""
    put(tmp_path, NAME, WHOLE)
    torn = name_at(NOON_US, 2)
    put(tmp_path, torn, segment_bytes(torn, ONE_OF_EACH)[:-5])
    put(tmp_path, name_at(NOON_US, 3), b"")

    assert [(file.segment, file.state, file.rows_promised) for file in discover(tmp_path)] == [
        (NAME.text, SegmentState.COMPLETE, len(ONE_OF_EACH) + 2),
        (torn.text, SegmentState.TORN, None),
        (name_at(NOON_US, 3).text, SegmentState.FOREIGN, None),
    ]


def test_best_copy_comes_first(tmp_path) -> None:
    """Of two files that are one segment, the finished one is found first."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / f"{NAME.text}.jsonl").write_bytes(WHOLE[:-5])
    best = put(tmp_path, NAME, WHOLE)

    assert next(iter(discover(tmp_path))).path == best


def test_large_segment_is_told_by_its_ends_alone(tmp_path) -> None:
    """The state of a segment of many rows does not depend on reading it whole."""
    path = put(tmp_path, NAME, segment_bytes(NAME, ONE_OF_EACH * 1_000))

    assert [(file.path, file.rows_promised) for file in discover(tmp_path)] == [(path, len(ONE_OF_EACH) * 1_000 + 2)]


def test_segment_of_another_format_is_foreign(tmp_path) -> None:
    """A journal's segment in an archive's folder is nobody's."""
    put(tmp_path, NAME, WHOLE)

    assert [file.state for file in discover(tmp_path, "archive-1")] == [SegmentState.FOREIGN]


def test_left_over_is_sealed_when_its_writer_is_gone(tmp_path) -> None:
    """Nobody holds the lock: the open segment gets its final name, content unchanged."""
    path = put(tmp_path, NAME, WHOLE[:-5], ".jsonl.open")

    assert seal_left_overs(tmp_path) == 0
    assert path.with_suffix("").read_bytes() == WHOLE[:-5]


def test_growing_segment_is_left_alone(tmp_path) -> None:
    """While a writer holds the lock its open segment stays open and is not read."""
    path = put(tmp_path, NAME, WHOLE, ".jsonl.open")
    with (tmp_path / LOCK_FILE).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        left = seal_left_overs(tmp_path)

    assert (left, path.exists(), discover(tmp_path)) == (1, True, [])


def test_growing_segment_is_ready_up_to_its_last_whole_line(tmp_path) -> None:
    """Of an open segment whole lines may be read; of a sealed one everything, its torn end included."""
    torn = name_at(NOON_US, 2)
    put(tmp_path, NAME, WHOLE + b"x" * 200_000, ".jsonl.open")
    put(tmp_path, torn, segment_bytes(torn, ONE_OF_EACH)[:-5])
    put(tmp_path, name_at(NOON_US, 3), b'{"half', ".jsonl.open")
    found = GrowthReader(tmp_path).look()

    assert [(file.segment, file.ready_bytes, file.is_sealed) for file in found] == [
        (NAME.text, len(WHOLE), False),
        (torn.text, len(segment_bytes(torn, ONE_OF_EACH)) - 5, True),
    ]


def test_growth_is_seen_at_the_next_look(tmp_path) -> None:
    """The same reader sees lines that were added, and the sealing, which changes nothing in the segment's place."""
    reader = GrowthReader(tmp_path)
    lines = WHOLE.splitlines(keepends=True)
    path = put(tmp_path, NAME, b"".join(lines[:2]), ".jsonl.open")
    seen = [reader.look()]
    path.write_bytes(WHOLE)
    seen.append(reader.look())
    path.rename(path.with_suffix(""))
    seen.append(reader.look())
    path.with_suffix("").unlink()

    assert [[file.ready_bytes for file in look] for look in seen] == [[len(lines[0] + lines[1])], *[[len(WHOLE)]] * 2]
    assert seen[1][0].path == seen[2][0].path
    assert reader.look() == []


def test_sealed_copy_is_preferred_to_a_growing_one(tmp_path) -> None:
    """Of several copies of one segment the finished one is read, once."""
    put(tmp_path, NAME, WHOLE[:-5], ".jsonl.open")
    (tmp_path / "z").mkdir()
    (tmp_path / "z" / f"{NAME.text}.jsonl").write_bytes(WHOLE)

    assert [(file.path.parent.name, file.ready_bytes) for file in GrowthReader(tmp_path).look()] == [("z", len(WHOLE))]
