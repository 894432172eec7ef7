"""The random plan of one MERK simulation: nodes and their graph, clients, links, behaviour, faults and adversaries.

``sim.run`` has it drawn from the seed, ``MerkScenario`` carries it out. Everything random is decided by that one seed,
so a failed run can be repeated.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from waystation.sim.net.link import LinkSettings
from waystation.sim.plan import (
    Plan,
    between,
    draw,
    draw_link,
    draw_rates,
    drawn_by,
    each_of,
    odds,
    one_of,
    some_of,
    up_to,
)
from waystation.sim.topology import TOPOLOGIES
from waystation.sim.world import WorldSettings

__all__ = ["HOSTILE_CLIENTS", "HOSTILE_NODES", "LIES", "ClientBehaviour", "MerkFaults", "MerkPlan", "draw_merk_plan"]

NODES: Final = (1, 2, 2, 3, 3, 3, 4, 4, 5, 6, 8, 12, 20)
LINKS_MAX: Final = 6  # every link between nodes that is broken costs a dozen events
WINDOWS: Final = (4_096, 16_384, 65_536)  # on which a few seconds are enough for what a burst leaves waiting
HOSTILE_CLIENTS: Final = ("impostor", "searcher", "squatter", "garbage", "deaf", "meddler", "relayer")
HOSTILE_NODES: Final = ("false_node", "mute", "forger", "replayer", "advertiser", "babbler", "flooder", "resigner")
LIES: Final = ("replays", "redirected", "resigned", "own", "forged", "unbound", "notices", "adverts")


@dataclass(frozen=True, slots=True)
class ClientBehaviour:
    """How clients behave; chances are 0 to 1 for each frame, rates per client and simulated hour."""

    extended: Annotated[float, one_of(0.5, 0.8, 1.0)] = 0.7
    """Chance of a client to say EXT_HELLO."""
    moves: Annotated[float, up_to(200.0)] = 0.0
    """Leaves its node and comes to another."""
    doubles: Annotated[float, up_to(100.0)] = 0.0
    """Opens a second connection, here or elsewhere, without closing the first."""
    stalls: Annotated[float, up_to(60.0)] = 0.0
    """Reads nothing for a while."""
    vanishes: Annotated[float, up_to(60.0)] = 0.0
    """Loses its link without a word and comes back, here or elsewhere, before the node notices."""
    away_us: Annotated[int, one_of(1_000, 1_000_000, 10_000_000)] = 1_000_000
    """Mean time between leaving and coming, in microseconds."""
    bursts: Annotated[float, up_to(0.05)] = 0.0
    """Up to 24 frames at once."""
    says_again: Annotated[float, up_to(0.1)] = 0.0
    """Sends the same frame once more."""
    writes_to_nobody: Annotated[float, up_to(0.2)] = 0.05
    leaves_mid_flight: Annotated[float, up_to(0.03)] = 0.0
    asks: Annotated[float, up_to(0.1)] = 0.05
    """Asks for servers or for somebody's agreement key instead of writing."""


@dataclass(frozen=True, slots=True)
class MerkFaults:
    """What goes wrong with links and nodes, per simulated hour."""

    stalls: float = 0.0
    """Of connections of clients."""
    cuts: float = 0.0
    breaks: float = 0.0
    link_stalls: float = 0.0
    """Of links between nodes."""
    link_cuts: float = 0.0
    """Two nodes cannot reach each other for a while."""
    link_breaks: float = 0.0
    crashes: float = 0.0
    stops: float = 0.0


def _draw_hidden(rng: random.Random, drawn: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(node for node in range(1, drawn["nodes"]) if rng.random() < 1 / 10)


def _draw_closed(rng: random.Random, drawn: Mapping[str, Any]) -> tuple[int, ...]:
    others = range(1, drawn["nodes"])
    return (rng.choice(others),) if others and rng.random() < 1 / 10 else ()


def _draw_host(rng: random.Random) -> WorldSettings:
    return WorldSettings(
        turn_delay_us=rng.choice((0, 0, 50, 2_000)), commit_delay_us=rng.choice((2_000, 2_000, 50_000))
    )


def _draw_faults(rng: random.Random, drawn: Mapping[str, Any]) -> MerkFaults:
    """Draw rates of the whole network; larger meshes have more links to break, up to a point."""
    links = min(drawn["nodes"], LINKS_MAX)
    between_nodes = {"link_stalls": 30.0 * links, "link_cuts": 30.0 * links, "link_breaks": 60.0 * links}
    return MerkFaults(
        **draw_rates(rng, stalls=120.0, cuts=120.0, breaks=200.0, **between_nodes, crashes=40.0, stops=30.0)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MerkPlan(Plan):
    """One seed's network."""

    nodes: Annotated[int, one_of(*NODES)]
    topology: Annotated[str, one_of(*TOPOLOGIES)]
    hidden: Annotated[tuple[int, ...], _draw_hidden] = ()
    """Nodes that advertise no address."""
    closed: Annotated[tuple[int, ...], _draw_closed] = ()
    """Nodes that take no peers but those that they dial."""
    mutual: Annotated[bool, odds(1 / 2)] = True
    """Whether of two nodes that are linked by configuration each names the other."""
    allows_private: Annotated[bool, odds(1 / 2)]
    clients: Annotated[int, between(2, 10)]
    frames_per_hour: Annotated[float, between(2_000.0, 20_000.0)]
    text_bytes_max: Annotated[int, one_of(40, 400, 4_000, 16_000)]
    max_frame_bytes: Annotated[int, one_of(65_536, 1_048_576, 8_388_608)]
    link: Annotated[LinkSettings, drawn_by(draw_link, windows=WINDOWS, framed=True)]
    """Between clients and nodes."""
    trunk: Annotated[LinkSettings, drawn_by(draw_link, windows=WINDOWS, framed=True)]
    """Between nodes."""
    host: Annotated[WorldSettings, drawn_by(_draw_host)] = field(default_factory=WorldSettings)
    batches: Annotated[bool, odds(1 / 2)] = False
    """Whether relays get the messages of one instant together."""
    rate_limits: Annotated[bool, odds(1 / 2)]
    client: Annotated[ClientBehaviour, each_of(ClientBehaviour)]
    faults: Annotated[MerkFaults, _draw_faults] = MerkFaults()
    hostiles: Annotated[tuple[str, ...], some_of(HOSTILE_CLIENTS, (0, 0, 1, 2))] = ()
    """Kinds of hostile clients, see ``merk_hostile``."""
    hostile_nodes: Annotated[tuple[str, ...], some_of(HOSTILE_NODES, (0, 0, 0, 1, 2))] = ()
    """Kinds of hostile nodes, see ``merk_hostile_node``."""
    mailboxes: Annotated[int, one_of(0, 0, 1, 2)] = 0
    """Owners of mailboxes, who are away most of the time, each with somebody who writes to it."""
    lies: Annotated[tuple[str, ...], some_of(LIES, (0, 1, 2, 4))] = ()
    """What the relay of an owner and its writer lies about, see ``merk.lying_relay``."""


def draw_merk_plan(rng: random.Random) -> MerkPlan:
    """Draw a plan."""
    return draw(MerkPlan, rng)
