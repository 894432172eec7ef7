"""Keys, clocks and packets that the tests of LPRP talk about."""

import json
from pathlib import Path
from typing import Any, Final

from waystation.crypto.signing import KeyPair, sign
from waystation.protocols.lprp.messages import CHALLENGE_LIFE_MS, Command, Packet
from waystation.protocols.lprp.refusals import MalformedError
from waystation.protocols.lprp.wire import Codec

VECTORS: Final[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "vectors" / "lprp.json").read_text())
POSITIVE: Final[dict[str, dict[str, Any]]] = {entry["name"]: entry for entry in VECTORS["positive"]}
NEGATIVE: Final[dict[str, dict[str, Any]]] = {entry["name"]: entry for entry in VECTORS["negative"]}
KEYS: Final = {name: KeyPair.from_seed(bytes.fromhex(pair["seed"])) for name, pair in VECTORS["keys"].items()}
NAMES: Final = {pair.public: name for name, pair in KEYS.items()}
"""Whose a public key is."""

HOST, TENANT, SENDER, VISITOR = (KEYS[name] for name in ("host", "tenant", "sender", "visitor"))
FRIENDS: Final = tuple(KEYS[name].public for name in ("friend1", "friend2", "friend3"))
OTHER_HOST: Final = KEYS["otherhost"]
NOW_MS: Final = VECTORS["story_now_base"]
"""Wall clock of the story that the vectors tell."""
WINDOW_MS: Final = CHALLENGE_LIFE_MS

BIG, LITTLE = Codec(), Codec("little")
CODECS: Final = {"big": BIG, "little": LITTLE}

GROUP_ORDER: Final = 2**252 + 27742317777372353535851937790883648493
"""Of Ed25519. Spec: RFC 8032 5.1."""
NEUTRAL_KEY: Final = (1).to_bytes(32, "little")
"""The neutral point, under which one signature fits every message where nobody looks closely."""
UNIVERSAL_SIGNATURE: Final = NEUTRAL_KEY + bytes(32)

LENGTHS: Final = {
    0x100: {144},
    0x200: {144},
    0x101: set(range(208, 509)),
    0x401: {208},
    0x102: set(range(144, 509)),
    0x202: {208},
    0x402: {208},
    0x602: {208},
    0x802: {208},
    0x104: set(range(208, 509)),
    0x204: {208},
    0x404: {208},
    0x604: {208},
    0x108: {208, 240, 272, 304, 336, 368, 400, 432, 464, 496},
    0x208: {208},
    0x408: {208},
    0x608: {208},
    0x808: set(range(208, 509)),
}
"""Total length by command, copied from the table of the digest (specs/lprp.md 3)."""
TO_HOST: Final = frozenset({0x100, 0x101, 0x102, 0x802, 0x104, 0x108, 0x808})
"""Commands that the same table lets go from a client to a host."""


def vector(name: str) -> bytes:
    """Return the legal packet of this name."""
    return bytes.fromhex(POSITIVE[name]["packet"])


def draft(command: int, size: int, time_ms: int = NOW_MS, byte_order: str = "big") -> bytes:
    """Return ``size`` bytes (any number) of the form of a packet, laid out by hand and signed by nobody."""
    head = bytes(64) + time_ms.to_bytes(8, byte_order) + TENANT.public + HOST.public + command.to_bytes(8, byte_order)
    return (head + bytes(max(0, size - len(head))))[:size]


def signed_by_hand(signer: KeyPair, first: bytes, second: bytes, command: int, payload: bytes, time_ms: int) -> bytes:
    """Return a big-endian packet put together without the codec, its two keys in any order."""
    body = time_ms.to_bytes(8, "big") + first + second + command.to_bytes(8, "big") + payload
    return sign(signer, body) + body


def sealed(
    signer: KeyPair, recipient: KeyPair, command: Command, payload: bytes = b"", time_ms: int = NOW_MS
) -> Packet:
    """Return a packet between two identities as the codec makes it."""
    return BIG.seal(signer, recipient.public, command, payload, time_ms)


def changed(data: bytes, at: int, mask: int = 1) -> bytes:
    """Return ``data`` with some bits of the byte at ``at`` turned over."""
    bent = bytearray(data)
    bent[at] ^= mask
    return bytes(bent)


def malleable(data: bytes) -> bytes:
    """Return a packet with the other spelling of its signature: S plus the order of the group."""
    twin = int.from_bytes(data[32:64], "little") + GROUP_ORDER
    return data[:32] + twin.to_bytes(32, "little") + data[64:]


def outcome_of(codec: Codec, data: bytes) -> Any:
    """Return the packet that ``data`` is, or the refusal that says why it is none."""
    try:
        return codec.read(data)
    except MalformedError as error:
        return error.refusal
