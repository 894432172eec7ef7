"""The client's half of a connection."""

from enum import Enum

from tests.sim.test_world import LINK, Stage
from waystation.core.effects import Close, Send
from waystation.core.instant import Instant
from waystation.sim.actor import Driver


class Why(Enum):
    ENOUGH = "enough"


class Machine:
    """A client machine that sends what it is told and notes what it hears."""

    def __init__(self):
        self.heard, self.effects, self.due = [], [], None

    def connect(self, peer, now, address=""):
        self.peer = peer

    def receive(self, peer, data, now):
        self.heard.append(data)

    def disconnect(self, peer, now):
        self.heard.append("disconnect")

    def congested(self, peer, now):
        self.heard.append("congested")

    def drained(self, peer, now):
        self.heard.append("drained")

    def wake(self, now):
        if self.due is not None and now >= self.due:
            self.due = None
            self.heard.append(("wake", now))

    def deadline(self):
        return self.due

    def take(self):
        effects, self.effects = self.effects, []
        return effects


class Scene:
    """A driver on a scripted node."""

    def __init__(self, **settings):
        self.stage = Stage(**settings)
        self.machine, self.turns, self.ends = Machine(), 0, []
        self.driver = Driver(self.stage.world, "p", "10.0.0.9", self.machine, LINK, self._turn, self.ends.append)
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
    scene.machine.due = Instant(scene.stage.schedule.now + 500)

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
