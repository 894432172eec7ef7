"""The random plan of one MERK simulation: nodes and their graph, clients, links, behaviour, faults and adversaries."""

import random
from dataclasses import dataclass, field
from typing import Final

from waystation.sim.net.link import LinkSettings
from waystation.sim.plan import Plan, draw_link, draw_rates
from waystation.sim.topology import TOPOLOGIES
from waystation.sim.world import WorldSettings

__all__ = ["HOSTILE_CLIENTS", "HOSTILE_NODES", "ClientBehaviour", "MerkFaults", "MerkPlan", "draw_merk_plan"]

FRAMES_PER_HOUR: Final = (2_000, 20_000)
NODES: Final = (1, 2, 2, 3, 3, 3, 4, 4, 5, 6, 8, 12, 20)
LINKS_MAX: Final = 6  # every link between nodes that is broken costs a dozen events
WINDOWS: Final = (4_096, 16_384, 65_536)  # on which a few seconds are enough for what a burst leaves waiting
HOSTILE_CLIENTS: Final = ("impostor", "searcher", "squatter", "garbage", "deaf", "meddler")
HOSTILE_NODES: Final = ("false_node", "mute", "forger", "replayer", "advertiser", "babbler", "flooder")


@dataclass(frozen=True, slots=True)
class ClientBehaviour:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MerkPlan(Plan):
    """One seed's network."""

    nodes: int
    topology: str
    hidden: tuple[int, ...] = ()
    """Nodes that advertise no address."""
    closed: tuple[int, ...] = ()
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
    host: WorldSettings = field(default_factory=WorldSettings)
    batches: bool = False
    """Whether relays get the messages of one instant together."""
    rate_limits: bool
    client: ClientBehaviour
    faults: MerkFaults = MerkFaults()
    hostiles: tuple[str, ...] = ()
    """Kinds of hostile clients, see ``merk_hostile``."""
    hostile_nodes: tuple[str, ...] = ()
    """Kinds of hostile nodes, see ``merk_hostile_node``."""


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
        link=draw_link(rng, windows=WINDOWS, framed=True),
        trunk=draw_link(rng, windows=WINDOWS, framed=True),
        host=WorldSettings(
            turn_delay_us=rng.choice((0, 0, 50, 2_000)), commit_delay_us=rng.choice((2_000, 2_000, 50_000))
        ),
        batches=rng.random() < 1 / 2,
        rate_limits=rng.random() < 1 / 2,
        client=_draw_client(rng),
        faults=_draw_faults(rng, nodes),
        hostiles=tuple(rng.choice(HOSTILE_CLIENTS) for _ in range(rng.choice((0, 0, 1, 2)))),
        hostile_nodes=tuple(rng.choice(HOSTILE_NODES) for _ in range(rng.choice((0, 0, 0, 1, 2)))),
    )


def _draw_client(rng: random.Random) -> ClientBehaviour:
    return ClientBehaviour(
        extended=rng.choice((0.5, 0.8, 1.0)),
        **draw_rates(rng, moves=200.0, doubles=100.0, stalls=60.0, vanishes=60.0),
        away_us=rng.choice((1_000, 1_000_000, 10_000_000)),
        **draw_rates(rng, bursts=0.05, says_again=0.1, writes_to_nobody=0.2, leaves_mid_flight=0.03, asks=0.1),
    )


def _draw_faults(rng: random.Random, nodes: int) -> MerkFaults:
    """Draw rates of the whole network; larger meshes have more links to break, up to a point."""
    links = min(nodes, LINKS_MAX)
    return MerkFaults(
        **draw_rates(
            rng,
            stalls=120.0,
            cuts=120.0,
            breaks=200.0,
            link_stalls=30.0 * links,
            link_cuts=30.0 * links,
            link_breaks=60.0 * links,
            crashes=40.0,
            stops=30.0,
        )
    )
