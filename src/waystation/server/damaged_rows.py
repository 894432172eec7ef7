"""Opens a node's store, and logs the damaged rows that reads of it meet; status and metrics count them.

``NodeServer`` calls ``open_store`` at the start: a configuration and a home go in, the store comes out. A row whose
checksum does not fit reads as absent, so the log is the only place where it shows at once.
"""

from typing import Final

import structlog

from waystation.core.records import DamagedRow
from waystation.server.config.values import Config
from waystation.server.home import Home
from waystation.server.registry import packet_check
from waystation.store.memory import MemoryStore
from waystation.store.sqlite import SqliteStore

__all__ = ["LINES_MAX", "open_store"]

LINES_MAX: Final = 100
"""Lines about single rows that one process writes; the counts go on (NODE-ROT)."""
_KEY_CHARS: Final = 64

_log = structlog.get_logger("waystation.server")


def open_store(config: Config, home: Home) -> MemoryStore | SqliteStore:
    """Return the store of a node, whose damaged rows are logged from now on, each once.

    Raises:
        HostError: It cannot be opened (exit code 5).
    """
    if config.store.url == "memory":
        return MemoryStore()
    store = SqliteStore(home.store_path, ids_in_memory=True, check=packet_check())
    store.damage.on_row = _Lines().say
    return store


class _Lines:
    """Writes a line for each row, up to a limit; rows come once each."""

    def __init__(self) -> None:
        self._left = LINES_MAX

    def say(self, row: DamagedRow) -> None:
        self._left -= 1
        if self._left >= 0:
            key = row.key.decode("ascii") if row.key.isdigit() else row.key.hex()
            _log.error("store.row_damaged", table=row.table, key=key[:_KEY_CHARS], key_is_good=row.key_is_good)
        if self._left == 0:
            _log.error("store.rows_damaged", why="there are more; the metrics count them")
