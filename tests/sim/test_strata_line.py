"""One connection of a client machine in a simulated world."""

import random
from dataclasses import replace

from tests.sim.build_strata import PAIR, QUIET, Quarter, run_with
from waystation.protocols.strata.client_events import HistoryEnded, PacketArrived, Published, PublishUnknown
from waystation.protocols.strata.messages import Filters
from waystation.sim.plan import FaultRates
from waystation.sim.strata_line import Line


class Owner:
    """Notes what a line reports."""

    def __init__(self):
        self.frames, self.sent, self.events, self.ends = [], [], [], 0

    def on_frame(self, data):
        self.frames.append(data)

    def on_sent(self, data):
        self.sent.append(data)

    def on_event(self, event):
        self.events.append(event)

    def on_end(self):
        self.ends += 1


def opened(quarter):
    client, owner = quarter.commons.make_client(random.Random(1)), Owner()
    line = Line(quarter.commons, quarter.world, "10.1.0.1", client, QUIET.link, owner)
    return client, owner, line


def test_commands_go_out_and_events_come_back():
    """What the machine wants is sent, and what it tells reaches the owner behind the frame it came from."""
    quarter = Quarter()
    client, owner, line = opened(quarter)
    client.subscribe("s", Filters(), quarter.schedule.now)
    line.settle()

    quarter.run(1)

    assert len(owner.sent) == 1
    assert [b"AUTH_CHALLENGE" in frame for frame in owner.frames] == [True, False]
    assert any(isinstance(event, HistoryEnded) for event in owner.events)


def test_timers_of_the_machine_ring():
    """A client that gets no EOSE in time ends history by itself; here nothing is read at all."""
    quarter = Quarter()
    client, owner, line = opened(quarter)
    client.subscribe("s", Filters(), quarter.schedule.now)
    line.settle()
    line.read_nothing(60_000_000)

    quarter.run(3)

    assert owner.frames == []
    assert [type(event) for event in owner.events] == [HistoryEnded]


def test_end_is_told_once_behind_the_last_events():
    """A node that dies ends the line; what was published is unknown, and nothing follows."""
    quarter = Quarter()
    client, owner, line = opened(quarter)
    quarter.run(1)
    client.publish(quarter.packet(), quarter.schedule.now)
    line.settle()

    quarter.world.crash(1_000_000)
    quarter.run(1)
    line.hang_up()

    assert isinstance(owner.events[-1], PublishUnknown)
    assert owner.ends == 1
    assert line.is_over


def test_hanging_up_ends_both_sides():
    """The relay forgets a client that has gone."""
    quarter = Quarter()
    _, owner, line = opened(quarter)
    quarter.run(1)
    before = quarter.world.sizes()["strata"]["connections"]

    line.hang_up()
    quarter.run(1)

    assert (before, quarter.world.sizes()["strata"]["connections"]) == (1, 0)
    assert owner.ends == 1


def test_live_subscription_misses_nothing_between_two_lines():
    """Who asked for live packets alone gets, on the next connection, what came while there was none."""
    quarter = Quarter()
    client, owner, line = opened(quarter)
    client.subscribe("s", Filters(), quarter.schedule.now, limit=0)
    line.settle()
    quarter.run(1)
    line.hang_up()
    other, other_owner, other_line = opened(quarter)
    other.publish(quarter.packet(), quarter.schedule.now)
    other_line.settle()
    quarter.run(1)
    assert any(isinstance(event, Published) for event in other_owner.events)

    Line(quarter.commons, quarter.world, "10.1.0.1", client, QUIET.link, owner).settle()
    quarter.run(1)

    assert [type(event) for event in owner.events if isinstance(event, PacketArrived)] == [PacketArrived]


def test_relay_survives_an_upstream_that_ends_before_authentication():
    """A dialled connection that ends before AUTH_OK is the end of nobody known, and no exception."""
    far = replace(QUIET.link, latency_us=150_000)
    result = run_with(None, 1, replace(PAIR, link=far, faults=FaultRates(breaks=6_000.0, crashes=600.0)))

    assert result.failure is None
