"""Laws of fuzz.conversation: what the harness holds every machine to, and that any bytes are a script."""

import random
from enum import Enum

import pytest

from fuzz.conversation import Conversation, Dialogue, Do, Step, read_script, write_script
from fuzz.target import FindingError
from waystation.core.effects import Close, Dial, Hold, Peer, Send
from waystation.core.instant import Instant


class Reason(Enum):
    """The documented one."""

    RUDE = "rude"


class Other(Enum):
    """Not documented."""

    ODD = "odd"


class Echo:
    """A machine that does, for each message, what a table says; an unknown message is sent back."""

    def __init__(self, table=(), due=None):
        self.table, self.due = dict(table), due
        self.effects, self.peers, self.wakes = [], set(), []

    def connect(self, peer):
        self.peers.add(peer)

    def receive(self, peer, data, now):
        self.effects += self.table.get(data, [Send(peer, data)])

    def disconnect(self, peer, now):
        self.peers.discard(peer)

    def wake(self, now):
        self.wakes.append(now)
        self.due = None

    def deadline(self):
        return self.due

    def take(self):
        effects, self.effects = self.effects, []
        return effects

    def take_events(self):
        return []

    def sizes(self):
        return {"peers": len(self.peers)}


class Talk(Conversation):
    """The harness around it."""

    reasons = Reason
    effects = (Send, Close, Hold)
    waits_us = (1_000, 5_000)


P = Peer(1)


def played(machine, *steps):
    """Return a conversation with one connection after these steps."""
    talk = Talk(machine)
    machine.connect(talk.enter().peer)
    for step in steps:
        talk.play(step)
    return talk


def send(data):
    """Return a step that sends."""
    return Step(Do.SEND, 0, data)


def test_scripts_are_read_as_written():
    """Choice and steps come back, whatever they hold."""
    steps = [Step(0, 7, b"data"), Step(5, 255, b""), Step(9, 0, bytes(700))]

    assert read_script(write_script(steps, 3)) == (3, steps)


def test_any_bytes_are_a_script():
    """Noise and a script cut anywhere lead to steps; a length that lies takes what is left."""
    rng, script = random.Random(1), write_script([Step(0, 1, b"abc"), Step(1, 2, b"def")], 4)
    for size in range(60):
        read_script(rng.randbytes(size))

    assert [len(read_script(script[:end])[1]) for end in (0, 4, 5, 7, 8, 12, 15)] == [0, 0, 1, 1, 1, 2, 2]
    assert read_script(bytes([4, 0, 1, 255, 255]) + b"rest") == (4, [Step(0, 1, b"rest")])


def test_sound_machine_passes():
    """Answers, a close with a reason, and the end of a connection are what every machine may do."""
    table = {b"rude": [Send(P, b"bye"), Close(P, Reason.RUDE)]}

    assert played(Echo(), send(b"hi"), Step(Do.LEAVE)).finish() == "open"
    assert played(Echo(table), send(b"hi"), send(b"rude")).finish() == "closed:rude"


@pytest.mark.parametrize(
    "wanted",
    [
        [Close(P, Reason.RUDE), Send(P, b"more")],
        [Close(P, Reason.RUDE), Close(P, Reason.RUDE)],
        [Close(P, Reason.RUDE), Hold(P, True)],
        [Close(P, Other.ODD)],
        [Send(Peer(2), b"to whom")],
        [Hold(P, False)],
        [Hold(P, True), Hold(P, True)],
        [Dial("name", "url", only_public=True)],
        [Send(P, b"x")] * 100,
    ],
    ids=[
        "send-after-close",
        "close-twice",
        "hold-after-close",
        "reason",
        "peer",
        "let-go",
        "held-twice",
        "dial",
        "many",
    ],
)
def test_broken_machine_is_found(wanted):
    """Each effect that no machine may want is a find."""
    with pytest.raises(FindingError):
        played(Echo({b"go": wanted}), send(b"go"))


def test_machine_that_never_rests_is_found():
    """A deadline that stays due is a find, at once and while time passes."""
    machine = Echo()
    machine.wake = machine.wakes.append
    machine.due = Instant(0)

    with pytest.raises(FindingError):
        played(machine, send(b"hi"))


def test_held_bytes_arrive_when_the_connection_is_let_go():
    """What comes while the machine holds a connection is read once, in order."""
    table = {b"stop": [Hold(P, True)], b"<": [], b">": [Hold(P, False)]}
    talk = played(Echo(table), send(b"stop"), send(b"a"), send(b"b"))
    talk.machine.effects = [Hold(P, False)]
    talk.settle()

    assert talk.open[P].sent == [b"ab"]


def test_time_passes_with_every_deadline_or_late():
    """A machine is woken when it wants to be, or once after its deadline has passed."""
    exact, late = Echo(due=Instant(500)), Echo(due=Instant(500))
    played(exact, Step(Do.PASS, 0, b"\x01"))
    played(late, Step(Do.PASS, 4, b"\x01"))

    assert (exact.wakes, late.wakes) == ([500], [5_000])


def test_tables_that_grow_or_stay_are_found():
    """A table that outgrows the steps, and one that holds something in the end, is a find."""
    talk = played(Echo(), send(b"hi"))
    talk.machine.peers.update(range(10, 1_000))

    with pytest.raises(FindingError):
        talk.check_tables()
    with pytest.raises(FindingError):
        talk.check_empty()


def test_dialogue_ends_its_connection_whoever_closed_it():
    """A machine that has forgotten a connection hears of its end all the same, and wants nothing."""
    talk = type("Closing", (Dialogue,), {"reasons": Reason})(Echo({b"go": [Close(P, Reason.RUDE)]}), 0)
    talk.machine.connect(P)
    talk.play(send(b"go"))

    assert (talk.finish(), talk.machine.peers) == ("closed:rude", set())
