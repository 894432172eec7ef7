"""Laws of store.deep_check: every row is read, exactly the damaged ones are named, and nothing is written."""

import sqlite3
from contextlib import closing

import pytest

from tests.store.build import packet_id, packet_row
from tests.store.build_rot import columns_of, flip_column, flip_in_file, spoil_page_of
from waystation.core.errors import HostError
from waystation.core.packets import PutPacket
from waystation.core.records import Record
from waystation.store.deep_check import SHOWN_MAX, TableReport, check_rows
from waystation.store.sqlite import SqliteStore

COUNT = 600
WHOLE = TableReport("file", 0, 0, 0, ())


def fill(path, count=COUNT):
    """Write packets and the records of two tables."""
    with closing(SqliteStore(path)) as store:
        rows = [packet_row(n, canonical=b"packet %d of them" % n, mark=b"m%d" % n) for n in range(1, count + 1)]
        store.commit(list(map(PutPacket, rows)))
        store.commit([Record(table, b"%d" % n, b"value %d" % n) for n in range(3) for table in ("bans", "leases")])


@pytest.fixture
def path(tmp_path):
    """A closed store."""
    path = tmp_path / "store.sqlite"
    fill(path)
    return path


def checked(path, check=lambda _canonical: True):
    """Return the reports by table."""
    return {report.name: report for report in check_rows(path, check, lambda _count: None)}


def test_whole_store(path):
    """Every row is counted, progress is told, and the file stays as it is."""
    before, told = path.read_bytes(), []
    found = check_rows(path, lambda _canonical: True, told.append)

    assert found == [
        TableReport("bans", 3, 0, 0, ()),
        TableReport("leases", 3, 0, 0, ()),
        TableReport("packets", COUNT, 0, 0, ()),
        WHOLE,
    ]
    assert told == [256, 512]
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_store_in_use(path):
    """A node may have it open, with a log beside it."""
    with closing(SqliteStore(path)) as store:
        store.commit([Record("bans", b"new", b"x")])

        assert checked(path)["bans"] == TableReport("bans", 4, 0, 0, ())


COLUMNS = ["hidden", "kept", "order_at", "expires_at", "timestamp", "author_key", "type_key", "received_at"]
COLUMNS += [
    "stored_at",
    "author_id",
    "content_type",
    "packet_id",
    "source",
    "mark",
    "downgrade",
    "canonical",
    "checksum",
]


def test_every_column_is_tried(path):
    """All but the number, by which a row is named."""
    assert sorted([*COLUMNS, "seq"]) == sorted(columns_of(path, "packets"))


@pytest.mark.parametrize("column", COLUMNS)
def test_one_bit_of_any_column_is_named(path, column):
    """Also in those that no reader is given."""
    flip_column(path, "packets", 7, column)

    report = checked(path)["packets"]

    assert (report.rows, report.damaged) == (COUNT, 1)
    assert numbers(report) == [7]


def numbers(report):
    """Return the numbers of the packets that a report names."""
    return [int(shown.split()[0]) for shown in report.shown]


def test_damaged_packet_is_named_by_what_its_row_still_tells(path):
    """Id, author, type and time: what a person can ask another relay for."""
    flip_column(path, "packets", 7, "canonical")
    flip_column(path, "packets", 8, "author_id")
    whole, doubted = checked(path)["packets"].shown

    assert whole == f"7 (id {packet_id(7).hex()}, POST of did:strata:author7, 1970-01-01T00:16:47Z)"
    assert doubted.startswith(f"8 (id {packet_id(8).hex()}, POST of ")
    assert doubted.endswith("what names the row is damaged too")


def test_names_of_damaged_rows_are_bounded(path):
    """What a row has is of any length, and any bytes."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE packets SET author_id = ?, timestamp = 1 << 62 WHERE seq = 7", ("\x1b" * 9_000,))
        connection.execute("UPDATE records SET key = zeroblob(9000) WHERE rowid = 3")
    found = checked(path)

    assert len(found["packets"].shown[0]) < 1_000
    assert found["packets"].shown[0].isprintable()
    assert any(shown.startswith("key 0000") for report in found.values() for shown in report.shown)
    assert max(len(shown) for report in found.values() for shown in report.shown) < 1_000


@pytest.mark.parametrize("column", ["key", "value", "checksum"])
def test_one_bit_of_a_record_is_named(path, column):
    """By its table and its key."""
    flip_column(path, "records", 3, column)
    report = checked(path)["bans"]

    assert (report.rows, report.damaged, len(report.shown)) == (3, 1, 1)


def test_one_bit_of_the_file_is_named(path):
    """What SQLite itself does not notice."""
    flip_in_file(path, b"packet 77 of them", 3)

    assert numbers(checked(path)["packets"]) == [77]
    assert checked(path)["file"] == WHOLE


def test_packets_are_judged_by_their_ids_too(path):
    """A packet that was stored wrong has a right checksum and a wrong id."""
    assert numbers(checked(path, lambda canonical: canonical != b"packet 9 of them")["packets"]) == [9]


def test_rows_without_checksums_are_told(path):
    """They were written before layout 3."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE packets SET checksum = NULL WHERE seq <= 10")

    assert checked(path)["packets"] == TableReport("packets", COUNT, 10, 0, ())


def test_many_damaged_rows_are_counted_and_some_named(path):
    """The report stays short."""
    for seq in range(1, 2 * SHOWN_MAX + 1):
        flip_column(path, "packets", seq, "source")
    report = checked(path)["packets"]

    assert (report.damaged, numbers(report)) == (2 * SHOWN_MAX, list(range(1, SHOWN_MAX + 1)))


def test_page_that_cannot_be_read_costs_its_rows(path):
    """All others are judged, and the file is said to be damaged."""
    spoil_page_of(path, b"packet 300 of them")
    found = checked(path)

    assert found["packets"].rows == COUNT
    assert "row 300, which cannot be read" in found["packets"].shown or found["packets"].damaged > SHOWN_MAX
    assert 0 < found["packets"].damaged < 60
    assert found["file"].damaged


@pytest.mark.parametrize("column", ["bytes_kept", "bytes_held"])
def test_sums_that_do_not_fit_are_named(path, column):
    """Retention goes by them."""
    flip_column(path, "packet_state", 1, column)

    assert checked(path)["file"].shown == ("packet_state does not fit the packets",)


def test_file_that_cannot_be_checked_is_refused(tmp_path):
    """A store of an older layout, and a file that is none."""
    old, none = tmp_path / "old.sqlite", tmp_path / "none.sqlite"
    with closing(sqlite3.connect(old)) as connection, connection:
        connection.execute("CREATE TABLE packets (seq INTEGER PRIMARY KEY)")
    none.write_bytes(b"nothing of the kind" * 100)

    for path in (old, none):
        with pytest.raises(HostError) as error:
            checked(path)
        assert error.value.exit_code == 5
