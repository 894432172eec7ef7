"""A party on byte streams: a ``BspMachine`` proves who it is, reads and writes, dials and dials again.

What the device hears and says is observed at the device itself, since on the wire it stands in any chunking.
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
from waystation.protocols.bsp.device import WRITE_BYTES, BspDevice
from waystation.protocols.bsp.links import LinkTerms, Mode
from waystation.protocols.bsp.machine import BspMachine
from waystation.protocols.bsp.messages import Record
from waystation.protocols.bsp.sessions import PeerDown, PeerUp
from waystation.protocols.bsp.wire import encode
from waystation.sim import bsp_observations as seen
from waystation.sim.bsp_line import Line
from waystation.sim.bsp_party import SEED, TURNS_MAX, Party, Village, key_of, key_pair_of
from waystation.sim.bsp_records import read_records
from waystation.sim.datagram import DatagramSettings
from waystation.sim.invariants import ViolationError
from waystation.sim.link import LinkSettings, Port, Stream
from waystation.sim.schedule import Schedule

__all__ = ["Cable", "MakeMachine", "WatchedDevice", "WireEnd", "WiredParty", "certificate_of"]

_SCHEME: Final = "bsp+tls://"

MakeMachine = Callable[[BspDevice, KeyPair, random.Random], BspMachine]
"""``BspMachine`` itself, or a broken one in tests of the laws."""


def certificate_of(name: str) -> bytes:
    """Return the hash of the certificate that somebody shows."""
    return hashlib.sha256(name.encode()).digest()


class WatchedDevice(BspDevice):
    """A device that shows its party what it hears and says."""

    def __init__(self, party: "WiredParty", store: Store, mode: Mode) -> None:
        super().__init__(SEED, store, mode=mode)
        self._party = party

    def link_up(self, peer: PublicKey, terms: LinkTerms, now: Instant) -> int:
        """Take a connection; see ``BspDevice``."""
        self._party.on_link(peer)
        return super().link_up(peer, terms, now)

    def hear(self, peer: PublicKey, record: Record, now: Instant, link: int | None = None) -> None:
        """Take a record; see ``BspDevice``."""
        self._party.on_heard(peer, record)
        super().hear(peer, record, now, link)

    def speak(self, peer: PublicKey, now: Instant, bytes_max: int = WRITE_BYTES) -> list[bytes]:
        """Return what is due; see ``BspDevice``."""
        records = super().speak(peer, now, bytes_max)
        self._party.on_said(peer, records)
        return records


class WireEnd:
    """A party's end of one connection, for as long as both live."""

    def __init__(self, party: "WiredParty", peer: Peer) -> None:
        self.peer = peer
        self.port: Port
        """Set by whoever makes the stream."""
        self._party = party
        self._life = party.life

    @property
    def _is_alive(self) -> bool:
        return self._life == self._party.life and self._party.is_up

    def received(self, data: bytes) -> None:
        """Hand bytes to the machine."""
        if self._is_alive:
            self._party.machine.receive(self.peer, data, self._party.now)
            self._party.stir()

    def congested(self) -> None:
        """Tell the machine."""
        if self._is_alive:
            self._party.machine.congested(self.peer, self._party.now)

    def drained(self) -> None:
        """Tell the machine."""
        if self._is_alive:
            self._party.machine.drained(self.peer, self._party.now)
            self._party.stir()

    def ended(self) -> None:
        """Tell the machine."""
        if self._is_alive:
            self._party.ends.pop(self.peer, None)
            self._party.machine.disconnect(self.peer, self._party.now)
            self._party.stir()


