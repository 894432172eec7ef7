"""Fuzz target: the BSP record parser in both profiles, and the parser of message bodies with dependencies.

``read_slowly`` parses a whole stream at once, directly from the tables of the specification. The tested parser gets the
same bytes in pieces, and both results must agree.
"""

import random
from collections.abc import Callable
from typing import Final

from fuzz.mutate import cut, mutate_bytes
from fuzz.target import expect
from waystation.protocols.bsp.graph.formats import DepsV1, InvalidMessageError, deps_v1_body, deps_v1_content
from waystation.protocols.bsp.messages import Ack, Message, Offer, Priority, Record, Request, Versions
from waystation.protocols.bsp.profile import BRIAR, SEED, Profile
from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.wire import RecordReader, encode

_RECORD_BYTES_MAX: Final = 65_508
"""Of the longest record that is known: 2,047 identifiers."""
_IDS: Final = tuple(bytes((number,)) * 32 for number in range(40))
_RECORDS: Final[tuple[Record, ...]] = (
    Ack(_IDS[:1]),
    Ack(_IDS),
    Offer(_IDS[:2]),
    Request(_IDS[:3]),
    Message(_IDS[0], 0, b""),
    Message(_IDS[1], 1, b"x"),
    Message(_IDS[1], 2**63 - 1, b"body" * 10),
    Message(_IDS[2], 3, deps_v1_body(_IDS[:2], b"content")),
    Message(_IDS[2], 4, deps_v1_body((), b"")),
    Versions(b"\0"),
    Versions(bytes(10)),
    Priority(bytes(16)),
)
_SEED_RECORDS: Final = tuple(encode(SEED, record) for record in _RECORDS if not isinstance(record, Versions | Priority))
_BRIAR_RECORDS: Final = tuple(
    encode(BRIAR, record) for record in _RECORDS if not isinstance(record, Message) or record.body
)

BSP_STREAMS: Final = (*_SEED_RECORDS, b"".join(_SEED_RECORDS), *_BRIAR_RECORDS, b"".join(_BRIAR_RECORDS))
"""Every type in both profiles, and all of them in one stream."""

_EDGES: Final = (0, 1, 10, 11, 15, 16, 17, 31, 32, 33, 39, 40, 41, 64, 49_152, 49_184, 65_504, 65_535, 32_808, 32_809)


class BspWireTarget:
    """The first byte chooses the profile, the second how the rest is cut into pieces.

    Args:
        make_reader: Makes the reader under fire.
    """

    name = "bsp_wire"

    def __init__(self, make_reader: Callable[[Profile], RecordReader] = RecordReader) -> None:
        self._make_reader = make_reader

    def make(self, rng: random.Random) -> bytes:
        """Return a stream mutated anywhere, or records among which one has a header at the edge of what is legal."""
        profile = rng.choice((SEED, BRIAR))
        front = bytes((profile.version, rng.randrange(256)))
        corpus = _SEED_RECORDS if profile is SEED else _BRIAR_RECORDS
        records = [rng.choice(corpus) for _ in range(rng.randrange(4))]
        if rng.randrange(2):
            return front + mutate_bytes(rng, b"".join(records), BSP_STREAMS)
        length = rng.choice(_EDGES)
        edge = bytes((profile.version, rng.choice((0, 1, 1, 2, 3, 4, 5, 6, 255)))) + length.to_bytes(2, "big")
        size = length if length < 100 or not rng.randrange(8) else rng.randrange(60)
        records.insert(rng.randrange(len(records) + 1), edge + rng.choice((bytes(size), b"\xff" * size)))
        return front + b"".join(records)

    def run(self, data: bytes) -> str:
        """Read in pieces; records and refusal must be those of the slow reading, and be written as they came."""
        profile = BRIAR if data[:1] == b"\0" else SEED
        rng, stream = random.Random(data[1:2]), data[2:]
        records, reader = self._read(profile, rng, stream)
        expected, refusal = read_slowly(profile, stream)
        expect(records == expected, "other records than those of the slow reading")
        expect(reader.finish() is refusal, f"ends with {reader.refusal}, not with {refusal}")
        expect(not reader.feed(stream) or refusal is None, "reads on after its refusal")
        for record in records:
            expect(read_slowly(profile, encode(profile, record)) == ([record], None), "not written as it was read")
            if isinstance(record, Message):
                _run_body(record.body)
        if refusal is not None:
            return refusal.value
        return type(records[-1]).__name__ if records else "nothing"

    def _read(self, profile: Profile, rng: random.Random, stream: bytes) -> tuple[list[Record], RecordReader]:
        reader, records = self._make_reader(profile), list[Record]()
        for piece in cut(rng, stream) if len(stream) < 4_096 else (stream[:1_000], stream[1_000:]):
            records += reader.feed(piece)
            expect(reader.waiting <= _RECORD_BYTES_MAX, f"keeps {reader.waiting} bytes")
            expect(reader.refusal is None or not reader.waiting, "keeps what it will not read")
        return records, reader


def read_slowly(profile: Profile, stream: bytes) -> tuple[list[Record], Refusal | None]:
    """Return the records of a whole stream and how it ends, by the tables of specs/bsp.md 1 and 7."""
    records: list[Record] = []
    while len(stream) >= 4:
        kind, length, payload = stream[1], int.from_bytes(stream[2:4], "big"), stream[4:]
        refusal = _header_refusal(profile, stream[0], kind, length)
        if refusal is not None:
            return records, refusal
        if len(payload) < length:
            return records, Refusal.TRUNCATED
        payload, stream = payload[:length], payload[length:]
        if kind == 1:
            if payload[32] >= 0x80:
                return records, Refusal.TIMESTAMP
            records.append(Message(payload[:32], int.from_bytes(payload[32:40], "big"), payload[40:]))
        elif kind <= 3:
            ids = tuple(payload[at : at + 32] for at in range(0, length, 32))
            records.append(_LISTS[kind](ids))
        elif kind <= 5 and profile is BRIAR:
            records.append(Versions(payload) if kind == 4 else Priority(payload))
    return records, Refusal.TRUNCATED if stream else None


_LISTS: Final[dict[int, type[Ack | Offer | Request]]] = {0: Ack, 2: Offer, 3: Request}


def _header_refusal(profile: Profile, version: int, kind: int, length: int) -> Refusal | None:
    is_briar = profile is BRIAR
    if version != (0 if is_briar else 1):
        return Refusal.VERSION
    if kind == 1 and not (41 if is_briar else 40) <= length <= 32_808:
        return Refusal.MESSAGE_LENGTH
    if kind in {0, 2, 3}:
        if length == 0:
            return Refusal.EMPTY_LIST
        if length % 32:
            return Refusal.LIST_LENGTH
        return Refusal.TOO_MANY_IDS if is_briar and length > 49_152 else None
    if kind == 4 and is_briar and not 1 <= length <= 10:
        return Refusal.VERSIONS_LENGTH
    return Refusal.PRIORITY_LENGTH if kind == 5 and is_briar and length != 16 else None


def _run_body(body: bytes) -> None:
    """Parse a body as deps_v1: what it is made of makes it again."""
    try:
        dependencies = DepsV1().parse(body)
    except InvalidMessageError:
        count = int.from_bytes(body[1:3], "big")
        expect(len(body) < 3 or body[0] != 1 or len(body) < 3 + 32 * count, "a good body is refused")
        return
    expect(deps_v1_body(dependencies, deps_v1_content(body)) == body, "parsed otherwise than it was made")
