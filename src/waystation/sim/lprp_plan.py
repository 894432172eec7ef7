"""What one seed of an LPRP town does: hosts, people, their network, habits, clocks and faults.

Swarm testing as in ``plan``: kinds of trouble are switched off before rates are drawn for the rest.
"""

import random
from dataclasses import dataclass, fields
from typing import Final

from waystation.sim.datagram import DatagramSettings
from waystation.sim.world import WorldSettings

__all__ = ["HOSTILE_KINDS", "LprpFaults", "LprpPlan", "PersonHabits", "draw_lprp_plan"]

KIND_STAYS: Final = 0.6  # chance that a kind of trouble takes part in a plan
MAIL_PER_HOUR: Final = (500, 6_000)
LEASE_LONG_MS: Final = 536_870_912
HOSTILE_KINDS: Final = ("replayer", "spoofer", "farmer", "bad_tenant", "garbage", "liar", "forger")


@dataclass(frozen=True, slots=True)
class PersonHabits:
    """How people behave; rates are per person and simulated hour, chances 0 to 1."""

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
    """What goes wrong in the whole town, per simulated hour."""

    cuts: float = 0.0
    """Nothing from or to one person or host for a while."""
    crashes: float = 0.0
    stops: float = 0.0
    host_steps: float = 0.0
    """The clock of a host is set."""
    person_steps: float = 0.0
    """The clock of a person is set."""
    step_ms: int = 5_000
    """By up to so many milliseconds, either way."""


@dataclass(frozen=True, slots=True)
class LprpPlan:
    """One seed's world."""

    hosts: int
    tenants: int
    senders: int
    """People without a lease."""
    mail_per_hour: float
    payload_bytes_max: int
    whitelisted: float
    """Chance of one person to stand on another's first whitelist."""
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
    person: PersonHabits
    faults: LprpFaults
    hostiles: tuple[str, ...]
    """Kinds of hostile parties, see ``lprp_hostile``."""

    def describe(self) -> str:
        """Return one line with every choice."""
        return " ".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))


def draw_lprp_plan(rng: random.Random) -> LprpPlan:
    """Draw a plan."""
    return LprpPlan(
        hosts=rng.choice((2, 2, 2, 3)),
        tenants=rng.randint(2, 5),
        senders=rng.randint(0, 3),
        mail_per_hour=rng.uniform(*MAIL_PER_HOUR),
        payload_bytes_max=rng.choice((0, 63, 364, 364)),
        whitelisted=rng.choice((0.0, 0.5, 1.0)),
        net=_draw_net(rng),
        host=WorldSettings(
            turn_delay_us=rng.choice((0, 0, 50, 2_000)),
            commit_delay_us=rng.choice((2_000, 2_000, 50_000, 400_000)),
            verify_delay_us=rng.choice((200, 200, 30_000)),
        ),
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
        person=_draw_person(rng),
        faults=_draw_faults(rng),
        hostiles=tuple(rng.choice(HOSTILE_KINDS) for _ in range(rng.choice((0, 1, 1, 2, 3)))),
    )


def _chance(rng: random.Random, most: float) -> float:
    """Return 0 for a kind that does not take part, or up to ``most``."""
    return rng.uniform(0.0, most) if rng.random() < KIND_STAYS else 0.0


def _draw_net(rng: random.Random) -> DatagramSettings:
    return DatagramSettings(
        latency_us=rng.choice((100, 5_000, 20_000, 150_000)),
        jitter_us=rng.choice((0, 100, 5_000)),
        loss=_chance(rng, 0.3),
        duplicate=_chance(rng, 0.3),
        reorder=_chance(rng, 0.3),
        reorder_us=rng.choice((1_000, 50_000, 2_000_000)),
    )


def _draw_person(rng: random.Random) -> PersonHabits:
    return PersonHabits(
        rebinds=_chance(rng, 120.0),
        sleeps=_chance(rng, 60.0),
        restarts=_chance(rng, 120.0),
        edits=_chance(rng, 120.0),
        away_us=rng.choice((1_000, 1_000_000, 20_000_000)),
        keep_us=rng.choice((0, 1_000, 500_000)),
        hands_back=_chance(rng, 0.2),
        bursts=_chance(rng, 0.1),
        gives_up_work=_chance(rng, 0.1),
    )


def _draw_faults(rng: random.Random) -> LprpFaults:
    return LprpFaults(
        cuts=_chance(rng, 120.0),
        crashes=_chance(rng, 120.0),
        stops=_chance(rng, 60.0),
        host_steps=_chance(rng, 60.0),
        person_steps=_chance(rng, 60.0),
        step_ms=rng.choice((500, 5_000, 200_000)),
    )
