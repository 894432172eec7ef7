"""How the time of a message graph grows with the length of a chain: 100,000 messages against 10,000, in one process.

Usage: python -m bench.bsp_graph [--short 10000] [--long 100000] [--rounds 5] [--json FILE]

Ten times the work in ten times the time is a ratio of 10. It is a little more in truth, since a graph of 100,000 does
not stay in the processor's cache. Short and long runs are interleaved, so that what else the machine does falls on
both; the short one is repeated until it has done as many messages as the long one. Making the messages is not timed.
"""

import argparse
import gc
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from waystation.protocols.bsp.graph import MessageGraph, Vertex
from waystation.protocols.bsp.refusals import Refusal

GROUP = bytes(32)
RATIO_MAX = 12.0
"""What issue 6 allows for ten times the length."""


class GraphFigures(NamedTuple):
    """What became of one kind of work."""

    name: str
    us_short: float
    """CPU microseconds per message, median over the rounds."""
    us_long: float
    ratio: float
    """Time of the long chain divided by that of the short one, median over the rounds."""
    ratio_low: float
    ratio_high: float


def chain(count: int) -> list[Vertex]:
    """Return messages of which each but the first depends on the one before."""
    names = [number.to_bytes(32, "big") for number in range(count)]
    return [
        Vertex(name, number, 1_024, (names[number - 1][:16] + names[number - 1][16:],) if number else ())
        for number, name in enumerate(names)
    ]


def _new_graph() -> MessageGraph:
    return MessageGraph(GROUP, lambda _: True)


def in_order(count: int) -> float:
    """Return CPU seconds to deliver a chain whose root comes first."""
    graph, links = _new_graph(), chain(count)
    before = time.process_time()
    for one in links:
        graph.place(one)
    taken = time.process_time() - before
    assert graph.next_order == count + 1
    return taken


def in_reverse(count: int) -> float:
    """Return CPU seconds to deliver a chain whose root comes last."""
    graph, links = _new_graph(), chain(count)
    links.reverse()
    before = time.process_time()
    for one in links:
        graph.place(one)
    taken = time.process_time() - before
    assert graph.next_order == count + 1
    return taken


def invalidated(count: int) -> float:
    """Return CPU seconds in which the root of a waiting chain makes all of it invalid."""
    graph, links = _new_graph(), chain(count)
    for one in links[1:]:
        graph.place(one)
    before = time.process_time()
    changes = graph.place_invalid(links[0], Refusal.UNPARSABLE)
    taken = time.process_time() - before
    assert len(changes.invalidated) == count
    return taken


def shared(count: int) -> float:
    """Return CPU seconds in which the leaf of a delivered chain shares all of it."""
    graph, links = _new_graph(), chain(count)
    for one in links:
        graph.place(one)
    before = time.process_time()
    newly = graph.share(links[-1])
    taken = time.process_time() - before
    assert len(newly) == count
    return taken


WORK: dict[str, Callable[[int], float]] = {
    "delivered, root first": in_order,
    "delivered, root last": in_reverse,
    "invalidated": invalidated,
    "shared": shared,
}


def measure(short: int, long: int, rounds: int) -> list[GraphFigures]:
    """Return the figures of each kind of work.

    Args:
        short: Messages of the short chain.
        long: Messages of the long one, a multiple of ``short``.
        rounds: How often both are timed.
    """
    return [_measure_one(name, short, long, rounds) for name in WORK]


def _measure_one(name: str, short: int, long: int, rounds: int) -> GraphFigures:
    work, times = WORK[name], long // short
    shorts, longs = [], []
    for _ in range(rounds):
        gc.collect()
        longs.append(work(long))
        gc.collect()
        shorts.append(sum(work(short) for _ in range(times)) / times)
    ratios = [slow / fast for slow, fast in zip(longs, shorts, strict=True)]
    return GraphFigures(
        name,
        statistics.median(shorts) / short * 1e6,
        statistics.median(longs) / long * 1e6,
        statistics.median(ratios),
        min(ratios),
        max(ratios),
    )


def print_figures(figures: list[GraphFigures], short: int, long: int) -> None:
    """Print one line for each kind of work."""
    allowed = RATIO_MAX * long / short / 10
    for one in figures:
        verdict = "within" if one.ratio <= allowed else "OVER"
        print(
            f"{one.name:>22}: {one.us_short:6.3f} us CPU per message of {short}, {one.us_long:6.3f} us of {long};"
            f" time ratio {one.ratio:.2f} ({one.ratio_low:.2f} to {one.ratio_high:.2f}), {verdict} {allowed:.0f}"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", type=int, default=10_000)
    parser.add_argument("--long", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print(f"BSP graph, chains of {options.short} and {options.long}; {os.cpu_count()} cores; {platform.platform()}")
    figures = measure(options.short, options.long, options.rounds)
    print_figures(figures, options.short, options.long)
    if options.json:
        options.json.write_text(json.dumps([one._asdict() for one in figures], indent=1))


if __name__ == "__main__":
    main()
