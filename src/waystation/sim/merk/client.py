"""Simulated MERK clients: they write to each other, move between nodes, and observe all frames on their connections.

``MerkScenario`` starts them; each drives the real client machine. A frame is observed on the wire, before the client
machine processes it.
"""

import random
from collections import Counter
from functools import partial
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.crypto.signing import KeyPair, sign
from waystation.protocols.merk.client.events import (
    Event,
    FrameOutcome,
    KeyFound,
    MessageArrived,
    MessageDropped,
    Ready,
)
from waystation.protocols.merk.client.machine import MerkClient
from waystation.protocols.merk.client.seen_messages import SeenMessages
from waystation.protocols.merk.keys import Keys
from waystation.protocols.merk.messages import KEY_BYTES, Delivery, DeliveryCode, Feature, InfoType, MessageType
from waystation.protocols.merk.payload.sealing import Auth, Mode
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.wire import decode_info_frame, frame_hash, is_frame_signed, read_head, target_of
from waystation.sim.chance import HOUR_US, Recurring, spread
from waystation.sim.driver import Driver
from waystation.sim.merk import observations as seen
from waystation.sim.merk.context import CARRIED, MARGIN_US, PROTOCOL, MerkContext
from waystation.sim.merk.presences import Presence
from waystation.sim.merk.traffic import FrameGenerator
from waystation.sim.observations import Unfulfilled

__all__ = ["Client"]

OUTCOME_US: Final = 30 * MICROSECONDS_PER_SECOND  # a look-up and a forward, and both once more
UNREAD_US: Final = 70 * MICROSECONDS_PER_SECOND  # a reader that takes nothing is let go after 60 s
STALL_US: Final = 8 * MICROSECONDS_PER_SECOND
TWICE_US: Final = 20 * MICROSECONDS_PER_SECOND
RETRY_US: Final = MICROSECONDS_PER_SECOND // 2
AGAIN_US: Final = 2 * MICROSECONDS_PER_SECOND
PROOF_US: Final = 2 * MICROSECONDS_PER_SECOND  # the relay has AUTH and PRESENCE some time after the machine is ready
BURST_MAX: Final = 24
UNKNOWN_KEYS: Final = 4
_SUBTYPE_AT: Final = 120


