"""What one seed does: who takes part, how they behave, and what goes wrong.

Swarm testing: a plan switches whole kinds of trouble off before it draws rates for those that remain, because a run in
which everything happens hides what only happens when something else does not. All draws come from the given generator
and nothing else.
"""

import random
from dataclasses import dataclass, fields
from typing import Final

from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.sim.link import LinkSettings
from waystation.sim.world import WorldSettings

__all__ = ["DeviceHabits", "FaultRates", "Plan", "SenderHabits", "draw_plan"]

KIND_STAYS: Final = 0.6  # chance that a kind of trouble takes part in a plan
LATENCY_LONG_US: Final = 20_000  # from here on a small window is not enough for the relay's minimum rate
EXCHANGES_PER_HOUR: Final = (300, 2_500)


@dataclass(frozen=True, slots=True)
class DeviceHabits:
    """How devices behave; chances are 0 to 1 for each request, delays are microseconds."""

    think_us: int = 30_000
    """Mean time from request to answer."""
    never_answers: float = 0.0
    answers_late: float = 0.0
    """After the relay's patience."""
    answers_twice: float = 0.0
    leaves_mid_flight: float = 0.0
    answers_elsewhere: float = 0.0
    """After leaving mid-flight: answers on its next connection."""
    reconnects_per_hour: float = 0.0
    introduces_twice_per_hour: float = 0.0
    comes_twice_per_hour: float = 0.0
    """Opens a second connection without closing the first."""
    carries_answers: bool = False
    asks_preimage: bool = True
    away_us: int = 2_000_000
    """Mean time until a device that left is back."""


@dataclass(frozen=True, slots=True)
class SenderHabits:
    """How senders behave; chances are 0 to 1 for each request."""

    leaves_mid_flight: float = 0.0
    retries_side_by_side: float = 0.0
    """The same request on one to six more connections, before the first has its result."""
    asks_again: float = 0.0
    """The same request once more after its result."""
    replays: float = 0.0
    """An old preimage for a new request."""
    guesses: float = 0.0
    """A preimage that nobody issued."""
    asks_absent: float = 0.0
    """A recipient that does not exist."""
    bursts: float = 0.0
    """Up to 48 requests at once."""
    keeps_connection: float = 0.5
    tries_max: int = 4


@dataclass(frozen=True, slots=True)
class FaultRates:
    """What goes wrong with links and node, per simulated hour."""

    stalls: float = 0.0
    cuts: float = 0.0
    breaks: float = 0.0
    crashes: float = 0.0
    stops: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """One seed's world."""

    devices: int
    senders: int
    exchanges_per_hour: float
    payload_bytes: tuple[int, int]
    """Smallest and largest body of requests and answers."""
    envelope: bool
    """Whether payloads are sealed; costs a millisecond of real time per exchange."""
    spares: int
    """Preimages a device has on offer."""
    link: LinkSettings
    host: WorldSettings
    relay: BhumiSettings
    device: DeviceHabits
    sender: SenderHabits
    faults: FaultRates
    hostiles: tuple[str, ...]
    """Kinds of hostile peers, see ``bhumi_hostile``."""

    def describe(self) -> str:
        """Return one line with every choice."""
        return " ".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))


HOSTILE_KINDS: Final = ("garbage", "slowloris", "flood", "deaf", "spoofer", "mutant")


def draw_plan(rng: random.Random) -> Plan:
    """Draw a plan."""
    size = rng.choice((16, 64, 256, 1_024, 8_192))
    return Plan(
        devices=rng.randint(1, 8),
        senders=rng.randint(1, 10),
        exchanges_per_hour=rng.uniform(*EXCHANGES_PER_HOUR),
        payload_bytes=(1, size),
        envelope=rng.random() < 1 / 16,
        spares=rng.choice((1, 8, 32)),
        link=_draw_link(rng),
        host=WorldSettings(turn_delay_us=rng.choice((0, 0, 50, 2_000))),
        relay=_draw_relay(rng),
        device=_draw_device(rng),
        sender=_draw_sender(rng),
        faults=_draw_faults(rng),
        hostiles=tuple(rng.choice(HOSTILE_KINDS) for _ in range(rng.choice((0, 0, 1, 2, 4)))),
    )


def _chance(rng: random.Random, most: float) -> float:
    """Return 0 for a kind that does not take part, or up to ``most``."""
    return rng.uniform(0.0, most) if rng.random() < KIND_STAYS else 0.0


def _draw_link(rng: random.Random) -> LinkSettings:
    """Draw a link on which the largest frame of a device passes within the relay's 10 s for one frame."""
    latency_us = rng.choice((100, 5_000, 20_000, 150_000))
    return LinkSettings(
        latency_us=latency_us,
        jitter_us=rng.choice((0, 100, 5_000)),
        bytes_per_second=rng.choice((0, 0, 100_000, 1_000_000)),
        window_bytes=rng.choice((2_048, 16_384, 65_536)) if latency_us < LATENCY_LONG_US else 65_536,
        pieces=rng.choice((0.0, 0.1, 0.5)),
    )


def _draw_relay(rng: random.Random) -> BhumiSettings:
    return BhumiSettings(
        deliver_layout=rng.choice(("seed", "preimage")),
        ack_timeout_ms=rng.choice((5_000, 30_000, 30_000)),
        response_ttl_ms=rng.choice((60_000, 300_000, 300_000)),
    )


def _draw_device(rng: random.Random) -> DeviceHabits:
    return DeviceHabits(
        think_us=rng.choice((1_000, 30_000, 800_000)),
        never_answers=_chance(rng, 0.1),
        answers_late=_chance(rng, 0.1),
        answers_twice=_chance(rng, 0.3),
        leaves_mid_flight=_chance(rng, 0.05),
        answers_elsewhere=_chance(rng, 0.8),
        reconnects_per_hour=_chance(rng, 40.0),
        introduces_twice_per_hour=_chance(rng, 40.0),
        comes_twice_per_hour=_chance(rng, 20.0),
        carries_answers=rng.random() < 0.5,
        asks_preimage=rng.random() < 0.5,
        away_us=rng.choice((200_000, 2_000_000, 60_000_000)),
    )


def _draw_sender(rng: random.Random) -> SenderHabits:
    return SenderHabits(
        leaves_mid_flight=_chance(rng, 0.2),
        retries_side_by_side=_chance(rng, 0.1),
        asks_again=_chance(rng, 0.2),
        replays=_chance(rng, 0.1),
        guesses=_chance(rng, 0.1),
        asks_absent=_chance(rng, 0.1),
        bursts=_chance(rng, 0.05),
        keeps_connection=rng.random(),
        tries_max=rng.randint(1, 5),
    )


def _draw_faults(rng: random.Random) -> FaultRates:
    return FaultRates(
        stalls=_chance(rng, 60.0),
        cuts=_chance(rng, 30.0),
        breaks=_chance(rng, 120.0),
        crashes=_chance(rng, 4.0),
        stops=_chance(rng, 4.0),
    )
