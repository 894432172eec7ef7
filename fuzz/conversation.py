"""The harness for fuzzing connections: it plays a script of bytes against one machine and runs checks common to all.

A script is one choice byte and then steps. A step is an action byte, a place byte, and data with a two-byte length. Any
bytes are a valid script; a length beyond the end takes the rest. A protocol adds the actions, the check of each
``Send``, and the tables that must be empty at the end.

A class of conversations that has a name is a target of ``fuzz.run``: it draws scripts, and plays each with an instance
that is made from the choice.
"""

import random
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, IntEnum
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar, get_args

from fuzz.target import expect
from waystation.core.effects import Close, Commit, Dial, Hold, Peer, Send, SendMany, Verify
from waystation.core.facts import Fact
from waystation.core.instant import Instant
from waystation.crypto.signing import KeyPair, verify_any
from waystation.store.memory import MemoryStore

FACTS: Final[tuple[type, ...]] = get_args(Fact)
_TURNS_MAX: Final = 200
_WAKES_MAX: Final = 2_000


class Do(IntEnum):
    """Steps of every vocabulary; those of one protocol alone have the numbers after them."""

    SEND = 0
    PASS = 1
    CONGEST = 2
    DRAIN = 3
    LEAVE = 4
    CONNECT = 5


class Step(NamedTuple):
    """One step of a script."""

    kind: int
    place: int = 0
    data: bytes = b""


def write_script(steps: Iterable[Step], choice: int = 0) -> bytes:
    """Return the bytes of a script."""
    heads = ((bytes((kind, place)) + len(data).to_bytes(2, "big"), data) for kind, place, data in steps)
    return bytes([choice]) + b"".join(head + data for head, data in heads)


def read_script(data: bytes) -> tuple[int, list[Step]]:
    """Return choice and steps of a script."""
    steps, at = [], 1
    while at + 4 <= len(data):
        end = at + 4 + int.from_bytes(data[at + 2 : at + 4], "big")
        steps.append(Step(data[at], data[at + 1], data[at + 4 : end]))
        at = end
    return data[0] if data else 0, steps


M = TypeVar("M")


class Connection:
    """What a target knows of one connection."""

    def __init__(self, peer: Peer, key: KeyPair | None = None, reader: Any = None) -> None:
        self.peer = peer
        self.key = key
        self.reader = reader
        """Cuts what the machine sends into frames, where the protocol has a stream."""
        self.sent: list[bytes] = []
        """What the machine has sent and the target has not looked at."""
        self.unread: bytes | None = None
        """Bytes that wait while the machine holds the connection."""


