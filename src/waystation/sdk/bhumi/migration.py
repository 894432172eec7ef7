"""Adds the columns of later versions to a participant's ``bhumi.db`` each time it is opened, in one transaction.

Running it again changes nothing. New files are migrated too: ``bhumi_state`` creates the tables of the first version,
and this module adds the rest. Older versions of the program can no longer write a migrated file.
"""

from typing import Final

from waystation.protocols.bhumi.payload.suites import suite_hint_of
from waystation.sdk.private_database import PrivateDatabase

__all__ = ["migrate"]

_COLUMNS: Final = (
    ("peers", "dialect", "TEXT NOT NULL DEFAULT 'bhumi-v1'"),
    ("issued", "suite_hint", "BLOB"),
    ("invites", "suite_hint", "BLOB"),
    ("last_response", "suite_hint", "BLOB"),
    ("peers", "root", "BLOB"),
    ("peers", "root_before", "BLOB"),
    ("peers", "allow", "TEXT"),
    ("peers", "blocked", "INTEGER NOT NULL DEFAULT 0"),
    ("invites", "secret", "BLOB"),
    ("invites", "expires", "INTEGER NOT NULL DEFAULT 0"),
    ("invites", "allow", "TEXT"),
    ("pending", "root", "BLOB"),
    ("theirs", "refused", "INTEGER NOT NULL DEFAULT 0"),
    ("pending", "owner", "TEXT NOT NULL DEFAULT ''"),
    ("issued", "passed", "INTEGER NOT NULL DEFAULT 0"),
)
_HINTED: Final = ("issued", "invites", "last_response")


def migrate(database: PrivateDatabase) -> None:
    """Add what is missing, all of it or nothing; two programs that open an old file at once agree.

    Raises:
        HostError: The file cannot be changed.
    """
    if not _missing(database):
        return
    with database.transaction(opens=True):
        for table, column, kind in _missing(database):  # another program may have been quicker
            database.run(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")
        for table in _HINTED:
            rows = database.all(f"SELECT preimage FROM {table} WHERE suite_hint IS NULL")  # noqa: S608 - names from above
            for (preimage,) in rows:
                update = f"UPDATE {table} SET suite_hint = ? WHERE preimage = ?"  # noqa: S608 - names from above
                database.run(update, suite_hint_of(preimage), preimage)
        database.run("CREATE INDEX IF NOT EXISTS issued_by_suite_hint ON issued (suite_hint)")


def _missing(database: PrivateDatabase) -> list[tuple[str, str, str]]:
    return [
        (table, column, kind)
        for table, column, kind in _COLUMNS
        if column not in {row[1] for row in database.all(f"PRAGMA table_info({table})")}
    ]
