"""Fuzz target: LPRP datagrams, as the host screens them and as host and client parse them."""

import hashlib
import random
from typing import Final

from fuzz.mutate import mutate_bytes
from fuzz.target import expect
from waystation.crypto.signing import KeyPair
from waystation.protocols.lprp.messages import CLOCK_WINDOW_MS, Command, Packet
from waystation.protocols.lprp.refusals import MalformedError, Refusal
from waystation.protocols.lprp.whitelist import has_zero_key, is_comparison, read_update
from waystation.protocols.lprp.wire import REQUESTS, Codec
from waystation.protocols.lprp.work import is_enough

LPRP_NOW_MS: Final = 1_760_000_000_000
_HOST, _TENANT, _SENDER = (KeyPair.from_seed(hashlib.sha256(b"lprp fuzz %d" % n).digest()) for n in range(3))
_BODIES: Final[tuple[tuple[Command, tuple[int, ...]], ...]] = (
    (Command.HEARTBEAT, (0,)),
    (Command.HEARTBEAT_ANSWER, (0,)),
    (Command.WORK, (64, 72, 364)),
    (Command.RELAY, (0, 1, 63, 64, 364)),
    (Command.ASK_LEASE, (64, 364)),
    (Command.UPDATE_WHITELIST, (64, 96, 352)),
    (Command.CLEAR_WHITELIST, (64, 200)),
    *((command, (64,)) for command in Command if command & ~0xFF in {0x200, 0x400, 0x600} and command & 0xFF),
    (Command.WORK_REFUSED, (64,)),
    (Command.DELIVERED, (64,)),
)

LPRP_PACKETS: Final = tuple(
    Codec().seal(_SENDER, _HOST.public, command, bytes(size), LPRP_NOW_MS + offset).data
    for command, sizes in _BODIES
    for size in sizes
    for offset in (0, CLOCK_WINDOW_MS, -CLOCK_WINDOW_MS)
)
"""Every command at the ends of its length and of the window."""

_LENGTHS: Final = (0, 143, 144, 145, 207, 208, 209, 239, 240, 272, 464, 495, 496, 497, 507, 508, 509, 520)
_FORM: Final = frozenset({Refusal.LENGTH, Refusal.UNKNOWN_COMMAND, Refusal.COMMAND_LENGTH})


class LprpWireTarget:
    """The whole input is one datagram; it is also read turned around, by a codec of the other byte order.

    Args:
        codec: A big-endian one.
    """

    name = "lprp_wire"

    def __init__(self, codec: Codec | None = None) -> None:
        self._codec = codec or Codec()
        self._other = Codec("little")

    def make(self, rng: random.Random) -> bytes:
        """Return a packet mutated anywhere, or one with another command, another length or a time about the window."""
        data = rng.choice(LPRP_PACKETS)
        what = rng.randrange(5)
        if what == 0:
            code = rng.choice(list(Command)) ^ rng.choice((0, 0, 0, 1, 0x100))
            return data[:136] + code.to_bytes(8, "big") + data[144:]
        if what == 1:
            return data.ljust(600, b"\0")[: rng.choice(_LENGTHS)]
        if what == 2:
            time_ms = LPRP_NOW_MS + rng.choice((1, -1)) * (CLOCK_WINDOW_MS + rng.randrange(-1, 2))
            return data[:64] + time_ms.to_bytes(8, "big") + data[72:]
        return mutate_bytes(rng, data, LPRP_PACKETS)

    def run(self, data: bytes) -> str:
        """Screen and read; both must follow the table of section 3, in both byte orders."""
        screened, read = self._codec.screen(data, LPRP_NOW_MS), self._read(self._codec, data)
        other_way = _turned(data)
        expect(self._other.screen(other_way, LPRP_NOW_MS) is screened, "the other byte order is screened otherwise")
        if isinstance(read, Refusal):
            expect(self._read(self._other, other_way) is read, "the other byte order is refused otherwise")
            expect(read in _FORM, "refused for what no reader can know")
            expect(screened is not None, "screened as legal, and not to be read")
            return screened.value if screened else ""
        expect(self._read(self._other, other_way) == read._replace(data=other_way), "another byte order, other fields")
        expect(_is_length_legal(read.command, len(data)), "a length that the table does not allow")
        expect(_written(read) == data, "read, but not as it was written")
        fresh = abs(read.time_ms - LPRP_NOW_MS) <= CLOCK_WINDOW_MS
        taken = read.command in REQUESTS
        expect(
            (screened is None) == (fresh and taken), "a request that is taken at the wrong time, or not at the right"
        )
        _run_payload(read)
        return read.command.name if screened is None else screened.value

    @staticmethod
    def _read(codec: Codec, data: bytes) -> Packet | Refusal:
        try:
            return codec.read(data)
        except MalformedError as error:
            return error.refusal


def _run_payload(packet: Packet) -> None:
    if packet.command is Command.UPDATE_WHITELIST:
        update = read_update(packet.payload)
        expect(update.hash + b"".join(update.keys) == packet.payload, "an update that was not sent")
        expect(has_zero_key(update) or not is_comparison(update), "a comparison without the zero key")
    elif packet.command is Command.WORK:
        expect(is_enough(LPRP_PACKETS[-1], packet.payload[64:], 0), "no bits are too many")


def _is_length_legal(command: Command, size: int) -> bool:
    if command in {0x100, 0x200}:
        return size == 144
    if command == 0x102:
        return 144 <= size <= 508
    if command in {0x101, 0x104, 0x808}:
        return 208 <= size <= 508
    if command == 0x108:
        return 208 <= size <= 496 and (size - 176) % 32 == 0
    return size == 208


def _written(packet: Packet) -> bytes:
    time, command = packet.time_ms.to_bytes(8, "big"), packet.command.to_bytes(8, "big")
    return b"".join((packet.signature, time, packet.sender, packet.recipient, command, packet.payload))


def _turned(data: bytes) -> bytes:
    """Return a packet with both numbers in the other byte order; what is too short for them stays as it is."""
    if len(data) < 144:
        return data
    return data[:64] + data[64:72][::-1] + data[72:136] + data[136:144][::-1] + data[144:]
