"""Bhumi in the open: relays that gossip, devices that move between them, who looks for them, and enemies of all sorts.

Each relay is a ``World`` of its own on the common clock; what it wants dialled reaches the other worlds, unless they
are parted. ``OpenTown`` is the scenario that ``run`` drives.
"""

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.journal.events import Event
from waystation.protocols.bhumi.device_client import DeviceClient
from waystation.protocols.bhumi.relay import BhumiRelay
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.sim import bhumi_open_observations as seen
from waystation.sim.bhumi_open_commons import ROUND_US, OpenCommons, address_of
from waystation.sim.bhumi_open_device import MakeDevice, OpenDevice
from waystation.sim.bhumi_open_hostile import OpenHostile
from waystation.sim.bhumi_open_hostile_relay import HostileRelay
from waystation.sim.bhumi_open_house import House, MakeOpenRelay, Trunk
from waystation.sim.bhumi_open_laws import open_invariants
from waystation.sim.bhumi_open_plan import OpenPlan, draw_large_plan, draw_open_plan
from waystation.sim.bhumi_open_scout import Scout
from waystation.sim.bhumi_open_sender import OpenSender
from waystation.sim.chance import Trouble, fork
from waystation.sim.invariants import Watch
from waystation.sim.merk_plan import edges_of
from waystation.sim.schedule import Schedule
from waystation.sim.trace import Named, Trace, canonical

__all__ = ["OpenTown", "large_town"]

COME_US: Final = MICROSECONDS_PER_SECOND
HOSTILE_COME_US: Final = 10 * MICROSECONDS_PER_SECOND
SIZES_EVERY_US: Final = 10 * MICROSECONDS_PER_SECOND
STALL_US: Final = 8 * MICROSECONDS_PER_SECOND
PART_US: Final = 30 * MICROSECONDS_PER_SECOND
DOWN_US: Final = 3 * MICROSECONDS_PER_SECOND
LOOKS_PER_RELAY: Final = 2
EMPTY_US: Final = 3_900 * MICROSECONDS_PER_SECOND  # longer than an advert lives by the clock that is off the most

_UNTRACED: Final = (seen.Took, seen.Gave, seen.Said, seen.Questioned, seen.Answered)
"""Observations of every frame and record in it: the trace has the bytes that they were read from."""


