"""Fuzz target: an LPRP host that receives arbitrary datagrams from arbitrary addresses.

The choice byte sets whether the disk and the signature checks are slow. The place of a step sets the source address and
the pause before it. An empty datagram means a solution of the newest work challenge, which no input could contain. Two
bits of the place make that solution insufficient.

The simulator's invariants check the host by its datagrams.
"""

import random
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from fuzz.conversation import FACTS, Conversation, Do, Step
from fuzz.mutate import mutate_bytes
from fuzz.target import expect
from waystation.core.effects import Address, Commit, SendTo, Verify
from waystation.core.instant import MICROSECONDS_PER_MS
from waystation.crypto.signing import KeyPair, verify_any
from waystation.protocols.lprp.messages import Command
from waystation.protocols.lprp.relay.machine import LprpRelay
from waystation.protocols.lprp.settings import LprpSettings
from waystation.protocols.lprp.wire import packet_sizes
from waystation.sim.invariants import Watch
from waystation.sim.lprp import observations as seen
from waystation.sim.lprp.invariants import Bookkeeping, Bounded, FairRefusal, LeaseKept, Whitelists
from waystation.sim.lprp.model import Model
from waystation.sim.lprp.packets import DEMANDS, Seen, is_fresh_request, make_packet, read_packet, work_bits
from waystation.sim.lprp.wire_invariants import Answered, Earned, Mailed, Worked
from waystation.store.memory import MemoryStore

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
_DATAGRAM_BYTES_MAX: Final = 2_000
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
    """Return one signed packet that a client may send, newer than those before it most of the time."""
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


def _changed(rng: random.Random, data: bytes) -> bytes:
    """Return a datagram as it is, mutated, something else, or nothing, which is a solution."""
    what = rng.random()
    if what < 0.15:
        return b""
    if what < 0.4:
        return mutate_bytes(rng, data, _POOL)
    return rng.randbytes(rng.randrange(_DATAGRAM_BYTES_MAX + 1)) if what < 0.45 else data


def _is_signed_by(packet: Seen, key: bytes) -> bool:
    return _verify_any((key,), packet.data[64:], packet.signature) == 0


class LprpHostTalk(Conversation[LprpRelay]):
    """A host with disk and verifier, and the invariants that look at its wires.

    It raises nothing, sends nothing that was not earned and asked for, and keeps nothing for ever.
    """

    name = "lprp_host"
    effects = (*FACTS, SendTo, Commit, Verify)
    frame_bytes_min = 1 << 16
    effects_per_frame = 64

    def __init__(self, choice: int) -> None:
        store = MemoryStore()
        super().__init__(LprpRelay(_SETTINGS, _HOST, store, rate_limits=choice & 2 == 0), store)
        self.demand: Seen | None = None
        self.counts = {"out": 0, "lease": 0, "mail": 0}
        self._lags = choice & 1
        self._waiting: list[Commit | Verify] = []
        self.machine.set_wall(self.now, _WALL_MS * MICROSECONDS_PER_MS)
        model = Model([_HOST.public], _LEASE_MS, _GRACE_US)
        self._watch: Any = Watch(  # of another protocol than its type has
            [
                Bookkeeping(model),
                Answered(),
                Earned(model),
                Mailed(model),
                Worked(model, _BITS, exact=True),
                Whitelists(model),
                LeaseKept(model),
                FairRefusal(model),
                Bounded(),
            ]
        )

    @classmethod
    def draw_steps(cls, rng: random.Random, choice: int) -> Iterator[Step]:  # noqa: ARG003 - its base has it
        """Yield a handful of datagrams, good, repeated, mutated, or noise."""
        begins_well = rng.random() < 0.8
        at = rng.randrange(len(_POOL))
        for number in range(rng.randrange(1, cls.steps_max)):
            if begins_well and number < 2:
                yield Step(Do.SEND, 0, b"" if number else rng.choice(_POOL[:3]))
                continue
            at = (at + rng.randrange(1, 8)) % len(_POOL) if rng.random() < 0.8 else rng.randrange(len(_POOL))
            yield Step(Do.SEND, rng.randrange(256) if rng.random() < 0.5 else 0, _changed(rng, _POOL[at]))

    def act(self, step: Step) -> None:
        """Let time pass and a datagram arrive."""
        quiet_ms, address = _QUIET_MS[step.place >> 5], _ADDRESSES[step.place & 7]
        if quiet_ms >= _LAG_MS_MAX:
            self._catch_up()
        self.pass_time(quiet_ms * MICROSECONDS_PER_MS)
        self._answer_waiting()
        self.settle()
        data = step.data or self._work(is_poor=step.place & _POOR == _POOR)
        wall_ms = self._wall_ms()
        packet = read_packet(data)
        if packet is not None and not is_fresh_request(packet, wall_ms):
            packet = None
        is_signed = packet is not None and _is_signed_by(packet, packet.sender)
        self._watch.observe(seen.Received(0, address, len(data), packet, is_signed, wall_ms), self.now)
        self.machine.receive_datagrams([(data, address)], self.now)
        self._answer_waiting()

    def carry_out(self, effect: Any) -> None:
        """Look at datagrams; answer questions now or with the next datagram."""
        if isinstance(effect, SendTo):
            self._look_at(effect)
        elif isinstance(effect, Commit | Verify):
            self._waiting.append(effect)
            if not self._lags:
                self._answer_waiting()

    def finish(self) -> str:
        """Let everything end, and see what is left."""
        self._catch_up()
        self._lags = 0
        self.pass_time(_LAST_MS * MICROSECONDS_PER_MS)
        views = {bytes.fromhex(view["key"]): view for view in self.machine.tenants(self.now)}
        self._watch.observe(seen.Measured(0, self._wall_ms(), self.machine.sizes(), views, "settled"), self.now)
        counts = self.counts
        return "mail" if counts["mail"] else "lease" if counts["lease"] else "answers" if counts["out"] else "silence"

    def _catch_up(self) -> None:
        """Answer every question, and those that follow."""
        self.settle()
        while self._waiting:
            self._answer_waiting()
            self.settle()

    def _answer_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for effect in waiting:
            if isinstance(effect, Verify):
                self.machine.verified(effect.ticket, [_verify_any(*check) for check in effect.checks], self.now)
            else:
                self.on_commit(effect)

    def _work(self, *, is_poor: bool) -> bytes:
        """Return the work for the newest demand, or too little of it, or nothing."""
        if self.demand is None:
            return b""
        key = next(key for key in _KEYS if key.public == self.demand.recipient)
        data, counter = self.demand.data, 0
        while (work_bits(data, counter.to_bytes(8, "big")) < _BITS) != is_poor:
            counter += 1
        payload = self.demand.signature + counter.to_bytes(8, "big")
        return make_packet(key, _HOST.public, 0x101, payload, self._wall_ms())

    def _look_at(self, effect: SendTo) -> None:
        packet = read_packet(effect.data)
        expect(packet is not None, f"{len(effect.data)} bytes are sent")
        assert packet is not None
        is_signed = _is_signed_by(packet, _HOST.public)
        self._watch.observe(
            seen.Sent(0, effect.address, packet, len(effect.data), is_signed, True, self._wall_ms()), self.now
        )
        self.counts["out"] += 1
        self.counts["lease"] += packet.command == 0x204
        self.counts["mail"] += packet.command == 0x102
        if packet.command in DEMANDS:
            self.demand = packet

    def _wall_ms(self) -> int:
        return _WALL_MS + self.now // MICROSECONDS_PER_MS
