"""The faults: each begins, lasts for a while, and ends; what it does to the node is undone by its end."""

import errno
import random
import shutil
import signal
import socket
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack
from typing import ClassVar, Final

from soak.faults.memory import Crowd
from soak.faults.node import FaultyNode
from soak.shims.power_cut import SHARES, cut_power
from soak.shims.preload import Word
from waystation.store.writer_thread import HUNG_S

__all__ = ["FAULTS", "Fault"]

HOUR_US: Final = 3_600_000_000
DAY_US: Final = 24 * HOUR_US


class Fault(ABC):
    """Something that goes wrong with a node from ``begin`` to ``end``; both may block for seconds."""

    name: ClassVar[str]
    """As in ``soak.faults.table``."""
    lasts_s: ClassVar[tuple[float, float]]
    """Least and most seconds between begin and end."""
    stops_node: ClassVar[bool] = False
    """Whether the node ends by it, and nobody wonders."""

    def __init__(self, node: FaultyNode) -> None:
        """Choose a node."""
        self._node = node

    @abstractmethod
    def begin(self) -> None:
        """Let it go wrong."""

    @abstractmethod
    def end(self) -> None:
        """Mend what is wrong."""

    def draw_s(self, rng: random.Random) -> float:
        """Return how long it lasts this time."""
        return rng.uniform(*self.lasts_s)


class Kill(Fault):
    """SIGKILL, and a start."""

    name = "kill"
    stops_node = True
    lasts_s = (0.0, 3.0)

    def begin(self) -> None:
        self._node.kill()

    def end(self) -> None:
        self._node.start()


class PowerCut(Kill):
    """SIGKILL, the loss of what was not synced, and a start."""

    name = "power-cut"

    def begin(self) -> None:
        super().begin()
        rng = random.Random(self._node.starts_count)
        cut_power(self._node.home, self._node.shims.synced, rng, rng.choice(SHARES))


class Stop(Fault):
    """SIGSTOP, and SIGCONT."""

    name = "stop"
    lasts_s = (3.0, 15.0)

    def begin(self) -> None:
        self._node.signal(signal.SIGSTOP)

    def end(self) -> None:
        self._node.signal(signal.SIGCONT)


class Lock(Fault):
    """Another process writes to the store and does not come to an end."""

    name = "lock"
    lasts_s = (10.0, 10.0)

    def begin(self) -> None:
        self._other = sqlite3.connect(self._node.store, isolation_level=None, timeout=20, check_same_thread=False)
        self._other.execute("BEGIN IMMEDIATE")

    def end(self) -> None:
        self._other.execute("ROLLBACK")
        self._other.close()


class Words(Fault):
    """Sets words of the shims, and 0 in the end; ``of`` makes a kind of it."""

    words: ClassVar[Mapping[Word, int]]

    @classmethod
    def of(cls, name: str, lasts_s: tuple[float, float], words: Mapping[Word, int]) -> type["Words"]:
        """Return the kind with this name that sets these words."""
        return type(name, (cls,), {"name": name, "lasts_s": lasts_s, "words": words})

    def begin(self) -> None:
        for word, value in self.words.items():
            self._node.shims[word] = value

    def end(self) -> None:
        for word in self.words:
            self._node.shims[word] = 0


class Descriptors(Fault):
    """Idle connections take every descriptor that the node may have."""

    name = "descriptors"
    lasts_s = (5.0, 10.0)
    spare: Final = 8

    def begin(self) -> None:
        self._stack = ExitStack()
        host, _, port = self._node.address_of("bhumi").partition("://")[2].rpartition(":")
        self._before = self._node.limit_files(self._node.files_count() + self.spare)
        for _ in range(4 * self.spare):  # the kernel takes them all, and the node as many as it may
            self._stack.enter_context(socket.create_connection((host, int(port)), timeout=5))

    def end(self) -> None:
        self._stack.close()
        self._node.limit_files(self._before)


class Memory(Fault):
    """The node may have hardly more memory than it has, and clients of every listener make it ask for some."""

    name = "memory"
    lasts_s = (5.0, 10.0)
    spare_bytes: Final = 4 << 20
    crowd_count: Final = 20

    def begin(self) -> None:
        self._before = self._node.limit_memory(self.spare_bytes)
        self._crowd = Crowd(self._node, self.crowd_count)

    def end(self) -> None:
        self._crowd.close()
        self._node.limit_memory(self._before)


class HomeMoved(Fault):
    """The home is moved away under the node, and comes back."""

    name = "home-moved"
    lasts_s = (5.0, 5.0)

    def begin(self) -> None:
        self._away = self._node.home.with_name("away")
        self._node.home.rename(self._away)

    def end(self) -> None:
        if self._node.home.exists():  # the node has written something there
            shutil.rmtree(self._node.home)
        self._away.rename(self._node.home)


FAULTS: Final[tuple[type[Fault], ...]] = (
    Kill,
    PowerCut,
    Stop,
    Lock,
    Words.of("full", (5.0, 10.0), {Word.FULL: 1}),
    Words.of("failing-sync", (6.0, 6.0), {Word.FSYNC_FAILS: 1}),
    Words.of("failing-writes", (5.0, 10.0), {Word.WRITE_ERRNO: errno.EIO, Word.WRITE_ONE_IN: 50}),
    Words.of("failing-reads", (6.0, 6.0), {Word.READ_ERRNO: errno.EIO}),
    Words.of("slow-sync", (8.0, 15.0), {Word.FSYNC_DELAY_MS: 2_000}),
    Words.of("hung-writes", (HUNG_S + 7.0, HUNG_S + 10.0), {Word.HUNG: 1}),
    Words.of("clock-ahead", (5.0, 15.0), {Word.CLOCK_STEP_US: HOUR_US}),
    Words.of("clock-behind", (5.0, 15.0), {Word.CLOCK_STEP_US: -HOUR_US}),
    Words.of("clock-days", (5.0, 15.0), {Word.CLOCK_STEP_US: 5 * DAY_US}),
    Descriptors,
    Memory,
    HomeMoved,
)
"""Every fault, in the order of the table in docs/operating.md."""