class WiredParty(Party):
    """A device on byte streams."""

    machine: BspMachine
    """Of this life."""

    def __init__(
        self,
        village: Village,
        name: str,
        mode: Mode,
        commit_us: int,
        rng: random.Random,
        make_machine: MakeMachine = BspMachine,
    ) -> None:
        """Start with an empty store.

        Args:
            village: Where it lives.
            name: At most 32 ASCII characters.
            mode: How it hands messages over.
            commit_us: How long its disk takes, in microseconds.
            rng: Where nonces and jitter come from.
            make_machine: Makes the machine of each of its lives.
        """
        self._rng = rng
        self._make_machine = make_machine
        self._number = 0
        self.ends: dict[Peer, WireEnd] = {}
        """Connections of this life."""
        self.refused = 0
        """Connections that its machine has closed."""
        super().__init__(village, name, mode, lambda store, mode: WatchedDevice(self, store, mode), commit_us)

    @property
    def now(self) -> Instant:
        """The current instant."""
        return self._schedule.now

    @property
    def life(self) -> int:
        """How often it has started or crashed."""
        return self._life

    def _begin_life(self) -> None:
        for end in self.ends.values():
            end.port.stream.break_off()  # nobody remembers those connections: the next packet of the others says so
        self.ends.clear()
        self.machine = self._make_machine(self.device, key_pair_of(self.name), self._rng)
        self.machine.use_certificate(certificate_of(self.name))

    def crash(self) -> None:
        """Lose everything but the store; nobody is told."""
        super().crash()
        for end in self.ends.values():
            end.port.stream.cut()

    # Lines

    def link_up(self, line: Line) -> None:
        """Dial, if it is this end that does."""
        if line.names[0] == self.name:
            self.machine.dial(key_of(line.other(self.name)), _SCHEME + line.other(self.name))
        self.stir()

    def link_down(self, line: Line) -> None:
        """Dial no more."""
        if self.is_up and line.names[0] == self.name:
            self.machine.undial(key_of(line.other(self.name)))
            self.stir()

    def accept(self, end_of_dialler: Port) -> None:
        """Take a connection whose other port is this one."""
        end = self._new_end()
        end.port = end_of_dialler.stream.node
        end.port.end = end
        self.machine.connect_by(end.peer, "", self.now)
        self.stir()

    def connected(self, port: Port, name: str) -> None:
        """Take a connection that this side has dialled."""
        end = self._new_end()
        end.port = port
        port.end = end
        self.machine.connect_upstream(end.peer, key_of(name).hex(), self.now, certificate_of(name))
        self.stir()

    def _new_end(self) -> WireEnd:
        self._number += 1
        end = self.ends[Peer(self._number)] = WireEnd(self, Peer(self._number))
        return end

    # What the device shows

    def on_link(self, peer: PublicKey) -> None:
        """A new connection stands."""
        self._village.observe(seen.LineUp(self.name, self._names[peer]))

    def on_heard(self, peer: PublicKey, record: Record) -> None:
        """The device is handed a record."""
        for as_seen in read_records(encode(SEED, record)):
            self._village.observe(seen.Heard(self.name, self._names[peer], as_seen))

    def on_said(self, peer: PublicKey, records: list[bytes]) -> None:
        """The device says something."""
        name = self._names[peer]
        tally = self.lines[name][-1].tallies[self.name]
        for record in read_records(b"".join(records)):
            self._observe_said(name, record)
            tally.count(record, self.now)

    # Turns

    def _turn(self) -> None:
        self._is_turning = False
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
            if not isinstance(event, PeerUp | PeerDown):
                self._on_event(event)
        self._timer.ring_by(self.machine.deadline())

    def _on_timer(self) -> None:
        self.stir()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Commit(ticket, changes):
                self._save(changes, lambda: self._on_committed(ticket))
            case Send(peer, data, receipt):
                self._send(peer, data, receipt=receipt)
            case SendMany(peer, messages):
                self._send(peer, b"".join(messages))
            case Close(peer, _, abort):
                end = self.ends.pop(peer, None)  # as in the hub: it may have been lost in the turn that closes it
                if end is not None:
                    (end.port.abort if abort else end.port.close)()
                    self.refused += 1
            case Hold(peer, held):
                if peer in self.ends:
                    port = self.ends[peer].port
                    (port.pause if held else port.resume)()
            case Dial(name, url, _):
                other = url.removeprefix(_SCHEME)
                cable = next(line for line in self.lines[other] if isinstance(line, Cable))
                self._schedule.after(cable.latency_us, self._in_life(lambda: self._answer(cable, name, other)))

    def _answer(self, cable: "Cable", name: str, other: str) -> None:
        port = cable.connect()
        if port is None:
            self.machine.upstream_failed(name, self.now)
            self.stir()
        else:
            self.connected(port, other)

    def _on_committed(self, ticket: int) -> None:
        self.machine.committed(ticket, self.now)
        self.stir()

    def _send(self, peer: Peer, data: bytes, *, receipt: bool = False) -> None:
        end = self.ends.get(peer)
        if end is None:
            return
        end.port.write(data)
        if receipt and not end.port.waits:
            self.machine.drained(peer, self.now)


class Cable(Line):
    """What joins two wired parties: one connection at a time, dialled by the first, as often as the other loses it."""

    def __init__(
        self, schedule: Schedule, rng: random.Random, link: LinkSettings, dialler: WiredParty, acceptor: WiredParty
    ) -> None:
        """Join two parties; the first dials as soon as the line is up."""
        self._link = link
        self._stream: Stream | None = None
        self._dialler = dialler
        self._acceptor = acceptor
        super().__init__(schedule, rng, DatagramSettings(), {dialler.name: dialler.take, acceptor.name: acceptor.take})

    @property
    def latency_us(self) -> int:
        """How long a dial takes."""
        return self._link.latency_us

    def connect(self) -> Port | None:
        """Make a connection and tell the acceptor; return the port of the dialler, or None when nobody answers."""
        if not self.is_up or self.is_cut or not self._acceptor.is_up:
            return None
        nobody = WireEnd(self._dialler, Peer(0))
        stream = self._stream = Stream(self._schedule, self._rng, self._link, nobody, nobody)
        self._acceptor.accept(stream.client)
        return stream.client

    def cut(self) -> None:
        """Let nothing through; neither side is told."""
        super().cut()
        if self._stream is not None:
            self._stream.cut()

    def heal(self) -> None:
        """Let the dialler notice that its connection is dead, so that it makes another."""
        if self.is_cut and self._stream is not None:
            self._stream.give_up()
        super().heal()

    def calm(self, settings: DatagramSettings) -> None:
        """Heal; the weather of a cable is that of its streams."""
        super().calm(settings)
        self.heal()

    def set_out(self, settings: DatagramSettings | None = None) -> None:
        """End the connection, if there is one, for both sides."""
        super().set_out(settings)
        if self._stream is not None:
            self._stream.break_off()
            self._stream = None
