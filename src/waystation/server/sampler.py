"""Samples the node's counters once a minute for the journal's ``node_sampled`` event.

``NodeServer`` runs it; the pipeline's capacity tables are made of these events. It reads the counters at each full
minute of the wall clock; a sample is the difference of two consecutive readings. The size of the store is measured on
another thread. All other numbers are counted anyway.
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
from waystation.server.status.disk import store_bytes
from waystation.server.written import Written

__all__ = ["SAMPLE_EVERY_S", "Reading", "Sampler", "messages_judged", "sample", "seconds_to_next"]

SAMPLE_EVERY_S: Final = 60
SHORTEST_S: Final = 1.0
"""A reading that comes so soon after the last (the loop woke a little early) would be of no minute of its own."""

_NO_JUDGEMENT: Final = frozenset({"held", "deleted"})  # of messages of groups: what peers and people do with them
_STATM: Final = Path("/proc/self/statm")
_RESIDENT: Final = 1  # its second number: pages in memory
_KIB: Final = 1_024

_log = structlog.get_logger("waystation.server")


class Reading(NamedTuple):
    """The numbers at one moment; counts are of the whole life of the process."""

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
    """Return the difference of two readings of one process, and the sizes at the second."""
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


class Sampler:
    """Takes the samples of one node."""

    def __init__(self, node: Node, recorder: Recorder, written: Written, home: Home, beside: Callable[[], int]) -> None:
        """Watch a node that has just begun.

        Args:
            node: Knows its connections, and the bytes of protocols without them.
            recorder: Knows the rest.
            written: Takes the samples, and knows the size of what it wrote.
            home: Where the store lies.
            beside: Returns the bytes that protocols keep beside the store.
        """
        self._node = node
        self._recorder = recorder
        self._written = written
        self._home = home
        self._beside = beside

    def read(self, store_bytes: int) -> Reading:
        """Return the numbers now; runs on the loop's thread, since the engine is not to be read from another."""
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
                stored = await asyncio.to_thread(store_bytes, self._home)
            except OSError as error:
                _log.warning("sample.failed", error=str(error))
                continue
            after = self.read(stored + self._beside())
            append(sample(before, after))
            before = after


def _cpu_us() -> int:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return round((used.ru_utime + used.ru_stime) * MICROSECONDS_PER_SECOND)


def _memory_bytes() -> int:
    """Return the resident memory; where the kernel does not report it, the largest so far."""
    try:
        return int(_STATM.read_text().split()[_RESIDENT]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB
