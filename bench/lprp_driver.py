"""The load for LPRP hosts: packets signed before the clock starts, sockets read in bunches, answers found by bytes.

Nobody here verifies anything: the host's work is measured, and a generator that checked signatures would need more of
the machine than the host. Several keys share a socket, as behind one router; each socket has a network of its own,
because a host counts much by network.
"""

import contextlib
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from waystation.core.ids import PublicKey
from waystation.crypto.signing import KeyPair
from waystation.protocols.lprp.messages import HEADER_BYTES, REFERENCE_BYTES, SIGNATURE_BYTES, Command, Packet
from waystation.protocols.lprp.whitelist import whitelist_hash
from waystation.protocols.lprp.wire import Codec

__all__ = [
    "CODEC",
    "Flow",
    "Line",
    "Mail",
    "Pair",
    "Party",
    "ask",
    "command_of",
    "lease",
    "let_in",
    "make_mail",
    "reference_of",
]

CODEC: Final = Codec()
READS_MAX: Final = 256
BUFFER_BYTES: Final = 1 << 22
REPEAT_S: Final = 0.25
LOOK_S: Final = 0.05
PATIENCE_S: Final = 20.0
PAYLOAD_BYTES: Final = 112
"""With the header 256 bytes, as in io.md's figures."""
_PADDING: Final = bytes(64)
_COMMAND: Final = slice(136, HEADER_BYTES)
_REFERENCE: Final = slice(HEADER_BYTES, HEADER_BYTES + REFERENCE_BYTES)
_ACCEPTED: Final = int(Command.RELAY_ACCEPTED).to_bytes(8, "big")
_RELAY: Final = int(Command.RELAY).to_bytes(8, "big")


class Line:
    """A UDP socket of one local address, connected to a host."""

    def __init__(self, host: tuple[str, int], local: str = "127.0.0.1") -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            self.socket.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
        self.socket.bind((local, 0))
        self.socket.connect(host)
        self.socket.setblocking(False)

    def send(self, data: bytes) -> bool:
        """Send a datagram; return False when the kernel has no room, or nobody listens just now."""
        try:
            self.socket.send(data)
        except (BlockingIOError, ConnectionRefusedError):
            return False
        return True

    def read(self) -> list[bytes]:
        """Return what has arrived, up to 256 datagrams."""
        came: list[bytes] = []
        with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
            while len(came) < READS_MAX:
                came.append(self.socket.recv(2_048))
        return came

    def wait(self, within_s: float) -> bool:
        """Return whether something arrives in time."""
        return bool(select.select([self.socket], [], [], max(0.0, within_s))[0])

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


