"""A node with a virtual network keeps the contract of the real hub."""

from enum import Enum

import pytest

from tests.sim.build import NotingStreams, Remembering, fixed_rng
from waystation.core.effects import Close, Commit, Dial, Hold, Send, SendMany, SignatureCheck, Verify
from waystation.core.instant import Instant
from waystation.core.records import Record
from waystation.crypto.signing import KeyPair, sign
from waystation.journal.events import NodeStarted, NodeStopped
from waystation.sim.net.link import LinkSettings
from waystation.sim.schedule import Schedule
from waystation.sim.trace import Trace
from waystation.sim.world import World, WorldSettings

LINK = LinkSettings(latency_us=100, jitter_us=0, window_bytes=16, pieces=0.0)
SECOND = 1_000_000


class Why(Enum):
    ASKED = "asked"


PAIR, OTHER = (KeyPair.from_seed(bytes([number]) * 32) for number in range(2))
CHECKS = (
    SignatureCheck((OTHER.public, PAIR.public), b"m", sign(PAIR, b"m")),
    SignatureCheck((OTHER.public,), b"m", sign(PAIR, b"m")),
)


class Scripted(NotingStreams):
    """A relay that does what the first letter of its input says, and notes its inputs."""

    def receive(self, peer, data, now):
        super().receive(peer, data, now)
        self.effects += {
            b"e": [Send(peer, b"echo")],
            b"c": [Send(peer, b"bye"), Close(peer, Why.ASKED)],
            b"x": [Send(peer, b"bye"), Close(peer, Why.ASKED, abort=True)],
            b"h": [Hold(peer, True)],
            b"s": [SendMany(peer, [b"one", b"two"]), Send(peer, b"three")],
            b"r": [Send(peer, b"receipt", True)],
            b"l": [Send(peer, bytes(40), True)],
            b"w": [],
            b"m": [Commit(7, (Record("t", b"k", b"v"), Record("t", b"l", b"v"))), Send(peer, b"not held back")],
            b"n": [Commit(8, ())],
            b"v": [Verify(9, CHECKS), Send(peer, b"not held back")],
        }[data[:1]]
        if data[:1] == b"w":
            self.wake_at = Instant(now + SECOND)

    def committed(self, ticket, now):
        if ticket != 10:
            self.inputs.append(("committed", ticket))
        if ticket == 7:
            self.effects.append(Commit(10, (Record("t", b"after", b"v"),)))

    def not_committed(self, ticket, now):
        self.inputs.append(("not_committed", ticket))

    def verified(self, ticket, answers, now):
        self.inputs.append(("verified", ticket, answers))


class Stage:
    """A world with scripted relays and one client."""

    def __init__(self, **settings):
        self.schedule, self.relays, self.events, self.lives = Schedule(), [], [], []
        self.world = World(
            self.schedule,
            fixed_rng(),
            Trace(),
            self._make,
            settings=WorldSettings(**settings),
            on_event=self.events.append,
            on_life=self.lives.append,
        )
        self.client = Remembering(self.schedule)
        self.port = self.world.dial("p", "10.0.0.1", self.client, LINK)
        self.run(1_000)

    def _make(self, rng, admits):
        self.relays.append(Scripted())
        return {"p": self.relays[-1]}

    def say(self, data, run_us=10_000):
        self.port.write(data)
        self.run(run_us)

    def run(self, duration_us):
        self.schedule.run(Instant(self.schedule.now + duration_us))


def test_input_reaches_the_relay_and_its_answer_the_client():
    """Connect, receive and send go through node and link."""
    stage = Stage()

    stage.say(b"e")

    assert stage.relays[0].inputs == ["connect", b"e"]
    assert stage.client.data == b"echo"
    assert stage.world.sizes()["node"]["connections"] == 1


def test_inputs_of_one_turn_leave_in_one_write():
    """What gathers within the turn's delay goes out together."""
    stage = Stage(turn_delay_us=500)

    stage.port.write(b"e")
    stage.say(b"e")

    assert [data for _, data in stage.client.got] == [b"echoecho"]


