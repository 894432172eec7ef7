"""The simulated host of a BSP device on byte streams: a ``BspMachine`` authenticates, exchanges records and redials.

``BspNetwork`` makes one for each device that uses streams. Records are observed at the device itself, because a stream
splits its bytes arbitrarily.
"""

import hashlib
import random
from collections.abc import Callable
from typing import Final

from waystation.core.effects import Close, Commit, Dial, Effect, Hold, Peer, Send, SendMany
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.core.records import Store
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.device.links import LinkTerms, Mode
from waystation.protocols.bsp.device.sync import WRITE_BYTES, BspDevice
from waystation.protocols.bsp.messages import Record
from waystation.protocols.bsp.stream.machine import BspMachine
from waystation.protocols.bsp.wire import encode
from waystation.sim.bsp import observations as seen
from waystation.sim.bsp.connection import Connection
from waystation.sim.bsp.host import SEED, TURNS_MAX, Host, Surroundings, key_of, key_pair_of
from waystation.sim.bsp.records import read_records
from waystation.sim.invariants import ViolationError
from waystation.sim.net.datagram import DatagramSettings
from waystation.sim.net.link import End, LinkSettings, Stream
from waystation.sim.net.node_end import NodeEnd
from waystation.sim.schedule import Schedule

__all__ = ["MakeMachine", "StreamConnection", "StreamHost", "WatchedDevice", "certificate_of"]

_SCHEME: Final = "bsp+tls://"

MakeMachine = Callable[[BspDevice, KeyPair, random.Random], BspMachine]
"""``BspMachine`` itself, or a broken one in tests of the laws."""


def certificate_of(name: str) -> bytes:
    """Return the hash of the certificate that somebody shows."""
    return hashlib.sha256(name.encode()).digest()


class WatchedDevice(BspDevice):
    """A device that shows its host what it receives and sends."""

    def __init__(self, host: "StreamHost", store: Store, mode: Mode) -> None:
        super().__init__(SEED, store, mode=mode)
        self._host = host

    def link_up(self, peer: PublicKey, terms: LinkTerms, now: Instant) -> int:
        """Take a connection; see ``BspDevice``."""
        self._host.on_link(peer)
        return super().link_up(peer, terms, now)

    def receive(self, peer: PublicKey, record: Record, now: Instant, link: int | None = None) -> None:
        """Take a record; see ``BspDevice``."""
        self._host.on_received(peer, record)
        super().receive(peer, record, now, link)

    def send_due(self, peer: PublicKey, now: Instant, bytes_max: int = WRITE_BYTES) -> list[bytes]:
        """Return what is due; see ``BspDevice``."""
        records = super().send_due(peer, now, bytes_max)
        self._host.on_sent(peer, records)
        return records


