"""Runs one whole node with a simulated store, network and clock, in the place of the server's hub.

Simulated hosts of all protocols but BSP have one; clients reach it over ``sim.net``. The world passes input to the
engine and carries out its effects once per event-loop iteration. It also answers ``Commit`` and ``Verify``, passes
``Dial`` on, and runs one timer. It obeys the hub's contract, and that of the server's group commit: a store that
refuses a group refuses all that comes after it, until a look each second finds that it takes changes again. The world
can also kill the node, which restarts with only its store.
"""

import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from waystation.core.effects import (
    Address,
    Close,
    Commit,
    Datagram,
    Dial,
    Effect,
    Hold,
    Peer,
    Send,
    SendMany,
    SendTo,
    Verify,
)
from waystation.core.errors import StoreFault
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_MS
from waystation.core.records import Change
from waystation.crypto.signing import verify_any
from waystation.engine.admission import Admission
from waystation.engine.bans import BanList
from waystation.engine.node import DatagramRelay, Node, Relay
from waystation.engine.recorder import Recorder
from waystation.journal.events import Event
from waystation.sim.disk import TRY_AGAIN_US, FaultyStore, Promises, Row
from waystation.sim.invariants import ViolationError
from waystation.sim.net.link import End, LinkSettings, Port, Stream
from waystation.sim.net.node_end import NodeEnd
from waystation.sim.schedule import Schedule
from waystation.sim.timer import Timer
from waystation.sim.trace import Notes

__all__ = ["WALL_START_US", "Dialler", "MakeRelays", "TakeDatagram", "World", "WorldSettings"]

WALL_START_US: Final = 1_700_000_000_000_000  # any date will do, as long as every run has the same
LINGER_US: Final = 10_000 * MICROSECONDS_PER_MS  # as in the server's hub
PROGRESS_US: Final = 1_000 * MICROSECONDS_PER_MS  # as in the server's hub
VERSION: Final = "simulated"
_KEY_BYTES: Final = 32

MakeRelays = Callable[[random.Random, Callable[[PublicKey], bool]], Mapping[str, Relay | DatagramRelay]]
"""Makes fresh relays by protocol name, from entropy and from what asks whether an identity is admitted."""


Dialler = Callable[["World", str, Dial], None]
"""Carries out what a node of a ``World`` wants dialled: gets the world, the protocol and the effect."""

TakeDatagram = Callable[[Address, bytes], None]
"""Takes a datagram that a node sends, and where to."""


@dataclass(frozen=True, slots=True)
class WorldSettings:
    """How the node's host behaves."""

    turn_delay_us: int = 0
    """How long inputs gather before effects are carried out, in microseconds."""
    commit_delay_us: int = 2_000
    """How long the store takes for a group of records, in microseconds."""
    verify_delay_us: int = 200
    """How long the answer to a ``Verify`` takes, in microseconds."""


@dataclass(slots=True)
class _Outbox:
    """Everything between a node's effects and the world; a crash forgets all of it."""

    commits: list[tuple[str, Commit]] = field(default_factory=list)
    """Protocol and effect of each ``Commit`` that is not answered."""
    outgoing: dict[NodeEnd, list[bytes]] = field(default_factory=dict)
    receipts: list[NodeEnd] = field(default_factory=list)
    closing: list[Close] = field(default_factory=list)
    is_refusing: bool = False
    """Whether the store has refused a group, and has not been found to take changes since."""


