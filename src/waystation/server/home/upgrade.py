"""Brings the store in a node's home to the layout (table format) of this version.

``waystation upgrade`` calls it for a stopped node. ``serve`` does the same when it opens the store.
"""

from contextlib import closing

from waystation.server.home.files import Home
from waystation.server.home.mark import adopt_home, check_home, store_mark, write_mark
from waystation.store.sqlite import SqliteStore
from waystation.store.sqlite_layout import check_file

__all__ = ["layout_of", "upgrade_home"]


def layout_of(home: Home) -> int | None:
    """Return the layout of a home's store, which is whole; None without a store, or for an empty file.

    Nothing is written.

    Raises:
        HostError: It is damaged, of a newer version, or no store (exit code 5).
    """
    has_store = home.store_path.exists() and home.store_path.stat().st_size > 0
    return check_file(home.store_path) if has_store else None


def upgrade_home(home: Home) -> None:
    """Bring the store to this version's layout, and give the home a mark for it; nothing is lost if this is cut short.

    Args:
        home: Locked by this process.

    Raises:
        HostError: The home has lost something (exit code 5), or the disk refused.
    """
    check_home(home)
    with closing(SqliteStore(home.store_path)) as store:
        write_mark(home, adopt_home(home)._replace(store=store_mark(store.state(), in_use=False)))
