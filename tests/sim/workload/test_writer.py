"""Files: each is what the truth says, whatever happened to it."""

from collections import Counter

from tests.sim.workload.build import archive_rows, made, name_of
from waystation.journal.archive import ARCHIVE_FORMAT, read_packets
from waystation.journal.segment import SegmentState, classify, inspect_segment, parse_name, read_rows


def told_of(workload):
    return {file["path"]: file for file in workload.truth["segments"]}


def test_every_file_is_what_the_truth_says(workload):
    """Plain inspection finds the state, the good and bad lines and the promise of each file of a journal."""
    told = told_of(workload)

    assert sorted(told) == sorted(file.path for file in workload.files)
    for file in workload.files:
        said = told[file.path]
        assert file.shipment == said["shipment"]
        if said["thing"] == "journal":
            report = inspect_segment(name_of(file), file.data)
            assert report.state.value == said["state"]
            assert (report.rows_good, report.rows_bad) == (said["lines_good"], said["lines_bad"])
            assert report.rows_promised == said["rows_promised"]


def test_every_archive_is_what_the_truth_says(workload):
    """An archive's segment holds one packet on each line but the first and, when it was finished, the last."""
    told = told_of(workload)
    for file in workload.files:
        said = told[file.path]
        if said["thing"] == "archive":
            state, promised = classify(
                parse_name(name_of(file)), file.data.partition(b"\n")[0], file.data, ARCHIVE_FORMAT
            )
            ends = 1 + (state is SegmentState.COMPLETE)
            assert (state.value, promised) == (said["state"], said["rows_promised"])
            assert sum(1 for _ in read_packets(file.data)) == said["lines_good"] - ends

    assert archive_rows(workload.files)


def test_rows_tie_back_to_what_nodes_acknowledged():
    """Of every own segment, acknowledged rows are the distinct readable ones and the lost ones."""
    workload = made("all")
    told = told_of(workload)
    for file in workload.files:
        said = told[file.path]
        if said["thing"] == "journal" and said["state"] != "foreign":
            distinct = len({row["seq"] for row in read_rows(file.data)})
            assert distinct == said["lines_good"] - said["lines_twice"]
            foreign = said["lines_bad"] if said["state"] == "complete" else 0
            assert said["rows_acknowledged"] == distinct + foreign + said["rows_lost"]


def test_each_oddity_occurs():
    """The small workload with every scenario has a file of every sort."""
    workload = made("all", nodes=2, days=9, events=1_500)
    states = Counter(file["state"] for file in workload.truth["segments"])
    odd = Counter(word for file in workload.truth["segments"] for word in file["oddities"])

    assert states.keys() == {"complete", "unsealed", "torn", "foreign"}
    assert {"copied", "copy", "late", "empty", "shuffled", "lines_twice", "mixed", "open"} <= odd.keys()
    assert states["torn"] == 3


def test_copies_are_the_same_bytes():
    """A copy is its segment once more, in another folder."""
    files, _ = made("duplicates", nodes=2, days=9, events=1_500)
    data = {}
    for file in files:
        if "/journal/" in file.path:
            data.setdefault(name_of(file), set()).add(file.data)
    journal = [name_of(file) for file in files if "/journal/" in file.path]

    assert max(Counter(journal).values()) == 2
    assert all(len(data[name]) == 1 for name in journal)


def test_no_two_segments_of_a_node_have_one_name():
    """Journals' names are told apart by their beginning and number, whatever the clock says."""
    files, _ = made("clock_skew", nodes=3, days=9, events=3_000)
    names = [name_of(file) for file in files if "/journal/" in file.path]

    assert len(names) == len(set(names))


def test_a_segment_covers_one_date_of_its_nodes_clock():
    """A clock that is ahead cuts segments at its own midnight."""
    files, _ = made("clock_skew", nodes=2, days=2, events=1_200)
    for file in files:
        if "/journal/" in file.path:
            day = {row["ts"] // 86_400_000_000 for row in read_rows(file.data)}
            assert len(day) == 1


def test_late_files_are_days_old():
    """What comes with the second shipment began at least a day before the end."""
    files, truth = made("late_segments", nodes=3, days=9, events=3_000)
    late = [parse_name(name_of(file)) for file in files if file.shipment == 2]

    assert late
    assert all(name.start_us < truth["end_us"] - 86_400_000_000 for name in late)