class Conversation(Generic[M]):
    """A machine, its open connections, and what has been seen of it."""

    name: ClassVar[str]
    """Of the target."""
    reasons: ClassVar[type[Enum]]
    """Of which a ``Close`` must have one."""
    effects: ClassVar[tuple[type, ...]] = (Send, Close)
    """What the machine may want."""
    kinds: ClassVar[int] = len(Do)
    waits_us: ClassVar[tuple[int, ...]] = (0,)
    """Of which the data of ``Do.PASS`` chooses one."""
    frame_bytes_min: ClassVar[int] = 6
    effects_per_frame: ClassVar[int] = 12
    """A frame causes an answer, a hold, a close and a handful of facts."""
    choices: ClassVar[Sequence[int]] = range(256)
    """Of which a drawn script has one."""
    weights: ClassVar[Mapping[int, int]] = {}
    """How often a drawn script has each step."""
    steps_max: ClassVar[int] = 24
    """How many steps a drawn script has at most."""

    def __init__(self, machine: M, store: MemoryStore | None = None) -> None:
        self.machine = machine
        self.inputs: Any = machine
        """The same, for what this harness asks of any machine."""
        self.store = store or MemoryStore()
        self.now = Instant(0)
        self.open: dict[Peer, Connection] = {}
        self.ends: list[Any] = []
        """Reasons for which the machine has closed connections."""
        self.dials: list[Dial] = []
        self.steps = self.connected = self.bytes_in = self.bytes_out = self.effects_count = 0

    # The script

    @classmethod
    def make(cls, rng: random.Random) -> bytes:
        """Return a script in which at least the beginning makes sense."""
        choice = rng.choice(cls.choices)
        return write_script(cls.draw_steps(rng, choice), choice)

    @classmethod
    def draw_steps(cls, rng: random.Random, choice: int) -> Iterable[Step]:
        """Return steps by their weights, at any place."""
        kinds = rng.choices(list(cls.weights), list(cls.weights.values()), k=rng.randrange(2, cls.steps_max))
        return [Step(kind, rng.randrange(8), cls.draw_data(rng, kind, choice)) for kind in kinds]

    @classmethod
    def draw_data(cls, rng: random.Random, kind: int, choice: int) -> bytes:  # noqa: ARG003 - of use to some
        """Return the data of a step; a byte, unless a protocol knows better."""
        return rng.randbytes(1)

    @classmethod
    def run(cls, data: bytes) -> str:
        """Play a script to its end, and then the end of every connection."""
        choice, steps = read_script(data)
        begin: Any = cls  # a target is made from the choice alone
        conversation: Conversation[M] = begin(choice)
        for step in steps:
            conversation.play(step)
        return conversation.finish()

    def play(self, step: Step) -> None:
        """Do one step, carry out what follows, and check."""
        self.steps += 1
        self.act(step._replace(kind=step.kind % self.kinds))
        self.settle()
        self.check()

    def act(self, step: Step) -> None:
        """Do a step that every vocabulary has; a protocol adds its own."""
        if step.kind == Do.PASS:
            self.answer_dials(reached=bool(step.place & 1))
            self.pass_time(self.waits_us[(step.data or b"\0")[0] % len(self.waits_us)], late=bool(step.place & 4))
            return
        connection = self.pick(step.place)
        if connection is None:
            return
        if step.kind == Do.SEND:
            self.receive(connection, step.data)
        elif step.kind == Do.CONGEST:
            self.inputs.congested(connection.peer, self.now)
        elif step.kind == Do.DRAIN:
            self.inputs.drained(connection.peer, self.now)
        elif step.kind == Do.LEAVE:
            self.leave(connection)

    def pick(self, place: int) -> Connection | None:
        """Return the connection that a step means."""
        return list(self.open.values())[place % len(self.open)] if self.open else None

    def check(self) -> None:
        """See that effects stay in proportion to the input."""
        frames = self.bytes_in // self.frame_bytes_min + self.steps + self.connected
        expect(self.effects_count <= self.effects_per_frame * frames, f"{self.effects_count} effects, {frames} frames")

    def check_tables(self) -> None:
        """See that no table outgrows what was put in."""
        for name, size in self.inputs.sizes().items():
            expect(size >= 0, f"{name} is negative")
            expect(size <= 64 * (self.steps + 4) or name.endswith("_bytes"), f"{name} has {size}")

    def finish(self) -> str:
        """Let every connection end; return a word for the outcome."""
        for connection in list(self.open.values()):
            if connection.peer in self.open:
                self.leave(connection)
        return self.outcome()

    def check_empty(self, but: Sequence[str] = ()) -> None:
        """See that no table holds anything, ``but`` those named."""
        left = {name: size for name, size in self.inputs.sizes().items() if size and name not in but}
        expect(not left, f"left over: {left}")

    def outcome(self) -> str:
        """Return how the machine closed its last connection."""
        return f"closed:{self.ends[-1].value}" if self.ends else "open"

    # Connections and time

    def enter(self, key: KeyPair | None = None, reader: Any = None) -> Connection:
        """Note a connection that the machine is about to learn of."""
        self.connected += 1
        connection = self.open[Peer(self.connected)] = Connection(Peer(self.connected), key, reader)
        return connection

    def receive(self, connection: Connection, *pieces: bytes) -> None:
        """Let bytes arrive, or wait unread while the machine holds the connection, as a server would."""
        for data in pieces:
            if connection.unread is not None:
                connection.unread += data
            else:
                self.bytes_in += len(data)
                self.hand(connection, data)
        self.settle()

    def hand(self, connection: Connection, data: bytes) -> None:
        """Hand bytes to the machine."""
        self.inputs.receive(connection.peer, data, self.now)

    def leave(self, connection: Connection) -> None:
        """End a connection from its other side."""
        self.open.pop(connection.peer, None)
        self.inputs.disconnect(connection.peer, self.now)
        self.settle()

    def pass_time(self, duration_us: int, *, late: bool = False) -> None:
        """Let time pass; the machine is woken whenever it wants to be, or ``late``, once at the end."""
        until, wakes = Instant(self.now + duration_us), 0
        while not late and (due := self.inputs.deadline()) is not None and due <= until:
            wakes += 1
            expect(wakes < _WAKES_MAX + self.bytes_in, "asks to be woken without end")
            self.now = max(self.now, due)
            self.settle()
        self.now = until
        self.settle()

    def answer_dials(self, *, reached: bool) -> None:
        """Let every address that the machine dials be reached, or none."""
        dials, self.dials = self.dials, []
        for dial in dials:
            if reached:
                self.on_reached(dial)
            else:
                self.inputs.upstream_failed(dial.name, self.now)
        self.settle()

    # Effects

    def settle(self) -> None:
        """Carry out effects until none is left and no deadline is due."""
        for _ in range(_TURNS_MAX):
            due = self.inputs.deadline()
            if due is not None and due <= self.now:
                self.inputs.wake(self.now)
            effects = self.inputs.take()
            for effect in effects:
                self.effects_count += 1
                expect(isinstance(effect, self.effects), f"the machine wants {effect!r}")
                self.carry_out(effect)
            happened = self.take_events()
            if not effects and not happened and (due is None or due > self.now):
                return
        expect(holds=False, what="the machine does not come to rest")

    def carry_out(self, effect: Any) -> None:
        """Check one effect, and do what it asks for."""
        if isinstance(effect, Send | SendMany):
            connection = self.open.get(effect.peer)
            expect(connection is not None, "something is sent on a connection that is not open")
            assert connection is not None
            for data in (effect.data,) if isinstance(effect, Send) else effect.messages:
                self.bytes_out += len(data)
                self.on_send(connection, data, receipt=isinstance(effect, Send) and effect.receipt)
        elif isinstance(effect, Close):
            expect(self.open.pop(effect.peer, None) is not None, "a connection that is not open is closed")
            expect(isinstance(effect.reason, self.reasons), "closed for no documented reason")
            self.on_close(effect)
            self.ends.append(effect.reason)
        elif isinstance(effect, Hold):
            self._hold(effect)
        elif isinstance(effect, Commit):
            self.on_commit(effect)
        elif isinstance(effect, Verify):
            self.inputs.verified(effect.ticket, [verify_any(*check) for check in effect.checks], self.now)
        elif isinstance(effect, Dial):
            self.on_dial(effect)
        else:
            self.on_fact(effect)

    def _hold(self, effect: Hold) -> None:
        expect(effect.peer in self.open, "a connection that is not open is held")
        connection = self.open[effect.peer]
        expect(effect.held == (connection.unread is None), "held twice, or let go twice")
        unread, connection.unread = connection.unread, b"" if effect.held else None
        if unread:
            self.bytes_in += len(unread)
            self.hand(connection, unread)

    # What a protocol adds

    def take_events(self) -> bool:
        """Take what the machine tells its user; return whether there was something."""
        return False

    def on_send(self, connection: Connection, data: bytes, *, receipt: bool) -> None:  # noqa: ARG002 - of use to some
        """Check what a connection gets."""
        connection.sent.append(data)

    def on_close(self, effect: Close) -> None:
        """Check a close beyond its reason."""

    def on_commit(self, effect: Commit) -> None:
        """Bring changes to the disk, at once."""
        self.store.commit(effect.changes)
        self.inputs.committed(effect.ticket, self.now)

    def on_dial(self, effect: Dial) -> None:
        """Note what is dialled; time brings the answer."""
        self.dials.append(effect)

    def on_reached(self, dial: Dial) -> None:
        """Let a dialled address be reached."""

    def on_fact(self, fact: Any) -> None:
        """Check a fact for the node."""


