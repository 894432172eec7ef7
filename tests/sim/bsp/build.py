"""Villages of BSP for the tests of the simulator, and what their scenarios must cost by bsp 8."""

import random
from collections.abc import Iterable
from dataclasses import replace

import pytest

from tests.sim.runs import Runs
from waystation.protocols.bsp.device.links import Mode
from waystation.protocols.bsp.stream.machine import BspMachine
from waystation.sim.bsp import observations as seen
from waystation.sim.bsp.connection import PLAIN
from waystation.sim.bsp.host import make_device
from waystation.sim.bsp.network import BspNetwork
from waystation.sim.bsp.plan import BspFaults, BspPlan, GroupPlan, draw_bsp_plan
from waystation.sim.bsp.records import (
    ACK,
    MESSAGE,
    OFFER,
    REQUEST,
    message_id_of,
    message_record,
    read_records,
)
from waystation.sim.bsp.scenario import BspScenario
from waystation.sim.net.datagram import DatagramSettings
from waystation.sim.plan import draw_rates

MODES = (Mode.INTERACTIVE, Mode.BATCH)
BOTH = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
LINE, TRIANGLE = ("ab", "bc"), ("ab", "bc", "ac")
STAR = ("ab", "ac", "ad", "ae")
MESH = ("ab", "ac", "ad", "ae", "bc", "bd", "be", "cd", "ce", "de")
BODY_BYTES = 1_000


def network(
    edges=("ab",),
    mode=Mode.BATCH,
    *,
    seed=0,
    make=make_device,
    settings=PLAIN,
    form="opaque",
    modes=None,
    slow=None,
):
    """Return a network of one group, and the group.

    Args:
        edges: Pairs of names that have a connection, or single names.
        mode: How everybody hands messages over.
        seed: Of the faults of the connections.
        make: Makes the devices.
        settings: Of the connections.
        form: Format of the group.
        modes: Modes by name, of those who have another one.
        slow: How long a disk takes, in microseconds, by name.
    """
    here = BspNetwork(random.Random(seed))
    for name in sorted(set("".join(edges))):
        here.host(name, (modes or {}).get(name, mode), make, (slow or {}).get(name, 0))
    for one, other in (edge for edge in edges if len(edge) == 2):
        here.connection(one, other, settings)
    group = here.group(form=form)
    here.gather(group)
    return here, group


def write(here, group, name="a", count=100, size_bytes=BODY_BYTES, every_ms=0):
    """Let somebody write messages, and return their identifiers."""
    ids = []
    for number in range(count):
        body = number.to_bytes(4, "big") + bytes(size_bytes - 4)
        ids.append(here.hosts[name].add(group, 1_000 + number, body))
        if every_ms:
            here.run(every_ms)
    return ids


def connection_of(here, one, other):
    """Return the newest connection between two."""
    return here.hosts[one].connections[other][-1]


def counts(here):
    """Return how many ACK, MESSAGE, OFFER and REQUEST records were written."""
    return tuple(here.records(kind) for kind in (ACK, MESSAGE, OFFER, REQUEST))


class Adversary:
    """Somebody at the other end of a connection, who says what a test wants and keeps what it is told."""

    def __init__(self, here, name="z", peer="a"):
        self.here, self.name, self.peer = here, name, peer
        self.received = []
        here.adversaries[name] = self._take
        self.connection = here.connection(name, peer)

    def shares(self, group):
        """Let the device share a group with it."""
        self.here.hosts[self.peer].share(group.group_id, self.name)
        return self

    def invent(self, group, timestamp, body):
        """Return a message that it made, as a record and its identifier."""
        message_id = message_id_of(group.group_id, timestamp, body)
        self.here.groups_of[message_id] = group.group_id
        self.here.observe(seen.Made(group.group_id, message_id, body, group.format == "deps_v1"))
        return message_record(group.group_id, timestamp, body), message_id

    def say(self, *records, wait_ms=100):
        """Say something, and let it arrive."""
        for record in records:
            self.connection.throw(self.name, record)
        self.here.run(wait_ms)

    def ids(self, kind):
        """Return all identifiers of the records of one type that it received."""
        return [each for record in self.received if record.kind == kind for each in record.ids]

    def _take(self, _sender, data):
        self.received += read_records(data)


def listener(mode=Mode.BATCH, form="opaque"):
    """Return a network with one device, somebody who speaks to it, and their group."""
    here, group = network(edges=("a",), mode=mode, form=form)
    return here, Adversary(here).shares(group), group


def state_of(here, name, message_id):
    """Return state, order and presence of the body of a message at a device."""
    return here.hosts[name].states().get(message_id)


# What it must cost. Spec: bsp 1 (sizes), 3 (when copies go out), 8.


