"""Group commit: writes the changes of many peers to the store in one transaction, on a writer thread.

The hub passes the changes of ``Commit`` effects and gets the answer to give to the relay. Changes queue while the
writer is busy and are written together when it is free. An idle node commits at once; a busy one commits in larger
groups. Each ``ask`` is answered once: True when its changes are on disk, False when the store did not take them. The
answers of one owner come in the order of its questions, and behind a refused one all that it asked before that answer
are refused (NODE-REFUSED).

While the store is in fault nothing is tried but a probe each second (``StoreHealth``); new changes are refused at once.
What nobody waits for is owed (``owe``): it is written with the next group that the store takes.

A group that does not return is neither kept nor refused until it does. After ``writer_thread.HUNG_S`` the store is in
fault, and what is asked from then on is refused ahead of the answers to that group (NODE-HUNG).
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import structlog

from waystation.core.errors import StoreFault, StoreFaultKind
from waystation.core.records import Change, Record, Store, StoreState
from waystation.server.failures.log import FailureLog
from waystation.server.store_health import StoreHealth
from waystation.store.writer_thread import HUNG_S, WriterThread

__all__ = ["Answer", "GroupCommit"]

CHANGES_WAITING_MAX: Final = 262_144  # about a minute of a slow disk; reached only when the disk has stopped
OWED_MAX: Final = 65_536  # as many as a full list of bans; the oldest is dropped
PROBE_S: Final = 1.0  # how often a store in fault is tried, and free space looked at
_OF_ONE_CHANGE: Final = frozenset({StoreFaultKind.OTHER, StoreFaultKind.DAMAGED})
"""What may be wrong with one change, or with its page of the file, while the store takes all others."""

_OF_THE_FILE: Final = frozenset({StoreFaultKind.GONE, StoreFaultKind.OVERWRITTEN})

Answer = Callable[[bool], None]
"""Is called on the loop: True when everything asked for is on disk, False when nothing of it is."""

_log = structlog.get_logger("waystation.server")


class _Asked(NamedTuple):
    owner: str
    changes: Sequence[Change]
    answer: Answer
    is_doomed: bool
    """Whether it is refused without being tried."""


class GroupCommit:
    """Feeds one store from the event loop through one writer thread."""

    def __init__(self, store: Store, failures: FailureLog, health: StoreHealth | None = None) -> None:
        """Start with nothing waiting.

        Args:
            store: Written by the writer thread only.
            failures: Logs bugs of ours.
            health: Keeps whether the store is in fault; None for one that looks at no disk.
        """
        self._store = store
        self.health = health if health is not None else StoreHealth()
        self._failures = failures
        self._writer = WriterThread(self._on_hang)
        self._waiting: list[_Asked] = []
        self._waiting_count = 0
        """Changes in ``_waiting``."""
        self._doomed: set[str] = set()
        """Owners whose refusal is not answered yet."""
        self._owed: dict[tuple[str, bytes], Record] = {}
        self._own: set[Answer] = set()
        """Of ``write``, as long as it waits."""
        self._running: asyncio.Task[None] | None = None

    @property
    def is_stuck(self) -> bool:
        """Whether the store has not returned from what it was asked last (NODE-HUNG)."""
        return self._writer.is_stuck

    def ask(self, owner: str, changes: Sequence[Change], answer: Answer) -> None:
        """Take changes for the next group, all for the same one.

        Args:
            owner: Whose answers keep an order: a protocol's name.
            changes: Any number; without any the answer is True once everything before is answered so.
            answer: Called once, in a later iteration of the loop.
        """
        is_doomed = owner in self._doomed or bool(changes and self.health.refuses(changes))
        if not is_doomed and self._waiting_count + len(changes) > CHANGES_WAITING_MAX:
            is_doomed = True
        if is_doomed:
            self._doomed.add(owner)
        else:
            self._waiting_count += len(changes)
        self._waiting.append(_Asked(owner, changes, answer, is_doomed))

    def owe(self, record: Record) -> None:
        """Write a record that nobody waits for, now or once the store takes writes again; the last of a key wins."""
        self._owed.pop((record.table, record.key), None)
        self._owed[record.table, record.key] = record
        while len(self._owed) > OWED_MAX:
            del self._owed[next(iter(self._owed))]
        self.flush()

    async def write(self, record: Record) -> None:
        """Write a record and return once it is on disk; one that the store refuses, or hangs on, is owed.

        Raises:
            StoreFault: The store refused it for now.
        """
        answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def answer(is_kept: bool) -> None:
            if answer not in self._own:
                return  # it is owed since the store hung
            self._own.discard(answer)
            if not is_kept:
                self.owe(record)  # here: who waits may be gone by now
            if not answered.done():
                answered.set_result(is_kept)

        # An older one that is owed must not be written over this one: below the floor some are taken, and some owed.
        self._owed.pop((record.table, record.key), None)
        self._own.add(answer)
        self.ask("", (record,), answer)
        self.flush()
        if not await answered:
            raise self.health.fault or StoreFault("the store did not take a write")

    def flush(self) -> None:
        """Start a group if the writer is free and anything waits; call once per loop turn."""
        if self._writer.is_stuck:
            asyncio.get_running_loop().call_soon(self._refuse_doomed)
        elif self._running is None and (self._waiting or (self._owed and self.health.fault is None)):
            self._running = asyncio.get_running_loop().create_task(self._commit())

    async def probe(self) -> None:
        """Try whether the store takes writes, and write what is owed; ends its fault, begins one, or changes it.

        A store that hangs is not tried: what is under way says when it has come back.
        """
        if self._writer.is_stuck:
            return
        fault = self.health.look()
        if fault is None:
            fault = await self._write(tuple(self._owed.values()))  # also an empty group is written
        if fault is not None and fault.kind in _OF_ONE_CHANGE and self._owed:
            fault = await self._write(())  # what is owed is not the store: each is tried alone once the fault is over
        if fault is None:
            self.health.end()
            self.flush()
        else:
            self.health.begin(fault)

    async def watch(self) -> None:
        """Look after the store until cancelled: try one in fault, and keep the floor of free space."""
        while True:
            await asyncio.sleep(PROBE_S)
            self.health.note_space()
            if self.health.fault is not None:
                await self.probe()
            elif (fault := self.health.look()) is not None:
                self.health.begin(fault)

    async def settled(self) -> None:
        """Return once everything that was asked is answered, or the store hangs."""
        self.flush()
        while self._running is not None and not self._writer.is_stuck:
            await asyncio.wait((self._running,), timeout=PROBE_S)

    async def fold(self) -> StoreState:
        """Have the store fold its log in, on the writer thread behind what is under way, and return the state reached.

        Raises:
            HostError: The store refused, or hangs.
        """
        if (known := self.health.fault) is not None:
            raise known
        folding = asyncio.ensure_future(self._writer.run(self._store.fold))
        try:
            while not (await asyncio.wait((folding,), timeout=PROBE_S))[0]:
                if self._writer.is_stuck and self.health.fault is not None:
                    folding.cancel()  # nobody waits for it; the thread goes on
                    raise self.health.fault
            return folding.result()
        except StoreFault as fault:
            if fault.kind in _OF_THE_FILE:
                self.health.begin(fault)  # no write would say otherwise, and an idle node has none
            raise

    async def close(self) -> None:
        """Write what waits and what is owed, as far as the store takes it, and stop the writer thread.

        A store that hangs is left alone: what is under way there is answered to nobody.
        """
        try:
            await self.settled()
            if self._owed and not self._writer.is_stuck:
                await self._write(tuple(self._owed.values()))  # also below the floor: there is room for the last ones
        finally:
            if self._owed:
                _log.error("store.owed_lost", records=len(self._owed))
            self._writer.shutdown()

    async def _commit(self) -> None:
        try:
            while self._waiting or (self._owed and self.health.fault is None):
                group, self._waiting, self._waiting_count = self._waiting, [], 0
                await self._commit_group(group)
        finally:
            self._running = None

    async def _commit_group(self, group: list[_Asked]) -> None:
        changes = [change for asked in group if not asked.is_doomed for change in asked.changes]
        owed = list(self._owed.values()) if self.health.fault is None else []
        fault = await self._write((*owed, *changes)) if owed or changes else None
        if fault is None:
            self._answer([(asked, not asked.is_doomed) for asked in group])
        elif fault.kind in _OF_ONE_CHANGE and (fault.kind is StoreFaultKind.OTHER or await self._write(()) is None):
            await self._commit_each(group, owed)
        else:
            self.health.begin(fault)
            waited, self._waiting, self._waiting_count = self._waiting, [], 0
            self._answer([(asked, False) for asked in (*group, *waited)])

    async def _commit_each(self, group: list[_Asked], owed: list[Record]) -> None:
        """Write each by itself: what a store cannot take whatever its disk does must not refuse what others ask."""
        for record in owed:
            fault = await self._write((record,))
            is_never_taken = fault is not None and fault.kind in _OF_ONE_CHANGE
            if is_never_taken and self._owed.get((record.table, record.key)) is record:
                del self._owed[record.table, record.key]
        answers = []
        for asked in group:
            is_kept = not asked.is_doomed and asked.owner not in self._doomed
            if is_kept and asked.changes:
                is_kept = await self._write(asked.changes) is None
            if not is_kept:
                self._doomed.add(asked.owner)
            answers.append((asked, is_kept))
        self._waiting = [asked._replace(is_doomed=asked.owner in self._doomed) for asked in self._waiting]
        self._answer(answers)

    async def _write(self, changes: Sequence[Change]) -> StoreFault | None:
        """Write a group on the writer thread; return why the store did not take it, None when it is on disk."""
        try:
            await self._writer.run(self._store.commit, changes)
        except StoreFault as fault:
            if fault.kind in _OF_ONE_CHANGE:
                self._failures.failed("commit.failed", fault)
            return fault
        except Exception as error:  # noqa: BLE001 - else everything after this group would wait for ever, unreported
            self._failures.failed("commit.failed", error)
            return StoreFault(f"the store failed: {error!r}")
        for change in changes:
            if isinstance(change, Record) and self._owed.get((change.table, change.key)) is change:
                del self._owed[change.table, change.key]
        return None

    def _on_hang(self) -> None:
        """Begin a fault, and refuse all that is not under way: that would wait for as long as the disk likes."""
        self.health.begin(
            StoreFault(
                f"a write to the disk of the store has not returned for {HUNG_S:g} s; it goes on when that does",
                StoreFaultKind.HUNG,
            )
        )
        # Also what is without changes: it would say that all before it is on disk, and what waits there is refused.
        self._waiting = [asked._replace(is_doomed=True) for asked in self._waiting]
        self._waiting_count = 0
        self._refuse_doomed()
        for answer in list(self._own):
            answer(False)

    def _refuse_doomed(self) -> None:
        refused = [(asked, False) for asked in self._waiting if asked.is_doomed]
        self._waiting = [asked for asked in self._waiting if not asked.is_doomed]
        self._answer(refused)

    def _answer(self, answers: Sequence[tuple[_Asked, bool]]) -> None:
        self._doomed = {asked.owner for asked in self._waiting if asked.is_doomed}
        for asked, is_kept in answers:
            try:
                asked.answer(is_kept)
            except Exception as error:  # noqa: BLE001 - a bug of ours costs this answer, not those after it
                self._failures.failed("commit.failed", error, what="answer")
