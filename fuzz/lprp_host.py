"""Target: an LPRP host, with a network that may bring anything from anywhere.

An input is what arrives: its first byte chooses how the host's disk and its signature checks lag behind, the rest is
datagrams, each behind one byte that says where it comes from and how long it was quiet before, and two bytes of length.
A length of zero stands for the answer to the newest demand for work, since nobody can know that one beforehand; two
more bits of the first byte make it too little work.

The laws are those of the simulated town, which know the host by its wires alone.
"""

import random
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from fuzz.target import expect
from waystation.core.effects import Address, Commit, SendTo, Verify
from waystation.core.instant import MICROSECONDS_PER_MS, Instant
from waystation.crypto.signing import KeyPair, verify_any
from waystation.protocols.lprp.messages import Command
from waystation.protocols.lprp.relay import LprpRelay
from waystation.protocols.lprp.settings import LprpSettings
from waystation.protocols.lprp.wire import packet_sizes
from waystation.sim import lprp_observations as seen
from waystation.sim.invariants import Watch
from waystation.sim.lprp_books import Books
from waystation.sim.lprp_laws import Bookkeeping, Bounded, FairRefusal, LeaseKept, Whitelists
from waystation.sim.lprp_packets import DEMANDS, Seen, is_fresh_request, make_packet, read_packet, work_bits
from waystation.sim.lprp_wire_laws import Answered, Earned, Mailed, Worked
from waystation.store.memory import MemoryStore

__all__ = ["LprpHostTarget"]

_HOST: Final = KeyPair.from_seed(b"\x02" * 32)
_KEYS: Final = [KeyPair.from_seed(bytes([number]) * 32) for number in range(3, 6)]
_WALL_MS: Final = 1_760_000_000_000
_BITS: Final = 2
_LEASE_MS: Final = 60_000
_ADDRESSES: Final[tuple[Address, ...]] = (
    ("10.0.0.1", 1),
    ("10.0.0.1", 2),
    ("10.0.0.2", 1),
    ("10.0.1.1", 1),
    ("192.0.2.1", 9),
    ("::ffff:10.0.0.1", 1),
    ("2001:db8::1", 1),
    ("2001:db8::2", 1),
)
_POOR: Final = 0x18
_QUIET_MS: Final = (0, 0, 0, 1, 100, 2_000, 30_000, 140_000)
_SETTINGS: Final = LprpSettings(
    pow_base_bits_relay=_BITS,
    pow_base_bits_lease=_BITS,
    pow_base_bits_whitelist=_BITS,
    pow_adaptive=False,
    lease_ms=_LEASE_MS,
    retry_ms=500,
    retries=2,
)
_DATAGRAMS_MAX: Final = 24
_DATAGRAM_BYTES_MAX: Final = 2_000
_TURNS_MAX: Final = 64
_GRACE_US: Final = 1_000_000
_LAG_MS_MAX: Final = 1_000
_LAST_MS: Final = 2_400_000  # a challenge and what is kept of it live twice 2**19 ms
_REQUESTS: Final = (
    Command.HEARTBEAT,
    Command.WORK,
    Command.RELAY,
    Command.DELIVERED,
    Command.ASK_LEASE,
    Command.UPDATE_WHITELIST,
    Command.CLEAR_WHITELIST,
)


def _draw_packet(rng: random.Random, number: int, signatures: list[bytes]) -> bytes:
    """Return one signed packet that somebody may send, newer than those before it most of the time."""
    command = rng.choice(_REQUESTS) if rng.random() < 0.9 else rng.choice(list(Command))
    size = rng.choice(sorted(packet_sizes(command))) - 144
    reference = rng.choice(signatures) if signatures else bytes(64)
    payload = (reference + rng.choice((bytes(400), rng.randbytes(400))))[:size]
    key = rng.choice(_KEYS)
    recipient = rng.choice(_KEYS).public if command is Command.RELAY or rng.random() < 0.05 else _HOST.public
    late_ms = rng.choice((0, 0, 0, 0, -(1 << 19), 1 << 19, (1 << 19) + 1, -10_000_000))
    data = make_packet(key, recipient, int(command), payload, _WALL_MS + number * 100 + late_ms)
    signatures.append(data[:64])
    return data