class Party:
    """A key with a clock that never gives one time twice."""

    def __init__(self, number: int, host: bytes) -> None:
        self.key_pair = KeyPair.from_seed(number.to_bytes(32, "big"))
        self.host = host
        self._last_ms = 0

    @property
    def key(self) -> PublicKey:
        """The public key, 32 bytes."""
        return self.key_pair.public

    def seal(self, command: Command, payload: bytes = b"", to: bytes | None = None) -> Packet:
        """Return a packet to the host, or by way of it to somebody else."""
        self._last_ms = max(self._last_ms + 1, time.time_ns() // 1_000_000)
        return CODEC.seal(self.key_pair, self.host if to is None else to, command, payload, self._last_ms)


class Pair(NamedTuple):
    """A tenant and a friend of it."""

    tenant: Party
    tenant_line: Line
    sender: Party
    sender_line: Line


class Mail(NamedTuple):
    """A packet and its confirmation, both signed; due at ``due_s`` behind the start.

    An empty confirmation is never sent: its tenant takes what comes and does not say so.
    """

    pair: Pair
    relay: bytes
    confirmation: bytes
    due_s: float = 0.0

    @property
    def signature(self) -> bytes:
        """Name of the packet, 64 bytes."""
        return self.relay[:SIGNATURE_BYTES]


def command_of(data: bytes) -> int:
    """Return the command of a packet."""
    return int.from_bytes(data[_COMMAND], "big")


def reference_of(data: bytes) -> bytes:
    """Return whom an answer refers to: the first 64 bytes of its payload."""
    return data[_REFERENCE]


def ask(line: Line, packet: Packet, *more: bytes) -> bytes:
    """Send a packet until something refers to it or to one of ``more``; return that."""
    wanted = {packet.signature, *more}
    ends_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends_at:
        line.send(packet.data)
        repeat_at = time.monotonic() + REPEAT_S
        while line.wait(repeat_at - time.monotonic()):
            for data in line.read():
                alive = packet.command is Command.HEARTBEAT and command_of(data) == Command.HEARTBEAT_ANSWER
                if data[_REFERENCE] in wanted or alive:
                    return data
    raise TimeoutError(f"no answer to {packet.command.name} within {PATIENCE_S:g} s")


def lease(line: Line, party: Party) -> None:
    """Get a lease from a host that demands work of 0 bits."""
    _settle(line, party, party.seal(Command.ASK_LEASE, _PADDING), Command.LEASE_GRANTED)


def let_in(line: Line, party: Party, before: Iterable[bytes], keys: Sequence[bytes]) -> None:
    """Put keys on the whitelist of a tenant that holds ``before``, at most ten."""
    payload = whitelist_hash({*before, *keys}) + b"".join(keys)
    _settle(line, party, party.seal(Command.UPDATE_WHITELIST, payload), Command.WHITELIST_DONE)


def _settle(line: Line, party: Party, packet: Packet, wanted: Command) -> None:
    answer = ask(line, packet)
    if command_of(answer) not in (wanted, Command.LEASE_REFUSED, Command.WHITELIST_DIFFERS):
        answer = ask(line, party.seal(Command.WORK, answer[:SIGNATURE_BYTES]), packet.signature)
    assert command_of(answer) == wanted, f"{packet.command.name} was answered with {command_of(answer):#x}"


def make_mail(pairs: Sequence[Pair], count: int, per_s: float = 0.0, payload_bytes: int = PAYLOAD_BYTES) -> list[Mail]:
    """Sign packets of all pairs in turn, due ``per_s`` a second, or all at once when that is 0."""
    made = []
    for number in range(count):
        pair = pairs[number % len(pairs)]
        payload = number.to_bytes(8, "big") + bytes(payload_bytes - 8)
        relay = pair.sender.seal(Command.RELAY, payload, pair.tenant.key)
        confirmation = pair.tenant.seal(Command.DELIVERED, relay.signature)
        made.append(Mail(pair, relay.data, confirmation.data, number / per_s if per_s else 0.0))
    return made


class Flow:
    """Whole cycles: mail is sent, accepted, delivered and confirmed; lost datagrams are said again.

    What is delivered again is confirmed again. A flow runs once.
    """

    def __init__(self, pairs: Sequence[Pair], mail: Sequence[Mail]) -> None:
        self.accepted: dict[bytes, float] = {}
        """When each packet was answered with 202, by its name, in seconds behind the start."""
        self.delivered: dict[bytes, float] = {}
        """When it arrived first."""
        self.confirmed: set[bytes] = set()
        """Names of packets whose 802 was sent."""
        self.repeats = 0
        """Packets sent or delivered again."""
        self.refused = 0
        """Packets that were answered with something else than 202."""
        self._pairs = pairs
        self._waiting = deque(mail)
        self._by_name = {each.signature: each for each in mail}
        self._out: dict[bytes, float] = {}
        self._answers = True
        self._poll = select.epoll()
        self._lines: dict[int, Line] = {}
        for pair in pairs:
            for line in (pair.tenant_line, pair.sender_line):
                if line.socket.fileno() not in self._lines:
                    self._lines[line.socket.fileno()] = line
                    self._poll.register(line.socket.fileno(), select.EPOLLIN)
        self._began = time.perf_counter()

    def run(self, in_flight: int) -> float:
        """Send everything with so many on the way; return the seconds until the host has taken the last 802."""
        ends_s = PATIENCE_S + len(self._waiting) / 100
        self.until(lambda: self._now() > ends_s, in_flight)
        self.close()
        assert not self._out, f"{len(self._out)} packets are stuck"
        for line, party in {pair.tenant_line: pair.tenant for pair in self._pairs}.items():
            ask(line, party.seal(Command.HEARTBEAT))
        return self._now()

    def run_paced(self, grace_s: float) -> None:
        """Send everything when it is due, and go on until all is through or ``grace_s`` after the last was due."""
        ends_s = self._waiting[-1].due_s + grace_s
        self.until(lambda: self._now() > ends_s, len(self._waiting))
        self.close()

    def until(self, over: Callable[[], bool], in_flight: int) -> None:
        """Send what is due, with so many on the way, until all is through or ``over`` says so."""
        self._began = time.perf_counter()
        look_s = REPEAT_S
        while (self._waiting or self._out) and not over():
            while self._waiting and self._waiting[0].due_s <= self._now() and len(self._out) < in_flight:
                self._start(self._waiting.popleft())
            full = not self._waiting or len(self._out) >= in_flight
            self._take(LOOK_S if full else min(LOOK_S, self._waiting[0].due_s - self._now()))
            if self._now() >= look_s:
                self._say_again(2 * REPEAT_S)
                look_s = self._now() + REPEAT_S

    def read_rest(self) -> None:
        """Take what has arrived already, and answer nothing."""
        self._answers = False
        for line in self._lines.values():
            while came := line.read():
                for data in came:
                    self._on_packet(data, self._now())

    def close(self) -> None:
        """Stop watching the sockets; they stay open."""
        self._poll.close()

    def _now(self) -> float:
        return time.perf_counter() - self._began

    def _start(self, mail: Mail) -> None:
        self._out[mail.signature] = self._now()
        mail.pair.sender_line.send(mail.relay)

    def _take(self, within_s: float) -> None:
        """Wait for anything, and read all lines once."""
        ready = self._poll.poll(max(0.0, within_s))
        now = self._now()
        for number, _ in ready:
            for data in self._lines[number].read():
                self._on_packet(data, now)

    def _on_packet(self, data: bytes, now: float) -> None:
        command = data[_COMMAND]
        if command == _RELAY:
            name = data[:SIGNATURE_BYTES]
            mail = self._by_name.get(name)
            if mail is None:
                return
            self.repeats += name in self.delivered
            self.delivered.setdefault(name, now)
            if mail.confirmation and self._answers:
                mail.pair.tenant_line.send(mail.confirmation)
                self.confirmed.add(name)
        elif data[_REFERENCE] in self._by_name:
            name = data[_REFERENCE]
            if command != _ACCEPTED:
                self.refused += 1
                self._out.pop(name, None)
                return
            self.accepted.setdefault(name, now)
        else:
            return
        if name in self.accepted and (name in self.delivered or not self._by_name[name].confirmation):
            self._out.pop(name, None)

    def _say_again(self, older_s: float) -> None:
        """Repeat packets that are not accepted; let the tenants speak, so that what was lost on its way comes again."""
        limit = self._now() - older_s
        late = [name for name, since in self._out.items() if since <= limit]
        asleep: dict[bytes, Pair] = {}
        for name in late:
            mail = self._by_name[name]
            self._out[name] = self._now()
            if name in self.accepted:
                asleep[mail.pair.tenant.key] = mail.pair
            else:
                self.repeats += 1
                mail.pair.sender_line.send(mail.relay)
        for pair in asleep.values():
            pair.tenant_line.send(pair.tenant.seal(Command.HEARTBEAT).data)
