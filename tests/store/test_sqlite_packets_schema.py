"""Laws of store.sqlite_packets_schema."""

from contextlib import closing

from tests.store.build import kept_home
from waystation.core.packets import PacketQuery
from waystation.store.sqlite import SqliteStore


def test_older_store_learns_what_its_packets_say(tmp_path):
    """The upgrade counts key events, knows how far clocks differ, and finds the snapshots that were there before."""
    path = kept_home(3, tmp_path) / "store.sqlite"
    with closing(SqliteStore(path)) as store:
        packets = store.packets
        rows = packets.page(PacketQuery()).rows
        (snapshot,) = packets.page(PacketQuery(snapshots=True)).rows
        (event,) = [row for row in rows if row.kept]

        assert packets.bytes_held() == len(event.canonical)
        assert b'"scope":"BOOTSTRAP_SNAPSHOT"' in snapshot.canonical
        for row in rows:
            found = packets.page(PacketQuery(since=row.timestamp, until=row.timestamp)).rows
            assert row in found
