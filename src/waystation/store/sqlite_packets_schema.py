"""Statements that make the packet tables of the SQLite store, for each layout that changed them.

``sqlite_layout`` runs them on a new file and on one of an older layout. ``sqlite_packets`` reads and writes the tables.
"""

from typing import Final

from waystation.store.sqlite_pages import SNAPSHOT_CONDITION

__all__ = ["PACKETS_SCHEMA", "PACKETS_SCHEMA_4"]

# Small columns first: a filter that rejects then never touches the packet's bytes.
_CREATE_PACKETS: Final = (
    "CREATE TABLE IF NOT EXISTS packets (seq INTEGER PRIMARY KEY, hidden INTEGER NOT NULL DEFAULT 0,"
    " kept INTEGER NOT NULL, order_at INTEGER NOT NULL, expires_at INTEGER, timestamp INTEGER NOT NULL,"
    " author_key INTEGER NOT NULL, type_key INTEGER NOT NULL, received_at INTEGER NOT NULL, stored_at INTEGER NOT NULL,"
    " author_id TEXT NOT NULL, content_type TEXT NOT NULL, packet_id BLOB NOT NULL, source TEXT NOT NULL,"
    " mark BLOB NOT NULL, downgrade BLOB NOT NULL, canonical BLOB NOT NULL)"
)
_CREATE_STATE: Final = (
    "CREATE TABLE IF NOT EXISTS packet_state (one INTEGER PRIMARY KEY CHECK (one = 1), epoch BLOB NOT NULL,"
    " newest_seq INTEGER NOT NULL, newest_stored_at INTEGER NOT NULL, bytes_kept INTEGER NOT NULL)"
)

PACKETS_SCHEMA: Final = (
    _CREATE_PACKETS,
    "CREATE UNIQUE INDEX IF NOT EXISTS packets_by_id ON packets (packet_id)",
    "CREATE UNIQUE INDEX IF NOT EXISTS packets_by_mark ON packets (mark) WHERE mark <> x''",
    "CREATE INDEX IF NOT EXISTS packets_by_order ON packets (order_at)",
    "CREATE INDEX IF NOT EXISTS packets_by_author ON packets (author_key, order_at)",
    "CREATE INDEX IF NOT EXISTS packets_by_type ON packets (type_key, order_at)",
    # Retention's two orders. Clocks only go on, so entries of the first are appended.
    "CREATE INDEX IF NOT EXISTS packets_by_age ON packets (stored_at) WHERE kept = 0",
    "CREATE INDEX IF NOT EXISTS packets_by_expiry ON packets (expires_at) WHERE expires_at IS NOT NULL AND kept = 0",
    "CREATE TABLE IF NOT EXISTS forgotten (packet_id BLOB PRIMARY KEY, until INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS forgotten_by_until ON forgotten (until)",
    _CREATE_STATE,
    "INSERT OR IGNORE INTO packet_state VALUES (1, randomblob(8), 0, 0, 0)",
)
"""What layout 2 has over layout 1 (``sqlite_layout``); never changed, since later layouts begin with it."""

_SUM_UP: Final = (
    "UPDATE packet_state SET (bytes_held, early_s_max, late_s_max) ="
    " (SELECT coalesce(sum(length(canonical) * kept), 0), max(0, coalesce(max(timestamp - order_at), 0)),"
    " max(0, coalesce(max(order_at - timestamp), 0)) FROM packets)"
)
PACKETS_SCHEMA_4: Final = (
    *(
        f"ALTER TABLE packet_state ADD COLUMN {name} INTEGER NOT NULL DEFAULT 0"
        for name in ("bytes_held", "early_s_max", "late_s_max")
    ),
    _SUM_UP,
    f"CREATE INDEX packets_by_snapshot ON packets (order_at) WHERE {SNAPSHOT_CONDITION}",
)
"""What layout 4 has over layout 3; never changed."""
