"""The packet format of LPRP, its 18 commands, and the constants that both sides share.

``wire`` makes a ``Packet`` from a datagram; relay and client work with it. Every packet has the same layout: signature
64, time 8, sender 32, recipient 32, command 8, payload 0 to 364 bytes. The signature covers everything after it. Spec:
lprp 2 and 3.
"""

from collections.abc import Callable
from enum import Enum, IntEnum
from functools import partial
from typing import Final, NamedTuple, cast

from waystation.core.ids import PublicKey

__all__ = [
    "C1_DEFAULT_MS",
    "CHALLENGE_LIFE_MS",
    "CLOCK_WINDOW_MS",
    "HEADER_BYTES",
    "KEEP_AFTER_LEASE_MS",
    "PACKET_BYTES_MAX",
    "PACKET_BYTES_MIN",
    "PAYLOAD_BYTES_MAX",
    "RECIPIENT",
    "REFERENCE_BYTES",
    "REPLY_BYTES",
    "SENDER",
    "SIGNATURE_BYTES",
    "SOLUTION_BYTES_MAX",
    "STALE_ADDRESS_MS",
    "UPDATE_KEYS_MAX",
    "WINDOW_PACKETS",
    "Command",
    "Kind",
    "Packet",
    "make_packet",
]

SIGNATURE_BYTES: Final = 64
HEADER_BYTES: Final = 144  # signature 64, time 8, sender 32, recipient 32, command 8
PACKET_BYTES_MIN: Final = HEADER_BYTES
PACKET_BYTES_MAX: Final = 508
PAYLOAD_BYTES_MAX: Final = PACKET_BYTES_MAX - HEADER_BYTES  # 364, LPRP-D3
REFERENCE_BYTES: Final = SIGNATURE_BYTES  # a predecessor is named by its signature
REPLY_BYTES: Final = HEADER_BYTES + REFERENCE_BYTES  # 208: every answer but 200
SOLUTION_BYTES_MAX: Final = 300
SENDER: Final = slice(72, 104)  # where a packet has its sender's key
RECIPIENT: Final = slice(104, 136)
UPDATE_KEYS_MAX: Final = 10  # keys in one 108

CLOCK_WINDOW_MS: Final = 1 << 19  # packet time against the host's clock; exactly this much passes
CHALLENGE_LIFE_MS: Final = 1 << 19
STALE_ADDRESS_MS: Final = 1 << 17  # LPRP-D21: an address that is silent for this long may belong to another device
KEEP_AFTER_LEASE_MS: Final = 1 << 25  # LPRP-D19: mail and whitelist of an expired lease
C1_DEFAULT_MS: Final = 2_000
WINDOW_PACKETS: Final = 16  # packets of one queue that are under way at once (LPRP-WINDOW)


class Command(IntEnum):
    """The 18 commands: a family bit (1 work, 2 relay, 4 lease, 8 whitelist, 0 heartbeat) and a class."""

    __hash__ = int.__hash__  # equal to its number also as a key, and five times as fast as Enum's

    HEARTBEAT = 0x100
    WORK = 0x101
    RELAY = 0x102
    ASK_LEASE = 0x104
    UPDATE_WHITELIST = 0x108
    HEARTBEAT_ANSWER = 0x200
    RELAY_ACCEPTED = 0x202
    LEASE_GRANTED = 0x204
    WHITELIST_DONE = 0x208
    WORK_REFUSED = 0x401
    RELAY_REFUSED = 0x402
    LEASE_REFUSED = 0x404
    WHITELIST_DIFFERS = 0x408
    RELAY_DEMANDS_WORK = 0x602
    LEASE_DEMANDS_WORK = 0x604
    WHITELIST_DEMANDS_WORK = 0x608
    DELIVERED = 0x802
    CLEAR_WHITELIST = 0x808


class Kind(Enum):
    """The kind of request that work is demanded for."""

    RELAY = "relay"
    LEASE = "lease"
    WHITELIST = "whitelist"

    @property
    def demand(self) -> Command:
        """Return the command that demands it."""
        return _DEMANDS[self]


_DEMANDS: Final = {
    Kind.RELAY: Command.RELAY_DEMANDS_WORK,
    Kind.LEASE: Command.LEASE_DEMANDS_WORK,
    Kind.WHITELIST: Command.WHITELIST_DEMANDS_WORK,
}


# Spec 2: every packet has this layout, in both directions.
class Packet(NamedTuple):
    """One packet of good form; its signature is not checked yet."""

    data: bytes
    """The whole packet, 144 to 508 bytes."""
    signature: bytes
    """64 bytes."""
    time_ms: int
    """The signer's clock, milliseconds since the Unix epoch; 0 to 2**64-1."""
    sender: PublicKey
    recipient: PublicKey
    command: Command
    payload: bytes
    """0 to 364 bytes, of a length that the command allows."""

    @property
    def reference(self) -> bytes:
        """Signature of the predecessor: the first 64 bytes of the payload of an answer, a 101 or an 802."""
        return self.payload[:REFERENCE_BYTES]


make_packet: Final = cast(
    "Callable[[tuple[bytes, bytes, int, bytes, bytes, Command, bytes]], Packet]", partial(tuple.__new__, Packet)
)
"""Build a ``Packet`` from one tuple: a third of what the class's own constructor, a Python function, costs."""
