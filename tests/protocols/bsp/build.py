"""Vectors, identifiers, bodies and streams that the tests of BSP talk about."""

import functools
import hashlib
import json
import re
from pathlib import Path
from typing import Any, Final

from waystation.protocols.bsp.messages import Ack, Message, Offer, Priority, Record, RecordType, Request, Versions
from waystation.protocols.bsp.profile import BRIAR, PROFILES, SEED, Profile
from waystation.protocols.bsp.wire import RecordReader, encode

VECTORS: Final[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "vectors" / "bsp.json").read_text())
SEED_VECTORS: Final[dict[str, Any]] = VECTORS["seed_profile"]
BRIAR_VECTORS: Final[dict[str, Any]] = VECTORS["briar_profile"]
VECTORS_OF: Final = {"seed": SEED_VECTORS, "briar": BRIAR_VECTORS}
CLIENT_ID: Final = bytes.fromhex(SEED_VECTORS["client_id"])
CLIENT_NAME: Final = b"org.example.waystation"
NOW_MS: Final = 1_760_000_000_000
"""Wall clock of the messages that the vectors show."""

GROUP: Final = SEED.group(CLIENT_ID, b"", "opaque")
"""The first group of the vectors."""
BRIAR_GROUP: Final = BRIAR.group(CLIENT_NAME, b"", "opaque")
GROUPS: Final = {"seed": GROUP, "briar": BRIAR_GROUP}

EVERY_PROFILE: Final = tuple(PROFILES.values())
LENGTHS_AT_EDGES: Final = (
    *(0, 1, 2, 9, 10, 11, 15, 16, 17, 31, 32, 33, 39, 40, 41, 42, 63, 64, 65),
    *(32_767, 32_768, 32_807, 32_808, 32_809, 32_832),
    *(49_151, 49_152, 49_153, 49_184, 65_503, 65_504, 65_505, 65_535),
)
"""Payload lengths about each bound of each type of record."""
LISTS: Final = {"ACK": Ack, "OFFER": Offer, "REQUEST": Request}


@functools.cache
def pattern(size: int) -> bytes:
    """Return ``size`` bytes i mod 251."""
    return bytes(at % 251 for at in range(size))


@functools.cache
def id_at(number: int) -> bytes:
    """Return the identifier that the vectors call id(number), 0 to 65,535."""
    return hashlib.blake2s(bytes((number % 256, number // 256))).digest()


def ids(count: int, first: int = 0) -> tuple[bytes, ...]:
    """Return id(first) and those behind it."""
    return tuple(id_at(number) for number in range(first, first + count))


def spelled(text: str) -> Any:
    """Return what the vectors mean by ``pattern(5)`` or ``id(0..1535)``."""
    numbers = [int(number) for number in re.findall(r"\d+", text)]
    return pattern(*numbers) if text.startswith("pattern") else ids(numbers[1] - numbers[0] + 1, numbers[0])


def shown(data: bytes, like: Any) -> Any:
    """Return bytes in the form in which a vector shows its own: in full, or by length, hash and both ends."""
    if isinstance(like, str):
        return data.hex()
    if "hex" in like:
        return {"hex": data.hex()}
    head, tail = len(like["head"]) // 2, len(like["tail"]) // 2
    digest = hashlib.sha256(data).hexdigest()
    return {"length": len(data), "sha256": digest, "head": data[:head].hex(), "tail": data[-tail:].hex()}


def whole(vector: dict[str, Any], front_bytes: int) -> bytes:
    """Return the bytes of a vector; one that is shown by its ends has a pattern behind its first ``front_bytes``."""
    if "hex" in vector:
        return bytes.fromhex(vector["hex"])
    data = bytes.fromhex(vector["head"])[:front_bytes] + pattern(vector["length"] - front_bytes)
    assert shown(data, vector) == vector
    return data


def framed(
    profile: Profile, kind: int, payload: bytes, *, length: int | None = None, version: int | None = None
) -> bytes:
    """Return a record put together by hand, whose header may lie."""
    said = len(payload) if length is None else length
    return bytes((profile.version if version is None else version, kind)) + said.to_bytes(2, "big") + payload


def message(profile: Profile = SEED, body: bytes = b"hello", timestamp: int = NOW_MS) -> Message:
    """Return a message of the first group of a profile."""
    return Message(GROUPS[profile.name].group_id, timestamp, body)


def every_record(profile: Profile) -> list[Record]:
    """Return small records of every type that a profile knows."""
    records: list[Record] = [
        Ack(ids(1)),
        message(profile),
        Offer(ids(2, 5)),
        Request(ids(3, 9)),
        message(profile, b"x"),
    ]
    if profile.extra_types:
        records = [Versions(b"\0"), *records, Priority(pattern(16))]
    return records


def stream_of(profile: Profile, *records: Record) -> bytes:
    """Return records one behind the other."""
    return b"".join(encode(profile, record) for record in records)


def read_in_chunks(profile: Profile, data: bytes, *sizes: int) -> tuple[list[Record], RecordReader]:
    """Return what a reader makes of data that comes in chunks of these sizes, over and over."""
    reader, records, at, turn = RecordReader(profile), [], 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)] if sizes else len(data)
        records += reader.feed(data[at : at + size])
        at, turn = at + size, turn + 1
    return records, reader


def list_type(name: str) -> RecordType:
    """Return the record type of this name."""
    return RecordType[name]