class Client:
    """One person with one identity."""

    def __init__(self, context: MerkContext, rng: random.Random, host: str, *, has_extensions: bool) -> None:
        """Make a client; ``start`` lets it come.

        Args:
            context: The world.
            rng: Source of its behaviour.
            host: Its address.
            has_extensions: Whether it says EXT_HELLO.
        """
        self._context = context
        self._rng = rng
        self.host = host
        self.has_extensions = has_extensions
        self._keys = Keys.generate(rng)
        self.key: bytes = self._keys.signing.public
        context.agreement_keys[self.key] = self._keys.agreement_public
        if has_extensions:
            context.signers[self.key] = partial(sign, self._keys.signing)
        self._unknown_keys = [KeyPair.from_seed(rng.randbytes(KEY_BYTES)).public for _ in range(UNKNOWN_KEYS)]
        self._frames = FrameGenerator(context, rng, self._keys)
        self._seen = SeenMessages()
        self._others: list[Client] = []
        self._connections: dict[int, Connection] = {}
        self._last_origin = ""
        self._is_last_ours = True
        self._is_leaving = False
        self.outcomes: Counter[str] = Counter()

    def start(self, others: "list[Client]") -> None:
        """Come somewhere, and begin to write to ``others``, oneself among them."""
        self._others = others
        self._come()
        plan = self._context.plan
        behaviour = plan.client
        recurring = Recurring(self._context.schedule, self._rng, lambda: self._context.in_fault_phase)
        recurring.every(HOUR_US * plan.clients / plan.frames_per_hour, self._write)
        recurring.often(behaviour.moves, self._go)
        recurring.often(behaviour.doubles, self._double)
        recurring.often(behaviour.stalls, self._stop_reading)
        recurring.often(behaviour.vanishes, self._vanish)

    def quiesce(self) -> None:
        """Come home: one connection, at one node, and no bad behaviour any more."""
        for connection in self.connections()[1:]:
            connection.driver.hang_up()
        for connection in self.connections():
            connection.driver.port.resume()
        if not self._connections:
            self._come()

    def leave(self) -> None:
        """Go for good."""
        self._is_leaving = True
        for connection in self.connections():
            connection.driver.hang_up()

    def connections(self) -> "list[Connection]":
        """Return the connections that are not over, oldest first."""
        return list(self._connections.values())

    @property
    def node(self) -> int | None:
        """The node where it is; None while it is nowhere or in several places."""
        ready = self._ready()
        return ready[0].node if len(ready) == 1 else None

    def probe(self, reached: "list[Client]") -> None:
        """Write once to everybody within reach and once to nobody, and ask for keys."""
        ready, context = self._ready(), self._context
        if len(ready) != 1:
            context.observe(Unfulfilled(f"client {self.host} has {len(ready)} connections after the faults"))
            return
        held = ready[0]
        for other in reached:
            name, frame = self._send(held, other.key)
            other_node = other.node if other.node is not None else held.node
            if context.crosses(frame, other.key, held.node, other_node, context.schedule.now):
                text = f"{name.hex()} of client {self.host} never reached client {other.host}"
                context.pending[name, other.key] = text
            if self.has_extensions and other.has_extensions:
                context.pending[self.key, other.key] = f"client {self.host} does not learn the key of {other.host}"
                held.driver.machine.ask_key(other.key, context.schedule.now)
                held.driver.settle()
        nobody = self._rng.choice(self._unknown_keys)
        name, _ = self._send(held, nobody)
        if self.has_extensions:
            context.pending[name, nobody] = f"client {self.host} never got UNKNOWN_TARGET for an unknown key"

    # What connections report

    def _on_frame(self, held: "Connection", data: bytes) -> None:
        """Look at the wire."""
        context = self._context
        kind, _ = read_head(data)
        self._last_origin = ""
        if kind in CARRIED:
            name, target = frame_hash(data), target_of(data) or b""
            self._last_origin = context.origin_of(name)
            self._is_last_ours = context.target_of_secret(data) in (None, self.key)
            context.observe(seen.Arrived(held.number, self.key, name, target, self._last_origin))
        elif kind == MessageType.NODE_INFO and data[_SUBTYPE_AT] >= InfoType.HELLO:
            if not self.has_extensions:
                context.observe(seen.Extended(held.number, data[_SUBTYPE_AT]))
            info = decode_info_frame(data)
            if isinstance(info, Delivery):
                self._on_report(held, info)

    def _on_event(self, held: "Connection", event: Event) -> None:
        """Note what the machine makes of it."""
        context = self._context
        if isinstance(event, Ready):
            held.ready(event, context.schedule.now)
            held.driver.machine.advertise(context.schedule.now, context.wall_ms())
        elif isinstance(event, MessageArrived):
            opened = event.opened
            is_theirs, is_plain = context.is_authored(opened.fingerprint), opened.mode is Mode.PLAIN
            # The legacy form names whoever signed the ciphertext last, and the message says so (MERK-BOUND); what is in
            # clear anybody may say after another, in his own name.
            is_repeated = opened.auth is Auth.LEGACY or is_plain
            is_theirs |= self._last_origin == "resigned" and is_repeated
            is_aimed = opened.mode is not Mode.ENCRYPTED or self._is_last_ours
            taken = seen.Taken(self.key, opened.frame_hash, opened.auth.value, is_theirs, is_plain, is_aimed)
            context.observe(taken)
            context.pending.pop((opened.frame_hash, self.key), None)
            self.outcomes["taken"] += 1
        elif isinstance(event, MessageDropped):
            if self._last_origin == "honest" and event.refusal is not Refusal.DUPLICATE:
                context.observe(seen.Dropped(self.key, event.refusal.value))
        elif isinstance(event, KeyFound):
            is_true = context.agreement_keys.get(event.advert.key) == event.advert.agreement_key
            context.observe(seen.KeyShown(event.advert.key, is_true))
            context.pending.pop((self.key, event.advert.key), None)
        elif isinstance(event, FrameOutcome):
            held.unreported -= 1

    def _on_end(self, held: "Connection") -> None:
        """Come back later, unless there is another connection."""
        del self._connections[held.number]
        held.presence.over(self._context.schedule.now)
        if held.unreported:
            text = f"the client of {self.host} ends with {held.unreported} outcomes too few"
            self._context.observe(Unfulfilled(text))
        if not self._connections:
            # A node that is down is not dialled a thousand times a second.
            retry_us = RETRY_US if held.presence.up_at is None else 0
            away_us = spread(self._rng, self._context.plan.client.away_us)
            self._context.schedule.after(retry_us + away_us, self._come)

    def _on_report(self, held: "Connection", report: Delivery) -> None:
        context, name = self._context, report.frame_hash
        now = context.schedule.now
        sent_at = held.sent_at.get(name, now)
        since = Instant(sent_at - MARGIN_US)
        context.observe(
            seen.Reported(
                held.number,
                name,
                report.code,
                is_target_known=context.presences.is_known(report.target),
                is_silence_likely=context.presences.is_silence_likely(held.node, since),
                is_target_shaky=context.presences.is_shaky(report.target, since),
                # A node that does not name ours refuses what is not signed with the same code (MERK-UNNAMED).
                is_crowded=context.is_crowded(report.target, now) or name in held.unsigned,
            )
        )
        self.outcomes[DeliveryCode(report.code).name.lower()] += 1
        if report.code == DeliveryCode.UNKNOWN_TARGET:
            context.pending.pop((name, report.target) if report.target in self._unknown_keys else (b"", b""), None)
        if report.code == DeliveryCode.DELIVERED:
            context.schedule.after(MARGIN_US, lambda: self._look_for(name, report.target, sent_at))

    def _look_for(self, name: bytes, target: bytes, sent_at: Instant) -> None:
        """Ask whether a frame arrived that somebody called delivered a while ago."""
        self._context.observe(seen.WrittenDue(name, self._context.presences.is_shaky(target, sent_at)))

    def _on_turn(self, held: "Connection") -> None:
        if events := held.driver.machine.take_events():
            for event in events:
                self._on_event(held, event)
            held.driver.settle()

    # Coming and going

    def _come(self) -> None:
        if self._connections or self._is_leaving:
            return
        self._connect(self._rng.randrange(self._context.plan.nodes))

    def _connect(self, node: int) -> None:
        context = self._context
        machine = context.make_client(self._keys, self._rng, extensions=self.has_extensions, seen=self._seen)
        machine.set_wall(context.schedule.now, context.wall_ms() * 1_000)
        held = Connection(context.next_connection(), node)
        self._connections[held.number] = held
        held.driver = Driver(
            context.worlds[node],
            PROTOCOL,
            self.host,
            machine,
            context.plan.link,
            lambda: self._on_turn(held),
            lambda _reason: self._on_end(held),
            on_frame=lambda data: self._on_frame(held, data),
            turn_slack_us=1,
        )
        held.presence = context.presences.add_client(self.key, node, held.driver.port.stream)
        held.driver.settle()

    def _ready(self) -> "list[Connection]":
        return [held for held in self._connections.values() if held.driver.machine.is_ready]

    def _go(self) -> None:
        for connection in self.connections():
            connection.driver.hang_up(abort=self._rng.random() < 1 / 2)

    def _double(self) -> None:
        """Open a second connection, and close the first one some time later."""
        if len(self._connections) != 1:
            return
        first = self.connections()[0].driver
        self._connect(self._rng.randrange(self._context.plan.nodes))
        self._context.schedule.after(spread(self._rng, TWICE_US), first.hang_up)

    def _stop_reading(self) -> None:
        ready = self._ready()
        if ready:
            duration_us = spread(self._rng, STALL_US)
            ready[0].presence.disturb(Instant(self._context.schedule.now + duration_us))
            ready[0].driver.stop_reading(duration_us)

    def _vanish(self) -> None:
        """Lose the link and come back at once, while the node still believes in it."""
        for connection in self.connections():
            connection.presence.lose()
            connection.driver.hang_up(abort=True)

    # Writing

    def _write(self) -> None:
        behaviour, rng, ready = self._context.plan.client, self._rng, self._ready()
        if not ready:
            return
        held = rng.choice(ready)
        if rng.random() < behaviour.asks:
            self._ask(held)
            return
        count = rng.randint(2, BURST_MAX) if rng.random() < behaviour.bursts else 1
        targets = [self._draw_target()] * count if rng.random() < 1 / 2 else [self._draw_target() for _ in range(count)]
        for target in targets:
            self._send(held, target)
        if rng.random() < behaviour.leaves_mid_flight:
            held.driver.hang_up(abort=rng.random() < 1 / 2)

    def _ask(self, held: "Connection") -> None:
        now = self._context.schedule.now
        if self._rng.random() < 1 / 2:
            held.driver.machine.ask_servers(now)
        else:
            held.driver.machine.ask_key(self._rng.choice(self._others).key, now)
        held.driver.settle()

    def _draw_target(self) -> bytes:
        if self._rng.random() < self._context.plan.client.writes_to_nobody:
            return self._rng.choice([*self._unknown_keys, *self._context.hostile_keys])
        return self._rng.choice(self._others).key

    def _send(self, held: "Connection", target: bytes) -> tuple[bytes, bytes]:
        """Send a new frame and return its name and the frame; say it again some time later if that is a habit."""
        frame = self._frames.next_for(target)
        name = self._context.make(frame)
        self._put(held, name, frame, target)
        if self._context.in_fault_phase and self._rng.random() < self._context.plan.client.says_again:
            later = spread(self._rng, AGAIN_US)
            self._context.schedule.after(later, lambda: self._put(held, name, frame, target))
        return name, frame

    def _put(self, held: "Connection", name: bytes, frame: bytes, target: bytes) -> None:
        if not held.driver.machine.is_ready or held.driver.is_over:
            return
        context = self._context
        context.note_sent(target, len(frame))
        context.observe(seen.Sent(held.number, name, target, len(frame)))
        held.sent_at.setdefault(name, context.schedule.now)
        if not is_frame_signed(frame):
            held.unsigned.add(name)
        held.unreported += 1
        held.driver.machine.send_frame(frame, context.schedule.now)
        held.driver.settle(lambda stood: self._on_read(held, name, frame, target) if stood else None)

    def _on_read(self, held: "Connection", name: bytes, frame: bytes, target: bytes) -> None:
        """The node has the frame: see in a while what has become of it."""
        context, node = self._context, held.node
        read_at = context.schedule.now

        def due() -> None:
            since = Instant(read_at - MARGIN_US)
            is_owed = context.presences.owes(
                node, target, since, lambda other: context.crosses(frame, target, node, other, since)
            )
            context.observe(seen.Due(name, is_owed and not context.is_crowded(target, read_at)))

        def outcome_due() -> None:
            is_owed = held.reports_outcomes and held.presence.stood(read_at)
            context.observe(seen.OutcomeDue(held.number, name, is_owed))

        def outcome_due_soon() -> None:
            # A recipient that does not read keeps the frame waiting until it is let go.
            if context.presences.is_shaky(target, Instant(read_at - MARGIN_US)):
                context.schedule.after(UNREAD_US, outcome_due)
            else:
                outcome_due()

        context.schedule.after(MARGIN_US, due)
        context.schedule.after(OUTCOME_US, outcome_due_soon)


class Connection:
    """A connection that a client holds."""

    def __init__(self, number: int, node: int) -> None:
        self.number = number
        self.node = node
        self.driver: Driver[MerkClient]
        self.presence: Presence
        self.reports_outcomes = False
        """Whether the relay sends outcomes."""
        self.sent_at: dict[bytes, Instant] = {}
        self.unsigned: set[bytes] = set()
        """Frames that bear no signature of their sender."""
        self.unreported = 0
        """Frames for which the machine has reported no outcome."""

    def ready(self, event: Ready, now: Instant) -> None:
        """Frames may be sent from now on."""
        self.reports_outcomes = bool(event.features & Feature.DELIVERY_NOTICES)
        if self.presence.up_at is None:
            self.presence.up(Instant(now + PROOF_US))
