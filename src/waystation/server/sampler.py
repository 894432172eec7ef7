"""Once a minute, what the node is and what it did: the journal's ``node_sampled``.

A reading is taken at each full minute of the wall clock; a sample is what two of them that follow each other tell.
Nothing is measured for it that is not counted anyway, except the folder of the store, which is looked at on another
thread.
"""

import asyncio
import os
import resource
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.engine.node import Node
from waystation.engine.recorder import Recorder
from waystation.journal.events import NodeSampled
from waystation.server.home import Home
from waystation.server.written import Written

__all__ = ["SAMPLE_EVERY_S", "Reading", "Sampler", "messages_judged", "sample", "seconds_to_next", "size_below"]

SAMPLE_EVERY_S: Final = 60
SHORTEST_S: Final = 1.0
"""A reading that comes so soon after the last (the loop woke a little early) would be of no minute of its own."""

BOX_FOLDER: Final = "box"
_NO_JUDGEMENT: Final = frozenset({"held", "deleted"})  # of messages of groups: what peers and people do with them
_STATM: Final = Path("/proc/self/statm")
_RESIDENT: Final = 1  # its second number: pages in memory
_KIB: Final = 1_024

_log = structlog.get_logger("waystation.server")


class Reading(NamedTuple):
    """What stood at one moment; counts are of the whole life of the process."""

    wall_us: int
    """Microseconds UTC."""
    connections: int
    messages: int
    bytes_in: int
    bytes_out: int
    cpu_us: int
    memory_bytes: int
    store_bytes: int
    journal_bytes: int


def sample(before: Reading, after: Reading) -> NodeSampled:
    """Return what happened between two readings of one process, and what stood at the second."""
    return NodeSampled(
        after.wall_us,
        after.connections,
        after.messages - before.messages,
        after.bytes_in - before.bytes_in,
        after.bytes_out - before.bytes_out,
        after.cpu_us - before.cpu_us,
        after.memory_bytes,
        after.store_bytes,
        after.journal_bytes,
    )


def seconds_to_next(wall_us: int) -> float:
    """Return for how long to wait for the next full minute."""
    left_s = SAMPLE_EVERY_S - wall_us % (SAMPLE_EVERY_S * MICROSECONDS_PER_SECOND) / MICROSECONDS_PER_SECOND
    return left_s if left_s >= SHORTEST_S else left_s + SAMPLE_EVERY_S


def messages_judged(totals: Mapping[str, Mapping[tuple[str, str], int]]) -> int:
    """Return delivery attempts, packets and messages of groups in what ``Recorder.totals`` returns."""
    groups = sum(times for (_, what), times in totals["messages"].items() if what not in _NO_JUDGEMENT)
    return sum(totals["deliveries"].values()) + sum(totals["packets"].values()) + groups


def size_below(*paths: Path) -> int:
    """Return the bytes of files and of all files in folders; what is gone, or goes meanwhile, counts nothing."""
    sizes = 0
    for path in paths:
        try:
            sizes += size_below(*path.iterdir()) if path.is_dir() else path.stat().st_size
        except FileNotFoundError:
            continue
    return sizes


class Sampler:
    """Takes the samples of one node."""

    def __init__(self, node: Node, recorder: Recorder, written: Written, home: Home) -> None:
        """Watch a node that has just begun.

        Args:
            node: Knows its connections, and the bytes of protocols without them.
            recorder: Knows the rest.
            written: Takes the samples, and knows the size of what it wrote.
            home: Where the store lies.
        """
        self._node = node
        self._recorder = recorder
        self._written = written
        self._home = home

    def read(self, store_bytes: int) -> Reading:
        """Return what stands now; runs on the loop's thread, since the engine is not to be read from another."""
        bytes_in, bytes_out = self._recorder.carried()
        datagrams = self._node.traffic().values()
        return Reading(
            time.time_ns() // 1_000,
            self._node.sizes()["node"]["connections"],
            messages_judged(self._recorder.totals()),
            bytes_in + sum(counts["in"] for counts in datagrams),
            bytes_out + sum(counts["out"] for counts in datagrams),
            _cpu_us(),
            _memory_bytes(),
            store_bytes,
            self._written.sealed_bytes,
        )

    def store_bytes(self) -> int:
        """Return the size of the store, of what its library keeps beside it, and of the box; looks at every file."""
        store = self._home.store_path
        return size_below(*self._home.path.glob(f"{store.name}*"), self._home.path / BOX_FOLDER)

    async def watch(self, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Write a sample each minute until cancelled; return at once when there is no journal.

        Args:
            pause: Waits for so many seconds.
        """
        append = self._written.note
        if append is None:
            return
        before = self.read(0)
        while True:
            await pause(seconds_to_next(time.time_ns() // 1_000))
            try:
                store_bytes = await asyncio.to_thread(self.store_bytes)
            except OSError as error:
                _log.warning("sample.failed", error=str(error))
                continue
            after = self.read(store_bytes)
            append(sample(before, after))
            before = after


def _cpu_us() -> int:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return round((used.ru_utime + used.ru_stime) * MICROSECONDS_PER_SECOND)


def _memory_bytes() -> int:
    """Return the resident memory; where the kernel does not tell, the most that it ever was."""
    try:
        return int(_STATM.read_text().split()[_RESIDENT]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB
