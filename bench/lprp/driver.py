"""Generates the load for LPRP hosts: it signs packets before the clock starts, and matches answers by their bytes.

It reads sockets in batches and verifies no signatures, because that would cost more than the measured host. Several
keys share a socket, like clients behind one router. Each socket uses its own network prefix, because the host applies
many limits per network.
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

CODEC: Final = Codec()
READS_MAX: Final = 256
BUFFER_BYTES: Final = 1 << 22
REPEAT_S: Final = 0.25
LOOK_S: Final = 0.05
SLICE_S: Final = 0.01
TIMEOUT_S: Final = 20.0
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
        """Send a datagram; return False when the kernel has no room, or the host does not listen just now."""
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


class Signer:
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
        """Return a packet to the host, or by way of it to another client."""
        self._last_ms = max(self._last_ms + 1, time.time_ns() // 1_000_000)
        return CODEC.seal(self.key_pair, self.host if to is None else to, command, payload, self._last_ms)


class Pair(NamedTuple):
    """A tenant and a sender that it allows."""

    tenant: Signer
    tenant_line: Line
    sender: Signer
    sender_line: Line


class Mail(NamedTuple):
    """A packet and its confirmation, both signed; due at ``due_s`` after the start.

    An empty confirmation is never sent: its tenant takes what comes and does not confirm it.
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


def exchange(line: Line, packet: Packet, over: Callable[[], bool], *more: bytes) -> bytes | None:
    """Send a packet until something refers to it or to one of ``more``; return that, or None when it is over first."""
    wanted = {packet.signature, *more}
    repeat_at = 0.0
    while True:
        is_over = over()
        if time.monotonic() >= repeat_at and not is_over:
            line.send(packet.data)
            repeat_at = time.monotonic() + REPEAT_S
        line.wait(SLICE_S)
        for data in line.read():
            alive = packet.command is Command.HEARTBEAT and command_of(data) == Command.HEARTBEAT_ANSWER
            if data[_REFERENCE] in wanted or alive:
                return data
        if is_over:  # and what the host sent before its end was read after that
            return None


def ask(line: Line, packet: Packet) -> bytes:
    """Send a packet until it is answered; return the answer."""
    ends_at = time.monotonic() + TIMEOUT_S
    answer = exchange(line, packet, lambda: time.monotonic() >= ends_at)
    if answer is None:
        raise TimeoutError(f"no answer to {packet.command.name} within {TIMEOUT_S:g} s")
    return answer


def ask_and_work(line: Line, signer: Signer, packet: Packet, over: Callable[[], bool]) -> int | None:
    """Ask, and work where that is demanded; return the last answer's command, or None when it is over first."""
    answer = exchange(line, packet, over)
    if answer is not None and command_of(answer) & 0x600 == 0x600:
        answer = exchange(line, signer.seal(Command.WORK, answer[:SIGNATURE_BYTES]), over, packet.signature)
    return None if answer is None else command_of(answer)


def lease(line: Line, signer: Signer) -> None:
    """Get a lease from a host that demands work of 0 bits."""
    _get_granted(line, signer, signer.seal(Command.ASK_LEASE, _PADDING), Command.LEASE_GRANTED)


def allow(line: Line, signer: Signer, before: Iterable[bytes], keys: Sequence[bytes]) -> None:
    """Put keys on the whitelist of a tenant that holds ``before``, at most ten."""
    payload = whitelist_hash({*before, *keys}) + b"".join(keys)
    _get_granted(line, signer, signer.seal(Command.UPDATE_WHITELIST, payload), Command.WHITELIST_DONE)


def settle(place: tuple[str, int], host: bytes, count: int, networks_count: int = 0) -> list[Pair]:
    """Give so many tenants a lease and one allow-listed sender each.

    Args:
        place: Where the host listens.
        host: Its public key.
        count: How many pairs.
        networks_count: How many sockets they share, each in a network of its own; two each in one of its own when 0.
    """
    shared = [Line(place, f"127.0.{1 + number}.1") for number in range(networks_count)]
    pairs = []
    for number in range(count):
        own = [] if shared else [Line(place, f"127.0.{1 + number}.1") for _ in range(2)]
        near, far = own or [shared[number % networks_count]] * 2
        pair = Pair(Signer(2 * number + 1, host), near, Signer(2 * number + 2, host), far)
        lease(near, pair.tenant)
        allow(near, pair.tenant, (), [pair.sender.key])
        pairs.append(pair)
    return pairs


def close(pairs: Sequence[Pair]) -> None:
    """Close the sockets of all pairs."""
    for line in {id(line): line for pair in pairs for line in (pair.tenant_line, pair.sender_line)}.values():
        line.close()


def _get_granted(line: Line, signer: Signer, packet: Packet, wanted: Command) -> None:
    ends_at = time.monotonic() + TIMEOUT_S
    answer = ask_and_work(line, signer, packet, lambda: time.monotonic() >= ends_at)
    assert answer == wanted, f"{packet.command.name} was answered with {answer}"


def make_mail(pairs: Sequence[Pair], count: int, per_s: float = 0.0) -> list[Mail]:
    """Sign packets of all pairs in turn, due ``per_s`` a second, or all at once when that is 0."""
    made = []
    for number in range(count):
        pair = pairs[number % len(pairs)]
        payload = number.to_bytes(8, "big") + bytes(PAYLOAD_BYTES - 8)
        relay = pair.sender.seal(Command.RELAY, payload, pair.tenant.key)
        confirmation = pair.tenant.seal(Command.DELIVERED, relay.signature)
        made.append(Mail(pair, relay.data, confirmation.data, number / per_s if per_s else 0.0))
    return made


class Flow:
    """Whole cycles: mail is sent, accepted, delivered and confirmed; lost datagrams are sent again.

    What is delivered again is confirmed again. A flow runs once.
    """

    def __init__(self, pairs: Sequence[Pair], mail: Sequence[Mail]) -> None:
        self.accepted: dict[bytes, float] = {}
        """When each packet was answered with 202, by its name, in seconds after the start."""
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
        ends_s = TIMEOUT_S + len(self._waiting) / 100
        self.until(lambda: self._now() > ends_s, in_flight)
        self.close()
        assert not self._out, f"{len(self._out)} packets are stuck"
        for line, signer in {pair.tenant_line: pair.tenant for pair in self._pairs}.items():
            ask(line, signer.seal(Command.HEARTBEAT))
        return self._now()

    def run_paced(self, grace_s: float) -> None:
        """Send everything when it is due, and go on until all is through or ``grace_s`` after the last was due."""
        ends_s = self._waiting[-1].due_s + grace_s
        self.until(lambda: self._now() > ends_s, len(self._waiting))
        self.close()

    def until(self, over: Callable[[], bool], in_flight: int) -> None:
        """Send what is due, with so many on the way, until all is through or ``over`` is true."""
        self._began = time.perf_counter()
        look_s = REPEAT_S
        while (self._waiting or self._out) and not over():
            while self._waiting and self._waiting[0].due_s <= self._now() and len(self._out) < in_flight:
                self._start(self._waiting.popleft())
            full = not self._waiting or len(self._out) >= in_flight
            self._take(LOOK_S if full else min(LOOK_S, self._waiting[0].due_s - self._now()))
            if self._now() >= look_s:
                self._repeat_late(2 * REPEAT_S)
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

    def _repeat_late(self, older_s: float) -> None:
        """Repeat packets that are not accepted; heartbeats of the tenants bring again what was lost on its way."""
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
