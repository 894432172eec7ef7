"""The random plan of one LPRP simulation: hosts, clients, network, behaviour, clocks, faults and hostile actors.

``sim.run`` has it drawn from the seed, ``LprpScenario`` carries it out. Everything random is decided by that one seed,
so a failed run can be repeated.
"""

import random
from dataclasses import dataclass
from typing import Annotated, Final

from waystation.sim.net.datagram import DatagramSettings
from waystation.sim.plan import (
    LATENCIES_US,
    Plan,
    between,
    draw,
    draw_datagrams,
    draw_host,
    drawn_by,
    each_of,
    odds,
    one_of,
    some_of,
    up_to,
)
from waystation.sim.world import WorldSettings

__all__ = ["HOSTILE_KINDS", "ClientBehaviour", "LprpFaults", "LprpPlan", "draw_lprp_plan"]

LEASE_LONG_MS: Final = 536_870_912
PATHS: Final = {
    "latencies_us": LATENCIES_US,
    "jitters_us": (0, 100, 5_000),
    "reorders_us": (1_000, 50_000, 2_000_000),
}
HOSTILE_KINDS: Final = ("replayer", "spoofer", "farmer", "bad_tenant", "garbage", "false_host", "forger")


@dataclass(frozen=True, slots=True)
class ClientBehaviour:
    """How clients behave; rates are per client and simulated hour, chances 0 to 1."""

    rebinds: Annotated[float, up_to(120.0)] = 0.0
    """Has another address from now on, and does not know."""
    sleeps: Annotated[float, up_to(60.0)] = 0.0
    """Cannot be reached for a while."""
    restarts: Annotated[float, up_to(120.0)] = 0.0
    """Loses everything but what is on its disk."""
    edits: Annotated[float, up_to(120.0)] = 0.0
    """Wants another whitelist."""
    away_us: Annotated[int, one_of(1_000, 1_000_000, 20_000_000)] = 5_000_000
    """Mean time of sleep or restart, in microseconds."""
    keep_us: Annotated[int, one_of(0, 1_000, 500_000)] = 0
    """Mean time until the application has made a packet durable, in microseconds."""
    hands_back: Annotated[float, up_to(0.2)] = 0.0
    """Chance that the application cannot keep a packet this time."""
    bursts: Annotated[float, up_to(0.1)] = 0.0
    """Chance to send up to 12 packets at once."""
    gives_up_work: Annotated[float, up_to(0.1)] = 0.0
    """Chance to stop a search for work."""


@dataclass(frozen=True, slots=True)
class LprpFaults:
    """What goes wrong in the whole network, per simulated hour."""

    cuts: Annotated[float, up_to(120.0)] = 0.0
    """Nothing from or to one client or host for a while."""
    crashes: Annotated[float, up_to(120.0)] = 0.0
    stops: Annotated[float, up_to(60.0)] = 0.0
    host_steps: Annotated[float, up_to(60.0)] = 0.0
    """The clock of a host is set."""
    person_steps: Annotated[float, up_to(60.0)] = 0.0
    """The clock of a client is set."""
    step_ms: Annotated[int, one_of(500, 5_000, 200_000)] = 5_000
    """By up to so many milliseconds, either way."""


@dataclass(frozen=True, slots=True)
class LprpPlan(Plan):
    """One seed's network."""

    hosts: Annotated[int, one_of(2, 2, 2, 3)]
    tenants: Annotated[int, between(2, 5)]
    senders: Annotated[int, between(0, 3)]
    """Clients without a lease."""
    mail_per_hour: Annotated[float, between(500.0, 6_000.0)]
    payload_bytes_max: Annotated[int, one_of(0, 63, 364, 364)]
    whitelisted: Annotated[float, one_of(0.0, 0.5, 1.0)]
    """Chance of one client to stand on another's first whitelist."""
    net: Annotated[DatagramSettings, drawn_by(draw_datagrams, **PATHS)]
    host: Annotated[WorldSettings, drawn_by(draw_host)]
    gather_us: Annotated[int, one_of(0, 0, 1_000, 20_000)]
    """How long datagrams of one host gather before it reads them together, in microseconds."""
    rate_limits: Annotated[bool, odds(1 / 2)]
    adaptive: Annotated[bool, odds(1 / 2)]
    base_bits: Annotated[int, one_of(0, 2, 4, 6)]
    solve_us: Annotated[int, one_of(1_000, 200_000, 3_000_000)]
    """Mean time that a search takes, in microseconds."""
    lease_ms: Annotated[int, one_of(20_000, 60_000, LEASE_LONG_MS, LEASE_LONG_MS)]
    heartbeat_ms: Annotated[int, one_of(5_000, 25_000)]
    retry_ms: Annotated[int, one_of(100, 500, 2_000)]
    retries: Annotated[int, one_of(1, 3, 5)]
    rebind_on_relay: bool
    byte_order: str
    client: Annotated[ClientBehaviour, each_of(ClientBehaviour)]
    faults: Annotated[LprpFaults, each_of(LprpFaults)]
    hostiles: Annotated[tuple[str, ...], some_of(HOSTILE_KINDS, (0, 1, 1, 2, 3))]
    """Kinds of hostile actors, see ``hostile``."""


def draw_lprp_plan(rng: random.Random) -> LprpPlan:
    """Draw a plan."""
    return draw(LprpPlan, rng, rebind_on_relay=False, byte_order="big")
