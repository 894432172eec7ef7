"""The client's half of a connection."""

import random
from dataclasses import replace
from enum import Enum

import pytest

from tests.sim.build import NotingStreams
from tests.sim.test_world import LINK, Stage
from waystation.core.effects import Close, Send
from waystation.core.instant import Instant
from waystation.sim.driver import DatagramDriver, Driver
from waystation.sim.net.datagram import DatagramSettings
from waystation.sim.net.network import Network
from waystation.sim.schedule import Schedule


class Why(Enum):
    ENOUGH = "enough"


class Machine(NotingStreams):
    """A client machine that sends what it is told and notes what it hears."""

    @property
    def heard(self):
        return self.inputs[1:]  # behind "connect"


class Scene:
    """A driver on a scripted node."""

    def __init__(self, *, link=LINK, **settings):
        self.stage = Stage(**settings)
        self.machine, self.turns, self.ends, self.wire = Machine(), 0, [], []
        self.driver = Driver(
            self.stage.world,
            "p",
            "10.0.0.9",
            self.machine,
            link,
            self._turn,
            self.ends.append,
            on_frame=lambda data: self.wire.append(("in", data)),
            on_sent=lambda data: self.wire.append(("out", data)),
        )
        self.stage.run(1_000)

    def _turn(self):
        self.turns += 1

    def send(self, data, then=None):
        self.machine.effects.append(Send(self.machine.peer, data))
        self.driver.settle(then)
        self.stage.run(10_000)


def test_bytes_go_both_ways():
    """What the machine sends arrives, what comes back is heard, and the owner is told of turns."""
    scene = Scene()

    scene.send(b"e")

    assert scene.machine.heard == [b"echo"]
    assert scene.turns == 2


def test_injected_bytes_are_as_those_of_the_node():
    """The machine takes them, but nothing has come over the connection; after its end it takes nothing."""
    scene = Scene()

    scene.driver.inject(b"lie")
    scene.driver.hang_up()
    scene.driver.inject(b"late")

    assert scene.machine.heard == [b"lie", "disconnect"]
    assert not scene.wire


def test_machine_that_closes_ends_with_its_reason():
    """A Close effect closes the port and names the refusal; the machine hears nothing more."""
    scene = Scene()
    scene.machine.effects.append(Close(scene.machine.peer, Why.ENOUGH))

    scene.driver.settle()
    scene.stage.run(10_000)

    assert scene.ends == ["enough"]
    assert scene.driver.is_over
    assert scene.stage.world.sizes()["node"]["connections"] == 1  # the stage's own client


def test_end_by_the_node_and_hanging_up():
    """The machine is disconnected exactly once, whoever ends the connection."""
    closed, left = Scene(), Scene()

    closed.send(b"c")
    closed.driver.hang_up()
    left.driver.hang_up(abort=True)
    left.driver.hang_up()

    assert (closed.ends, closed.machine.heard) == (["peer"], [b"bye", "disconnect"])
    assert (left.ends, left.machine.heard) == (["self"], ["disconnect"])


def test_timer_rings_at_the_deadline():
    """The machine is woken when it asked to be."""
    scene = Scene()
    scene.machine.wake_at = Instant(scene.stage.schedule.now + 500)

    scene.driver.settle()
    scene.stage.run(10_000)

    assert scene.machine.heard == [("wake", 2_500)]


def test_mark_says_whether_the_connection_still_stands():
    """After the node's turn it is known whether it closed the connection on these bytes."""
    stands, falls = Scene(turn_delay_us=200), Scene(turn_delay_us=200)
    told = []

    stands.send(b"e", told.append)
    falls.send(b"c", told.append)

    assert told == [True, False]


@pytest.mark.parametrize(("framed", "pieces"), [(False, [b"ee"]), (True, [b"e", b"e"])])
def test_messages_are_written_one_by_one(framed, pieces):
    """Of a framed connection every Send is a write of its own; the owner sees the wire in both directions."""
    scene = Scene(link=replace(LINK, framed=framed))
    scene.machine.effects += [Send(scene.machine.peer, b"e"), Send(scene.machine.peer, b"e")]
    scene.driver.settle()
    scene.stage.run(10_000)

    assert [data for way, data in scene.wire if way == "out"] == pieces
    assert [data for way, data in scene.wire if way == "in"] == scene.machine.heard


def test_receipt_comes_at_once_where_nothing_waits():
    """A machine that wants to know when its bytes have left is told in the same call, and may send more."""
    scene = Scene()
    scene.machine.effects.append(Send(scene.machine.peer, b"e", receipt=True))
    scene.driver.settle()

    assert scene.machine.heard == ["drained"]


def test_reading_can_stop_for_a_while():
    """What arrives in between comes afterwards."""
    scene = Scene()
    scene.driver.stop_reading(50_000)
    scene.send(b"e")
    before = scene.machine.heard
    scene.stage.run(100_000)

    assert (before, scene.machine.heard) == ([], [b"echo"])


class Socket:
    """A driver on a network of datagrams, and what its peer hears."""

    HERE, THERE, ELSEWHERE = ("10.0.0.1", 1), ("10.0.0.2", 2), ("10.0.0.3", 3)

    def __init__(self):
        self.schedule, self.machine, self.heard, self.sent = Schedule(), Machine(), [], []
        self.network = Network(self.schedule, random.Random(1), DatagramSettings(latency_us=10, jitter_us=0))
        self.network.bind(self.THERE, lambda data, address: self.heard.append((data, address)))
        addresses = (self.HERE, self.THERE)
        self.driver = DatagramDriver(
            self.schedule, self.network, addresses, self.machine, lambda: None, self.sent.append
        )

    def run(self):
        self.schedule.run(Instant(self.schedule.now + 100))

    def send(self, data):
        self.machine.effects.append(Send(self.machine.peer, data))
        self.driver.settle()
        self.run()

    def receive(self, data, source):
        self.network.send(source, self.HERE, data)
        self.run()


def test_datagrams_go_both_ways_and_come_from_the_peer_alone():
    """A connected socket passes on only what claims to come from its peer."""
    socket = Socket()
    socket.send(b"a")
    socket.receive(b"b", Socket.THERE)
    socket.receive(b"c", Socket.ELSEWHERE)

    assert socket.heard == [(b"a", Socket.HERE)]
    assert socket.sent == [b"a"]
    assert socket.machine.heard == [b"b"]


def test_suspended_socket_hears_and_says_nothing():
    """What the machine wants said waits for the end of the sleep; what comes in between is lost."""
    socket = Socket()
    socket.driver.suspend()
    socket.send(b"a")
    socket.receive(b"b", Socket.THERE)
    during = list(socket.heard)
    socket.driver.resume()
    socket.run()

    assert (during, socket.heard, socket.machine.heard) == ([], [(b"a", Socket.HERE)], [])


def test_moved_socket_has_another_address():
    """Afterwards datagrams come from, and go to, the new one; a closed one is bound nowhere."""
    socket = Socket()
    socket.driver.move(Socket.ELSEWHERE)
    socket.send(b"a")
    socket.receive(b"b", Socket.THERE)
    socket.driver.close()
    socket.network.send(Socket.THERE, Socket.ELSEWHERE, b"c")
    socket.run()

    assert socket.heard == [(b"a", Socket.ELSEWHERE)]
    assert socket.machine.heard == []
    assert socket.driver.is_over
