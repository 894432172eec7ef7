"""An independent codec for LPRP packets, used by the invariants instead of the node's codec.

A mistake in the node's codec therefore cannot hide itself. Hostile actors also build their packets with it.
Spec: specs/lprp.md 2, 3, 4 and LPRP-D7.
"""

import hashlib
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address
from typing import Final, NamedTuple

from waystation.crypto.signing import KeyPair, sign, verify

__all__ = [
    "ANSWERS",
    "DEMANDS",
    "Seen",
    "is_fresh_request",
    "make_packet",
    "prefix_of",
    "read_packet",
    "set_hash",
    "work_bits",
]

WINDOW_MS: Final = 524_288
_HEAD: Final = 144
_REQUESTS: Final = {
    0x100: (144, 144),
    0x101: (208, 508),
    0x102: (144, 508),
    0x802: (208, 208),
    0x104: (208, 508),
    0x108: (208, 496),
    0x808: (208, 508),
}
"""Shortest and longest whole packet by command."""
DEMANDS: Final = {0x602: 0x102, 0x604: 0x104, 0x608: 0x108}
"""What each demand for work was made for."""
ANSWERS: Final = {
    0x200: (0x100,),
    0x401: (0x101,),
    0x202: (0x102,),
    0x402: (0x102,),
    0x204: (0x104,),
    0x404: (0x104,),
    0x208: (0x108, 0x808),
    0x408: (0x108,),
    0x602: (0x102,),
    0x604: (0x104,),
    0x608: (0x108,),
}
"""What each answer of a host may refer to."""


class Seen(NamedTuple):
    """One packet, as it stood on a wire."""

    data: bytes
    signature: bytes
    time_ms: int
    sender: bytes
    recipient: bytes
    command: int
    payload: bytes

    @property
    def reference(self) -> bytes:
        """Signature of the predecessor."""
        return self.payload[:64]

    def is_signed_by(self, key: bytes) -> bool:
        """Return whether ``key`` signed it."""
        return verify(key, self.data[64:], self.signature)


def read_packet(data: bytes) -> Seen | None:
    """Return what a datagram says, whatever its command, or None when it is too short or too long."""
    if not _HEAD <= len(data) <= 508:
        return None
    time_ms, command = int.from_bytes(data[64:72], "big"), int.from_bytes(data[136:144], "big")
    return Seen(data, data[:64], time_ms, data[72:104], data[104:136], command, data[_HEAD:])


def is_fresh_request(packet: Seen, wall_ms: int) -> bool:
    """Return whether a host looks further at a packet: direction, length and clock are right."""
    least, most = _REQUESTS.get(packet.command, (1, 0))
    if packet.command == 0x108 and (len(packet.payload) - 32) % 32:
        return False
    return least <= len(packet.data) <= most and abs(packet.time_ms - wall_ms) <= WINDOW_MS


def make_packet(key: KeyPair, recipient: bytes, command: int, payload: bytes, time_ms: int) -> bytes:
    """Return a signed packet; whether it makes sense is the caller's affair."""
    body = time_ms.to_bytes(8, "big") + key.public + recipient + command.to_bytes(8, "big") + payload
    return sign(key, body) + body


def work_bits(challenge: bytes, solution: bytes) -> int:
    """Return how many zero bits the work for a challenge begins with."""
    digest = hashlib.blake2b(challenge + solution, digest_size=32).digest()
    return 256 - int.from_bytes(digest, "big").bit_length()


def set_hash(keys: frozenset[bytes]) -> bytes:
    """Return the hash of a whitelist."""
    return hashlib.blake2b(b"".join(sorted(keys)), digest_size=32).digest()


@cache
def prefix_of(host: str) -> str:
    """Return the /24 of an IPv4 address, or the /56 of an IPv6 address that stands for none."""
    address = ip_address(host)
    if isinstance(address, IPv4Address):
        return str(IPv4Network((address, 24), strict=False))
    if address.ipv4_mapped is not None:
        return prefix_of(str(address.ipv4_mapped))
    return str(IPv6Network((address, 56), strict=False))
