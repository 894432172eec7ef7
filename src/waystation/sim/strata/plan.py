"""The random plan of one Strata simulation: relays, publishers, readers, links, behaviour, faults and adversaries."""

import random
from dataclasses import dataclass
from typing import Final

from waystation.sim.net.link import LinkSettings
from waystation.sim.plan import FaultRates, Plan, draw_host, draw_link, draw_rates
from waystation.sim.world import WorldSettings

__all__ = ["HOSTILE_KINDS", "PublisherBehaviour", "ReaderBehaviour", "StrataPlan", "draw_strata_plan"]

PACKETS_PER_HOUR: Final = (500, 4_000)
WINDOWS: Final = (2_048, 16_384, 65_536)
HOSTILE_KINDS: Final = ("tamperer", "garbage", "flood", "deaf", "hoarder")


@dataclass(frozen=True, slots=True)
class PublisherBehaviour:
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
class ReaderBehaviour:
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
class StrataPlan(Plan):
    """One seed's network."""

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
    publisher: PublisherBehaviour
    reader: ReaderBehaviour
    faults: FaultRates
    hostiles: tuple[str, ...]
    """Kinds of hostile clients, see ``hostile``."""


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
        link=draw_link(rng, windows=WINDOWS, far_windows=WINDOWS, framed=True),
        host=draw_host(rng),
        rate_limits=rng.random() < 1 / 2,
        announces=rng.random() < 1 / 3,
        publisher=_draw_publisher(rng),
        reader=_draw_reader(rng),
        faults=FaultRates(**draw_rates(rng, stalls=120.0, cuts=60.0, breaks=200.0, crashes=60.0, stops=30.0)),
        hostiles=tuple(rng.choice(HOSTILE_KINDS) for _ in range(rng.choice((0, 0, 1, 2)))),
    )


def _draw_publisher(rng: random.Random) -> PublisherBehaviour:
    return PublisherBehaviour(
        **draw_rates(rng, says_again=0.2, leaves_mid_flight=0.1, bursts=0.1, expires=0.1, rotates=0.1),
        fans_out=rng.random(),
        authenticates=rng.random(),
    )


def _draw_reader(rng: random.Random) -> ReaderBehaviour:
    return ReaderBehaviour(
        **draw_rates(
            rng, drops=200.0, restarts=200.0, begins_anew=60.0, leaves_mid_page=0.1, mangles=60.0, stalls=200.0
        ),
        away_us=rng.choice((100_000, 2_000_000, 20_000_000)),
        page=rng.choice((1, 7, 7, 7, 100)),
        authenticates=rng.random(),
    )
