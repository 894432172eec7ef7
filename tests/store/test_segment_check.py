"""Laws of store.segment_check: a sealed segment that is not as it was sealed is named."""

import re

import pytest

from tests.journal.build import NOON_US, ONE_OF_EACH
from tests.protocols.strata.build import NOW, post
from tests.store.test_segments import writing
from waystation.journal.archive import ArchivedPacket
from waystation.server.strata.stored_packets import is_whole
from waystation.store.segment_check import check_archive, check_journal
from waystation.store.segments import ARCHIVE_LINES


def archived(number):
    """Return a packet on its way to the archive."""
    packet = post(f"{number}")
    named = (packet.packet_id, NOW, packet.author_id, packet.content_type, packet.timestamp)
    return ArchivedPacket(NOON_US, "strata", *named, None, bytes(32), packet.canonical)


@pytest.fixture
def journal(tmp_path):
    """A journal with one sealed segment, and one that grows."""
    with writing(tmp_path) as writer:
        for event in ONE_OF_EACH:
            writer.append(event)
    return tmp_path


def faults(found):
    """Return what is said of each segment."""
    return [each.fault for each in found]


def sealed(folder):
    """Return the one sealed segment of a folder."""
    (path,) = folder.glob("*/*.jsonl")
    return path


def test_sealed_segment_is_whole(journal):
    """As the writer leaves it; one that grows, and a folder that is not there, are not looked at."""
    path = sealed(journal)
    path.with_name(path.name + ".open").write_bytes(b"half a li")

    assert faults(check_journal(journal)) == [""]
    assert faults(check_journal(journal / "nothing")) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda data: data.replace(b"segment_opened", b"segment_openee", 1), "its first line is no opening"),
        (lambda data: data[:-3], "does not end|are damaged"),
        (lambda data: data.replace(b'"ts":', b'"tt":', 3), "first line|lines are damaged"),
        (lambda data: b"".join(data.splitlines(keepends=True)[:2] + data.splitlines(keepends=True)[3:]), "sealed with"),
    ],
    ids=["opening", "cut", "column", "line gone"],
)
def test_segment_that_changed_is_named(journal, change, fault):
    """With what is wrong."""
    sealed(journal).write_bytes(change(sealed(journal).read_bytes()))
    [found] = faults(check_journal(journal))

    assert re.search(fault, found)


def test_packet_of_the_archive_that_changed_is_named(tmp_path):
    """Its line is JSON and has all columns: only its identifier tells."""
    with writing(tmp_path, lines=ARCHIVE_LINES) as writer:
        for number in range(3):
            writer.append(archived(number))
    before = faults(check_archive(tmp_path, is_whole))
    path = sealed(tmp_path)
    data = path.read_bytes()
    at = data.index(b"POST", data.index(b"signed_bytes"))
    path.write_bytes(data[:at] + b"QOST" + data[at + 4 :])

    assert (before, faults(check_archive(tmp_path, is_whole))) == ([""], ["1 of its packets are damaged"])


@pytest.mark.parametrize(
    "left",
    [
        lambda lines: b"".join(lines[:-1]),
        lambda lines: b"".join(lines[:-1])[:-5],
        lambda lines: lines[0],
        lambda lines: b"",
    ],
    ids=["no last line", "inside a line", "opening only", "empty"],
)
@pytest.mark.parametrize("kind", ["journal", "archive"])
def test_segment_that_a_killed_node_left_is_no_fault(tmp_path, kind, left):
    """It got its final name as it was: every whole line of it counts, and it is told from those that were sealed."""
    lines = {"lines": ARCHIVE_LINES} if kind == "archive" else {}
    with writing(tmp_path, **lines) as writer:
        for event in [archived(1), archived(2)] if kind == "archive" else ONE_OF_EACH:
            writer.append(event)
    path = sealed(tmp_path)
    path.write_bytes(left(path.read_bytes().splitlines(keepends=True)))
    [found] = check_archive(tmp_path, is_whole) if kind == "archive" else check_journal(tmp_path)

    assert (found.fault, found.is_sealed) == ("", False)


def test_damaged_line_of_an_unsealed_segment_is_named(journal):
    """That its end is missing excuses no other line."""
    lines = sealed(journal).read_bytes().splitlines(keepends=True)[:-1]
    lines[2] = lines[2].replace(b'"ts":', b'"tt":')
    sealed(journal).write_bytes(b"".join(lines))
    [found] = faults(check_journal(journal))

    assert found.startswith("1 of its")