def test_crash_loses_what_was_not_committed():
    """Uncommitted records are gone, and their relay hears nothing of them."""
    stage = Stage(commit_delay_us=5_000)
    stage.say(b"m", run_us=3_000)

    stage.world.crash(SECOND)
    was_up = stage.world.is_up
    stage.run(2 * SECOND)

    assert not was_up
    assert stage.world.is_up
    assert stage.world.store.get("t", b"k") is None
    assert stage.client.data == b"not held back"
    assert stage.client.told == ["ended"]
    assert stage.lives == [1, 2]
    assert stage.relays[1].inputs == []


def test_stop_says_goodbye():
    """An orderly end retires and shuts the relay and is in the journal; a crash is not."""
    stage = Stage()

    stage.world.stop(SECOND)
    stage.run(2 * SECOND)

    assert stage.relays[0].inputs[-2:] == ["retire", "shut"]
    assert [type(event) for event in stage.events if type(event) in (NodeStarted, NodeStopped)] == [
        NodeStarted,
        NodeStopped,
        NodeStarted,
    ]


def test_dialling_a_dead_node_ends_the_stream():
    """Nobody answers while the node is down."""
    stage = Stage()
    stage.world.crash(SECOND)
    caller = Remembering(stage.schedule)

    stage.world.dial("p", "10.0.0.2", caller, LINK)
    stage.run(10_000)

    assert caller.told == ["ended"]


def test_close_lets_the_last_bytes_leave_and_abort_does_not():
    """A Close comes behind what was sent; an abort destroys it."""
    closed, aborted = Stage(), Stage()

    closed.say(b"c")
    aborted.say(b"x")

    assert (closed.client.data, closed.client.told) == (b"bye", ["ended"])
    assert (aborted.client.data, aborted.client.told) == (b"", ["ended"])
    assert closed.world.sizes()["node"]["connections"] == 0


def test_hold_stops_reading():
    """A held client's bytes wait on the link."""
    stage = Stage()
    stage.say(b"h")

    stage.say(b"e")

    assert stage.relays[0].inputs == ["connect", b"h"]


def test_receipt_comes_when_nothing_waits():
    """A Send with receipt is confirmed at once on a free link, and when it drained on a full one."""
    free, full = Stage(), Stage()
    full.port.pause()

    free.say(b"r")
    full.say(b"l")
    waiting = list(full.relays[0].inputs)
    full.port.resume()
    full.run(10_000)

    assert free.relays[0].inputs[-1] == "drained"
    assert waiting[-1] == "congested"
    assert full.relays[0].inputs[-1] == "drained"


def test_deadline_wakes_on_time():
    """The one timer rings at the engine's deadline, and jumps there."""
    stage = Stage()
    stage.say(b"w")
    asked_at = stage.relays[0].wake_at

    stage.run(2 * SECOND)

    assert stage.relays[0].inputs[-1] == ("wake", asked_at)


def test_lost_client_is_reported_once():
    """The engine hears of a client that closed, and counts it out."""
    stage = Stage()

    stage.port.close()
    stage.run(10_000)

    assert stage.relays[0].inputs == ["connect", "disconnect"]
    assert stage.world.sizes()["node"]["connections"] == 0
    assert stage.world.streams() == []


def test_ceiling_per_address_holds_in_the_simulation():
    """The sixty-fifth connection of one address is refused, as on a real node."""
    stage = Stage()
    callers = [Remembering(stage.schedule) for _ in range(64)]

    for caller in callers:
        stage.world.dial("p", "10.0.0.1", caller, LINK)
    stage.run(10_000)

    assert [caller.told for caller in callers] == [[]] * 63 + [["ended"]]


