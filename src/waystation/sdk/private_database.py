"""A client's own SQLite file: made for its owner alone, in WAL mode, with a schema that may be run again."""

import os
import sqlite3
from pathlib import Path
from typing import Final

__all__ = ["open_private_database"]

_BUSY_TIMEOUT_S: Final = 10.0  # another program of the same user may be writing
_OTHERS: Final = 0o077


def open_private_database(path: Path, schema: str, *, synchronous: str = "FULL") -> sqlite3.Connection:
    """Open the file ``path``, made if absent; in any case only its owner may read it afterwards (mode 0600).

    Args:
        path: The file; SQLite gives its -wal and -shm files the same mode.
        schema: Statements that make what is missing.
        synchronous: FULL for what must survive a power cut, NORMAL for what may be lost with it.

    Raises:
        OSError: The file cannot be made.
        sqlite3.Error: It is no database, or cannot be used.
    """
    try:
        # Only a new file may be opened here: closing one that SQLite has open would drop this process's locks on it.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        if path.stat().st_mode & _OTHERS:
            path.chmod(0o600)
    database = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(f"PRAGMA synchronous = {synchronous}")
        database.executescript(schema)
    except sqlite3.Error:
        database.close()
        raise
    return database
