"""Independent check of archived packets: recomputes id and signature from the signed bytes, without the relay's code.

``transforms.packets`` calls it in Spark's workers: a row goes in, a verdict comes out. It shares only the hash and
signature primitives with the relay. The covered bytes are the packet without ``packet_id`` and ``signature`` (RFC-0002
4), cut from the canonical bytes. This module does not use Spark.
"""

from enum import Enum
from typing import Any, Final, NamedTuple

import msgspec

from waystation.crypto.hashing import blake3_256
from waystation.crypto.signing import verify

__all__ = ["RULE_VERSION", "Check", "PacketVerdict", "check_packet"]

RULE_VERSION: Final = "packet-1"
"""Names the rules of this module in ``silver.packets``; packets checked by others are checked again."""


class PacketVerdict(Enum):
    """What a check found, the first that applies."""

    MALFORMED = "malformed"
    """The bytes are no canonical object with the members that every packet has."""
    MISLABELLED = "mislabelled"
    """The columns beside the bytes say something else than the bytes."""
    BAD_ID = "bad_id"
    """The id is not the BLAKE3 of what it must cover."""
    BAD_SIGNATURE = "bad_signature"
    """The signature does not hold under the key the node names."""
    VALID = "valid"
    """Everything agrees."""


class Check(NamedTuple):
    """What was found of one packet."""

    schema_ok: bool
    """The bytes are a packet, and the columns beside them repeat it."""
    id_ok: bool
    sig_ok: bool
    verdict: PacketVerdict


_MALFORMED: Final = Check(schema_ok=False, id_ok=False, sig_ok=False, verdict=PacketVerdict.MALFORMED)


class _Content(msgspec.Struct):
    type: str


class _Packet(msgspec.Struct):
    """The members that the columns of the archive repeat."""

    packet_id: str
    author_id: str
    content: _Content
    timestamp: int
    signature: str
    expires_at: int | None = None


def check_packet(row: dict[str, Any]) -> Check:
    """Check one row of ``bronze.archive``; never raises for what the row holds.

    Args:
        row: packet_id (32 bytes), author_id, content_type, packet_ts, expires_at, pubkey (32 bytes), sig (64 bytes) and
            signed_bytes, the whole packet.
    """
    signed_bytes: bytes = row["signed_bytes"]
    try:
        packet = _PACKET.decode(signed_bytes)
        members = _MEMBERS.decode(signed_bytes)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _MALFORMED
    if _join(members) != signed_bytes:
        return _MALFORMED
    covered = _join({name: value for name, value in members.items() if name not in _NOT_COVERED})
    schema_ok = _agrees(packet, row)
    id_ok = packet.packet_id == "0x" + blake3_256(covered).hex()
    sig_ok = verify(row["pubkey"], covered, row["sig"])
    return Check(schema_ok, id_ok, sig_ok, _verdict(schema_ok=schema_ok, id_ok=id_ok, sig_ok=sig_ok))


def _verdict(*, schema_ok: bool, id_ok: bool, sig_ok: bool) -> PacketVerdict:
    if not schema_ok:
        return PacketVerdict.MISLABELLED
    if not id_ok:
        return PacketVerdict.BAD_ID
    return PacketVerdict.VALID if sig_ok else PacketVerdict.BAD_SIGNATURE


def _agrees(packet: _Packet, row: dict[str, Any]) -> bool:
    claimed = (packet.packet_id, packet.author_id, packet.content.type, packet.timestamp, packet.expires_at)
    columns = ("0x" + row["packet_id"].hex(), *(row[name] for name in _REPEATED))
    return claimed == columns and packet.signature == "0x" + row["sig"].hex()


def _join(members: dict[str, msgspec.Raw]) -> bytes:
    """Return the object of these members, in their order and spelling; equal to the source unless it was odd.

    JSON text escapes a name exactly as RFC 8785 does, so a canonical source is its own join.
    """
    return b"{" + b",".join([_ENCODER.encode(name) + b":" + bytes(value) for name, value in members.items()]) + b"}"


_NOT_COVERED: Final = frozenset({"packet_id", "signature"})
_REPEATED: Final = ("author_id", "content_type", "packet_ts", "expires_at")
_PACKET: Final = msgspec.json.Decoder(_Packet)
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENCODER: Final = msgspec.json.Encoder()