def test_commit_is_answered_when_the_store_has_it():
    """A Commit holds nothing back, and its ticket comes back once all of its changes can be read."""
    stage = Stage(commit_delay_us=5_000)

    stage.say(b"m", run_us=3_000)
    early = (stage.client.data, stage.world.store.get("t", b"l"), list(stage.relays[0].inputs))
    stage.run(3_000)
    kept = stage.world.store.get("t", b"k"), stage.world.store.get("t", b"l")
    told = list(stage.relays[0].inputs)
    stage.run(10_000)

    assert early == (b"not held back", None, ["connect", b"m"])
    assert (kept, told) == ((b"v", b"v"), ["connect", b"m", ("committed", 7)])
    assert stage.world.store.get("t", b"after") == b"v"


def test_commits_that_wait_are_refused_together():
    """When the store refuses, every commit is answered so, in order, until a look each second finds it well."""
    stage = Stage(commit_delay_us=5_000)
    stage.world.store.refuses = True

    stage.say(b"m", run_us=1_000)
    stage.say(b"n", run_us=20_000)
    kept = stage.world.store.get("t", b"k")
    stage.world.store.refuses = False
    stage.say(b"m", run_us=20_000)
    answered = [each for each in stage.relays[0].inputs if isinstance(each, tuple)]
    stage.run(SECOND)
    stage.say(b"m", run_us=20_000)

    assert kept is None
    assert answered == [("not_committed", 7), ("not_committed", 8), ("not_committed", 7)]
    assert stage.world.store.get("t", b"k") == b"v"


def test_commits_are_answered_in_order():
    """One without changes is answered too, and not before one that was asked earlier."""
    stage = Stage(commit_delay_us=5_000)

    stage.say(b"m", run_us=1_000)
    stage.say(b"n", run_us=20_000)
    stage.say(b"n", run_us=20_000)

    assert [each for each in stage.relays[0].inputs if each[0] == "committed"] == [
        ("committed", 7),
        ("committed", 8),
        ("committed", 8),
    ]


def test_crash_loses_commits_and_questions():
    """What was not committed is gone, and no answer of one life reaches the next."""
    stage = Stage(commit_delay_us=5_000, verify_delay_us=5_000)
    stage.say(b"m", run_us=1_000)
    stage.say(b"v", run_us=1_000)

    stage.world.crash(100)
    stage.run(SECOND)

    assert stage.world.store.get("t", b"k") is None
    assert stage.relays[0].inputs == ["connect", b"m", b"v"]
    assert stage.relays[1].inputs == []


def test_verify_is_answered_in_a_step_of_its_own():
    """Signatures are really checked, and their answers come after the turn, which goes on meanwhile."""
    stage = Stage(verify_delay_us=3_000)

    stage.say(b"v", run_us=2_000)
    early = (stage.client.data, list(stage.relays[0].inputs))
    stage.run(2_000)

    assert early == (b"not held back", ["connect", b"v"])
    assert stage.relays[0].inputs == ["connect", b"v", ("verified", 9, [1, -1])]


def test_many_leave_in_their_place():
    """Messages of one effect are written in their order, before what stands behind it."""
    stage = Stage()

    stage.say(b"s", run_us=SECOND)

    assert stage.client.data == b"onetwothree"


def test_relay_hears_the_address():
    """The host that dialled is what the relay is told."""
    assert Stage().relays[0].address == "10.0.0.1"


class Dialling(Scripted):
    """A scripted relay that can be told of a connection it dialled."""

    def connect_upstream(self, peer, name, now):
        self.inputs.append(f"upstream {name}")

    def upstream_failed(self, name, now):
        self.inputs.append(f"failed {name}")

    def connect_by(self, peer, door, now, address=""):
        self.connect(peer, now, address)
        self.inputs[-1] = f"by {door}"


