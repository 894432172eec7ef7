"""What one seed of a MERK world does: nodes and their graph, clients, links, habits and faults.

Swarm testing as in ``plan``: kinds of trouble are switched off before rates are drawn for the rest.
"""

import random
from dataclasses import dataclass, fields
from typing import Final

from waystation.sim.link import LinkSettings
from waystation.sim.world import WorldSettings

__all__ = [
    "HOSTILE_CLIENTS",
    "HOSTILE_NODES",
    "TOPOLOGIES",
    "ClientHabits",
    "MerkFaults",
    "MerkPlan",
    "draw_merk_plan",
    "edges_of",
]

KIND_STAYS: Final = 0.6  # chance that a kind of trouble takes part in a plan
FRAMES_PER_HOUR: Final = (2_000, 20_000)
NODES: Final = (1, 2, 2, 3, 3, 3, 4, 4, 5, 6, 8, 12, 20)
LATENCY_LONG_US: Final = 20_000  # from here on a small window makes a slow link
LINKS_MAX: Final = 6  # every link between nodes that is broken costs a dozen events
TOPOLOGIES: Final = ("line", "ring", "star", "random")
HOSTILE_CLIENTS: Final = ("impostor", "searcher", "squatter", "garbage", "deaf", "meddler")
HOSTILE_NODES: Final = ("liar", "mute", "forger", "replayer", "advertiser", "babbler", "flooder")


@dataclass(frozen=True, slots=True)
class ClientHabits:
    """How clients behave; chances are 0 to 1 for each frame, rates per client and simulated hour."""

    extended: float = 0.7
    """Chance of a client to say EXT_HELLO."""
    moves: float = 0.0
    """Leaves its node and comes to another."""
    doubles: float = 0.0
    """Opens a second connection, here or elsewhere, without closing the first."""
    stalls: float = 0.0
    """Reads nothing for a while."""
    vanishes: float = 0.0
    """Loses its link without a word and comes back, here or elsewhere, before the node notices."""
    away_us: int = 1_000_000
    """Mean time between leaving and coming, in microseconds."""
    bursts: float = 0.0
    """Up to 24 frames at once."""
    says_again: float = 0.0
    """Sends the same frame once more."""
    writes_to_nobody: float = 0.05
    leaves_mid_flight: float = 0.0
    asks: float = 0.05
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


@dataclass(frozen=True, slots=True)
class MerkPlan:
    """One seed's world."""

    nodes: int
    topology: str
    hidden: tuple[int, ...]
    """Nodes that tell nobody their address."""
    closed: tuple[int, ...]
    """Nodes that take no peers but those that they dial."""
    allows_private: bool
    clients: int
    frames_per_hour: float
    text_bytes_max: int
    max_frame_bytes: int
    link: LinkSettings
    """Between clients and nodes."""
    trunk: LinkSettings
    """Between nodes."""
    host: WorldSettings
    bunches: bool
    """Whether relays get the messages of one instant together."""
    rate_limits: bool
    client: ClientHabits
    faults: MerkFaults
    hostiles: tuple[str, ...]
    """Kinds of hostile clients, see ``merk_hostile``."""
    hostile_nodes: tuple[str, ...]
    """Kinds of hostile nodes, see ``merk_hostile_node``."""

    def describe(self) -> str:
        """Return one line with every choice."""
        return " ".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))


