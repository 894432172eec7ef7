"""In-memory store for tests, the simulator and nodes without durable storage.

It implements ``core.records.Store`` in dictionaries. ``server.rehearsal`` uses it too, to try a configuration without
writing a file.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from waystation.core.records import STORE_ID_BYTES, Change, DamagedRow, Record, StoreState
from waystation.store.damage import Damage
from waystation.store.memory_packets import EPOCH_BYTES, MemoryPackets

__all__ = ["MemoryStore"]


class MemoryStore:
    """Implements ``core.records.Store`` in dictionaries.

    Cost: ``commit`` and ``get`` O(1) per record; ``scan`` sorts the keys of its table when they changed since the last
    scan.
    """

    def __init__(self, epoch: bytes = bytes(EPOCH_BYTES), store_id: bytes = bytes(STORE_ID_BYTES)) -> None:
        """Start empty.

        Args:
            epoch: 8 bytes that distinguish this store from others.
            store_id: As many as ``STORE_ID_BYTES`` that do so too.
        """
        self._store_id = store_id
        self._generation = 0
        self._tables: dict[str, dict[bytes, bytes]] = {}
        self._sorted_keys: dict[str, list[bytes]] = {}
        self._packets = MemoryPackets(epoch)
        self.damage = Damage()
        """The damaged rows that were met."""

    @property
    def packets(self) -> MemoryPackets:
        """The packet table."""
        return self._packets

    def commit(self, changes: Sequence[Change]) -> None:
        """Keep all changes, in order; this store never refuses."""
        for change in changes:
            if isinstance(change, Record):
                self._keep(change)
            else:
                self._packets.apply(change)
        self._generation += 1

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return the value kept for ``key``, or None."""
        return self._tables.get(table, {}).get(key)

    def get_many(self, table: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the values kept for those of ``keys`` that have one."""
        kept = self._tables.get(table, {})
        return {key: kept[key] for key in keys if key in kept}

    def scan(self, table: str, start: bytes = b"", count_max: int = 1_000) -> Iterator[tuple[bytes, bytes]]:
        """Yield at most ``count_max`` pairs in key order, as they were at the call, from ``start`` on."""
        kept = self._tables.get(table, {})
        keys = self._sorted_keys.get(table)
        if keys is None:
            keys = self._sorted_keys[table] = sorted(kept)
        first = bisect_left(keys, start)
        return iter([(key, kept[key]) for key in keys[first : first + count_max]])

    def damaged(self, table: str) -> Sequence[DamagedRow]:
        """Return what ``damage`` has of the table: nothing, as memory does not rot."""
        return self.damage.rows(table)

    def state(self) -> StoreState:
        """Return the id given at construction, and the number of commits."""
        return StoreState(self._store_id, self._generation)

    def fold(self) -> StoreState:
        """Return the state; there is one place only."""
        return self.state()

    def close(self) -> None:
        """Forget everything."""
        self._tables.clear()
        self._sorted_keys.clear()
        self._packets = MemoryPackets(self._packets.epoch())

    def _keep(self, record: Record) -> None:
        table = self._tables.setdefault(record.table, {})
        if record.value is None:
            if table.pop(record.key, None) is not None:
                self._sorted_keys.pop(record.table, None)
        else:
            if record.key not in table:
                self._sorted_keys.pop(record.table, None)
            table[record.key] = record.value
