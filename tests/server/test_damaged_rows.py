"""Laws of server.damaged_rows: each damaged row has its line, up to a limit (NODE-ROT)."""

import sqlite3
from contextlib import closing

import pytest
from structlog.testing import capture_logs

from tests.protocols.strata.build import post
from tests.server.build_node import configured
from tests.store.build import packet_row
from tests.store.build_rot import flip_column
from waystation.core.packets import PacketQuery, PutPacket
from waystation.core.records import Record
from waystation.server.damaged_rows import LINES_MAX, open_store
from waystation.server.home import Home


@pytest.fixture
def home(tmp_path):
    """A home with a store."""
    home = Home(tmp_path)
    with closing(open_store(configured(home), home)) as store:
        packets = [post(f"{number}") for number in range(3)]
        rows = [packet_row(n, packet_id=each.packet_id, canonical=each.canonical) for n, each in enumerate(packets, 1)]
        store.commit([Record("bans", b"%03d" % number, b"x") for number in range(LINES_MAX + 10)])
        store.commit(list(map(PutPacket, rows)))
    return home


def test_each_row_has_one_line_and_a_flood_has_an_end(home):
    """A hundred lines tell of a hundred rows; one more says that there are others."""
    for number in range(LINES_MAX + 5):
        flip_column(home.store_path, "records", number + 1, "value")
    with closing(open_store(configured(home), home)) as store, capture_logs() as lines:
        for _ in range(2):
            list(store.scan("bans"))
        counts = store.damage.totals()

    assert [line["event"] for line in lines] == ["store.row_damaged"] * LINES_MAX + ["store.rows_damaged"]
    first = {"table": "bans", "key": "000", "key_is_good": True, "log_level": "error"}
    assert lines[0] == first | {"event": "store.row_damaged"}
    assert counts == {"bans": LINES_MAX + 5}


def test_packet_without_a_checksum_is_judged_by_its_own_id(home):
    """A home from before layout 3 serves what is whole, and nothing else."""
    with closing(sqlite3.connect(home.store_path)) as connection, connection:
        connection.execute("UPDATE packets SET checksum = NULL")
    flip_column(home.store_path, "packets", 2, "canonical", 8 * 40)
    with closing(open_store(configured(home), home)) as store, capture_logs() as lines:
        found = [row.seq for row in store.packets.entries(PacketQuery()).rows]

    assert found == [1, 3]
    assert [(line["table"], line["key"]) for line in lines] == [("packets", "2")]


def test_store_in_memory_has_no_damage(home):
    """There is no disk that could change it."""
    with closing(open_store(configured(home, **{"store.url": "memory"}), home)) as store:
        assert store.damage.totals() == {}