class Dialogue(Conversation[M]):
    """One connection; what the other side does between its messages follows from the byte of choice."""

    late_share: ClassVar[float] = 0.2
    late_us: ClassVar[int] = 0
    """After this share of the messages so much time passes at once."""

    def __init__(self, machine: M, choice: int, store: MemoryStore | None = None) -> None:
        super().__init__(machine, store)
        self.rng = random.Random(choice)
        self.events_count = 0
        self.connection = self.enter()

    def act(self, step: Step) -> None:
        """Let the other side send something, and the user act."""
        self.receive(self.connection, step.data)
        if self.rng.random() < self.late_share:
            self.pass_time(self.late_us, late=True)
        self.use()

    @classmethod
    def draw_steps(cls, rng: random.Random, choice: int) -> Iterable[Step]:
        """Return steps that are messages of the other side."""
        return [Step(Do.SEND, 0, frame) for frame in cls.draw_frames(rng, choice)]

    @classmethod
    @abstractmethod
    def draw_frames(cls, rng: random.Random, choice: int) -> Iterable[bytes]:
        """Return what the other side sends, in pieces as it arrives."""

    def use(self) -> None:
        """Do what a user does."""

    def check(self) -> None:
        """See that effects and events stay in proportion to the input."""
        super().check()
        frames = self.bytes_in // self.frame_bytes_min + self.steps
        expect(self.events_count <= self.effects_per_frame * frames, f"{self.events_count} events, {frames} frames")

    def finish(self) -> str:
        """End the connection, whichever side has closed it before."""
        self.leave(self.connection)
        return self.outcome()

    def take_events(self) -> bool:
        """Hand events of a client on, one by one."""
        events = self.inputs.take_events()
        self.events_count += len(events)
        for event in events:
            self.on_event(event)
        return bool(events)

    def on_event(self, event: Any) -> None:
        """Check what is reported to the user."""
