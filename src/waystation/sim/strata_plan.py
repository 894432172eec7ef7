"""What one seed of a Strata world does: relays, people, links, habits and faults.

Swarm testing as in ``plan``: kinds of trouble are switched off before rates are drawn for the rest.
"""

import random
from dataclasses import dataclass, fields
from typing import Final

from waystation.sim.link import LinkSettings
from waystation.sim.plan import FaultRates
from waystation.sim.world import WorldSettings

__all__ = ["HOSTILE_KINDS", "PublisherHabits", "ReaderHabits", "StrataPlan", "draw_strata_plan"]

KIND_STAYS: Final = 0.6  # chance that a kind of trouble takes part in a plan
PACKETS_PER_HOUR: Final = (500, 4_000)
HOSTILE_KINDS: Final = ("tamperer", "garbage", "flood", "deaf", "hoarder")


@dataclass(frozen=True, slots=True)
class PublisherHabits:
    """How publishers behave; chances are 0 to 1 for each packet."""

    says_again: float = 0.0
    """Publishes a packet once more after its OK."""
    leaves_mid_flight: float = 0.0
    bursts: float = 0.0
    """Up to 24 packets at once."""
    expires: float = 0.0
    """Gives a packet 5 to 90 seconds to live."""
    rotates: float = 0.0
    """Adds a key, or takes a new one for an old one, before a packet."""
    fans_out: float = 0.0
    """Chance of a publisher to publish everything to every relay."""
    authenticates: float = 0.5


@dataclass(frozen=True, slots=True)
class ReaderHabits:
    """How readers behave; rates are per reader and simulated hour."""

    drops: float = 0.0
    """Loses the connection and resumes with the same client."""
    restarts: float = 0.0
    """Forgets everything but the last cursor."""
    begins_anew: float = 0.0
    leaves_mid_page: float = 0.0
    """Chance, for each packet of history, to drop or to restart behind it."""
    mangles: float = 0.0
    """Restarts with a cursor that no relay knows."""
    stalls: float = 0.0
    """Reads nothing for a while, and then on."""
    away_us: int = 2_000_000
    """Mean time until a reader that left is back."""
    page: int = 7
    authenticates: float = 0.5


@dataclass(frozen=True, slots=True)
class StrataPlan:
    """One seed's world."""

    relays: int
    mutual: bool
    """Whether the first relay reads the second, too."""
    hostile_upstream: bool
    publishers: int
    readers: int
    packets_per_hour: float
    text_bytes_max: int
    link: LinkSettings
    host: WorldSettings
    rate_limits: bool
    announces: bool
    """Whether relays publish descriptors."""
    publisher: PublisherHabits
    reader: ReaderHabits
    faults: FaultRates
    hostiles: tuple[str, ...]
    """Kinds of hostile clients, see ``strata_hostile``."""

    def describe(self) -> str:
        """Return one line with every choice."""
        return " ".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))


def draw_strata_plan(rng: random.Random) -> StrataPlan:
    """Draw a plan."""
    relays = rng.choice((1, 1, 2, 2, 2))
    return StrataPlan(
        relays=relays,
        mutual=relays > 1 and rng.random() < 1 / 2,
        hostile_upstream=rng.random() < 1 / 4,
        publishers=rng.randint(1, 4),
        readers=rng.randint(1, 6),
        packets_per_hour=rng.uniform(*PACKETS_PER_HOUR),
        text_bytes_max=rng.choice((40, 400, 4_000, 40_000)),
        link=_draw_link(rng),
        host=WorldSettings(
            turn_delay_us=rng.choice((0, 0, 50, 2_000)),
            commit_delay_us=rng.choice((2_000, 2_000, 50_000, 400_000)),
            verify_delay_us=rng.choice((200, 200, 30_000)),
        ),
        rate_limits=rng.random() < 1 / 2,
        announces=rng.random() < 1 / 3,
        publisher=_draw_publisher(rng),
        reader=_draw_reader(rng),
        faults=_draw_faults(rng),
        hostiles=tuple(rng.choice(HOSTILE_KINDS) for _ in range(rng.choice((0, 0, 1, 2)))),
    )


def _chance(rng: random.Random, most: float) -> float:
    """Return 0 for a kind that does not take part, or up to ``most``."""
    return rng.uniform(0.0, most) if rng.random() < KIND_STAYS else 0.0


def _draw_link(rng: random.Random) -> LinkSettings:
    return LinkSettings(
        latency_us=rng.choice((100, 5_000, 20_000, 150_000)),
        jitter_us=rng.choice((0, 100, 5_000)),
        bytes_per_second=rng.choice((0, 0, 200_000, 1_000_000)),
        window_bytes=rng.choice((2_048, 16_384, 65_536)),
        framed=True,
    )


def _draw_publisher(rng: random.Random) -> PublisherHabits:
    return PublisherHabits(
        says_again=_chance(rng, 0.2),
        leaves_mid_flight=_chance(rng, 0.1),
        bursts=_chance(rng, 0.1),
        expires=_chance(rng, 0.1),
        rotates=_chance(rng, 0.1),
        fans_out=rng.random(),
        authenticates=rng.random(),
    )


def _draw_reader(rng: random.Random) -> ReaderHabits:
    return ReaderHabits(
        drops=_chance(rng, 200.0),
        restarts=_chance(rng, 200.0),
        begins_anew=_chance(rng, 60.0),
        leaves_mid_page=_chance(rng, 0.1),
        mangles=_chance(rng, 60.0),
        stalls=_chance(rng, 200.0),
        away_us=rng.choice((100_000, 2_000_000, 20_000_000)),
        page=rng.choice((1, 7, 7, 7, 100)),
        authenticates=rng.random(),
    )


def _draw_faults(rng: random.Random) -> FaultRates:
    return FaultRates(
        stalls=_chance(rng, 120.0),
        cuts=_chance(rng, 60.0),
        breaks=_chance(rng, 200.0),
        crashes=_chance(rng, 60.0),
        stops=_chance(rng, 30.0),
    )