def _make_pool() -> list[bytes]:
    rng, signatures = random.Random(1), list[bytes]()
    pool = [make_packet(key, _HOST.public, 0x104, bytes(64), _WALL_MS + number) for number, key in enumerate(_KEYS)]
    return pool + [_draw_packet(rng, number, signatures) for number in range(600)]


_POOL: Final = _make_pool()
_verify_any = lru_cache(65_536)(verify_any)  # inputs are made of the same packets again and again


def _is_signed_by(packet: Seen, key: bytes) -> bool:
    return _verify_any((key,), packet.data[64:], packet.signature) == 0


class _Host:
    """A host with disk and verifier, and the laws that look at its wires."""

    def __init__(self, choices: int) -> None:
        self.now = Instant(0)
        self.demand: Seen | None = None
        self.counts = {"out": 0, "lease": 0, "mail": 0}
        self._lags = choices & 1
        self._store = MemoryStore()
        self._relay = LprpRelay(_SETTINGS, _HOST, self._store, rate_limits=choices & 2 == 0)
        self._relay.set_wall(self.now, _WALL_MS * MICROSECONDS_PER_MS)
        books = Books([_HOST.public], _LEASE_MS, _GRACE_US)
        self._watch: Any = Watch(  # of another protocol than its type says
            [
                Bookkeeping(books),
                Answered(),
                Earned(books),
                Mailed(books),
                Worked(books, _BITS, exact=True),
                Whitelists(books),
                LeaseKept(books),
                FairRefusal(books),
                Bounded(),
            ]
        )
        self._waiting: list[Any] = []

    def hear(self, data: bytes, address: Address) -> None:
        """Hand the host a datagram, and carry out what it wants."""
        wall_ms = self._wall_ms()
        packet = read_packet(data)
        if packet is not None and not is_fresh_request(packet, wall_ms):
            packet = None
        is_signed = packet is not None and _is_signed_by(packet, packet.sender)
        self._watch.observe(seen.Heard(0, address, len(data), packet, is_signed, wall_ms), self.now)
        self._relay.receive_datagrams([(data, address)], self.now)
        self.carry_out()

    def pass_time(self, quiet_ms: int) -> None:
        """Let time pass, and the host do what is due meanwhile."""
        if quiet_ms >= _LAG_MS_MAX:
            self.carry_out(everything=True)
        until = Instant(self.now + quiet_ms * MICROSECONDS_PER_MS)
        for _ in range(_TURNS_MAX):
            due = self._relay.deadline()
            if due is None or due > until:
                break
            self.now = max(self.now, due)
            self._relay.wake(self.now)
            self.carry_out()
        self.now = until
        self._relay.wake(self.now)
        self.carry_out()

    def carry_out(self, *, everything: bool = False) -> None:
        """Perform effects, and answer questions now or with the next datagram."""
        answers, self._waiting = self._waiting, []
        for _ in range(_TURNS_MAX):
            for effect in answers:
                self._answer(effect)
            effects = self._relay.take()
            if not effects:
                return
            asked = [effect for effect in effects if isinstance(effect, Verify | Commit)]
            for effect in effects:
                if isinstance(effect, SendTo):
                    self._look_at(effect)
                elif effect not in asked:
                    expect(hasattr(effect, "protocol"), f"a host wants {effect!r}")
            if self._lags and not everything:
                self._waiting += asked
                answers = []
            else:
                answers = asked
        expect(holds=False, what="effects without end")

    def finish(self) -> None:
        """Let everything end, and see what is left."""
        self.carry_out(everything=True)
        self.pass_time(_LAST_MS)
        self._measure("settled")

    def work(self, *, is_poor: bool) -> bytes:
        """Return the work for the newest demand, or some that is not enough, or nothing that anybody wants."""
        if self.demand is None:
            return b""
        key = next(key for key in _KEYS if key.public == self.demand.recipient)
        data, counter = self.demand.data, 0
        while (work_bits(data, counter.to_bytes(8, "big")) < _BITS) != is_poor:
            counter += 1
        payload = self.demand.signature + counter.to_bytes(8, "big")
        return make_packet(key, _HOST.public, 0x101, payload, self._wall_ms())

    def _answer(self, effect: Verify | Commit) -> None:
        if isinstance(effect, Verify):
            self._relay.verified(effect.ticket, [_verify_any(*check) for check in effect.checks], self.now)
        else:
            self._store.commit(effect.changes)
            self._relay.committed(effect.ticket, self.now)

    def _look_at(self, effect: SendTo) -> None:
        packet = read_packet(effect.data)
        expect(packet is not None, f"{len(effect.data)} bytes are sent")
        assert packet is not None
        is_signed = _is_signed_by(packet, _HOST.public)
        self._watch.observe(
            seen.Said(0, effect.address, packet, len(effect.data), is_signed, True, self._wall_ms()), self.now
        )
        self.counts["out"] += 1
        self.counts["lease"] += packet.command == 0x204
        self.counts["mail"] += packet.command == 0x102
        if packet.command in DEMANDS:
            self.demand = packet

    def _measure(self, phase: str) -> None:
        sizes = self._relay.sizes()
        views = {bytes.fromhex(view["key"]): view for view in self._relay.tenants(self.now)}
        self._watch.observe(seen.Measured(0, self._wall_ms(), sizes, views, phase), self.now)

    def _wall_ms(self) -> int:
        return _WALL_MS + self.now // MICROSECONDS_PER_MS