def dialled(upstream_is_up=True):
    """Return two worlds, the second of which dials the first, and what it was told when that was over."""
    schedule, told = Schedule(), []
    relays = [Dialling(), Dialling()]
    worlds = [
        World(schedule, fixed_rng(), Trace(), lambda _rng, _admits, relay=relay: {"p": relay}) for relay in relays
    ]
    if not upstream_is_up:
        worlds[0].crash(SECOND)
    worlds[1].dial_out("p", "up", lambda end: worlds[0].dial("p", "10.0.0.1", end, LINK), LINK, told.append)
    return schedule, relays, worlds, told


def test_node_can_dial_another():
    """One round trip after dialling both relays have a connection, and bytes go both ways."""
    schedule, (upstream, downstream), _, told = dialled()
    schedule.run(Instant(1_000))
    downstream.effects.append(Send(1, b"e"))
    downstream.wake_at = schedule.now
    schedule.run(Instant(schedule.now + SECOND))

    assert upstream.inputs[0] == "connect"
    assert downstream.inputs[0] == "upstream up"
    assert told == []


def test_dialler_is_told_that_nobody_answers():
    """A connection that never stood is over without ever reaching the relay."""
    schedule, (_, downstream), _, told = dialled(upstream_is_up=False)

    schedule.run(Instant(SECOND // 2))

    assert told == [False]
    assert downstream.inputs == []


def test_dialler_is_told_when_the_other_side_dies():
    """A connection that stood is over once, and the relay hears of it."""
    schedule, (_, downstream), worlds, told = dialled()
    schedule.run(Instant(1_000))

    worlds[0].crash(SECOND)
    schedule.run(Instant(SECOND // 2))

    assert told == [True]
    assert downstream.inputs == ["upstream up", "disconnect"]


def test_dialler_that_dies_is_not_told():
    """A crash of the node that dialled ends the connection for the other side, and nobody is left to be told."""
    schedule, (upstream, _), worlds, told = dialled()
    schedule.run(Instant(1_000))

    worlds[1].crash(SECOND)
    schedule.run(Instant(SECOND // 2))

    assert told == []
    assert upstream.inputs[-1] == "disconnect"


def asked(dialler):
    """Return a relay that wants one node dialled, after its world has run for a while."""
    schedule, relay = Schedule(), Dialling()
    relay.effects.append(Dial("other", "ws://192.0.2.1", only_public=True))
    world = World(schedule, fixed_rng(), Trace(), lambda _rng, _admits: {"p": relay}, dialler=dialler)
    world.plan_turn()
    schedule.run(Instant(SECOND))
    return world, relay


def test_dial_goes_to_the_dialler():
    """Whoever knows the other nodes gets the world, the protocol and the effect; the relay waits for his answer."""
    told = []
    world, relay = asked(lambda *given: told.append(given))

    assert told == [(world, "p", Dial("other", "ws://192.0.2.1", only_public=True))]
    assert relay.inputs == []


@pytest.mark.parametrize("dialler", [None, lambda world, protocol, dial: world.dial_failed(protocol, dial.name)])
def test_dial_that_fails_is_told(dialler):
    """The relay hears that nobody was reached, also when there is nobody to dial for it."""
    _, relay = asked(dialler)

    assert relay.inputs == ["failed other"]


def test_failure_of_a_life_that_is_over_is_told_to_nobody():
    """A node that is down hears nothing, and its next life has asked for nothing."""
    schedule, relays = Schedule(), []

    def make(_rng, _admits):
        relays.append(Dialling())
        return {"p": relays[-1]}

    world = World(schedule, fixed_rng(), Trace(), make)
    world.crash(SECOND)
    world.dial_failed("p", "other")
    schedule.run(Instant(2 * SECOND))

    assert [relay.inputs for relay in relays] == [[], []]


def test_door_is_passed_on():
    """A client that came by another door is introduced with it."""
    schedule, relay = Schedule(), Dialling()
    world = World(schedule, fixed_rng(), Trace(), lambda _rng, _admits: {"p": relay})
    world.dial("p", "10.0.0.1", Remembering(schedule), LINK, "mesh")
    schedule.run(Instant(SECOND))

    assert relay.inputs == ["by mesh"]
