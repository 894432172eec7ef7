"""The disk of a simulated node: it loses what was not synced, refuses writes and reads, and comes back old or rotten.

Each simulated node and BSP device has a ``FaultyStore``. The store is a log of groups, one per commit, and the state
that they lead to. A commit that returns is synced, unless a test has planted that it is not. When a life ends, the disk
decides what the next one finds: after a kill all that was written, after a power cut what was synced; in both cases
perhaps the first groups of what was under way. It may lose rows, or be replaced by a copy made earlier, under another
epoch, as ``waystation restore`` leaves it.

Nothing of this happens before ``spoil``: until then it is a memory store that survives every crash.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from waystation.core.errors import StoreFault, StoreFaultKind
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.core.packets import DropPackets, PacketEntry, PacketPage, PacketQuery, PacketReader, PutPacket
from waystation.core.records import Change, DamagedRow, Record, StoreState
from waystation.store.memory import MemoryStore

__all__ = ["PACKETS", "TRY_AGAIN_US", "DiskHabits", "FaultyStore", "Promises", "Row", "rows_of"]

PACKETS: Final = "packets"
"""What the packet table is called among the names of tables."""
TRY_AGAIN_US: Final = MICROSECONDS_PER_SECOND
"""How long after a refusal a disk is asked again, as by the server and by machines."""
EPOCH_BYTES: Final = 8
_GROUPS_LOOKED_AT_MAX: Final = 4_000
_NEVER: Final = -1


class Row(NamedTuple):
    """The name of one row."""

    table: str
    """``PACKETS`` for a packet."""
    key: bytes
    """The id of a packet."""


@dataclass(frozen=True, slots=True)
class DiskHabits:
    """What becomes of a disk when a life of its node ends; chances are 0 to 1."""

    power_cuts: float = 0.0
    """Chance of a crash to be a power cut; otherwise the process is killed, and what it wrote is written."""
    rot: float = 0.0
    """Chance that some rows cannot be read afterwards."""
    restores: float = 0.0
    """Chance that the disk is replaced by a copy made before."""
    unsynced: tuple[str, ...] = ()
    """Tables whose commits do not sync, a planted mistake; the next commit that syncs takes them along."""


class FaultyStore:
    """Implements ``core.records.Store`` on such a disk.

    Cost: as ``MemoryStore``; losing something costs all changes ever made.
    """

    def __init__(self, epoch: bytes = bytes(EPOCH_BYTES)) -> None:
        """Start empty; ``epoch`` as in ``MemoryStore``."""
        self._state = MemoryStore(epoch)
        self._groups: list[tuple[Change, ...]] = []
        self._synced_count = 0
        self._rotten: dict[Row, None] = {}
        self.lost_values: tuple[bytes, ...] = ()
        """What stood in the rows that were lost when the last life ended, and beside them under the same key."""
        self._habits = DiskHabits()
        self._rng: random.Random | None = None
        self.refuses = False
        """Whether commits fail now."""
        self.refusals = 0
        """How many commits have failed."""
        self.fails_to_read = False
        """Whether a page of packets cannot be read now."""
        self._packets = _Packets(self)

    # The port

    @property
    def packets(self) -> PacketReader:
        """The packet table; its pages for readers fail while ``fails_to_read`` is set."""
        return cast("PacketReader", self._packets)

    def commit(self, changes: Sequence[Change]) -> None:
        """Write and sync all changes, or raise."""
        if self.refuses:
            self.refusals += 1
            raise StoreFault("the disk refuses")
        self._write(changes)
        unsynced = self._habits.unsynced
        if not any(row.table in unsynced for row in rows_of(changes)):
            self._synced_count = len(self._groups)

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return the value kept for ``key``, or None."""
        return self._state.get(table, key)

    def get_many(self, table: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the values kept for those of ``keys`` that have one."""
        return self._state.get_many(table, keys)

    def scan(self, table: str, start: bytes = b"", count_max: int = 1_000) -> Iterator[tuple[bytes, bytes]]:
        """Yield pairs as ``MemoryStore.scan`` does."""
        return self._state.scan(table, start, count_max)

    def damaged(self, table: str) -> Sequence[DamagedRow]:
        """Return the rotten rows of a table that have not been written since."""
        return [DamagedRow(*row, key_is_good=True) for row in self._rotten if row.table == table]

    def state(self) -> StoreState:
        """Return the state; ``MemoryStore`` counts."""
        return self._state.state()

    def fold(self) -> StoreState:
        """Return the state; there is one place only."""
        return self._state.state()

    def close(self) -> None:
        """Keep everything: the next life opens the same disk."""

    # What the simulator does with it

    def spoil(self, habits: DiskHabits, rng: random.Random) -> None:
        """Have these habits from now on; ``rng`` draws what is lost."""
        self._habits, self._rng = habits, rng

    def has_synced(self, data: bytes) -> bool:
        """Return whether ``data`` stands in a value of the last few thousand commits that a power cut would leave."""
        last = max(0, self._synced_count - _GROUPS_LOOKED_AT_MAX)
        groups = reversed(self._groups[last : self._synced_count])
        return any(isinstance(each, Record) and each.value and data in each.value for group in groups for each in group)

    def end_life(self, under_way: Sequence[Sequence[Change]], *, orderly: bool) -> frozenset[Row]:
        """Let the node die, or stop.

        Args:
            under_way: Groups that were to be written next, in their order; the disk may have got the first of them.
            orderly: Whether the node had the time to close its store.

        Returns:
            Rows that the disk lost and of which a node could know: it finds them damaged, or was given an older copy.
        """
        rng, habits = self._rng, self._habits
        if rng is None:
            return frozenset()
        if not orderly:
            kept_count = self._synced_count if rng.random() < habits.power_cuts else len(self._groups)
            pending = [*self._groups[kept_count:], *under_way]
            self._become([*self._groups[:kept_count], *pending[: rng.randint(0, len(pending))]])
        self._synced_count = len(self._groups)
        self.lost_values = ()
        return self._restore(rng) | self._rot(rng)

    def _restore(self, rng: random.Random) -> frozenset[Row]:
        """Perhaps go back to a copy; return what had changed since."""
        if rng.random() >= self._habits.restores:
            return frozenset()
        kept_count = rng.randint(0, len(self._groups))
        lost = frozenset(row for group in self._groups[kept_count:] for row in rows_of(group))
        self.lost_values += self._values_beside(lost)
        self._become(self._groups[:kept_count], rng.randbytes(EPOCH_BYTES))
        self._synced_count = kept_count
        return lost

    def _rot(self, rng: random.Random) -> frozenset[Row]:
        """Perhaps lose rows; return which."""
        if rng.random() >= self._habits.rot:
            return frozenset()
        rows = [row for row in dict.fromkeys(row for group in self._groups for row in rows_of(group)) if self.has(row)]
        lost = rng.sample(rows, min(len(rows), rng.randint(1, 3)))
        self.lost_values += self._values_beside(frozenset(lost))
        self._write([_loss_of(row) for row in lost])
        self._synced_count = len(self._groups)
        self._rotten |= dict.fromkeys(lost)
        return frozenset(lost)

    def _values_beside(self, rows: frozenset[Row]) -> tuple[bytes, ...]:
        """Return every value that was ever written under the keys of rows."""
        keys = {row.key for row in rows}
        return tuple(
            change.value
            for group in self._groups
            for change in group
            if isinstance(change, Record) and change.value and change.key in keys
        )

    @property
    def state_now(self) -> MemoryStore:
        """What is written now, whether or not the disk lets a node read it."""
        return self._state

    def has(self, row: Row) -> bool:
        """Return whether a row is there."""
        if row.table == PACKETS:
            return self._state.packets.packet(row.key) is not None
        return self._state.get(row.table, row.key) is not None

    def _write(self, changes: Sequence[Change]) -> None:
        self._state.commit(changes)
        if changes:
            self._groups.append(tuple(changes))
        for row in rows_of(changes) if self._rotten else ():
            self._rotten.pop(row, None)

    def _become(self, groups: Sequence[Sequence[Change]], epoch: bytes | None = None) -> None:
        """Be what these groups lead to."""
        before, kept_count = self._groups, min(len(self._groups), len(groups))
        if epoch is not None or len(groups) < len(before):
            self._state, self._groups = MemoryStore(epoch or self.packets.epoch()), []
            kept_count = 0
        rotten = self._rotten
        self._rotten = {}
        for group in groups[kept_count:]:
            self._write(group)
        self._rotten = {row: None for row in rotten if epoch is None and not self.has(row)}


class _Packets:
    """The packet table of a store, on whatever disk it has at the time."""

    def __init__(self, store: FaultyStore) -> None:
        self._store = store

    def entries(self, query: PacketQuery) -> PacketPage[PacketEntry]:
        """Return a page for a reader, or fail."""
        if self._store.fails_to_read:
            raise StoreFault("the disk fails to read", StoreFaultKind.IO)
        return self._store.state_now.packets.entries(query)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store.state_now.packets, name)


class Promises:
    """What was reported to a node as committed: its next life must find it, except for what the disk has lost."""

    def __init__(self) -> None:
        self._values: dict[Row, tuple[bytes | None, ...]] = {}

    def made(self, changes: Sequence[Change]) -> None:
        """Note changes that the store has taken."""
        for change in changes:
            if isinstance(change, Record):
                self._values[Row(change.table, change.key)] = (change.value,)

    def may_be(self, groups: Sequence[Sequence[Change]]) -> None:
        """Note groups that were under way when the node died: the disk may have got them."""
        for group in groups:
            for change in group:
                if isinstance(change, Record) and (values := self._values.get(Row(change.table, change.key))):
                    self._values[Row(change.table, change.key)] = (*values, change.value)

    def lost(self, rows: frozenset[Row]) -> None:
        """Except rows."""
        for row in rows:
            self._values.pop(row, None)

    def broken(self, store: FaultyStore) -> list[Row]:
        """Return rows that the store has otherwise than promised."""
        return [row for row, values in self._values.items() if store.get(*row) not in values]


def rows_of(changes: Sequence[Change]) -> list[Row]:
    """Return the rows that changes concern, in their order."""
    rows: list[Row] = []
    for change in changes:
        if isinstance(change, Record):
            rows.append(Row(change.table, change.key))
        elif isinstance(change, PutPacket):
            rows.append(Row(PACKETS, change.row.packet_id))
        elif isinstance(change, DropPackets):
            rows += [Row(PACKETS, packet_id) for packet_id in change.packet_ids]
    return rows


def _loss_of(row: Row) -> Change:
    """Return a change after which a row is gone as if it had never been."""
    return DropPackets((row.key,), _NEVER) if row.table == PACKETS else Record(row.table, row.key, None)
