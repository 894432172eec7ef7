"""Clients of a simulated MERK world: they write to each other, move between nodes, and tell what they see.

Everything that a connection carries is looked at on the wire, before the client machine makes of it what it will.
"""

import random
from collections import Counter
from collections.abc import Callable
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.crypto.signing import KeyPair
from waystation.protocols.merk.client_events import (
    Event,
    FrameOutcome,
    KeyTold,
    MessageArrived,
    MessageDropped,
    Ready,
)
from waystation.protocols.merk.keys import Keys
from waystation.protocols.merk.messages import KEY_BYTES, Delivery, DeliveryCode, Feature, InfoType, MessageType
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.sealing import Mode
from waystation.protocols.merk.seen_messages import SeenMessages
from waystation.protocols.merk.wire import decode_info_frame, frame_hash, read_head, target_of
from waystation.sim import merk_observations as seen
from waystation.sim.chance import spread
from waystation.sim.merk_commons import MARGIN_US, PINGS_US, MerkCommons
from waystation.sim.merk_line import Line
from waystation.sim.merk_pen import Pen
from waystation.sim.merk_whereabouts import Strand

__all__ = ["Client"]

HOUR_US: Final = 3_600 * MICROSECONDS_PER_SECOND
OUTCOME_US: Final = 30 * MICROSECONDS_PER_SECOND  # a look-up and a forward, and both once more
UNREAD_US: Final = 70 * MICROSECONDS_PER_SECOND  # a reader that takes nothing is let go after 60 s
STALL_US: Final = 8 * MICROSECONDS_PER_SECOND
TWICE_US: Final = 20 * MICROSECONDS_PER_SECOND
RETRY_US: Final = MICROSECONDS_PER_SECOND // 2
AGAIN_US: Final = 2 * MICROSECONDS_PER_SECOND
BURST_MAX: Final = 24
NOBODIES: Final = 4
CARRIED: Final = frozenset({MessageType.DATA, MessageType.SIGNED_DATA, MessageType.ENCRYPTED_DATA})
_SUBTYPE_AT: Final = 120


