"""What the tests of the simulator share: ends and machines that note, a fixed generator, a watch on observations."""

import random

from waystation.core.instant import Instant
from waystation.sim.invariants import ViolationError, Watch
from waystation.sim.schedule import Schedule

NOW = Instant(1_000_000)


class Remembering:
    """An end that notes what it was told, and when."""

    def __init__(self, schedule: Schedule):
        self.schedule = schedule
        self.got = []
        self.told = []

    @property
    def data(self):
        return b"".join(data for _, data in self.got)

    def received(self, data):
        self.got.append((self.schedule.now, data))

    def congested(self):
        self.told.append("congested")

    def drained(self):
        self.told.append("drained")

    def ended(self):
        self.told.append("ended")


class Noting:
    """A machine that notes its inputs, and wants what a test has put into its effects."""

    def __init__(self):
        self.inputs, self.effects, self.wake_at = [], [], None

    def wake(self, now):
        if self.wake_at is not None and self.wake_at <= now:
            self.wake_at = None
            self.inputs.append(("wake", now))

    def deadline(self):
        return self.wake_at

    def take(self):
        effects, self.effects = self.effects, []
        return effects

    def retire(self):
        self.inputs.append("retire")

    def settled(self):
        return True

    def shut(self, now):
        self.inputs.append("shut")

    def expel(self, identity, now):
        self.inputs.append("expel")

    def review(self, now):
        self.inputs.append("review")

    def sizes(self):
        return {}


class NotingStreams(Noting):
    """One with connections."""

    def connect(self, peer, now, address=""):
        self.peer, self.address = peer, address
        self.inputs.append("connect")

    def receive(self, peer, data, now):
        self.inputs.append(data)

    def disconnect(self, peer, now):
        self.inputs.append("disconnect")

    def congested(self, peer, now):
        self.inputs.append("congested")

    def drained(self, peer, now):
        self.inputs.append("drained")


def fixed_rng(seed: int = 7) -> random.Random:
    """Return a generator that every run of a test has alike."""
    return random.Random(seed)


def broken_by_last(invariants, observations, instants=None):
    """Show all observations; return which invariant the last one breaks, or None. No other one may break any.

    Args:
        invariants: Checkers, in their order.
        observations: What happens.
        instants: When each of them happens; all of them ``NOW`` when None.
    """
    watch = Watch(invariants)
    *before, last = zip(observations, instants or [NOW] * len(observations), strict=True)
    for observation, now in before:
        watch.observe(observation, now)
    try:
        watch.observe(*last)
    except ViolationError as error:
        return error.invariant
    return None
