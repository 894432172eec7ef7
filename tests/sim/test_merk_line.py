"""A line is a client's half of one connection: it writes whole messages, keeps time, and ends once."""

import random
from dataclasses import replace

from tests.sim.build_merk import QUIET, Quarter, stranger
from waystation.protocols.merk.client import MerkClient
from waystation.protocols.merk.client_events import Ended, FrameOutcome, Ready
from waystation.protocols.merk.keys import Keys
from waystation.protocols.merk.sealing import data_frame
from waystation.sim.merk_line import Line

ONE = replace(QUIET, nodes=1)


class Owner:
    """Notes what a line reports."""

    def __init__(self):
        self.frames, self.events, self.ended = [], [], 0

    def on_frame(self, line, data):
        self.frames.append(data)

    def on_event(self, line, event):
        self.events.append(event)

    def on_end(self, line):
        self.ended += 1

    def kinds(self, kind):
        return [event for event in self.events if isinstance(event, kind)]


def connected(seconds=1, keys=None):
    """Return a world of one node, a line to it, and its owner."""
    quarter, owner = Quarter(ONE), Owner()
    machine = MerkClient(keys or Keys.generate(random.Random(9)), random.Random(1))
    line = Line(quarter.commons, 0, "10.1.0.1", machine, ONE.link, owner)
    quarter.run(seconds)
    return quarter, line, owner


def test_machine_becomes_ready():
    """The handshake goes through, every message whole."""
    _, line, owner = connected()

    assert len(owner.kinds(Ready)) == 1
    assert line.machine.is_ready
    assert [len(frame) for frame in owner.frames[:2]] == [152, 121]


def test_reading_is_told_with_whether_the_connection_stands():
    """The callback of a send comes when the node has read it and had its turn."""
    quarter, line, owner = connected()
    told = []
    keys = Keys.generate(random.Random(9))
    line.machine.send_frame(data_frame(keys.signing, stranger(), b"x", header_signature=False), quarter.schedule.now)
    line.settle(told.append)
    early = list(told)
    quarter.run(1)

    assert (early, told) == ([], [True])
    assert owner.kinds(FrameOutcome)[0].code == 1


def test_hanging_up_ends_once():
    """The owner hears of the end once, and of the machine's last event before it."""
    quarter, line, owner = connected()
    line.hang_up()
    line.hang_up(abort=True)
    quarter.run(1)

    assert owner.ended == 1
    assert len(owner.kinds(Ended)) == 1
    assert quarter.sizes()["connections"] == 0


def test_node_may_end_it():
    """When the node dies the line is over."""
    quarter, line, owner = connected()
    quarter.houses[0].crash(1_000_000)
    quarter.run(1)

    assert line.is_over
    assert owner.ended == 1


def test_newer_connection_of_a_key_replaces_the_older():
    """The relay closes the first of two lines with one key."""
    quarter, line, owner = connected()
    other = Owner()
    machine = MerkClient(Keys.generate(random.Random(9)), random.Random(2))
    second = Line(quarter.commons, 0, "10.1.0.1", machine, ONE.link, other)
    quarter.run(1)

    assert (owner.ended, other.ended) == (1, 0)
    assert (line.is_over, second.is_over) == (True, False)


def test_machine_keeps_its_time():
    """A node that says nothing is given up at the machine's own deadline."""
    quarter, owner = Quarter(ONE), Owner()
    machine = MerkClient(Keys.generate(random.Random(9)), random.Random(1))
    line = Line(quarter.commons, 0, "10.1.0.1", machine, ONE.link, owner)
    line.port.stream.stall(60_000_000)
    quarter.run(11)

    assert line.is_over
    assert owner.kinds(Ended)[0].refusal.value == "auth_timeout"


def test_paused_line_reads_later():
    """What arrives while nobody reads comes afterwards."""
    quarter, line, owner = connected(seconds=0)
    line.read_nothing(2_000_000)
    quarter.run(1)
    early = len(owner.frames)
    quarter.run(5)

    assert early == 0
    assert owner.kinds(Ready)
