"""The random plan of one Strata simulation: relays, publishers, readers, links, behaviour, faults and adversaries.

``sim.run`` has it drawn from the seed, ``StrataScenario`` carries it out. Everything random is decided by that one
seed, so a failed run can be repeated.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from waystation.protocols.strata.settings import StrataSettings
from waystation.sim.net.link import LinkSettings
from waystation.sim.plan import (
    FaultRates,
    Plan,
    between,
    draw,
    draw_host,
    draw_link,
    drawn_by,
    each_of,
    odds,
    one_of,
    portion,
    some_of,
    up_to,
)
from waystation.sim.world import WorldSettings

__all__ = ["HOSTILE_KINDS", "PublisherBehaviour", "ReaderBehaviour", "StrataPlan", "draw_strata_plan"]

WINDOWS: Final = (2_048, 16_384, 65_536)
HOSTILE_KINDS: Final = ("tamperer", "garbage", "flood", "minter", "deaf", "hoarder")


@dataclass(frozen=True, slots=True)
class PublisherBehaviour:
    """How publishers behave; chances are 0 to 1 for each packet."""

    says_again: Annotated[float, up_to(0.2)] = 0.0
    """Publishes a packet once more after its OK."""
    leaves_mid_flight: Annotated[float, up_to(0.1)] = 0.0
    bursts: Annotated[float, up_to(0.1)] = 0.0
    """Up to 24 packets at once."""
    expires: Annotated[float, up_to(0.1)] = 0.0
    """Gives a packet 5 to 90 seconds to live."""
    rotates: Annotated[float, up_to(0.1)] = 0.0
    """Adds a key, or takes a new one for an old one, before a packet."""
    fans_out: Annotated[float, portion] = 0.0
    """Chance of a publisher to publish everything to every relay."""
    authenticates: Annotated[float, portion] = 0.5


@dataclass(frozen=True, slots=True)
class ReaderBehaviour:
    """How readers behave; rates are per reader and simulated hour."""

    drops: Annotated[float, up_to(200.0)] = 0.0
    """Loses the connection and resumes with the same client."""
    restarts: Annotated[float, up_to(200.0)] = 0.0
    """Forgets everything but the last cursor."""
    begins_anew: Annotated[float, up_to(60.0)] = 0.0
    leaves_mid_page: Annotated[float, up_to(0.1)] = 0.0
    """Chance, for each packet of history, to drop or to restart behind it."""
    mangles: Annotated[float, up_to(60.0)] = 0.0
    """Restarts with a cursor that no relay knows."""
    stalls: Annotated[float, up_to(200.0)] = 0.0
    """Reads nothing for a while, and then on."""
    away_us: Annotated[int, one_of(100_000, 2_000_000, 20_000_000)] = 2_000_000
    """Mean time until a reader that left is back."""
    page: Annotated[int, one_of(1, 7, 7, 7, 100)] = 7
    authenticates: Annotated[float, portion] = 0.5


def _draw_mutual(rng: random.Random, drawn: Mapping[str, Any]) -> bool:
    return drawn["relays"] > 1 and rng.random() < 1 / 2


@dataclass(frozen=True, slots=True)
class StrataPlan(Plan):
    """One seed's network."""

    relays: Annotated[int, one_of(1, 1, 2, 2, 2)]
    mutual: Annotated[bool, _draw_mutual]
    """Whether the first relay reads the second, too."""
    hostile_upstream: Annotated[bool, odds(1 / 4)]
    publishers: Annotated[int, between(1, 4)]
    readers: Annotated[int, between(1, 6)]
    packets_per_hour: Annotated[float, between(500.0, 4_000.0)]
    text_bytes_max: Annotated[int, one_of(40, 400, 4_000, 40_000)]
    link: Annotated[LinkSettings, drawn_by(draw_link, windows=WINDOWS, far_windows=WINDOWS, framed=True)]
    host: Annotated[WorldSettings, drawn_by(draw_host)]
    rate_limits: Annotated[bool, odds(1 / 2)]
    announces: Annotated[bool, odds(1 / 3)]
    """Whether relays publish descriptors."""
    publisher: Annotated[PublisherBehaviour, each_of(PublisherBehaviour)]
    reader: Annotated[ReaderBehaviour, each_of(ReaderBehaviour)]
    faults: Annotated[FaultRates, each_of(FaultRates)]
    hostiles: Annotated[tuple[str, ...], some_of(HOSTILE_KINDS, (0, 0, 1, 2))]
    """Kinds of hostile clients, see ``hostile``."""
    retention_mib: int = StrataSettings().retention_mib
    """Space of packets at each relay; a plan with less must not fill it with other packets than key events."""


def draw_strata_plan(rng: random.Random) -> StrataPlan:
    """Draw a plan."""
    return draw(StrataPlan, rng)
