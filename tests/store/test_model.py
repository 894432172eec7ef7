"""Both stores against a dictionary."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waystation.core.records import Record
from waystation.store.memory import MemoryStore
from waystation.store.sqlite import SqliteStore

TABLES = st.sampled_from(["posts", "bans"])
# Few keys, so that they meet; keys that are prefixes of others and bytes above 0x7f test the order.
KEYS = st.sampled_from([b"\x00", b"a", b"a\x00", b"ab", b"b", b"\x7f", b"\x80", b"\xff", b"\xff\xff"])
VALUES = st.one_of(st.none(), st.binary(max_size=6))
GROUPS = st.lists(st.lists(st.builds(Record, TABLES, KEYS, VALUES), max_size=6), max_size=6)
SCANS = st.lists(st.tuples(TABLES, st.one_of(KEYS, st.just(b"")), st.integers(0, 10)), max_size=6)


def _apply(model, group):
    for record in group:
        if record.value is None:
            model.pop((record.table, record.key), None)
        else:
            model[record.table, record.key] = record.value


def _check(store, groups, scans):
    model = {}
    for group in groups:
        store.commit(group)
        _apply(model, group)
        for record in group:
            assert store.get(record.table, record.key) == model.get((record.table, record.key))
    for table, start, count_max in scans:
        expected = sorted((key, value) for (name, key), value in model.items() if name == table and key >= start)
        assert list(store.scan(table, start, count_max)) == expected[:count_max]


@given(GROUPS, SCANS)
@settings(max_examples=60, deadline=None)
def test_memory_is_a_dictionary_per_table(groups, scans):
    """After any groups, reads and scans of the memory store equal the dictionary's."""
    _check(MemoryStore(), groups, scans)


@given(GROUPS, SCANS)
@settings(max_examples=20, deadline=None)
def test_sqlite_is_a_dictionary_per_table(groups, scans):
    """After any groups, reads and scans of the SQLite store equal the dictionary's."""
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "store.sqlite")
        _check(store, groups, scans)
        store.close()


@pytest.mark.parametrize(
    "make", [lambda _: MemoryStore(), lambda folder: SqliteStore(folder / "s")], ids=["memory", "sqlite"]
)
def test_absent_is_none_and_empty_value_is_kept(make, tmp_path):
    """No value and an empty value are two things."""
    store = make(tmp_path)
    store.commit([Record("a", b"k", b"")])

    assert store.get("a", b"k") == b""
    assert store.get("a", b"other") is None
    assert list(store.scan("nothing")) == []
    store.close()