class LprpHostTarget:
    """A host raises nothing, sends nothing that was not earned and asked for, and keeps nothing for ever."""

    name = "lprp_host"

    def make(self, rng: random.Random) -> bytes:
        """Return a handful of datagrams, good, repeated, bent, or noise."""
        out = bytes([rng.randrange(256)])
        begins_well = rng.random() < 0.8
        at = rng.randrange(len(_POOL))
        for number in range(rng.randrange(1, _DATAGRAMS_MAX)):
            if begins_well and number < 2:
                data = b"" if number else rng.choice(_POOL[:3])
                place = 0
            else:
                at = (at + rng.randrange(1, 8)) % len(_POOL) if rng.random() < 0.8 else rng.randrange(len(_POOL))
                data, place = self._draw(rng, at), rng.randrange(256) if rng.random() < 0.5 else 0
            out += bytes([place]) + len(data).to_bytes(2, "big") + data
        return out

    def _draw(self, rng: random.Random, at: int) -> bytes:
        data, what = _POOL[at], rng.random()
        if what < 0.15:
            return b""
        if what < 0.3:
            spot = rng.randrange(len(data))
            return data[:spot] + bytes([rng.randrange(256)]) + data[spot + 1 :]
        if what < 0.4:
            return data[: rng.randrange(len(data))] + rng.randbytes(rng.randrange(300))
        return rng.randbytes(rng.randrange(_DATAGRAM_BYTES_MAX + 1)) if what < 0.45 else data

    def run(self, data: bytes) -> str:
        """Bring everything to a host, then let it be quiet for long."""
        host = _Host(data[0] if data else 0)
        for choice, datagram in _datagrams(data):
            host.pass_time(_QUIET_MS[choice >> 5])
            host.hear(datagram or host.work(is_poor=choice & _POOR == _POOR), _ADDRESSES[choice & 7])
        host.finish()
        counts = host.counts
        return "mail" if counts["mail"] else "lease" if counts["lease"] else "answers" if counts["out"] else "silence"


def _datagrams(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the datagrams of an input; a length that lies takes what is left."""
    at = 1
    while at + 3 <= len(data):
        size = int.from_bytes(data[at + 1 : at + 3], "big")
        yield data[at], data[at + 3 : at + 3 + size]
        at += 3 + size
