"""Bhumi's extension frames as the laws of the open world read them: a codec of its own, written from specs/bhumi.md 5.

The relay and the clients have theirs; what both get wrong in the same way would otherwise go unseen. Nothing here
decides whether a record may be believed: that is what the laws are about.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from waystation.crypto.hashing import sha256
from waystation.crypto.signing import verify

__all__ = [
    "EXTENSIONS_FROM",
    "GOSSIP",
    "I_AM",
    "OPTIONS",
    "PRESENCE",
    "PRESENCE_BIT",
    "RELAYS",
    "RELAYS_REQUEST",
    "RELAY_AD",
    "WHERE",
    "WHERE_RESULT",
    "Slicer",
    "Slip",
    "is_genuine",
    "read_advert",
    "read_features",
    "read_gossip",
    "read_presence",
    "read_relays",
    "read_where_result",
]

I_AM: Final = 0x02
EXTENSIONS_FROM: Final = 0x40
OPTIONS: Final = 0x40
PRESENCE: Final = 0x44
WHERE: Final = 0x45
WHERE_RESULT: Final = 0x46
RELAY_AD: Final = 0x47
RELAYS_REQUEST: Final = 0x48
RELAYS: Final = 0x49
GOSSIP: Final = 0x4C
PRESENCE_BIT: Final = 1 << 2
"""What OPTIONS asks for before presence, WHERE, adverts and gossip."""

_HEADER_BYTES: Final = 6
_PRESENCE_BYTES: Final = 140
_SIGNATURE_BYTES: Final = 64
_KEY_BYTES: Final = 32
_ADVERT_FIXED_BYTES: Final = 46
_LABELS: Final = {PRESENCE: b"bhumi-presence/1", RELAY_AD: b"bhumi-relay-ad/1"}


class Slip(NamedTuple):
    """A signed record as it stands on the wire."""

    kind: int
    """``PRESENCE`` or ``RELAY_AD``."""
    owner: bytes
    """32-byte key that must have signed it: of the device, or of the relay."""
    relay: bytes
    """32-byte key of the relay that it names."""
    issued_at_s: int
    """Unix seconds."""
    ttl_s: int
    address: str
    """Empty in a presence."""
    data: bytes
    """All its bytes, signature included; with ``kind`` it says which record this is."""

    @property
    def expires_at_s(self) -> int:
        """From when on it is worth nothing."""
        return self.issued_at_s + self.ttl_s


class Slicer:
    """Cuts a stream of bytes into frames by their 6-byte headers."""

    def __init__(self) -> None:
        self._left = b""

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield type and payload of each frame that is whole now."""
        data = self._left + data if self._left else data
        at = 0
        while len(data) - at >= _HEADER_BYTES:
            kind, size = struct.unpack_from(">HI", data, at)
            end = at + _HEADER_BYTES + size
            if end > len(data):
                break
            yield kind, data[at + _HEADER_BYTES : end]
            at = end
        self._left = data[at:]


def is_genuine(slip: Slip) -> bool:
    """Return whether its owner has signed it; costs one verification."""
    body, signature = slip.data[:-_SIGNATURE_BYTES], slip.data[-_SIGNATURE_BYTES:]
    return verify(slip.owner, sha256(_LABELS[slip.kind] + body), signature)


def read_features(payload: bytes) -> int:
    """Return the feature bits of an OPTIONS, 0 when it is malformed."""
    return int(struct.unpack(">HI", payload)[1]) if len(payload) == _HEADER_BYTES else 0


def read_presence(data: bytes) -> Slip | None:
    """Return a presence, or None when these bytes are none."""
    if len(data) != _PRESENCE_BYTES:
        return None
    owner, relay, issued_at_s, ttl_s = struct.unpack_from(">32s32sQI", data)
    return Slip(PRESENCE, owner, relay, issued_at_s, ttl_s, "", data)


def read_advert(data: bytes) -> Slip | None:
    """Return an advert, or None when these bytes are none."""
    if len(data) <= _ADVERT_FIXED_BYTES + _SIGNATURE_BYTES:
        return None
    relay, issued_at_s, ttl_s, size = struct.unpack_from(">32sQIH", data)
    if len(data) != _ADVERT_FIXED_BYTES + size + _SIGNATURE_BYTES:
        return None
    address = data[_ADVERT_FIXED_BYTES : _ADVERT_FIXED_BYTES + size].decode("latin-1")
    return Slip(RELAY_AD, relay, relay, issued_at_s, ttl_s, address, data)


def read_gossip(payload: bytes) -> list[Slip] | None:
    """Return the records of a GOSSIP, or None when it is malformed."""
    slips: list[Slip] = []
    for data in _listed(payload):
        kind = EXTENSIONS_FROM + (data[0] & 0x0F) if data and data[0] >> 4 == EXTENSIONS_FROM >> 4 else 0
        slip = {PRESENCE: read_presence, RELAY_AD: read_advert}.get(kind, _read_nothing)(data[1:])
        if slip is None:
            return None
        slips.append(slip)
    return slips if _is_list(payload) else None


def read_relays(payload: bytes) -> list[Slip] | None:
    """Return the adverts of a RELAYS, or None when it is malformed."""
    slips = [read_advert(data) for data in _listed(payload)]
    return [slip for slip in slips if slip] if _is_list(payload) and None not in slips else None


def read_where_result(payload: bytes) -> tuple[bytes, list[tuple[Slip, str]]] | None:
    """Return whom a WHERE_RESULT is about, and its hints with the address of each; None when it is malformed."""
    if len(payload) <= _KEY_BYTES:
        return None
    identity, count, at = payload[:_KEY_BYTES], payload[_KEY_BYTES], _KEY_BYTES + 1
    hints: list[tuple[Slip, str]] = []
    for _ in range(count):
        slip = read_presence(payload[at : at + _PRESENCE_BYTES])
        at += _PRESENCE_BYTES
        if slip is None or at + 2 > len(payload):
            return None
        size = int.from_bytes(payload[at : at + 2], "big")
        hints.append((slip, payload[at + 2 : at + 2 + size].decode("latin-1")))
        at += 2 + size
    return (identity, hints) if at == len(payload) else None


def _read_nothing(_data: bytes) -> None:
    return None


def _listed(payload: bytes) -> Iterator[bytes]:
    """Yield the members of a list: a count of two bytes, then each with a length of two bytes; stop where it breaks."""
    at = 2
    for _ in range(int.from_bytes(payload[:2], "big")):
        size = int.from_bytes(payload[at : at + 2], "big")
        if at + 2 + size > len(payload):
            return
        yield payload[at + 2 : at + 2 + size]
        at += 2 + size


def _is_list(payload: bytes) -> bool:
    """Return whether a list is as long as its lengths say."""
    count = int.from_bytes(payload[:2], "big")
    sizes = [2 + len(data) for data in _listed(payload)]
    return len(payload) >= 2 and len(sizes) == count and 2 + sum(sizes) == len(payload)
