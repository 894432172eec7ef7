"""The base class of all simulation plans, and how they are drawn: every field says in its annotation what it may be.

``sim.run`` draws a protocol's plan from the seed before anything runs. A plan first disables some kinds of faults and
then draws rates for the others (swarm testing). A run with every fault at once can mask failures that need one fault to
be absent. All draws use the given generator, field by field.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Final, TypeVar, get_type_hints

from waystation.sim.net.datagram import DatagramSettings
from waystation.sim.net.link import LinkSettings
from waystation.sim.world import WorldSettings

__all__ = [
    "LATENCIES_US",
    "Draw",
    "FaultRates",
    "Plan",
    "between",
    "chance",
    "draw",
    "draw_datagrams",
    "draw_host",
    "draw_link",
    "draw_rates",
    "drawn_by",
    "each_of",
    "odds",
    "one_of",
    "portion",
    "some_of",
    "up_to",
]

KIND_STAYS: Final = 0.6  # chance that a kind of fault takes part in a plan
LATENCIES_US: Final = (100, 5_000, 20_000, 150_000)
LATENCY_LONG_US: Final = 20_000  # from here on a small window makes a slow link
WINDOW_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True)
class Plan:
    """What one seed does."""

    def describe(self) -> str:
        """Return one line with every choice."""
        return " ".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))


Draw = Callable[[random.Random, Mapping[str, Any]], Any]
"""Draws one field, given those that were drawn before it."""
T = TypeVar("T")


def draw(kind: Callable[..., T], rng: random.Random, **given: Any) -> T:
    """Draw a dataclass: its fields in their order, those that say how; the others are as given, or as by default."""
    drawn = dict(given)
    for name, hint in get_type_hints(kind, include_extras=True).items():
        for how in getattr(hint, "__metadata__", ()) if name not in given else ():
            drawn[name] = how(rng, drawn)
    return kind(**drawn)


def one_of(*choices: Any) -> Draw:
    """Take one of these, each as likely as the others."""
    return lambda rng, _drawn: rng.choice(choices)


def some_of(kinds: Sequence[str], counts: Sequence[int]) -> Draw:
    """Take as many of these kinds as one of the counts says, perhaps some of them twice."""
    return lambda rng, _drawn: tuple(rng.choice(kinds) for _ in range(rng.choice(counts)))


def between(least: float, most: float) -> Draw:
    """Take any number from ``least`` to ``most``: a whole one, if both are."""
    if isinstance(least, int) and isinstance(most, int):
        return lambda rng, _drawn: rng.randint(least, most)
    return lambda rng, _drawn: rng.uniform(least, most)


def portion(rng: random.Random, _drawn: Mapping[str, Any]) -> float:
    """Take any number from 0 to 1."""
    return rng.random()


def odds(yes: float) -> Draw:
    """Take True with this chance."""
    return lambda rng, _drawn: rng.random() < yes


def up_to(most: float) -> Draw:
    """Take a rate, or a chance, that may be 0; see ``chance``."""
    return lambda rng, _drawn: chance(rng, most)


def each_of(kind: type) -> Draw:
    """Draw a dataclass of its own."""
    return lambda rng, _drawn: draw(kind, rng)


def drawn_by(make: Callable[..., Any], **options: Any) -> Draw:
    """Let ``make`` draw it from the generator."""
    return lambda rng, _drawn: make(rng, **options)


def chance(rng: random.Random, most: float) -> float:
    """Return 0 for a kind that does not take part, or up to ``most``."""
    return rng.uniform(0.0, most) if rng.random() < KIND_STAYS else 0.0


def draw_rates(rng: random.Random, **most: float) -> dict[str, float]:
    """Draw one ``chance`` for each name, in their order."""
    return {name: chance(rng, limit) for name, limit in most.items()}


def draw_link(
    rng: random.Random,
    *,
    throughputs: Sequence[int] = (0, 0, 200_000, 1_000_000),
    windows: Sequence[int] = (),
    far_windows: Sequence[int] = (),
    framed: bool = False,
) -> LinkSettings:
    """Draw what a stream is like.

    Args:
        rng: Draws everything.
        throughputs: Bytes per second to choose from; 0 is without limit.
        windows: Sizes to choose from where the latency is short; 64 KiB when empty.
        far_windows: The same where it is long.
        framed: Whether every write is a message; otherwise it is drawn how often a chunk comes in pieces.
    """
    latency_us = rng.choice(LATENCIES_US)
    jitter_us = rng.choice((0, 100, 5_000))
    bytes_per_second = rng.choice(throughputs)
    sizes = windows if latency_us < LATENCY_LONG_US else far_windows
    window_bytes = rng.choice(sizes) if sizes else WINDOW_BYTES
    if framed:
        return LinkSettings(latency_us, jitter_us, bytes_per_second, window_bytes, framed=True)
    return LinkSettings(latency_us, jitter_us, bytes_per_second, window_bytes, rng.choice((0.0, 0.1, 0.5)))


def draw_datagrams(
    rng: random.Random, latencies_us: Sequence[int], jitters_us: Sequence[int], reorders_us: Sequence[int]
) -> DatagramSettings:
    """Draw what a path of datagrams is like, from latencies, jitters and delays of what is overtaken."""
    return DatagramSettings(
        latency_us=rng.choice(latencies_us),
        jitter_us=rng.choice(jitters_us),
        **draw_rates(rng, loss=0.3, duplicate=0.3, reorder=0.3),
        reorder_us=rng.choice(reorders_us),
    )


def draw_host(rng: random.Random) -> WorldSettings:
    """Draw how fast a node's host, its disk and its verifier are."""
    return WorldSettings(
        turn_delay_us=rng.choice((0, 0, 50, 2_000)),
        commit_delay_us=rng.choice((2_000, 2_000, 50_000, 400_000)),
        verify_delay_us=rng.choice((200, 200, 30_000)),
    )


@dataclass(frozen=True, slots=True)
class FaultRates:
    """What goes wrong with links and nodes, per simulated hour."""

    stalls: Annotated[float, up_to(120.0)] = 0.0
    cuts: Annotated[float, up_to(60.0)] = 0.0
    breaks: Annotated[float, up_to(200.0)] = 0.0
    crashes: Annotated[float, up_to(60.0)] = 0.0
    stops: Annotated[float, up_to(30.0)] = 0.0
