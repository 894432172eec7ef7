"""Slices to Arrow batches, without Spark."""

import datetime

from tests.journal.build import DAY_US, NOON_US, ONE_OF_EACH, name_at, segment_bytes
from tests.pipeline.build import archive_bytes, archived, put
from waystation.journal.segment import read_rows
from waystation.pipeline.journal_files import GrowingFile, GrowthReader
from waystation.pipeline.sources.offsets import Slice
from waystation.pipeline.sources.reading import FORMS, Wanted, count_to, line_batches, read_slice, row_batches

NAME = name_at()
DATA = segment_bytes(NAME, ONE_OF_EACH)


def slice_of(file: GrowingFile, begin: int = 0, end: int | None = None) -> Slice:
    """Return a part of a segment."""
    return Slice(str(file.path), file.segment, begin, file.ready_bytes if end is None else end)


def only(folder, lines: str = "journal") -> GrowingFile:
    """Return the one segment of a folder."""
    (file,) = GrowthReader(folder, FORMS[lines].line_format).look()
    return file


def test_lines_are_cut_at_every_place_the_same(tmp_path) -> None:
    """Reading up to any line and on from there gives every line once, with its place."""
    put(tmp_path, NAME, DATA + b"\r\n\xff\xfe\ntorn")
    file = only(tmp_path)
    (whole,) = line_batches([slice_of(file)])
    places = list(zip(whole["begins_at"].to_pylist(), whole["ends_at"].to_pylist(), strict=True))
    values = [value.as_buffer().to_pybytes() for value in whole["value"]]

    assert values[-3:] == [b"\r", b"\xff\xfe", b"torn"]
    assert [begin for begin, _ in places[1:]] == [end for _, end in places[:-1]]
    assert places[-1][1] == file.ready_bytes
    for rows in range(1, len(places)):
        cut, counted = count_to(file, 0, rows)
        assert (cut, counted) == (places[rows - 1][1], rows)
        parts = [batch.num_rows for part in ((0, cut), (cut, None)) for batch in line_batches([slice_of(file, *part)])]
        assert parts == [rows, len(places) - rows]


def test_open_segment_is_found_under_either_name(tmp_path) -> None:
    """A slice names the sealed file; the open one is read when that is not there, and nothing when neither is."""
    path = put(tmp_path, NAME, DATA, ".jsonl.open")
    file = only(tmp_path)
    opened = read_slice(slice_of(file))
    path.rename(file.path)
    sealed = read_slice(slice_of(file))
    file.path.unlink()

    assert opened == sealed == DATA
    assert read_slice(slice_of(file)) == b""
    assert count_to(file, 0, 3) == (file.ready_bytes, 0)


def test_rows_are_those_of_the_plain_reading(tmp_path) -> None:
    """Good lines become rows with segment and date; bad ones are passed over."""
    import pyarrow as pa  # noqa: PLC0415

    put(tmp_path, NAME, DATA.replace(b'"kind":"peer_left"', b'"kind":"gossip"'))
    names = [(name, pa.string()) for name in ("kind", "protocol", "relay_id", "segment")]
    schema = pa.schema([*names, ("attrs", pa.map_(pa.string(), pa.string())), ("event_date", pa.date32())])
    (batch,) = row_batches([slice_of(only(tmp_path))], FORMS["journal"], Wanted(), schema)
    plain = [row for row in read_rows(DATA) if row["kind"] != "peer_left"]

    assert [row["kind"] for row in batch.to_pylist()] == [row["kind"] for row in plain]
    assert [row["attrs"] and dict(row["attrs"]) for row in batch.to_pylist()] == [row["attrs"] for row in plain]
    assert set(batch["event_date"].to_pylist()) == {datetime.date(2026, 5, 29)}


def test_only_wanted_rows_are_given(tmp_path) -> None:
    """Kinds, relays and dates narrow the rows; dates spare segments, with a day to spare on both sides."""
    import pyarrow as pa  # noqa: PLC0415

    put(tmp_path, NAME, DATA)
    file, day = only(tmp_path), datetime.date(2026, 5, 29)
    schema = pa.schema([("kind", pa.string())])

    def kinds(wanted: Wanted) -> list[str]:
        batches = row_batches([slice_of(file)], FORMS["journal"], wanted, schema)
        return [row["kind"] for batch in batches for row in batch.to_pylist()]

    assert kinds(Wanted(kinds=frozenset({"refused", "gone"}))) == ["refused", "refused"]
    assert kinds(Wanted(relay_ids=frozenset({"6e" * 8}))) == ["mesh_link_ended", "relay_observed"]
    assert kinds(Wanted(first=day + datetime.timedelta(1))) == kinds(Wanted(last=day - datetime.timedelta(1))) == []
    assert Wanted(first=day + datetime.timedelta(1), last=day).may_be_in(file)
    assert not Wanted(first=day + datetime.timedelta(2)).may_be_in(file)
    assert not Wanted(last=day - datetime.timedelta(2)).may_be_in(file)


def test_packets_of_an_archive_are_rows_too(tmp_path) -> None:
    """An archive's packets are dated by when they were received."""
    import pyarrow as pa  # noqa: PLC0415

    name = name_at(NOON_US + DAY_US)
    packet = archived(1, NOON_US + DAY_US)._replace(received_at=NOON_US // 1_000_000)
    put(tmp_path, name, archive_bytes(name, [packet]))
    schema = pa.schema([("size", pa.int64()), ("event_date", pa.date32())])
    (batch,) = row_batches([slice_of(only(tmp_path, "archive"))], FORMS["archive"], Wanted(), schema)

    assert batch.to_pylist() == [{"size": len(packet.canonical), "event_date": datetime.date(2026, 5, 29)}]
