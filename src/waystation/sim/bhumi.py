"""A Bhumi town: one node, devices, senders, hostile peers, and what happens to their links.

``BhumiTown`` is the scenario that ``run`` drives through its phases: trouble, calm, a last request of everybody, and
the empty town. A protocol author writes a class with these methods and gets everything else.
"""

import random
from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_MS, MICROSECONDS_PER_SECOND
from waystation.crypto.hashing import keyed_reference
from waystation.engine.node import Relay
from waystation.journal.events import Event
from waystation.protocols.bhumi.relay import BhumiRelay
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.sim.bhumi_commons import PROTOCOL, Commons
from waystation.sim.bhumi_device import Device
from waystation.sim.bhumi_hostile import Hostile
from waystation.sim.bhumi_sender import Sender
from waystation.sim.chance import Trouble, fork, spread
from waystation.sim.invariants import Watch, bhumi_invariants
from waystation.sim.observations import Everybody, Journalled, LifeBegan, Observation, Sized
from waystation.sim.plan import Plan, draw_plan
from waystation.sim.schedule import Schedule
from waystation.sim.trace import Trace, canonical
from waystation.sim.world import World

__all__ = ["BhumiTown", "MakeRelay"]

SIZES_EVERY_US: Final = 30 * MICROSECONDS_PER_SECOND
STALL_US: Final = 20 * MICROSECONDS_PER_SECOND
DOWN_US: Final = 3 * MICROSECONDS_PER_SECOND
EMPTY_US: Final = 150 * MICROSECONDS_PER_SECOND  # longer than any timer of a connection


class MakeRelay(Protocol):
    """Makes a relay; ``BhumiRelay`` itself, or a broken one in tests of the invariants."""

    def __call__(self, settings: BhumiSettings, rng: random.Random, *, admits: Callable[[PublicKey], bool]) -> Relay:
        """Return a fresh relay."""