class StreamHost(Host):
    """A device on byte streams."""

    machine: BspMachine
    """Of this life."""

    def __init__(
        self,
        network: Surroundings,
        name: str,
        mode: Mode,
        commit_us: int,
        rng: random.Random,
        make_machine: MakeMachine = BspMachine,
    ) -> None:
        """Start with an empty store.

        Args:
            network: Where it lives.
            name: At most 32 ASCII characters.
            mode: How it hands messages over.
            commit_us: How long its disk takes, in microseconds.
            rng: Where nonces and jitter come from.
            make_machine: Makes the machine of each of its lives.
        """
        self._rng = rng
        self._make_machine = make_machine
        self._number = 0
        self._ends: dict[Peer, NodeEnd] = {}
        """Connections of this life."""
        super().__init__(network, name, mode, lambda store, mode: WatchedDevice(self, store, mode), commit_us)

    @property
    def now(self) -> Instant:
        """The current instant."""
        return self._schedule.now

    def _begin_life(self) -> None:
        forgotten, self._ends = self._ends, {}
        for end in forgotten.values():
            end.port.stream.break_off()  # nobody remembers those connections: the next packet of the others says so
        self.machine = self._make_machine(self.device, key_pair_of(self.name), self._rng)
        self.machine.use_certificate(certificate_of(self.name))

    def crash(self) -> None:
        """Lose everything but the store; no peer is notified."""
        super().crash()
        for end in self._ends.values():
            end.port.stream.cut()

    # Lines

    def link_up(self, connection: Connection) -> None:
        """Dial, if it is this end that does."""
        if connection.names[0] == self.name:
            self.machine.dial(key_of(connection.other(self.name)), _SCHEME + connection.other(self.name))
        self.plan_turn()

    def link_down(self, connection: Connection) -> None:
        """Dial no more."""
        if self.is_up and connection.names[0] == self.name:
            self.machine.undial(key_of(connection.other(self.name)))
            self.plan_turn()

    def accept(self, rng: random.Random, link: LinkSettings, end: End) -> Stream:
        """Take a connection whose other end is this one, and return its stream."""
        peer, node_end = self._new_end()
        stream = Stream(self._schedule, rng, link, end, node_end)
        node_end.port = stream.node
        self.machine.connect_by(peer, "", self.now)
        self.plan_turn()
        return stream

    def _new_end(self) -> tuple[Peer, NodeEnd]:
        self._number += 1
        end = NodeEnd(self)
        end.peer = peer = Peer(self._number)
        self._ends[peer] = end
        return peer, end

    # What streams report

    def received(self, end: NodeEnd, data: bytes) -> None:
        """Hand bytes to the machine; called by ends of this life."""
        if (peer := self._peer_of(end)) is not None:
            self.machine.receive(peer, data, self.now)
            self.plan_turn()

    def congested(self, end: NodeEnd) -> None:
        """Notify the machine."""
        if (peer := self._peer_of(end)) is not None:
            self.machine.congested(peer, self.now)

    def drained(self, end: NodeEnd) -> None:
        """Notify the machine."""
        if (peer := self._peer_of(end)) is not None:
            self.machine.drained(peer, self.now)
            self.plan_turn()

    def ended(self, end: NodeEnd) -> None:
        """Notify the machine."""
        if (peer := self._peer_of(end)) is not None:
            del self._ends[peer]
            self.machine.disconnect(peer, self.now)
            self.plan_turn()

    def _peer_of(self, end: NodeEnd) -> Peer | None:
        """Return whose end it is, or None when the host or the connection is down."""
        return end.peer if self.is_up and end.peer in self._ends else None

    # What the device shows

    def on_link(self, peer: PublicKey) -> None:
        """A new connection stands."""
        self._network.observe(seen.LineUp(self.name, self._names[peer]))

    def on_received(self, peer: PublicKey, record: Record) -> None:
        """The device is handed a record."""
        for as_seen in read_records(encode(SEED, record)):
            self._network.observe(seen.Received(self.name, self._names[peer], as_seen))

    def on_sent(self, peer: PublicKey, records: list[bytes]) -> None:
        """The device says something."""
        name = self._names[peer]
        tally = self.connections[name][-1].tallies[self.name]
        for record in read_records(b"".join(records)):
            self._observe_sent(name, record)
            tally.count(record, self.now)

    # Turns

    def _turn(self) -> None:
        self._is_turn_planned = False
        self.machine.wake(self.now)
        for _ in range(TURNS_MAX):
            effects = self.machine.take()
            if not effects:
                break
            for effect in effects:
                self._carry_out(effect)
        else:
            raise ViolationError("quiet", f"{self.name} has always more to say")
        for event in self.machine.take_events():
            self._on_event(event)
        self._timer.ring_by(self.machine.deadline())

    def _on_timer(self) -> None:
        self.plan_turn()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Commit(ticket, changes):
                self._save(changes, lambda is_kept: self._on_answer(ticket, is_kept=is_kept))
            case Send(peer, data, receipt):
                self._send(peer, data, receipt=receipt)
            case SendMany(peer, messages):
                self._send(peer, b"".join(messages))
            case Close(peer, _, abort):
                end = self._ends.pop(peer, None)  # as in the hub: it may have been lost in the turn that closes it
                if end is not None:
                    (end.port.abort if abort else end.port.close)()
            case Hold(peer, held):
                if peer in self._ends:
                    port = self._ends[peer].port
                    (port.pause if held else port.resume)()
            case Dial(name, url, _):
                other = url.removeprefix(_SCHEME)
                connection = next(
                    connection for connection in self.connections[other] if isinstance(connection, StreamConnection)
                )
                self._schedule.after(
                    connection.latency_us, self._in_life(lambda: self._answer(connection, name, other))
                )

    def _answer(self, connection: "StreamConnection", name: str, other: str) -> None:
        peer, end = self._new_end()
        if connection.connect(end):
            self.machine.connect_upstream(peer, name, self.now, certificate_of(other))
        else:
            del self._ends[peer]
            self.machine.upstream_failed(name, self.now)
        self.plan_turn()

    def _on_answer(self, ticket: int, *, is_kept: bool) -> None:
        (self.machine.committed if is_kept else self.machine.not_committed)(ticket, self.now)
        self.plan_turn()

    def _send(self, peer: Peer, data: bytes, *, receipt: bool = False) -> None:
        end = self._ends.get(peer)
        if end is None:
            return
        end.port.write(data)
        if receipt and not end.port.waits:
            self.machine.drained(peer, self.now)


class StreamConnection(Connection):
    """What joins two wired hosts: one connection at a time, dialled by the first, as often as the other loses it."""

    def __init__(
        self, schedule: Schedule, rng: random.Random, link: LinkSettings, dialler: StreamHost, acceptor: StreamHost
    ) -> None:
        """Join two hosts; the first dials as soon as the connection is up."""
        self._link = link
        self._stream: Stream | None = None
        self._dialler = dialler
        self._acceptor = acceptor
        super().__init__(schedule, rng, DatagramSettings(), {dialler.name: dialler.take, acceptor.name: acceptor.take})

    @property
    def latency_us(self) -> int:
        """How long a dial takes."""
        return self._link.latency_us

    def connect(self, end: NodeEnd) -> bool:
        """Make a connection of the dialler's ``end`` and notify the acceptor; return whether anybody answers."""
        if not self.is_up or self.is_cut or not self._acceptor.is_up:
            return False
        self._stream = self._acceptor.accept(self._rng, self._link, end)
        end.port = self._stream.client
        return True

    def cut(self) -> None:
        """Let nothing through; neither side is notified."""
        super().cut()
        if self._stream is not None:
            self._stream.cut()

    def heal(self) -> None:
        """Let the dialler notice that its connection is dead, so that it makes another."""
        if self.is_cut and self._stream is not None:
            self._stream.give_up()
        super().heal()

    def change_to(self, settings: DatagramSettings) -> None:
        """Heal; the weather of a connection is that of its streams."""
        super().change_to(settings)
        self.heal()

    def set_out(self, settings: DatagramSettings | None = None) -> None:
        """End the connection, if there is one, for both sides."""
        super().set_out(settings)
        if self._stream is not None:
            self._stream.break_off()
            self._stream = None
