"""Benchmark: how the CPU time of a message graph grows from a chain of 10,000 messages to one of 100,000.

Usage: python -m bench.bsp --only graph [--short 10000] [--long 100000] [--rounds 5] [--json FILE]

Linear growth gives a ratio of 10. The real ratio is slightly higher, because the longer graph exceeds the processor's
cache. Short and long runs are interleaved, so that other load on the machine affects both. The short run is repeated
until it has handled as many messages. Creating the messages is not timed.
"""

import time
from collections.abc import Callable
from operator import itemgetter

from bench.report import Figures, timed
from waystation.protocols.bsp.graph.order import MessageGraph, Vertex
from waystation.protocols.bsp.refusals import Refusal

GROUP = bytes(32)
RATIO_MAX = 12.0
"""What issue 6 allows for ten times the length."""


def chain(count: int) -> list[Vertex]:
    """Return messages of which each but the first depends on the one before."""
    names = [number.to_bytes(32, "big") for number in range(count)]
    return [
        Vertex(name, number, 1_024, (names[number - 1][:16] + names[number - 1][16:],) if number else ())
        for number, name in enumerate(names)
    ]


def _placed(links: list[Vertex]) -> tuple[MessageGraph, float]:
    """Return a graph with messages that came in this order, and the CPU seconds of placing them."""
    graph = MessageGraph(GROUP, lambda _: True)

    def place() -> None:
        for one in links:
            graph.place(one)

    return graph, timed(place, time.process_time)[0]


def delivered(links: list[Vertex]) -> float:
    """Return CPU seconds to deliver a chain whose messages come in this order."""
    graph, taken = _placed(links)
    assert graph.next_order == len(links) + 1
    return taken


def invalidated(count: int) -> float:
    """Return CPU seconds in which the root of a waiting chain makes all of it invalid."""
    links = chain(count)
    graph, _ = _placed(links[1:])
    taken, changes = timed(lambda: graph.place_invalid(links[0], Refusal.UNPARSABLE), time.process_time)
    assert len(changes.invalidated) == count
    return taken


def shared(count: int) -> float:
    """Return CPU seconds in which the leaf of a delivered chain shares all of it."""
    links = chain(count)
    graph, _ = _placed(links)
    taken, newly = timed(lambda: graph.share(links[-1]), time.process_time)
    assert len(newly) == count
    return taken


WORK: dict[str, Callable[[int], float]] = {
    "delivered, root first": lambda count: delivered(chain(count)),
    "delivered, root last": lambda count: delivered(chain(count)[::-1]),
    "invalidated": invalidated,
    "shared": shared,
}


def measure(short: int, long: int) -> Figures:
    """Return CPU microseconds per message of each kind of work, and the ratio of the times.

    Args:
        short: Messages of the short chain.
        long: Messages of the long one, a multiple of ``short``.
    """
    taken: Figures = {}
    for name, work in WORK.items():
        long_s = work(long)
        short_s = sum(work(short) for _ in range(long // short)) / (long // short)
        taken |= {f"{name}, us short": short_s / short * 1e6, f"{name}, us long": long_s / long * 1e6}
        taken[f"{name}, ratio"] = long_s / short_s
    return taken


def aims(short: int, long: int) -> dict[str, Callable[[Figures], float]]:
    """Return the ratio of each kind of work, with what is allowed."""
    allowed = RATIO_MAX * long / short / 10
    return {
        f"{long:,} over {short:,} messages, {name} (at most {allowed:g})": itemgetter(f"{name}, ratio") for name in WORK
    }