class Client:
    """One person with one identity."""

    def __init__(self, commons: MerkCommons, rng: random.Random, host: str, *, has_extensions: bool) -> None:
        """Make a client; ``start`` lets it come.

        Args:
            commons: The world.
            rng: Source of its habits.
            host: Its address.
            has_extensions: Whether it says EXT_HELLO.
        """
        self._commons = commons
        self._rng = rng
        self.host = host
        self.has_extensions = has_extensions
        self._keys = Keys.generate(rng)
        self.key: bytes = self._keys.signing.public
        commons.agreement_keys[self.key] = self._keys.agreement_public
        self._nobodies = [KeyPair.from_seed(rng.randbytes(KEY_BYTES)).public for _ in range(NOBODIES)]
        self._pen = Pen(commons, rng, self._keys)
        self._seen = SeenMessages()
        self._others: list[Client] = []
        self._lines: dict[int, _Held] = {}
        self._last_origin = ""
        self._is_leaving = False
        self.outcomes: Counter[str] = Counter()

    def start(self, others: "list[Client]") -> None:
        """Come somewhere, and begin to write to ``others``, oneself among them."""
        self._others = others
        self._come()
        plan = self._commons.plan
        habits = plan.client
        self._every(HOUR_US * plan.clients / plan.frames_per_hour, self._write)
        self._now_and_then(habits.moves, self._go)
        self._now_and_then(habits.doubles, self._double)
        self._now_and_then(habits.stalls, self._read_nothing)
        self._now_and_then(habits.vanishes, self._vanish)

    def calm(self) -> None:
        """Come home: one connection, at one node, and no bad habits any more."""
        for line in self.lines()[1:]:
            line.hang_up()
        for line in self.lines():
            line.port.resume()
        if not self._lines:
            self._come()

    def leave(self) -> None:
        """Go for good."""
        self._is_leaving = True
        for line in self.lines():
            line.hang_up()

    def lines(self) -> list[Line]:
        """Return the connections that are not over, oldest first."""
        return [held.line for held in self._lines.values()]

    @property
    def node(self) -> int | None:
        """The node where it is; None while it is nowhere or in several places."""
        ready = self._ready()
        return ready[0].line.node if len(ready) == 1 else None

    def probe(self, reached: "list[Client]") -> None:
        """Write once to everybody within reach and once to nobody, and ask for keys."""
        ready, commons = self._ready(), self._commons
        if len(ready) != 1:
            commons.observe(seen.LeftHanging(f"client {self.host} has {len(ready)} connections after the faults"))
            return
        held = ready[0]
        for other in reached:
            frame = self._send(held, other.key)
            commons.hopes[frame, other.key] = f"{frame.hex()} of client {self.host} never reached client {other.host}"
            if self.has_extensions and other.has_extensions:
                commons.hopes[self.key, other.key] = f"client {self.host} does not learn the key of {other.host}"
                held.line.machine.ask_key(other.key, commons.schedule.now)
                held.line.settle()
        nobody = self._rng.choice(self._nobodies)
        frame = self._send(held, nobody)
        if self.has_extensions:
            commons.hopes[frame, nobody] = f"client {self.host} was never told that nobody is unknown"

    def lose(self, line: Line) -> None:
        """Let a connection carry nothing any more; the node finds out when it answers no ping."""
        schedule, stream = self._commons.schedule, line.port.stream
        until = Instant(schedule.now + PINGS_US)
        self._lines[line.number].strand.disturb(until)
        stream.cut()
        schedule.at(until, stream.break_off)

    def hold_up(self, line: Line, duration_us: int) -> None:
        """Let nothing arrive on a connection for a while."""
        self._lines[line.number].strand.disturb(Instant(self._commons.schedule.now + duration_us))
        line.port.stream.stall(duration_us)

    # What lines report

    def on_frame(self, line: Line, data: bytes) -> None:
        """Look at the wire."""
        commons = self._commons
        kind, _ = read_head(data)
        self._last_origin = ""
        if kind in CARRIED:
            name, target = frame_hash(data), target_of(data) or b""
            self._last_origin = commons.origin_of(name)
            commons.observe(seen.Arrived(line.number, self.key, name, target, self._last_origin))
        elif kind == MessageType.NODE_INFO and data[_SUBTYPE_AT] >= InfoType.HELLO:
            if not self.has_extensions:
                commons.observe(seen.Extended(line.number, data[_SUBTYPE_AT]))
            info = decode_info_frame(data)
            if isinstance(info, Delivery):
                self._on_told(self._lines[line.number], info)

    def on_event(self, line: Line, event: Event) -> None:
        """Note what the machine makes of it."""
        commons, held = self._commons, self._lines[line.number]
        if isinstance(event, Ready):
            held.ready(event, commons.schedule.now)
            line.machine.advertise(commons.schedule.now, commons.wall_ms)
        elif isinstance(event, MessageArrived):
            opened = event.opened
            is_theirs, is_plain = commons.is_authored(opened.fingerprint), opened.mode is Mode.PLAIN
            commons.observe(seen.Taken(self.key, opened.frame_hash, opened.auth.value, is_theirs, is_plain))
            commons.hopes.pop((opened.frame_hash, self.key), None)
            self.outcomes["read"] += 1
        elif isinstance(event, MessageDropped):
            if self._last_origin == "honest" and event.refusal is not Refusal.DUPLICATE:
                commons.observe(seen.Dropped(self.key, event.refusal.value))
        elif isinstance(event, KeyTold):
            is_true = commons.agreement_keys.get(event.advert.key) == event.advert.agreement_key
            commons.observe(seen.KeyShown(event.advert.key, is_true))
            commons.hopes.pop((self.key, event.advert.key), None)
        elif isinstance(event, FrameOutcome):
            held.untold -= 1

    def on_end(self, line: Line) -> None:
        """Come back later, unless there is another connection."""
        held = self._lines.pop(line.number)
        held.strand.over(self._commons.schedule.now)
        if held.untold:
            text = f"the client of {self.host} ends with {held.untold} outcomes too few"
            self._commons.observe(seen.LeftHanging(text))
        if not self._lines:
            # A node that is down is not dialled a thousand times a second.
            retry_us = RETRY_US if held.strand.up_at is None else 0
            away_us = spread(self._rng, self._commons.plan.client.away_us)
            self._commons.schedule.after(retry_us + away_us, self._come)

    def _on_told(self, held: "_Held", told: Delivery) -> None:
        commons, name = self._commons, told.frame_hash
        now = commons.schedule.now
        sent_at = held.sent_at.get(name, now)
        since = Instant(sent_at - MARGIN_US)
        commons.observe(
            seen.Told(
                held.line.number,
                name,
                told.code,
                is_target_known=commons.where.is_known(told.target),
                is_silence_likely=commons.where.is_silence_likely(held.line.node, since),
                is_target_shaky=commons.where.is_shaky(told.target, since),
                is_crowded=commons.is_crowded(told.target, now),
            )
        )
        self.outcomes[DeliveryCode(told.code).name.lower()] += 1
        if told.code == DeliveryCode.UNKNOWN_TARGET:
            commons.hopes.pop((name, told.target) if told.target in self._nobodies else (b"", b""), None)
        if told.code == DeliveryCode.DELIVERED:
            commons.schedule.after(MARGIN_US, lambda: self._look_for(name, told.target, sent_at))

    def _look_for(self, name: bytes, target: bytes, sent_at: Instant) -> None:
        """Ask whether a frame arrived that somebody called delivered a while ago."""
        self._commons.observe(seen.WrittenDue(name, self._commons.where.is_shaky(target, sent_at)))

    # Coming and going

    def _come(self) -> None:
        if self._lines or self._is_leaving:
            return
        self._connect(self._rng.randrange(self._commons.plan.nodes))

    def _connect(self, node: int) -> None:
        commons = self._commons
        machine = commons.make_client(self._keys, self._rng, extensions=self.has_extensions, seen=self._seen)
        line = Line(commons, node, self.host, machine, commons.plan.link, self)
        self._lines[line.number] = _Held(line, commons.where.line(self.key, node, line.port.stream))
        line.settle()

    def _ready(self) -> "list[_Held]":
        return [held for held in self._lines.values() if held.line.machine.is_ready]

    def _go(self) -> None:
        for line in self.lines():
            line.hang_up(abort=self._rng.random() < 1 / 2)

    def _double(self) -> None:
        """Open a second connection, and close the first one some time later."""
        if len(self._lines) != 1:
            return
        first = self.lines()[0]
        self._connect(self._rng.randrange(self._commons.plan.nodes))
        self._commons.schedule.after(spread(self._rng, TWICE_US), first.hang_up)

    def _read_nothing(self) -> None:
        ready = self._ready()
        if ready:
            duration_us = spread(self._rng, STALL_US)
            ready[0].strand.disturb(Instant(self._commons.schedule.now + duration_us))
            ready[0].line.read_nothing(duration_us)

    def _vanish(self) -> None:
        """Lose the link and come back at once, while the node still believes in it."""
        for line in self.lines():
            self.lose(line)
            line.hang_up(abort=True)

    def _now_and_then(self, per_hour: float, act: Callable[[], None]) -> None:
        if per_hour > 0:
            self._every(HOUR_US / per_hour, act)

    def _every(self, mean_us: float, act: Callable[[], None]) -> None:
        """Let ``act`` happen at random instants until the calm."""

        def happen() -> None:
            if self._commons.troubled:
                act()
                self._every(mean_us, act)

        self._commons.schedule.after(spread(self._rng, mean_us), happen)

    # Writing

    def _write(self) -> None:
        habits, rng, ready = self._commons.plan.client, self._rng, self._ready()
        if not ready:
            return
        held = rng.choice(ready)
        if rng.random() < habits.asks:
            self._ask(held)
            return
        count = rng.randint(2, BURST_MAX) if rng.random() < habits.bursts else 1
        targets = [self._draw_target()] * count if rng.random() < 1 / 2 else [self._draw_target() for _ in range(count)]
        for target in targets:
            self._send(held, target)
        if rng.random() < habits.leaves_mid_flight:
            held.line.hang_up(abort=rng.random() < 1 / 2)

    def _ask(self, held: "_Held") -> None:
        now = self._commons.schedule.now
        if self._rng.random() < 1 / 2:
            held.line.machine.ask_servers(now)
        else:
            held.line.machine.ask_key(self._rng.choice(self._others).key, now)
        held.line.settle()

    def _draw_target(self) -> bytes:
        if self._rng.random() < self._commons.plan.client.writes_to_nobody:
            return self._rng.choice([*self._nobodies, *self._commons.bystanders])
        return self._rng.choice(self._others).key

    def _send(self, held: "_Held", target: bytes) -> bytes:
        """Send a new frame and return its name; say it again some time later if that is a habit."""
        frame = self._pen.write(target)
        name = self._commons.make(frame)
        self._put(held, name, frame, target)
        if self._commons.troubled and self._rng.random() < self._commons.plan.client.says_again:
            later = spread(self._rng, AGAIN_US)
            self._commons.schedule.after(later, lambda: self._put(held, name, frame, target))
        return name

    def _put(self, held: "_Held", name: bytes, frame: bytes, target: bytes) -> None:
        if not held.line.machine.is_ready or held.line.is_over:
            return
        commons = self._commons
        commons.note_sent(target, len(frame))
        commons.observe(seen.Sent(held.line.number, name, target, len(frame)))
        held.sent_at.setdefault(name, commons.schedule.now)
        held.untold += 1
        held.line.machine.send_frame(frame, commons.schedule.now)
        held.line.settle(lambda stood: self._on_read(held, name, target) if stood else None)

    def _on_read(self, held: "_Held", name: bytes, target: bytes) -> None:
        """The node has the frame: see in a while what has become of it."""
        commons, node = self._commons, held.line.node
        read_at = commons.schedule.now

        def due() -> None:
            is_owed = commons.where.owes(node, target, Instant(read_at - MARGIN_US))
            commons.observe(seen.Due(name, is_owed and not commons.is_crowded(target, read_at)))

        def outcome_due() -> None:
            is_owed = held.is_told and held.strand.stood(read_at)
            commons.observe(seen.OutcomeDue(held.line.number, name, is_owed))

        def outcome_due_soon() -> None:
            # A recipient that does not read keeps the frame waiting until it is let go.
            if commons.where.is_shaky(target, Instant(read_at - MARGIN_US)):
                commons.schedule.after(UNREAD_US, outcome_due)
            else:
                outcome_due()

        commons.schedule.after(MARGIN_US, due)
        commons.schedule.after(OUTCOME_US, outcome_due_soon)


class _Held:
    """A connection that a client holds."""

    __slots__ = ("is_told", "line", "sent_at", "strand", "untold")

    def __init__(self, line: Line, strand: Strand) -> None:
        self.line = line
        self.strand = strand
        self.is_told = False
        """Whether the relay tells outcomes."""
        self.sent_at: dict[bytes, Instant] = {}
        self.untold = 0
        """Frames for which the machine has told no outcome."""

    def ready(self, event: Ready, now: Instant) -> None:
        """Frames may be sent from now on."""
        self.is_told = bool(event.features & Feature.DELIVERY_NOTICES)
        if self.strand.up_at is None:
            self.strand.up(now)
