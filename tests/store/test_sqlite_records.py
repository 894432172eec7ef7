"""NODE-ROT for records: a damaged row reads as absent, costs no other row, and whoever asks is told of it."""

import os
import sqlite3
from contextlib import closing

import pytest

from tests.store.build_rot import columns_of, flip_column, flip_in_file, spoil_page_of
from waystation.core.records import DamagedRow, Record
from waystation.store.sqlite import SqliteStore

COUNT = 20
BAD = 7
PAIRS = [(b"key %02d" % n, b"value number %02d" % n) for n in range(1, COUNT + 1)]
BAD_KEY = PAIRS[BAD - 1][0]
RIGHT = [pair for pair in PAIRS if pair[0] != BAD_KEY]


@pytest.fixture
def path(tmp_path):
    """A closed store of twenty records in one table, and one in a table beside it."""
    path = tmp_path / "store.sqlite"
    with closing(SqliteStore(path)) as store:
        store.commit([Record("things", *pair) for pair in PAIRS])
        store.commit([Record("things_b", b"a", b"b")])
    return path


def test_every_column_is_tried(path):
    """A new column of the table belongs into the checksum, and into these tests."""
    assert columns_of(path, "records") == ["tbl", "key", "value", "checksum"]


@pytest.mark.parametrize("bit", [0, 2, 7, 33])
@pytest.mark.parametrize("column", ["key", "value", "checksum"])
def test_one_bit_costs_exactly_its_row(path, column, bit):
    """All others are read as they were, one by one, many at once, and in order."""
    flip_column(path, "records", BAD, column, bit)
    keys = [key for key, _ in PAIRS]
    with closing(SqliteStore(path)) as store:
        one_by_one = {key: value for key in keys if (value := store.get("things", key)) is not None}
        found = list(store.scan("things")), list(store.get_many("things", keys).items()), list(one_by_one.items())
        counted = store.damage.totals()

    assert found == (RIGHT, RIGHT, RIGHT)
    assert counted == {"things": 1}


@pytest.mark.parametrize("bit", [0, 2])
def test_row_that_moved_to_another_table_is_read_there_by_nobody(path, bit):
    """The table's name is a part of what is checked, so a ban does not become a lease."""
    flip_column(path, "records", COUNT + 1, "tbl", 8 * 7 + bit)
    with closing(sqlite3.connect(path)) as connection:
        [(moved,)] = connection.execute("SELECT tbl FROM records WHERE rowid = ?", (COUNT + 1,)).fetchall()
    with closing(SqliteStore(path)) as store:
        assert (list(store.scan(moved)), list(store.scan("things_b"))) == ([], [])
        assert store.damaged(moved) == [DamagedRow(moved, b"a", key_is_good=False)]


def test_whoever_asks_learns_which_row_and_whether_its_key_is_right(path):
    """With a right key only the value is lost; with another one nobody knows what the row was about."""
    flip_column(path, "records", BAD, "value")
    flip_column(path, "records", 9, "key", 2)
    with closing(SqliteStore(path)) as store:
        before = store.damaged("things")
        list(store.scan("things"))

        assert before == []
        assert store.damaged("things") == [
            DamagedRow("things", BAD_KEY, key_is_good=True),
            DamagedRow("things", b"oey 09", key_is_good=False),
        ]


@pytest.mark.parametrize("count_max", [1, 3, 6, 7, 20])
def test_pages_are_no_shorter_for_damaged_rows(path, count_max):
    """Readers take a short page for the last one, so they would lose everything behind it."""
    for rowid in (1, 2, 6, 7, 8, 9, 20):
        flip_column(path, "records", rowid, "value")
    found, start = [], b""
    with closing(SqliteStore(path)) as store:
        while True:
            page = list(store.scan("things", start, count_max))
            found += page
            if len(page) < count_max:
                break
            start = page[-1][0] + b"\0"

    assert found == [PAIRS[n - 1] for n in range(1, 21) if n not in (1, 2, 6, 7, 8, 9, 20)]


@pytest.mark.parametrize("value", [b"new", None])
def test_row_that_is_written_again_or_removed_is_mended(path, value):
    """It is no trouble any more, but stays counted among those that were met."""
    flip_column(path, "records", BAD, "value")
    with closing(SqliteStore(path)) as store:
        list(store.scan("things"))
        store.commit([Record("things", BAD_KEY, value)])

        assert (store.get("things", BAD_KEY), store.damage.counts()) == (value, {})
        assert store.damage.totals() == {"things": 1}


def test_each_row_is_told_once(path):
    """However often it is read."""
    told = []
    flip_column(path, "records", BAD, "value")
    with closing(SqliteStore(path)) as store:
        store.damage.on_row = told.append
        for _ in range(3):
            list(store.scan("things"))
            store.get("things", BAD_KEY)

    assert told == [DamagedRow("things", BAD_KEY, key_is_good=True)]


def test_rows_from_before_have_no_checksum_and_are_read(path):
    """A home of layout 2 was written without; what it has is not lost."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE records SET checksum = NULL")
    with closing(SqliteStore(path)) as store:
        assert list(store.scan("things")) == PAIRS


def test_page_of_the_file_that_cannot_be_read_costs_its_rows(tmp_path):
    """The others come from their own pages; the rows of that page are told as damaged, with their keys."""
    path = tmp_path / "store.sqlite"
    pairs = [(b"key %03d" % n, os.urandom(900)) for n in range(100)]
    with closing(SqliteStore(path)) as store:
        store.commit([Record("things", *pair) for pair in pairs])
    with closing(SqliteStore(path)) as store:  # opened first: the check at the start would refuse it
        spoil_page_of(path, pairs[50][1])
        found = list(store.scan("things"))
        some = store.get_many("things", [key for key, _ in pairs])
        lost = {row.key for row in store.damaged("things")}

    assert dict(found) == some == {key: value for key, value in pairs if key not in lost}
    assert pairs[50][0] in lost
    assert len(lost) < 10


def test_bit_of_the_file_in_a_value_costs_that_record(path):
    """Nothing that SQLite checks changes; the row is gone until it is written again."""
    flip_in_file(path, PAIRS[BAD - 1][1], 40)
    with closing(SqliteStore(path)) as store:
        assert list(store.scan("things")) == RIGHT