class OpenTown:
    """One world drawn from one generator."""

    def __init__(
        self,
        schedule: Schedule,
        rng: random.Random,
        trace: Trace,
        *,
        make_relay: MakeOpenRelay = BhumiRelay,
        make_device: MakeDevice = DeviceClient,
        device_kind: type[OpenDevice] = OpenDevice,
        plan: OpenPlan | None = None,
        draw_plan: Callable[[random.Random], OpenPlan] = draw_open_plan,
    ) -> None:
        """Build the town; nothing happens before ``start``.

        Args:
            schedule: The clock.
            rng: Everything drawn comes from here.
            trace: Gets a line for everything that happens.
            make_relay: Makes the relays of each life.
            make_device: Makes the devices' machines.
            device_kind: What devices are.
            plan: What happens; drawn when None.
            draw_plan: Draws it.
        """
        self.plan = plan = plan or draw_plan(fork(rng))
        self._schedule = schedule
        self._trace = trace
        self._rng = fork(rng)
        self._is_measuring = True
        self._watch = Watch(open_invariants())
        self._commons = commons = OpenCommons(schedule, plan, fork(rng), self._observe)
        self._trouble = Trouble(schedule, self._rng, lambda: self._commons.troubled)
        self._edges = edges_of(plan.topology, plan.relays, fork(rng))
        self._houses = [
            House(commons, fork(rng), Named(trace, f"r{node}"), node, self._settings(node), make_relay, self._on_event)
            for node in range(plan.relays)
        ]
        for house in self._houses:
            commons.add_relay(house.world, house.key_pair.public, house)
        self._devices = [
            device_kind(commons, fork(rng), f"10.1.{number // 200}.{number % 200}", make_device)
            for number in range(plan.devices)
        ]
        identities = [device.identity for device in self._devices]
        self._senders = [
            OpenSender(commons, fork(rng), f"10.2.0.{number}", self._devices) for number in range(plan.senders)
        ]
        self._scout = Scout(commons, fork(rng), "10.2.1.0", identities)
        self._hostiles: list[OpenHostile | HostileRelay] = [
            OpenHostile(commons, fork(rng), f"10.3.0.{number}", kind, identities)
            for number, kind in enumerate(plan.hostiles)
        ]
        self._hostiles += [
            HostileRelay(commons, fork(rng), place, kind) for place, kind in enumerate(plan.hostile_relays)
        ]
        trace.note(schedule.now, f"plan {plan.describe()}")

    # Phases

    def start(self) -> None:
        """Let everybody come and the trouble begin."""
        for device in self._devices:
            self._schedule.after(self._rng.randrange(COME_US), device.start)
        for sender in self._senders:
            sender.start()
        self._schedule.after(ROUND_US, self._scout.start)
        for hostile in self._hostiles:
            self._schedule.after(self._rng.randrange(HOSTILE_COME_US), hostile.come)
        faults = self.plan.faults
        often, lasting = self._trouble.often, self._trouble.duration
        often(faults.stalls, lambda: self._any_stream(lambda stream: stream.stall(lasting(STALL_US))))
        often(faults.breaks, lambda: self._any_stream(lambda stream: stream.break_off()))
        often(faults.link_stalls, lambda: self._any_trunk(lambda each: each.stream.stall(lasting(STALL_US))))
        often(faults.link_cuts, lambda: self._any_trunk(lambda each: each.stream.cut()))
        often(faults.link_breaks, lambda: self._any_trunk(lambda each: each.stream.break_off()))
        often(faults.partitions, self._part)
        often(faults.crashes, lambda: self._rng.choice(self._houses).world.crash(lasting(DOWN_US)))
        often(faults.stops, lambda: self._rng.choice(self._houses).world.stop(lasting(DOWN_US)))
        self._measure()

    def calm(self) -> None:
        """End the trouble: no more faults, no more moves; whoever is away comes home."""
        self._commons.troubled = False
        self._commons.far_side = frozenset()
        for hostile in self._hostiles:
            hostile.leave()
        for trunk in self._trunks():
            if trunk.stream.faulted:
                trunk.stream.break_off()
        for device in self._devices:
            device.drop_faulty()
        for sender in self._senders:
            sender.drop_faulty()

    def probe(self) -> None:
        """Let every sender find one more device, and look devices up at every relay."""
        for sender in self._senders:
            sender.probe()
        for node in range(self.plan.relays):
            for _ in range(LOOKS_PER_RELAY):
                self._scout.look(node, self._rng.choice(self._devices).identity)

    def leave(self) -> int:
        """Hear who did not get what is due, and let everybody go; return after which time nothing may be left."""
        right, wrong = self._scout.outcomes["right"], self._scout.outcomes["wrong"]
        self._observe(seen.Tallied(right + wrong, right, self.plan.is_quiet))
        for what in self._commons.hopes.values():
            self._observe(seen.LeftHanging(what))
        for sender in self._senders:
            sender.leave()
        for device in self._devices:
            device.leave()
        for house in self._houses:
            house.rest()
        self._is_measuring = False
        return EMPTY_US

    def finish(self) -> None:
        """Look at what is left."""
        for house in self._houses:
            house.measure(settled=True)

    def outcomes(self) -> dict[str, int]:
        """Return what became of requests and look-ups, counted."""
        total: Counter[str] = Counter()
        for sender in self._senders:
            total.update(sender.outcomes)
        total.update({f"lookups_{name}": count for name, count in self._scout.outcomes.items()})
        return dict(sorted(total.items()))

    # Observing

    def _observe(self, observation: Any) -> None:
        now = self._schedule.now
        if not isinstance(observation, _UNTRACED):
            self._trace.note(now, canonical(observation))
        self._watch.observe(observation, now)

    def _on_event(self, event: Event) -> None:
        """Trace what a relay journals."""
        self._trace.note(self._schedule.now, canonical(event))

    def _measure(self) -> None:
        if self._is_measuring:
            for house in self._houses:
                house.measure(settled=False)
            self._schedule.after(SIZES_EVERY_US, self._measure)

    # Trouble

    def _any_stream(self, act: Callable[[Any], None]) -> None:
        streams = self._rng.choice(self._houses).world.streams()
        if streams:
            act(self._rng.choice(streams))

    def _trunks(self) -> list[Trunk]:
        return [trunk for house in self._houses for trunk in house.trunks()]

    def _any_trunk(self, act: Callable[[Trunk], None]) -> None:
        trunks = self._rng.choice(self._houses).trunks()
        if trunks:
            act(self._rng.choice(trunks))

    def _part(self) -> None:
        """Let the relays fall into two parts; what passes between them stalls, as TCP does, or is lost for good."""
        commons = self._commons
        if commons.far_side:
            return
        count = self._rng.randrange(self.plan.relays)
        commons.far_side = frozenset(self._rng.sample(range(self.plan.relays), count))
        duration_us, is_lost = self._trouble.duration(PART_US), self._rng.random() < 1 / 2
        for trunk in self._trunks():
            if trunk.other is not None and commons.are_parted(trunk.node, trunk.other):
                if is_lost:
                    trunk.stream.cut()
                else:
                    trunk.stream.stall(duration_us)
        self._trace.note(self._schedule.now, f"parted {sorted(commons.far_side)} for {duration_us}")
        self._schedule.after(duration_us, self._heal)

    def _heal(self) -> None:
        self._commons.far_side = frozenset()

    def _settings(self, node: int) -> BhumiSettings:
        plan = self.plan
        return BhumiSettings(
            peers=[address_of(other) for one, other in sorted(self._edges) if one == node],
            advertise="" if node in plan.hidden else address_of(node),
            dials_private=plan.dials_private,
            require_binding=plan.requires_binding,
        )


large_town = partial(OpenTown, draw_plan=draw_large_plan)
"""Makes a world of 50 relays and 500 devices that move."""
