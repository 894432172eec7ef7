"""The random plan of one LPRP simulation: hosts, clients, network, behaviour, clocks, faults and hostile actors."""

import random
from dataclasses import dataclass
from typing import Final

from waystation.sim.net.datagram import DatagramSettings
from waystation.sim.plan import LATENCIES_US, Plan, draw_datagrams, draw_host, draw_rates
from waystation.sim.world import WorldSettings

__all__ = ["HOSTILE_KINDS", "ClientBehaviour", "LprpFaults", "LprpPlan", "draw_lprp_plan"]

MAIL_PER_HOUR: Final = (500, 6_000)
LEASE_LONG_MS: Final = 536_870_912
HOSTILE_KINDS: Final = ("replayer", "spoofer", "farmer", "bad_tenant", "garbage", "false_host", "forger")


@dataclass(frozen=True, slots=True)
class ClientBehaviour:
    """How clients behave; rates are per client and simulated hour, chances 0 to 1."""

    rebinds: float = 0.0
    """Has another address from now on, and does not know."""
    sleeps: float = 0.0
    """Cannot be reached for a while."""
    restarts: float = 0.0
    """Loses everything but what is on its disk."""
    edits: float = 0.0
    """Wants another whitelist."""
    away_us: int = 5_000_000
    """Mean time of sleep or restart, in microseconds."""
    keep_us: int = 0
    """Mean time until the application has made a packet durable, in microseconds."""
    hands_back: float = 0.0
    """Chance that the application cannot keep a packet this time."""
    bursts: float = 0.0
    """Chance to send up to 12 packets at once."""
    gives_up_work: float = 0.0
    """Chance to stop a search for work."""


@dataclass(frozen=True, slots=True)
class LprpFaults:
    """What goes wrong in the whole network, per simulated hour."""

    cuts: float = 0.0
    """Nothing from or to one client or host for a while."""
    crashes: float = 0.0
    stops: float = 0.0
    host_steps: float = 0.0
    """The clock of a host is set."""
    person_steps: float = 0.0
    """The clock of a client is set."""
    step_ms: int = 5_000
    """By up to so many milliseconds, either way."""


@dataclass(frozen=True, slots=True)
class LprpPlan(Plan):
    """One seed's network."""

    hosts: int
    tenants: int
    senders: int
    """Clients without a lease."""
    mail_per_hour: float
    payload_bytes_max: int
    whitelisted: float
    """Chance of one client to stand on another's first whitelist."""
    net: DatagramSettings
    host: WorldSettings
    gather_us: int
    """How long datagrams of one host gather before it reads them together, in microseconds."""
    rate_limits: bool
    adaptive: bool
    base_bits: int
    solve_us: int
    """Mean time that a search takes, in microseconds."""
    lease_ms: int
    heartbeat_ms: int
    retry_ms: int
    retries: int
    rebind_on_relay: bool
    byte_order: str
    client: ClientBehaviour
    faults: LprpFaults
    hostiles: tuple[str, ...]
    """Kinds of hostile actors, see ``hostile``."""


def draw_lprp_plan(rng: random.Random) -> LprpPlan:
    """Draw a plan."""
    return LprpPlan(
        hosts=rng.choice((2, 2, 2, 3)),
        tenants=rng.randint(2, 5),
        senders=rng.randint(0, 3),
        mail_per_hour=rng.uniform(*MAIL_PER_HOUR),
        payload_bytes_max=rng.choice((0, 63, 364, 364)),
        whitelisted=rng.choice((0.0, 0.5, 1.0)),
        net=draw_datagrams(rng, LATENCIES_US, (0, 100, 5_000), (1_000, 50_000, 2_000_000)),
        host=draw_host(rng),
        gather_us=rng.choice((0, 0, 1_000, 20_000)),
        rate_limits=rng.random() < 1 / 2,
        adaptive=rng.random() < 1 / 2,
        base_bits=rng.choice((0, 2, 4, 6)),
        solve_us=rng.choice((1_000, 200_000, 3_000_000)),
        lease_ms=rng.choice((20_000, 60_000, LEASE_LONG_MS, LEASE_LONG_MS)),
        heartbeat_ms=rng.choice((5_000, 25_000)),
        retry_ms=rng.choice((100, 500, 2_000)),
        retries=rng.choice((1, 3, 5)),
        rebind_on_relay=False,
        byte_order="big",
        client=_draw_client(rng),
        faults=_draw_faults(rng),
        hostiles=tuple(rng.choice(HOSTILE_KINDS) for _ in range(rng.choice((0, 1, 1, 2, 3)))),
    )


def _draw_client(rng: random.Random) -> ClientBehaviour:
    return ClientBehaviour(
        **draw_rates(rng, rebinds=120.0, sleeps=60.0, restarts=120.0, edits=120.0),
        away_us=rng.choice((1_000, 1_000_000, 20_000_000)),
        keep_us=rng.choice((0, 1_000, 500_000)),
        **draw_rates(rng, hands_back=0.2, bursts=0.1, gives_up_work=0.1),
    )


def _draw_faults(rng: random.Random) -> LprpFaults:
    return LprpFaults(
        **draw_rates(rng, cuts=120.0, crashes=120.0, stops=60.0, host_steps=60.0, person_steps=60.0),
        step_ms=rng.choice((500, 5_000, 200_000)),
    )
