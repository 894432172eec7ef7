"""An independent codec for Bhumi's extension frames, written from specs/bhumi.md 5 and used only by the invariants.

Taps and hostile actors use it as well: bytes go in, ``WireRecord`` and fields come out. It shares no code with the
relay's and clients' codec, so a mistake there cannot hide itself. It parses records and checks signatures; the
invariants decide whether a record is acceptable.
"""

import struct
from collections.abc import Callable, Iterator
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
    "RELAY_AD",
    "WHERE",
    "WHERE_RESULT",
    "Slicer",
    "WireRecord",
    "is_genuine",
    "read_advert",
    "read_features",
    "read_presence",
    "read_records",
]

I_AM: Final = 0x02
EXTENSIONS_FROM: Final = 0x40
OPTIONS: Final = 0x40
PRESENCE: Final = 0x44
WHERE: Final = 0x45
WHERE_RESULT: Final = 0x46
RELAY_AD: Final = 0x47
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


class WireRecord(NamedTuple):
    """A signed record as it is on the wire."""

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


def is_genuine(record: WireRecord) -> bool:
    """Return whether its owner has signed it; costs one verification."""
    body, signature = record.data[:-_SIGNATURE_BYTES], record.data[-_SIGNATURE_BYTES:]
    return verify(record.owner, sha256(_LABELS[record.kind] + body), signature)


def read_features(payload: bytes) -> int:
    """Return the feature bits of an OPTIONS, 0 when it is malformed."""
    return int(struct.unpack(">HI", payload)[1]) if len(payload) == _HEADER_BYTES else 0


def read_presence(data: bytes) -> WireRecord | None:
    """Return a presence, or None when these bytes are none."""
    if len(data) != _PRESENCE_BYTES:
        return None
    owner, relay, issued_at_s, ttl_s = struct.unpack_from(">32s32sQI", data)
    return WireRecord(PRESENCE, owner, relay, issued_at_s, ttl_s, "", data)


def read_advert(data: bytes) -> WireRecord | None:
    """Return an advert, or None when these bytes are none."""
    if len(data) <= _ADVERT_FIXED_BYTES + _SIGNATURE_BYTES:
        return None
    relay, issued_at_s, ttl_s, size = struct.unpack_from(">32sQIH", data)
    if len(data) != _ADVERT_FIXED_BYTES + size + _SIGNATURE_BYTES:
        return None
    address = data[_ADVERT_FIXED_BYTES : _ADVERT_FIXED_BYTES + size].decode("latin-1")
    return WireRecord(RELAY_AD, relay, relay, issued_at_s, ttl_s, address, data)


def read_records(kind: int, payload: bytes) -> list[WireRecord] | None:
    """Return the records that an extension frame of this type gives away, or None when it is malformed."""
    if kind in (GOSSIP, RELAYS):
        tagged = _listed(payload, bytes((RELAY_AD,)) if kind == RELAYS else b"")
    elif kind == WHERE_RESULT:
        tagged = _hinted(payload)
    else:
        tagged = [bytes((kind,)) + payload] if kind in _READERS else []
    if tagged is None:
        return None
    records = [_READERS.get(data[0] if data else 0, _read_nothing)(data[1:]) for data in tagged]
    return None if None in records else [record for record in records if record]


def _read_nothing(_data: bytes) -> None:
    return None


def _listed(payload: bytes, tag: bytes) -> list[bytes] | None:
    """Return the members of a list, each behind ``tag``, or None when it is malformed.

    A list is a count of two bytes, then members with a length of two bytes each.
    """
    members, at = [], 2
    for _ in range(int.from_bytes(payload[:2], "big")):
        if at > len(payload):
            break
        size = int.from_bytes(payload[at : at + 2], "big")
        members.append(tag + payload[at + 2 : at + 2 + size])
        at += 2 + size
    return members if at == len(payload) else None


def _hinted(payload: bytes) -> list[bytes] | None:
    """Return the presences of a WHERE_RESULT, each behind its type; they stand there with an address each."""
    presences, at = [], _KEY_BYTES + 1
    for _ in range(int.from_bytes(payload[_KEY_BYTES:at], "big")):
        presences.append(bytes((PRESENCE,)) + payload[at : at + _PRESENCE_BYTES])
        at += _PRESENCE_BYTES
        at += 2 + int.from_bytes(payload[at : at + 2], "big")
    return presences if at == len(payload) else None


_READERS: Final[dict[int, Callable[[bytes], WireRecord | None]]] = {PRESENCE: read_presence, RELAY_AD: read_advert}
