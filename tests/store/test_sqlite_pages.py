"""Laws of store.sqlite_pages."""

import sqlite3
from itertools import product

import pytest

from waystation.core.packets import PacketQuery
from waystation.store.sqlite_packets_schema import PACKETS_SCHEMA, PACKETS_SCHEMA_4
from waystation.store.sqlite_pages import INDEXES_MERGED_MAX, page_statement, search_key, window_end_statement


@pytest.fixture
def connection():
    """The packet tables, empty."""
    opened = sqlite3.connect(":memory:")
    for statement in PACKETS_SCHEMA:
        opened.execute(statement)
    opened.execute("ALTER TABLE packets ADD COLUMN checksum INTEGER")
    for statement in PACKETS_SCHEMA_4:
        opened.execute(statement)
    yield opened
    opened.close()


FORMS = [
    PacketQuery(authors=authors, types=types, descending=descending, by_seq=by_seq, since=since, until=9, alive_at=1)
    for authors, types, (descending, by_seq), since in product(
        [(), ("a",), ("a", "b", "c"), tuple(f"a{n}" for n in range(INDEXES_MERGED_MAX + 1))],
        [(), ("POST", "REACTION")],
        [(False, False), (True, False), (False, True)],
        [None, 3],
    )
]
FORMS += [PacketQuery(snapshots=True, descending=descending, alive_at=1) for descending in (False, True)]


@pytest.mark.parametrize("query", FORMS, ids=str)
def test_no_form_of_query_sorts(connection, query):
    """Rows come out of indexes in order; nothing is gathered first."""
    statement, arguments = page_statement(query)
    end_statement, end_arguments = window_end_statement(query)
    plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", arguments).fetchall()
    plan += connection.execute(f"EXPLAIN QUERY PLAN {end_statement}", end_arguments).fetchall()
    steps = [step for *_, step in plan]

    assert not [step for step in steps if "TEMP B-TREE" in step]
    assert not [step for step in steps if "SCAN p" in step]


@pytest.mark.parametrize("query", [PacketQuery(), PacketQuery(authors=("a",)), PacketQuery(types=("POST",))], ids=str)
def test_rest_of_a_second_is_entered_at_its_seq(connection, query):
    """A page that begins inside a second with a million packets does not walk over those before it."""
    statement, arguments = page_statement(query._replace(start=(5, 1_000_000)))
    plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", arguments).fetchall()

    assert any("order_at=? AND rowid>?" in step for *_, step in plan)


def test_numbers_of_texts_share_few_statements():
    """Statements are kept prepared, so authors are padded to powers of two."""
    texts = {page_statement(PacketQuery(authors=tuple(f"a{n}" for n in range(k))))[0] for k in range(1, 1_001)}

    assert len(texts) == 11


def test_keys_are_48_bit_and_never_change():
    """The number of a text is written into files."""
    keys = {search_key(f"did:strata:{n}") for n in range(10_000)}

    assert len(keys) == 10_000
    assert all(-(1 << 47) <= key < 1 << 47 for key in keys)
    assert search_key("POST") == -75_422_791_850_076