class BhumiTown:
    """One world drawn from one generator."""

    def __init__(
        self,
        schedule: Schedule,
        rng: random.Random,
        trace: Trace,
        *,
        make_relay: MakeRelay = BhumiRelay,
        plan: Plan | None = None,
    ) -> None:
        """Build the town; nothing happens before ``start``.

        Args:
            schedule: The clock.
            rng: Everything drawn comes from here.
            trace: Gets a line for everything that happens.
            make_relay: Makes the relay of each life.
            plan: What happens; drawn when None.
        """
        self.plan = plan or draw_plan(fork(rng))
        self._schedule = schedule
        self._trace = trace
        self._rng = fork(rng)
        self._watch = Watch(bhumi_invariants(self.plan.relay.response_ttl_ms))
        self._is_measuring = True

        def make_relays(entropy: random.Random, admits: Callable[[PublicKey], bool]) -> dict[str, Relay]:
            return {PROTOCOL: make_relay(self.plan.relay, entropy, admits=admits)}

        self._world = World(
            schedule,
            fork(rng),
            trace,
            make_relays,
            settings=self.plan.host,
            on_event=self._on_event,
            on_life=self._on_life,
        )
        self._commons = Commons(self._world, self.plan, fork(rng), self._observe)
        self._trouble = Trouble(schedule, self._rng, lambda: self._commons.troubled)
        self._devices = [Device(self._commons, fork(rng), f"10.1.0.{number}") for number in range(self.plan.devices)]
        self._senders = [
            Sender(self._commons, fork(rng), f"10.2.0.{number}", number, self._devices)
            for number in range(self.plan.senders)
        ]
        victims = [device.identity for device in self._devices]
        self._hostiles = [
            Hostile(self._commons, fork(rng), f"10.3.0.{number}", kind, victims)
            for number, kind in enumerate(self.plan.hostiles)
        ]
        self._trace.note(schedule.now, f"plan {self.plan.describe()}")

    # Phases

    def start(self) -> None:
        """Let everybody come and the trouble begin."""
        self._introduce_everybody()
        for device in self._devices:
            self._schedule.after(self._rng.randrange(MICROSECONDS_PER_SECOND), device.come)
        for sender in self._senders:
            sender.start()
        for hostile in self._hostiles:
            self._schedule.after(self._rng.randrange(60 * MICROSECONDS_PER_SECOND), hostile.come)
        self._trouble_all()
        self._measure()

    def calm(self) -> None:
        """End the trouble: no more faults, no more bad habits; whoever is away comes home."""
        self._commons.troubled = False
        for hostile in self._hostiles:
            hostile.leave()
        for stream in self._world.streams():
            if stream.is_cut:
                stream.give_up()
            elif stream.faulted:
                stream.break_off()
        for sender in self._senders:
            sender.rest()
        for device in self._devices:
            device.come()

    def probe(self) -> None:
        """Let every sender ask once more."""
        for sender in self._senders:
            sender.probe()

    def leave(self) -> int:
        """Let everybody go; return after how many microseconds nothing may be left."""
        for sender in self._senders:
            sender.leave()
        for device in self._devices:
            device.leave()
        self._is_measuring = False
        return self.plan.relay.response_ttl_ms * MICROSECONDS_PER_MS + EMPTY_US

    def finish(self) -> None:
        """Look at what is left."""
        self._observe(Sized(self._world.sizes(), settled=True))

    def outcomes(self) -> dict[str, int]:
        """Return the number of finished exchanges by outcome."""
        total: Counter[str] = Counter()
        for sender in self._senders:
            total.update(sender.outcomes)
        return dict(sorted(total.items()))

    # Observing

    def _observe(self, observation: Observation) -> None:
        now = self._schedule.now
        self._trace.note(now, canonical(observation))
        self._watch.observe(observation, now)

    def _on_event(self, event: Event) -> None:
        self._trace.note(self._schedule.now, canonical(event))
        self._watch.observe(Journalled(event), self._schedule.now)

    def _on_life(self, life: int) -> None:
        self._observe(LifeBegan(life))

    def _introduce_everybody(self) -> None:
        key = self._world.recorder_key
        receivers = [device.identity for device in self._devices] + [hostile.identity for hostile in self._hostiles]
        senders = [sender.key_pair.public for sender in self._senders]
        hosts = tuple(sender.host for sender in self._senders)
        hidden = (*receivers, *senders, *(keyed_reference(key, sender) for sender in senders))
        references = frozenset(keyed_reference(key, identity) for identity in receivers)
        self._watch.observe(Everybody(references, hidden, hosts), self._schedule.now)

    def _measure(self) -> None:
        if not self._is_measuring:
            return
        if self._world.is_up:
            self._observe(Sized(self._world.sizes(), settled=False))
        self._schedule.after(SIZES_EVERY_US, self._measure)

    # Trouble

    def _trouble_all(self) -> None:
        faults, habits = self.plan.faults, self.plan.device
        self._trouble.often(faults.stalls, self._stall)
        self._trouble.often(faults.cuts, self._cut)
        self._trouble.often(faults.breaks, self._break)
        self._trouble.often(faults.crashes, lambda: self._world.crash(self._trouble.duration(DOWN_US)))
        self._trouble.often(faults.stops, lambda: self._world.stop(self._trouble.duration(DOWN_US)))
        self._trouble.often(habits.reconnects_per_hour, lambda: self._any_device().go(abort=self._rng.random() < 1 / 2))
        self._trouble.often(habits.introduces_twice_per_hour, lambda: self._any_device().introduce_again())
        self._trouble.often(habits.comes_twice_per_hour, lambda: self._any_device().come_twice())

    def _any_device(self) -> Device:
        return self._rng.choice(self._devices)

    def _stall(self) -> None:
        streams = self._world.streams()
        if streams:
            self._rng.choice(streams).stall(1 + spread(self._rng, STALL_US))

    def _cut(self) -> None:
        streams = self._world.streams()
        if streams:
            self._rng.choice(streams).cut()

    def _break(self) -> None:
        streams = self._world.streams()
        if streams:
            self._rng.choice(streams).break_off()
