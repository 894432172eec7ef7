"""Durable records: what an ``Append`` effect carries and a store keeps.

A record is one key with one value in a named table; no value removes the key. Rooms above give tables
their meaning, stores only keep bytes.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

__all__ = ["Record", "Store"]


class Record(NamedTuple):
    """One durable change."""

    table: str
    """Table name, 1 to 64 characters out of a-z and _."""
    key: bytes
    """1 to 512 bytes."""
    value: bytes | None
    """At most 16 MiB; None removes the key."""


class Store(Protocol):
    """The port to a durable store. Implementations: ``store.memory``, ``store.sqlite``.

    Reads are synchronous and see what was committed. Writes are one call per group: when ``commit``
    returns, the records survive a power cut; when it raises, none of them was written.
    """

    def commit(self, records: Sequence[Record]) -> None:
        """Write all records, in order, in one transaction.

        Raises:
            HostError: The disk refused; nothing of the group was kept.
        """

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return the value kept for ``key``, or None."""

    def scan(self, table: str, start: bytes = b"", count_max: int = 1_000) -> Iterator[tuple[bytes, bytes]]:
        """Yield at most ``count_max`` pairs in key order, beginning with the first key at or after ``start``."""

    def close(self) -> None:
        """Release files and threads; calls after this are bugs."""
