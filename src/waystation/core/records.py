"""Changes that a machine asks to make durable (in ``Commit`` effects), and the interface of the stores that write them.

A record is one key and value in a named table; a record without a value deletes the key. A store does not interpret
keys and values; the package that uses a table defines them. Packets need queries, so they have their own changes
(``core.packets``).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from waystation.core.packets import PacketChange, PacketReader

__all__ = ["STORE_ID_BYTES", "Change", "DamagedRow", "Record", "Store", "StoreState", "newest"]

STORE_ID_BYTES: Final = 16


class Record(NamedTuple):
    """One durable change."""

    table: str
    """Table name, 1 to 64 characters out of a-z and _."""
    key: bytes
    """1 to 512 bytes."""
    value: bytes | None
    """At most 16 MiB; None removes the key."""


Change = Record | PacketChange
"""One thing a store writes."""


def newest(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Return changes without the records that a later one of the same key replaces; the rest keeps its order.

    For changes that a store refused and that are asked for again together with younger ones.
    """
    records: dict[tuple[str, bytes], Record] = {}
    others: list[Change] = []
    for change in changes:
        if isinstance(change, Record):
            records.pop((change.table, change.key), None)
            records[change.table, change.key] = change
        else:
            others.append(change)
    return (*others, *records.values())


class DamagedRow(NamedTuple):
    """A row whose bytes are not those that were written."""

    table: str
    key: bytes
    """As it stands in the store; of a packet its ``seq`` in decimal digits, or its id where that cannot be read."""
    key_is_good: bool
    """Whether the key is the one that was written, so that only the value is lost."""


class StoreState(NamedTuple):
    """Who a store is and how far it has come; it distinguishes a file that is older, and another one."""

    store_id: bytes
    """``STORE_ID_BYTES`` random bytes, drawn when the store is made."""
    generation: int
    """How many groups of changes were ever committed."""


class Store(Protocol):
    """The port to a durable store. Implementations: ``store.memory``, ``store.sqlite``.

    Reads are synchronous and see what was committed. Writes are one call per group: when ``commit``
    returns, the records survive a power cut; when it raises, none of them was written.

    A damaged row reads as absent. Whoever would take absent for "never written" asks ``damaged`` (NODE-ROT).
    """

    @property
    def packets(self) -> PacketReader:
        """Reads of the packet table."""

    def commit(self, changes: Sequence[Change]) -> None:
        """Write all changes, in order, in one transaction.

        Raises:
            HostError: The disk refused; nothing of the group was kept.
        """

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return the value kept for ``key``, or None."""

    def get_many(self, table: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the values kept for those of ``keys`` that have one: a third of what as many ``get`` cost."""

    def scan(self, table: str, start: bytes = b"", count_max: int = 1_000) -> Iterator[tuple[bytes, bytes]]:
        """Yield at most ``count_max`` pairs in key order, beginning with the first key at or after ``start``."""

    def state(self) -> StoreState:
        """Return who the store is and how far it has come."""

    def fold(self) -> StoreState:
        """Bring what is durable to its lasting place, so that a copy of that place is recent; return the state reached.

        Call it where ``commit`` is called; it may count as one.
        """

    def damaged(self, table: str) -> Sequence[DamagedRow]:
        """Return the damaged rows of a table that reads have met since the store was opened, bounded."""

    def close(self) -> None:
        """Release files and threads; calls after this are bugs."""
