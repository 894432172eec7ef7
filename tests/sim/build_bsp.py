"""Villages of BSP for the tests of the simulator, and what their scenarios must cost by bsp 8."""

import random
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from waystation.protocols.bsp.links import Mode
from waystation.protocols.bsp.machine import BspMachine
from waystation.sim import bsp_observations as seen
from waystation.sim.bsp import BspTown
from waystation.sim.bsp_line import PLAIN
from waystation.sim.bsp_party import make_device
from waystation.sim.bsp_plan import BspFaults, BspPlan, GroupPlan
from waystation.sim.bsp_records import (
    ACK,
    MESSAGE,
    OFFER,
    REQUEST,
    message_id_of,
    message_record,
    read_records,
)
from waystation.sim.bsp_village import BspVillage
from waystation.sim.datagram import DatagramSettings
from waystation.sim.run import run_seed

MODES = (Mode.INTERACTIVE, Mode.BATCH)
LINE, TRIANGLE = ("ab", "bc"), ("ab", "bc", "ac")
STAR = ("ab", "ac", "ad", "ae")
MESH = ("ab", "ac", "ad", "ae", "bc", "bd", "be", "cd", "ce", "de")
BODY_BYTES = 1_000


def village(
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
    """Return a village of one group, and the group.

    Args:
        edges: Pairs of names that have a line, or single names.
        mode: How everybody hands messages over.
        seed: Of the faults of the lines.
        make: Makes the devices.
        settings: Of the lines.
        form: Format of the group.
        modes: Modes by name, of those who have another one.
        slow: How long a disk takes, in microseconds, by name.
    """
    here = BspVillage(random.Random(seed))
    for name in sorted(set("".join(edges))):
        here.party(name, (modes or {}).get(name, mode), make, (slow or {}).get(name, 0))
    for one, other in (edge for edge in edges if len(edge) == 2):
        here.line(one, other, settings)
    group = here.group(form=form)
    here.gather(group)
    return here, group


def write(here, group, name="a", count=100, size_bytes=BODY_BYTES, every_ms=0):
    """Let somebody write messages, and return their identifiers."""
    ids = []
    for number in range(count):
        body = number.to_bytes(4, "big") + bytes(size_bytes - 4)
        ids.append(here.parties[name].add(group, 1_000 + number, body))
        if every_ms:
            here.run(every_ms)
    return ids


def line_of(here, one, other):
    """Return the newest line between two."""
    return here.parties[one].lines[other][-1]


def counts(here):
    """Return how many ACK, MESSAGE, OFFER and REQUEST records were written."""
    return tuple(here.records(kind) for kind in (ACK, MESSAGE, OFFER, REQUEST))


class Stranger:
    """Somebody at the other end of a line, who says what a test wants and keeps what it is told."""

    def __init__(self, here, name="z", peer="a"):
        self.here, self.name, self.peer = here, name, peer
        self.heard = []
        here.strangers[name] = self._take
        self.line = here.line(name, peer)

    def shares(self, group):
        """Let the device share a group with it."""
        self.here.parties[self.peer].share(group.group_id, self.name)
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
            self.line.throw(self.name, record)
        self.here.run(wait_ms)

    def ids(self, kind):
        """Return all identifiers of the records of one type that it heard."""
        return [each for record in self.heard if record.kind == kind for each in record.ids]

    def _take(self, _sender, data):
        self.heard += read_records(data)


def state_of(here, name, message_id):
    """Return state, order and presence of the body of a message at a device."""
    return here.parties[name].states().get(message_id)


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
    """Return how long a message takes over one line: half a round trip, or one and a half."""
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
    lines=((0, 1), (1, 2), (0, 2)),
    groups=(GroupPlan("deps_v1", (0, 1, 2), (0, 0, 0)),),
    writes_per_hour=6_000.0,
    body_bytes_max=300,
    net=PLAIN,
    wired=False,
    bytes_per_second=0,
    commit_us=0,
    tells_crash=True,
    renews=False,
    probes=True,
    faults=BspFaults(),
    hostiles=(),
)
"""A town where nothing goes wrong; tests replace what they are about."""

LOSSY = replace(
    TOWN, net=DatagramSettings(latency_us=100_000, loss=0.4, duplicate=0.1, reorder=0.3, reorder_us=900_000)
)
"""Bad lines."""

SLOW_DISKS = replace(TOWN, commit_us=300_000)
"""Disks that take their time."""

INTRUDED = replace(
    TOWN,
    groups=(GroupPlan("deps_v1", (0, 1, 2), (0, 0, 0)), GroupPlan("opaque", (0, 1), (0, 0))),
    hostiles=("intruder", "intruder", "garbage"),
)
"""Peers who speak about what is not theirs."""

RESTLESS = replace(LOSSY, faults=BspFaults(cuts=600.0, ends=600.0, crashes=900.0, quarrels=900.0, deletions=600.0))
"""Devices that crash, lines that end, and owners who quarrel."""

WIRED = replace(
    TOWN,
    wired=True,
    commit_us=50_000,
    net=replace(PLAIN, latency_us=20_000),
    bytes_per_second=20_000,
    faults=BspFaults(cuts=600.0, ends=900.0),
)
"""Byte streams that are slow, and break."""

FEW = replace(TOWN, lines=((0, 1), (1, 2)))
"""Two who have nothing but somebody between them."""


def run_town(seed, plan=None, make=make_device, hours=0.005, sink=None):
    """Run one seed of a town; None for the plan of the seed."""
    which = "make_machine" if isinstance(make, type) and issubclass(make, BspMachine) else "make"
    return run_seed("bsp", seed, hours, sink=sink, make=partial(BspTown, plan=plan, **{which: make}))


def first_failure(make, seeds, plan=None):
    """Return which law the first failing seed names, or None."""
    failures = (run_town(seed, plan, make).failure for seed in seeds)
    return next((f"{failure.invariant}" for failure in failures if failure is not None), None)


def lines_of(plan, seed=1):
    """Return the trace of a run that breaks no law."""
    lines = []
    assert run_town(seed, plan, sink=lines.append).failure is None
    return lines