class World:
    """A node, its store, its journal, and every connection to it."""

    def __init__(
        self,
        schedule: Schedule,
        rng: random.Random,
        trace: Notes,
        make_relays: MakeRelays,
        *,
        store: FaultyStore | None = None,
        settings: WorldSettings | None = None,
        on_event: Callable[[Event], None] = lambda _event: None,
        on_life: Callable[[int], None] = lambda _life: None,
        dialler: Dialler | None = None,
        on_datagram: TakeDatagram = lambda _address, _data: None,
        on_lost: Callable[[frozenset[Row]], None] = lambda _rows: None,
        on_refused: Callable[[], None] = lambda: None,
    ) -> None:
        """Start a node.

        Args:
            schedule: The clock.
            rng: Source of everything drawn here; the caller's other draws do not disturb it.
            trace: Gets a line for every input and effect of the node.
            make_relays: Called at the start and after every restart.
            store: What the node keeps over its lives; an empty one when None.
            settings: How the host behaves.
            on_event: Gets every journal event.
            on_life: Gets the number of each life that begins, 1 for the first.
            dialler: Answers each ``Dial`` with ``dial_out`` or ``dial_failed``; without one nobody can be reached.
            on_datagram: The network behind ``SendTo``; without one every datagram is lost.
            on_lost: Gets the rows that the disk lost when a life ended.
            on_refused: Called before the node is notified that its store did not take changes.
        """
        self.schedule = schedule
        self.trace = trace
        self.store = store if store is not None else FaultyStore()
        self._promises = Promises()
        self.recorder_key = rng.randbytes(_KEY_BYTES)
        """Key of the references in the journal; 32 bytes, the same after a restart."""
        self.life = 0
        """How often the node was started."""
        self.unsent_bytes_peak = 0
        """Most bytes that ever waited for one peer at the node, all lives together."""
        self._rng = rng
        self._make_relays = make_relays
        self.settings = settings or WorldSettings()
        self._on_event = on_event
        self._on_life = on_life
        self._on_datagram = on_datagram
        self._on_lost = on_lost
        self._on_refused = on_refused
        self._dialler = dialler or (lambda world, protocol, dial: world.dial_failed(protocol, dial.name))
        self._ends: dict[Peer, NodeEnd] = {}
        self._outgoing: dict[NodeEnd, None] = {}
        """Ends that we dialled and that are not over."""
        self._streams: dict[int, Stream] = {}
        self._dialled = 0
        self._node: Node | None = None
        self._turn_timer = Timer(schedule, self._turn)
        self._wake_timer = Timer(schedule, self._on_timer)
        self._progress_timer = Timer(schedule, self._look_for_progress)
        self._begin()

    @property
    def is_up(self) -> bool:
        """Whether the node runs."""
        return self._node is not None

    def sizes(self) -> dict[str, dict[str, int]]:
        """Return the node's sizes; empty while it is down."""
        return self._node.sizes() if self._node is not None else {}

    def streams(self) -> list[Stream]:
        """Return the streams that are not over, oldest first."""
        self._streams = {number: stream for number, stream in self._streams.items() if not stream.is_over}
        return list(self._streams.values())

    def dial(self, protocol: str, host: str, end: End, settings: LinkSettings, listener: str = "") -> Port:
        """Connect a client; the node learns of it one latency later, or refuses and ends the stream.

        Args:
            protocol: One of the node's.
            host: The client's address.
            end: Gets what arrives.
            settings: What the connection is like.
            listener: Which listener of the node accepts it, as in ``Node.connect``.
        """
        node_end = NodeEnd(self)
        stream = Stream(self.schedule, self._rng, settings, end, node_end)
        node_end.port = stream.node
        self._dialled += 1
        self._streams[self._dialled] = stream
        self.schedule.after(settings.latency_us, lambda: self._accept(protocol, host, node_end, listener))
        return stream.client

    def dial_out(
        self,
        protocol: str,
        name: str,
        reach: Callable[[End], Port],
        settings: LinkSettings,
        over: Callable[[bool], None],
    ) -> None:
        """Let the node dial another one, whom its relay knows as ``name``; it has an answer one round trip later.

        Args:
            protocol: One whose relay has upstreams.
            name: What ``connect_upstream`` gets.
            reach: Makes the connection, for example with ``dial`` of another world; gets our end and returns our port.
            settings: What the connection is like.
            over: Called once when the connection is over, with whether it ever stood; never when the node dies first.
        """
        node_end = NodeEnd(self)
        node_end.over = over
        node_end.port = reach(node_end)
        self._outgoing[node_end] = None
        # One microsecond more than a refusal takes to come back.
        self._later(2 * settings.latency_us + 1, lambda: self._stand(protocol, name, node_end))

    def dial_failed(self, protocol: str, name: str) -> None:
        """Notify the node that what a ``Dial`` asked for could not be reached, unless it is down."""
        if self._node is not None:
            self.trace.note(self.schedule.now, f"unreachable {protocol} {name}")
            self._node.dial_failed(protocol, name, self.schedule.now)
            self.plan_turn()

    def receive_datagrams(self, protocol: str, datagrams: Sequence[Datagram]) -> None:
        """Hand datagrams that arrived together to the engine; while the node is down they are lost."""
        if self._node is None:
            return
        now = self.schedule.now
        for data, (host, port) in datagrams:
            self.trace.note(now, f"in {host}:{port} {len(data)} {zlib.crc32(data):08x}")
        self._node.receive_datagrams(protocol, datagrams, WALL_START_US + now, now)
        self.plan_turn()

    def crash(self, down_us: int) -> None:
        """Kill the node: connections break, soft state and uncommitted records are gone; it is back later."""
        if self._node is not None:
            self.trace.note(self.schedule.now, f"crash for {down_us}")
            self._end_life(down_us, orderly=False)

    def stop(self, down_us: int) -> None:
        """End the node in good order, as SIGTERM does, and start it again later."""
        if self._node is None:
            return
        now = self.schedule.now
        self.trace.note(now, f"stop for {down_us}")
        self._node.retire()
        self._node.shut(now)
        self._turn()
        self._recorder.node_stopped(now)
        self._end_life(down_us, orderly=True)

    def commit_all(self) -> None:
        """Let the store have what waits for it, and answer."""
        changes = [change for _, commit in self._outbox.commits for change in commit.changes]
        if not self._outbox.is_refusing:
            self._write(changes)
        is_kept = not self._outbox.is_refusing
        if is_kept:
            self._promises.made(changes)
        self._answer_all(is_kept=is_kept)

    def _write(self, changes: Sequence[Change]) -> None:
        """Let the store have changes; while it refuses, try again without any."""
        try:
            self.store.commit(changes)
        except StoreFault:
            self._later(TRY_AGAIN_US, lambda: self._write(()))
            self._outbox.is_refusing = True
        else:
            self._outbox.is_refusing = False

    def _answer_all(self, *, is_kept: bool) -> None:
        """Answer the commits that wait."""
        group, self._outbox.commits = self._outbox.commits, []
        if not is_kept:
            self._on_refused()
        for protocol, commit in group:
            self.trace.note(self.schedule.now, f"{'' if is_kept else 'not '}committed {protocol} {commit.ticket}")
            if self._node is not None:
                answer = self._node.committed if is_kept else self._node.not_committed
                answer(protocol, commit.ticket, self.schedule.now)
        self.plan_turn()

    # Lives of the node

    def _begin(self) -> None:
        now = self.schedule.now
        self.life += 1
        if broken := self._promises.broken(self.store):
            raise ViolationError("kept", f"life {self.life} finds {len(broken)} rows otherwise, as in {broken[0]}")
        self._on_life(self.life)
        entropy = random.Random(self._rng.getrandbits(64))  # noqa: S311 - a simulation must be repeatable
        self._recorder = Recorder(self._on_event, entropy)
        self._recorder.set_wall(now, WALL_START_US + now)
        self._recorder.use_key(self.recorder_key)
        bans = BanList(self.store)
        relays = self._make_relays(
            entropy, lambda identity: not bans.refuses(f"id:{identity.hex()}", WALL_START_US + self.schedule.now)
        )
        self._node = Node(relays, Admission(), bans, self._recorder)
        self._recorder.node_started(now, VERSION)
        self._outbox = _Outbox()

    def _end_life(self, down_us: int, *, orderly: bool) -> None:
        for timer in (self._turn_timer, self._wake_timer, self._progress_timer):
            timer.cancel()
        self._node = None
        for end in [*self._ends.values(), *(end for end in self._outgoing if end.peer is None)]:
            end.port.abort()
        self._ends.clear()
        self._outgoing.clear()
        under_way = [commit.changes for _, commit in self._outbox.commits]
        self._promises.may_be(under_way)
        if lost := self.store.end_life(under_way, orderly=orderly):
            self.trace.note(self.schedule.now, f"lost {len(lost)} rows")
            self._promises.lost(lost)
            self._on_lost(lost)
        self.schedule.after(down_us, self._begin)

    # What streams report

    def _accept(self, protocol: str, host: str, end: NodeEnd, listener: str) -> None:
        now = self.schedule.now
        if self._node is None or not end.port.is_open:
            end.port.abort()
            return
        if not self._node.open(protocol, host, WALL_START_US + now, now):
            self.trace.note(now, f"refused {protocol} {host}")
            end.port.abort()
            return
        end.peer = self._node.connect(protocol, host, now, listener)
        self.trace.note(now, f"connect {end.peer} {protocol} {host}{f' by {listener}' if listener else ''}")
        self._join(end, end.peer)

    def _stand(self, protocol: str, name: str, end: NodeEnd) -> None:
        """A connection that we dialled stands, unless its other side has ended it already."""
        if self._node is not None and end in self._outgoing:
            now = self.schedule.now
            end.peer = self._node.connect_out(protocol, name, now)
            self.trace.note(now, f"connect {end.peer} {protocol} to {name}")
            self._join(end, end.peer)

    def _join(self, end: NodeEnd, peer: Peer) -> None:
        """Note an end that stands, and hand over what came before it did."""
        self._ends[peer] = end
        self.plan_turn()
        waiting, end.early = end.early, []
        for data in waiting:
            self.received(end, data)

    def received(self, end: NodeEnd, data: bytes) -> None:
        """Hand bytes to the engine; called by ends of the node."""
        if self._node is None or end.peer is None:
            end.early.append(data)
            return
        now = self.schedule.now
        self.trace.note(now, f"in {end.peer} {len(data)} {zlib.crc32(data):08x}")
        self._node.receive(end.peer, data, now)
        self.plan_turn()

    def congested(self, end: NodeEnd) -> None:
        """Notify the engine, and watch whether the peer takes anything; called by ends of the node."""
        if self._node is not None and end.peer in self._ends:
            end.waiting_bytes = end.port.unsent_bytes
            self._node.congested(end.peer, self.schedule.now)
            self._progress_timer.ring_after(PROGRESS_US)
            self.plan_turn()

    def drained(self, end: NodeEnd) -> None:
        """Notify the engine that nothing waits any more; called by ends of the node."""
        if self._node is not None and end.peer in self._ends:
            end.waiting_bytes = 0
            self._node.drained(end.peer, self.schedule.now)
            self.plan_turn()

    def ended(self, end: NodeEnd) -> None:
        """Notify the engine that a client is gone; called by ends of the node."""
        if self._node is not None and end.peer is not None and self._ends.pop(end.peer, None) is not None:
            self.trace.note(self.schedule.now, f"lost {end.peer}")
            self._node.disconnect(end.peer, self.schedule.now)
            self.plan_turn()
        self._report_over(end)

    def _report_over(self, end: NodeEnd) -> None:
        """Notify the side that dialled that its connection is over, once."""
        if end in self._outgoing:
            del self._outgoing[end]
            end.over(end.peer is not None)

    # Turns

    def plan_turn(self) -> None:
        """Let the node's effects be carried out soon; also for whoever has called the relay past this world."""
        if self._node is not None:
            self._turn_timer.ring_after(self.settings.turn_delay_us)

    def _turn(self) -> None:
        self._turn_timer.cancel()
        assert self._node is not None
        for protocol, effects in self._node.take(self.schedule.now):
            for effect in effects:
                if type(effect) is Commit:
                    self._commit(protocol, effect)
                elif type(effect) is Verify:
                    self._verify(protocol, effect)
                elif type(effect) is Dial:
                    self._dial(protocol, effect)
                else:
                    self._perform(effect)
        self._write_out()
        self._wake_timer.ring_by(self._node.deadline())

    def _commit(self, protocol: str, effect: Commit) -> None:
        if not self._outbox.commits:
            self._later(0 if self._outbox.is_refusing else self.settings.commit_delay_us, self.commit_all)
        self._outbox.commits.append((protocol, effect))

    def _verify(self, protocol: str, effect: Verify) -> None:
        answers = [verify_any(check.keys, check.message, check.signature) for check in effect.checks]
        self._later(self.settings.verify_delay_us, lambda: self._answer(protocol, effect.ticket, answers))

    def _dial(self, protocol: str, effect: Dial) -> None:
        """Hand it on in a later turn of this life, as the server's hub has its answers."""
        self.trace.note(self.schedule.now, f"dial {protocol} {effect.name} {effect.url} {effect.only_public}")
        self._later(0, lambda: self._dialler(self, protocol, effect))

    def _answer(self, protocol: str, ticket: int, answers: list[int]) -> None:
        assert self._node is not None
        self.trace.note(self.schedule.now, f"verified {protocol} {ticket} {answers}")
        self._node.verified(protocol, ticket, answers, self.schedule.now)
        self.plan_turn()

    def _later(self, delay_us: int, step: Callable[[], None]) -> None:
        """Do ``step`` after a while, unless this life of the node is over by then."""
        life = self.life
        self.schedule.after(delay_us, lambda: step() if life == self.life and self.is_up else None)

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, Send | SendMany):
            end = self._ends.get(effect.peer)
            if end is not None:
                chunks = (effect.data,) if isinstance(effect, Send) else effect.messages
                self._outbox.outgoing.setdefault(end, []).extend(chunks)
                if isinstance(effect, Send) and effect.receipt:
                    self._outbox.receipts.append(end)
        elif isinstance(effect, SendTo):
            (host, port), data = effect.address, effect.data
            self.trace.note(self.schedule.now, f"out {host}:{port} {len(data)} {zlib.crc32(data):08x}")
            self._on_datagram(effect.address, data)
        elif isinstance(effect, Close):
            self._outbox.closing.append(effect)
        elif isinstance(effect, Hold):
            end = self._ends.get(effect.peer)
            self.trace.note(self.schedule.now, f"hold {effect.peer} {effect.held}")
            if end is not None:
                (end.port.pause if effect.held else end.port.resume)()

    def _write_out(self) -> None:
        """Write once per peer, then confirm receipts, then close: the order of the server's hub."""
        now = self.schedule.now
        outgoing, self._outbox.outgoing = self._outbox.outgoing, {}
        for end, chunks in outgoing.items():
            data = b"".join(chunks)
            self.trace.note(now, f"out {end.peer} {len(data)} {zlib.crc32(data):08x}")
            for message in chunks if end.port.stream.framed else (data,):
                end.port.write(message)
            self.unsent_bytes_peak = max(self.unsent_bytes_peak, end.port.unsent_bytes)
        receipts, self._outbox.receipts = self._outbox.receipts, []
        for end in receipts:
            if end.peer in self._ends and not end.port.waits:
                self.drained(end)
        closing, self._outbox.closing = self._outbox.closing, []
        for effect in closing:
            self._close(effect)

    def _close(self, effect: Close) -> None:
        end = self._ends.pop(effect.peer, None)
        if end is None:
            return
        self.trace.note(self.schedule.now, f"close {effect.peer} {effect.reason.value} {effect.abort}")
        if effect.abort:
            end.port.abort()
        else:
            end.port.close()
            self.schedule.after(LINGER_US, lambda: end.port.abort() if end.port.unsent_bytes else None)
        self._report_over(end)

    def _on_timer(self) -> None:
        assert self._node is not None
        self._node.wake(self.schedule.now)
        self._turn()

    def _look_for_progress(self) -> None:
        """Notify the engine of waiting peers that have taken something since the last look."""
        assert self._node is not None
        waiting = [end for end in self._ends.values() if end.port.waits]
        for end in waiting:
            unsent, before = end.port.unsent_bytes, end.waiting_bytes
            end.waiting_bytes = unsent
            if unsent < before and end.peer is not None:
                self._node.congested(end.peer, self.schedule.now)
        if waiting:
            self._progress_timer.ring_after(PROGRESS_US)
        self.plan_turn()