def edges_of(topology: str, nodes: int, rng: random.Random) -> list[tuple[int, int]]:
    """Return who has whom among its configured peers; whatever is drawn, the graph is connected.

    Args:
        topology: One of ``TOPOLOGIES``.
        nodes: At least 1.
        rng: Draws the direction of each edge, and the edges of ``random``.
    """
    if topology == "star":
        edges = [(0, node) for node in range(1, nodes)]
    elif topology == "random":
        edges = [(rng.randrange(node), node) for node in range(1, nodes)]
        extra = [(rng.randrange(nodes), rng.randrange(nodes)) for _ in range(nodes // 2)]
        edges += [(one, other) for one, other in extra if one != other]
    else:
        edges = [(node - 1, node) for node in range(1, nodes)]
        if topology == "ring" and nodes > 2:
            edges.append((nodes - 1, 0))
    return [edge if rng.random() < 1 / 2 else edge[::-1] for edge in dict.fromkeys(edges)]


def draw_merk_plan(rng: random.Random) -> MerkPlan:
    """Draw a plan."""
    nodes = rng.choice(NODES)
    others = range(1, nodes)
    return MerkPlan(
        nodes=nodes,
        topology=rng.choice(TOPOLOGIES),
        hidden=tuple(node for node in others if rng.random() < 1 / 10),
        closed=(rng.choice(others),) if nodes > 1 and rng.random() < 1 / 10 else (),
        allows_private=rng.random() < 1 / 2,
        clients=rng.randint(2, 10),
        frames_per_hour=rng.uniform(*FRAMES_PER_HOUR),
        text_bytes_max=rng.choice((40, 400, 4_000, 16_000)),
        max_frame_bytes=rng.choice((65_536, 1_048_576, 8_388_608)),
        link=_draw_link(rng),
        trunk=_draw_link(rng),
        host=WorldSettings(
            turn_delay_us=rng.choice((0, 0, 50, 2_000)), commit_delay_us=rng.choice((2_000, 2_000, 50_000))
        ),
        bunches=rng.random() < 1 / 2,
        rate_limits=rng.random() < 1 / 2,
        client=_draw_client(rng),
        faults=_draw_faults(rng, nodes),
        hostiles=tuple(rng.choice(HOSTILE_CLIENTS) for _ in range(rng.choice((0, 0, 1, 2)))),
        hostile_nodes=tuple(rng.choice(HOSTILE_NODES) for _ in range(rng.choice((0, 0, 0, 1, 2)))),
    )


def _chance(rng: random.Random, most: float) -> float:
    """Return 0 for a kind that does not take part, or up to ``most``."""
    return rng.uniform(0.0, most) if rng.random() < KIND_STAYS else 0.0


def _draw_link(rng: random.Random) -> LinkSettings:
    """Draw a link on which a few seconds are enough for what a burst leaves waiting."""
    latency_us = rng.choice((100, 5_000, 20_000, 150_000))
    return LinkSettings(
        latency_us=latency_us,
        jitter_us=rng.choice((0, 100, 5_000)),
        bytes_per_second=rng.choice((0, 0, 200_000, 1_000_000)),
        window_bytes=rng.choice((4_096, 16_384, 65_536)) if latency_us < LATENCY_LONG_US else 65_536,
        framed=True,
    )


def _draw_client(rng: random.Random) -> ClientHabits:
    return ClientHabits(
        extended=rng.choice((0.5, 0.8, 1.0)),
        moves=_chance(rng, 200.0),
        doubles=_chance(rng, 100.0),
        stalls=_chance(rng, 60.0),
        vanishes=_chance(rng, 60.0),
        away_us=rng.choice((1_000, 1_000_000, 10_000_000)),
        bursts=_chance(rng, 0.05),
        says_again=_chance(rng, 0.1),
        writes_to_nobody=_chance(rng, 0.2),
        leaves_mid_flight=_chance(rng, 0.03),
        asks=_chance(rng, 0.1),
    )


def _draw_faults(rng: random.Random, nodes: int) -> MerkFaults:
    """Draw rates of the whole world; larger meshes have more links to break, up to a point."""
    links = min(nodes, LINKS_MAX)
    return MerkFaults(
        stalls=_chance(rng, 120.0),
        cuts=_chance(rng, 120.0),
        breaks=_chance(rng, 200.0),
        link_stalls=_chance(rng, 30.0 * links),
        link_cuts=_chance(rng, 30.0 * links),
        link_breaks=_chance(rng, 60.0 * links),
        crashes=_chance(rng, 40.0),
        stops=_chance(rng, 30.0),
    )
