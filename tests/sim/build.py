"""What the tests of the simulator share: an end that remembers, and relays with one mistake each."""

import random

from waystation.core.effects import Send
from waystation.core.facts import PeerIdentified
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.crypto.hashing import sha256
from waystation.protocols.bhumi import wire
from waystation.protocols.bhumi.cache import ResponseCache
from waystation.protocols.bhumi.deliveries import Deliveries
from waystation.protocols.bhumi.relay import BhumiRelay
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.sim.bhumi import BhumiTown
from waystation.sim.bhumi_commons import Commons
from waystation.sim.bhumi_device import Device
from waystation.sim.bhumi_sender import Sender
from waystation.sim.link import LinkSettings
from waystation.sim.plan import DeviceHabits, FaultRates, Plan, SenderHabits
from waystation.sim.run import MakeScenario, SimResult, run_seed
from waystation.sim.schedule import Schedule
from waystation.sim.trace import Trace
from waystation.sim.world import World, WorldSettings


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


class _KeepsCommits(Deliveries):
    def _deliver(self, binding, slot, preimage, payload, now):
        super()._deliver(binding, slot, preimage, payload, now)
        binding.commits.add(sha256(preimage))


class KeepsCommits(BhumiRelay):
    """Forgets to consume the commit."""

    deliveries_class = _KeepsCommits


class _SwapsResults(Deliveries):
    def _settle(self, slot, frame, now):
        session = slot.session
        if slot in session.outstanding:
            session.outstanding.remove(slot)
            self._outbox.append(Send(session.peer, frame))


class SwapsResults(BhumiRelay):
    """Sends each result as soon as it is known."""

    deliveries_class = _SwapsResults


class _LosesResults(Deliveries):
    settled_count = 0

    def _settle(self, slot, frame, now):
        self.settled_count += 1
        if self.settled_count % 50:
            super()._settle(slot, frame, now)


class LosesResults(BhumiRelay):
    """Forgets about every fiftieth result."""

    deliveries_class = _LosesResults


class KeepsBindings(BhumiRelay):
    """Keeps a closed connection bound to its identity."""

    def __init__(self, settings, rng, **options):
        super().__init__(settings, rng, **options)
        connections = self._connections

        def keep(session, reason, now, forget=connections.forget):
            forget(session, reason, now)
            if session.identity is not None:
                connections.bindings.setdefault(session.identity, session)

        connections.forget = keep


class _TrustsAnybody(Deliveries):
    def on_send(self, session, payload, now):
        message = wire.decode_send(payload)
        binding = self._bindings.get(message.recipient)
        if binding is not None:
            binding.commits.add(sha256(message.preimage))
        super().on_send(session, payload, now)


class TrustsAnybody(BhumiRelay):
    """Takes every preimage for a good one."""

    deliveries_class = _TrustsAnybody


class _Garbles(Deliveries):
    def _deliver(self, binding, slot, preimage, payload, now):
        super()._deliver(binding, slot, preimage, payload[:-1], now)


class Garbles(BhumiRelay):
    """Cuts the last byte off what it delivers."""

    deliveries_class = _Garbles


class ForgetsAnswers(BhumiRelay):
    """Keeps no answer."""

    def __init__(self, settings, rng, **options):
        super().__init__(settings, rng, **options)
        self._deliveries._cache = self._deliveries.cache = _Forgetful(settings.response_ttl_ms)


class _Forgetful(ResponseCache):
    def keep_acked(self, recipient, preimage, response, now):
        return False


class _NamesSenders(Deliveries):
    def on_send(self, session, payload, now):
        self._outbox.append(PeerIdentified("bhumi", session.peer, PublicKey(sha256(payload))))
        super().on_send(session, payload, now)


class NamesSenders(BhumiRelay):
    """Tells the journal who asks."""

    deliveries_class = _NamesSenders


class SetsNoTimers(BhumiRelay):
    """Never looks at a connection that says nothing."""

    def __init__(self, settings, rng, **options):
        super().__init__(settings, rng, **options)
        self._connections.arm = lambda _session: None


class _NeverOk(Deliveries):
    def on_send(self, session, payload, now):
        message = wire.decode_send(payload)
        binding = self._bindings.pop(message.recipient, None)
        super().on_send(session, payload, now)
        if binding is not None:
            self._bindings[message.recipient] = binding


class NeverOk(BhumiRelay):
    """Says that nobody is there."""

    deliveries_class = _NeverOk


def town_with(relay: type[BhumiRelay]) -> MakeScenario:
    """Return what makes towns whose relay is of this class."""
    return lambda schedule, rng, trace: BhumiTown(schedule, rng, trace, make_relay=relay)


def run_with(relay: type[BhumiRelay], seed: int, hours: float = 0.1) -> SimResult:
    """Run one seed of a town whose relay is of this class."""
    return run_seed("bhumi", seed, hours, make=town_with(relay))


def first_failure(relay: type[BhumiRelay], seeds: range) -> str | None:
    """Return which law the first failing seed names, or None."""
    for seed in seeds:
        failure = run_with(relay, seed).failure
        if failure is not None:
            return failure.invariant
    return None


def fixed_rng(seed: int = 7) -> random.Random:
    """Return a generator that every run of a test has alike."""
    return random.Random(seed)


class HoardsAnswers(BhumiRelay):
    """Never sweeps what has expired."""

    def __init__(self, settings, rng, **options):
        super().__init__(settings, rng, **options)
        self._deliveries.cache.sweep = lambda _now: None
        self._deliveries._plan_sweep = lambda: None


QUIET = Plan(
    devices=1,
    senders=1,
    exchanges_per_hour=600.0,
    payload_bytes=(1, 64),
    envelope=False,
    spares=4,
    link=LinkSettings(latency_us=1_000, jitter_us=0, pieces=0.0),
    host=WorldSettings(),
    relay=BhumiSettings(),
    device=DeviceHabits(),
    sender=SenderHabits(),
    faults=FaultRates(),
    hostiles=(),
)
"""A town where nothing goes wrong; tests replace what they are about."""


class Street:
    """A real node and what its people saw, without a town around them."""

    def __init__(self, plan: Plan = QUIET):
        self.schedule, self.seen, self.events = Schedule(), [], []
        self.world = World(
            self.schedule,
            fixed_rng(1),
            Trace(),
            lambda rng, admits: {"bhumi": BhumiRelay(plan.relay, rng, admits=admits)},
            settings=plan.host,
            on_event=self.events.append,
        )
        self.commons = Commons(self.world, plan, fixed_rng(2), self.seen.append)
        self.device = Device(self.commons, fixed_rng(3), "10.1.0.1")
        self.sender = Sender(self.commons, fixed_rng(4), "10.2.0.1", 0, [self.device])

    def run(self, seconds: float):
        self.schedule.run(Instant(self.schedule.now + int(seconds * 1_000_000)))

    def kinds(self, kind: type):
        return [observation for observation in self.seen if isinstance(observation, kind)]
