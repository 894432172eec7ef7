"""A node with a network of datagrams around it keeps the contract of the real hub."""

from tests.sim.build import Noting, fixed_rng
from waystation.core.effects import Commit, SendTo
from waystation.core.instant import Instant
from waystation.core.records import Record
from waystation.sim.schedule import Schedule
from waystation.sim.trace import Trace
from waystation.sim.world import World, WorldSettings

HERE, THERE = ("10.0.0.1", 1), ("10.0.0.2", 2)


class Echo(Noting):
    """A relay of datagrams that commits what it hears, and sends it back at once and once more when it is on disk."""

    def __init__(self):
        super().__init__()
        self.answers = {}

    def receive_datagrams(self, datagrams, now):
        self.inputs.append(list(datagrams))
        for data, address in datagrams:
            ticket = len(self.answers) + 1
            self.answers[ticket] = SendTo(b"kept " + data, address)
            self.effects += [SendTo(data, address), Commit(ticket, (Record("t", data, data),))]

    def verified(self, ticket, answers, now):
        raise AssertionError

    def committed(self, ticket, now):
        self.effects.append(self.answers[ticket])

    def not_committed(self, ticket, now):
        self.effects.append(SendTo(b"refused", HERE))

    def wake(self, now):
        if self.wake_at is not None and self.wake_at <= now:
            self.effects.append(SendTo(b"awake", THERE))
        super().wake(now)


class Stage:
    """A world with one such relay, and what it sends."""

    def __init__(self, **settings):
        self.schedule, self.relays, self.sent = Schedule(), [], []
        self.world = World(
            self.schedule,
            fixed_rng(),
            Trace(),
            self._make,
            settings=WorldSettings(**settings),
            on_datagram=lambda address, data: self.sent.append((self.schedule.now, address, data)),
        )

    def _make(self, rng, admits):
        self.relays.append(Echo())
        return {"p": self.relays[-1]}

    def run(self, duration_us):
        self.schedule.run(Instant(self.schedule.now + duration_us))
        return self.sent


def test_datagrams_of_one_moment_come_together():
    """What arrives together is one input, in its order, each with its source."""
    stage = Stage()
    both = [(b"one", HERE), (b"two", THERE)]

    stage.world.receive_datagrams("p", both)

    assert stage.relays[0].inputs == [both]


def test_datagram_is_sent_with_its_turn_and_its_promise_with_the_disk():
    """What needs no disk leaves with the turn, what a commit promises leaves when the store has it."""
    stage = Stage(turn_delay_us=100, commit_delay_us=5_000)
    stage.world.receive_datagrams("p", [(b"data", HERE)])

    assert stage.run(10_000) == [(100, HERE, b"data"), (5_200, HERE, b"kept data")]
    assert stage.world.store.get("t", b"data") == b"data"


def test_crash_forgets_what_was_not_on_disk():
    """A node that dies before its commit neither keeps nor confirms, and hears nothing until it is back."""
    stage = Stage(commit_delay_us=5_000)
    stage.world.receive_datagrams("p", [(b"data", HERE)])
    stage.run(1_000)
    stage.world.crash(2_000)
    stage.world.receive_datagrams("p", [(b"lost", HERE)])
    stage.run(10_000)

    assert [data for _, _, data in stage.sent] == [b"data"]
    assert stage.world.store.get("t", b"data") is None
    assert len(stage.relays) == 2
    assert stage.relays[1].inputs == []


def test_relay_of_datagrams_has_a_timer():
    """A deadline wakes it, and what it then wants is carried out."""
    stage = Stage()
    stage.relays[0].wake_at = Instant(3_000)
    stage.world.plan_turn()

    assert stage.run(10_000) == [(3_000, THERE, b"awake")]


def test_without_a_network_everything_is_lost():
    """A world that was given none sends into the void."""
    world = World(schedule := Schedule(), fixed_rng(), Trace(), lambda _rng, _admits: {"p": Echo()})
    world.receive_datagrams("p", [(b"data", HERE)])
    schedule.run(Instant(10_000))

    assert world.store.get("t", b"data") == b"data"
