"""Small bounded reads of the packet store, for queries that return few packets.

``pages``, ``trust`` and ``software_keys`` call it. A query of the store looks at a bounded number of rows, so one
answer may take several; this repeats it.
"""

from typing import Final

from waystation.core.packets import PacketQuery, PacketReader, PacketRow

__all__ = ["read_some"]

PAGES_MAX: Final = 64  # a page may be empty and still go on; after so many the query is given up


def read_some(packets: PacketReader, query: PacketQuery, rows_max: int) -> list[PacketRow]:
    """Return the first ``rows_max`` packets of a query, fewer when there are no more within 64 pages."""
    found: list[PacketRow] = []
    for _ in range(PAGES_MAX):
        page = packets.page(query._replace(rows_max=rows_max - len(found)))
        found += page.rows
        if page.position is None or len(found) >= rows_max:
            break
        query = query._replace(start=page.position)
    return found