def list_bytes(count):
    """Return the length of a record with so many identifiers."""
    return 4 + 32 * count


def messages_bytes(count, size_bytes=BODY_BYTES):
    """Return the length of so many MESSAGE records."""
    return count * (4 + 32 + 8 + size_bytes)


def copies_bytes(mode, count, size_bytes=BODY_BYTES):
    """Return what it costs to offer, or to send, so many messages once."""
    return list_bytes(count) if mode is Mode.INTERACTIVE else messages_bytes(count, size_bytes)


def pair_bytes(mode, count, size_bytes=BODY_BYTES, bursts=1):
    """Return what it costs to bring so many messages to one device that lacks them."""
    if mode is Mode.BATCH:
        return count * (size_bytes + 76) + 4 * bursts
    return count * (size_bytes + 140) + 12 * bursts


def hop_ms(mode):
    """Return how long a message takes over one connection: half a round trip, or one and a half."""
    return 100 if mode is Mode.BATCH else 300


def copy_times_ms(first_ms, until_ms, base_ms=1_000, cap=64):
    """Return when copies of a message go out to somebody who never answers."""
    times, count = [first_ms], 0
    while times[-1] <= until_ms:
        times.append(times[-1] + base_ms * min(cap, 2**count))
        count += 1
    return times[:-1]


def first_after(times_ms: Iterable[int], at_ms: int) -> int:
    """Return the first of these times that is not before ``at_ms``."""
    return min(time for time in times_ms if time >= at_ms)


def crossing_bytes(mode, count, size_bytes=BODY_BYTES):
    """Return what two devices that got the same messages at the same instant say to each other about them."""
    return 2 * (copies_bytes(mode, count, size_bytes) + list_bytes(count))


def forged_id(number):
    """Return an identifier of no message."""
    return message_id_of(bytes(32), number, b"nobody's")


# Towns

TOWN = BspPlan(
    modes=("auto", "interactive", "batch"),
    connections=((0, 1), (1, 2), (0, 2)),
    groups=(GroupPlan("deps_v1", (0, 1, 2), (0, 0, 0)),),
    writes_per_hour=6_000.0,
    body_bytes_max=300,
    net=PLAIN,
    wired=False,
    bytes_per_second=0,
    commit_us=0,
    announces_crash=True,
    renews=False,
    probes=True,
    faults=BspFaults(),
    hostiles=(),
)
"""A network where nothing goes wrong; tests replace what they are about."""

LOSSY = replace(
    TOWN, net=DatagramSettings(latency_us=100_000, loss=0.4, duplicate=0.1, reorder=0.3, reorder_us=900_000)
)
"""Bad connections."""

SLOW_DISKS = replace(TOWN, commit_us=300_000)
"""Disks that take their time."""

INTRUDED = replace(
    TOWN,
    groups=(GroupPlan("deps_v1", (0, 1, 2), (0, 0, 0)), GroupPlan("opaque", (0, 1), (0, 0))),
    hostiles=("intruder", "intruder", "garbage"),
)
"""Peers who speak about what is not theirs."""

RESTLESS = replace(LOSSY, faults=BspFaults(cuts=600.0, ends=600.0, crashes=900.0, quarrels=900.0, deletions=600.0))
"""Devices that crash, connections that end, and owners who quarrel."""

WIRED = replace(
    TOWN,
    wired=True,
    commit_us=50_000,
    net=replace(PLAIN, latency_us=20_000),
    bytes_per_second=20_000,
    faults=BspFaults(cuts=600.0, ends=900.0),
)
"""Byte streams that are slow, and break."""

FEW = replace(TOWN, connections=((0, 1), (1, 2)))
"""Two who have nothing but somebody between them."""


def graph_plan(seed):
    """Return a plan of scenario 26 of bsp 10: five devices, one group, joins, cuts, modes and loss."""
    rng = random.Random(f"bsp graph/{seed}")
    drawn = next(plan for plan in iter(lambda: draw_bsp_plan(rng), None) if len(plan.modes) == 5)
    late_us = (0, *(rng.randrange(20_000_000) for _ in range(4)))
    return replace(
        TOWN,
        modes=drawn.modes,
        connections=drawn.connections,
        groups=(GroupPlan("deps_v1", tuple(rng.sample(range(5), 5)), late_us),),
        writes_per_hour=4_000.0,
        net=drawn.net,
        renews=drawn.renews,
        probes=drawn.probes,
        faults=BspFaults(**draw_rates(rng, cuts=600.0, ends=600.0)),
    )


RUNS = Runs("bsp", BspScenario, 0.005, {BspMachine: "make_machine", object: "make"})
run_with, first_failure, lines_of = RUNS.run_with, RUNS.first_failure, RUNS.lines_of
