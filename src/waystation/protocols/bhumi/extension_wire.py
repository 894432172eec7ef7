"""Encodes and decodes the extension frames 0x41 to 0x4F (specs/bhumi.md 5, BHUMI-X).

Every ``decode_*`` takes a payload, checks counts and lengths before it reads by them, and demands that the structure
fills the payload exactly. The frame buffer has refused payloads above 64 KiB before. Signatures are verified in
``signed_records``, not here.
"""

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from waystation.core.cursor import Cursor, ShortError
from waystation.core.ids import KEY_BYTES, PublicKey
from waystation.crypto.signing import SIGNATURE_BYTES
from waystation.protocols.bhumi.extension_messages import (
    FRAME_TYPES,
    Authority,
    BindChallenge,
    BindProof,
    ExtensionMessage,
    Gossip,
    IAmOk,
    Presence,
    QaReport,
    QaRequest,
    QaVerdict,
    RelayAd,
    Relays,
    RelaysRequest,
    RevokeCommits,
    SignedRecord,
    Watch,
    Watched,
    WatchState,
    Where,
    WhereEntry,
    WhereResult,
)
from waystation.protocols.bhumi.messages import COMMIT_BYTES, FrameType
from waystation.protocols.bhumi.refusals import MalformedError, Refusal
from waystation.protocols.bhumi.wire import COMMITS_MAX, EXTENSION_FRAME_BYTES_MAX, FRAME_HEADER_BYTES

__all__ = [
    "ADDRESS_CHARS_MAX",
    "ADVERT_BYTES_MAX",
    "AUTHORITY_BYTES_MAX",
    "BIND_NONCE_BYTES",
    "PRESENCE_BYTES",
    "decode_advert",
    "decode_authority",
    "decode_bind_challenge",
    "decode_bind_proof",
    "decode_gossip",
    "decode_i_am_ok",
    "decode_presence",
    "decode_qa_report",
    "decode_qa_request",
    "decode_relays",
    "decode_relays_request",
    "decode_revoke_commits",
    "decode_tagged",
    "decode_watch",
    "decode_watched",
    "decode_where",
    "decode_where_result",
    "encode_extension",
    "encode_gossip",
    "encode_record",
    "encode_tagged",
    "gossip_cost",
    "is_address",
    "record_body",
    "split_gossip",
]

_Decoded = TypeVar("_Decoded")

ADDRESS_CHARS_MAX: Final = 255  # ours: the field could hold 65,535; a host name has at most 253
AUTHORITY_BYTES_MAX: Final = 4_096  # BHUMI-AUTHORITY: ours has about 500, one of RSA 4096 about 2,000
BIND_NONCE_BYTES: Final = 32  # spec 5, BIND
PRESENCE_BYTES: Final = 140  # spec 5, PRESENCE: 76 bytes and the signature
ADVERT_BYTES_MAX: Final = KEY_BYTES + 8 + 4 + 2 + ADDRESS_CHARS_MAX + SIGNATURE_BYTES  # spec 5, RELAY_AD
_ADVERT_FIXED: Final = KEY_BYTES + 8 + 4 + 2  # up to and with addr_len
_ADVERT_BYTES_MIN: Final = _ADVERT_FIXED + 1 + SIGNATURE_BYTES  # an address has at least one character

_FRAME: Final = struct.Struct(">HI")
_TIMES: Final = struct.Struct(">QI")
_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_TWO_U16: Final = struct.Struct(">HH")
_REPORT: Final = struct.Struct(">IBI")
_PRESENCE: Final = struct.Struct(">32s32sQI64s")
_GOSSIP_LENGTH: Final = 2  # u16 before each record
_TAGGED_BYTES: Final = {
    int(FrameType.PRESENCE): (1 + PRESENCE_BYTES, 1 + PRESENCE_BYTES),
    int(FrameType.RELAY_AD): (1 + _ADVERT_BYTES_MIN, 1 + ADVERT_BYTES_MAX),
}
"""Shortest and longest record in GOSSIP by its tag, the tag included."""
_NO_SIZE: Final = (1, 0)
_GOSSIPED_BYTES_MIN: Final = _GOSSIP_LENGTH + 1 + _ADVERT_BYTES_MIN
_ADDRESS: Final = re.compile(r"(?:tls|tcp)://(?:\[[0-9a-fA-F:.]{2,45}\]|[0-9A-Za-z._-]{1,253}):([0-9]{1,5})")
_PORT_MAX: Final = 65_535  # u16


def is_address(text: str) -> bool:
    """Return whether a text is a relay's address as adverts write it: ``tls://host:port`` or ``tcp://host:port``."""
    found = _ADDRESS.fullmatch(text)
    return found is not None and len(text) <= ADDRESS_CHARS_MAX and 0 < int(found[1]) <= _PORT_MAX


def record_body(record: SignedRecord) -> bytes:
    """Return what the signature of a record covers: everything before it."""
    if isinstance(record, Presence):
        return record.identity + record.relay_id + _TIMES.pack(record.issued_at_s, record.ttl_s)
    address = record.address.encode("ascii")
    return record.relay_id + _TIMES.pack(record.issued_at_s, record.ttl_s) + _U16.pack(len(address)) + address


def encode_record(record: SignedRecord) -> bytes:
    """Return a record's bytes: 140 of a presence, up to 365 of an advert."""
    return record_body(record) + record.signature


def encode_extension(message: ExtensionMessage) -> bytes:
    """Return the whole frame of a message."""
    payload = _ENCODERS[type(message)](message)
    return _FRAME.pack(FRAME_TYPES[type(message)], len(payload)) + payload


def encode_tagged(record: SignedRecord) -> bytes:
    """Return a record as GOSSIP lists it: the low byte of its frame type, then its bytes."""
    return bytes((FRAME_TYPES[type(record)],)) + encode_record(record)


def gossip_cost(tagged: bytes) -> int:
    """Return how many bytes of a GOSSIP payload a tagged record takes."""
    return _GOSSIP_LENGTH + len(tagged)


def encode_gossip(tagged: Sequence[bytes]) -> bytes:
    """Return the whole GOSSIP frame of tagged records; 2 and their ``gossip_cost`` must be at most 64 KiB."""
    parts = [_U16.pack(len(tagged))]
    for record in tagged:
        parts += (_U16.pack(len(record)), record)
    payload = b"".join(parts)
    assert len(payload) <= EXTENSION_FRAME_BYTES_MAX
    return _FRAME.pack(FrameType.GOSSIP, len(payload)) + payload


def decode_revoke_commits(payload: bytes) -> RevokeCommits:
    """Decode REVOKE_COMMITS; raises MalformedError."""
    return _decoded("REVOKE_COMMITS", payload, _take_revoked)


def decode_bind_challenge(payload: bytes) -> BindChallenge:
    """Decode the relay's BIND; raises MalformedError."""
    return _decoded("BIND", payload, lambda cursor: BindChallenge(_take_key(cursor), cursor.take(BIND_NONCE_BYTES)))


def decode_bind_proof(payload: bytes) -> BindProof:
    """Decode the client's BIND; raises MalformedError."""
    return _decoded("BIND", payload, lambda cursor: BindProof(cursor.take(SIGNATURE_BYTES)))


def decode_i_am_ok(payload: bytes) -> IAmOk:
    """Decode I_AM_OK; raises MalformedError."""
    return _decoded("I_AM_OK", payload, lambda cursor: IAmOk(cursor.take_u16(), cursor.take_u16()))


def decode_presence(payload: bytes) -> Presence:
    """Decode PRESENCE; raises MalformedError."""
    return _decoded("PRESENCE", payload, _take_presence)


def decode_where(payload: bytes) -> Where:
    """Decode WHERE; raises MalformedError."""
    return _decoded("WHERE", payload, lambda cursor: Where(_take_key(cursor)))


def decode_where_result(payload: bytes) -> WhereResult:
    """Decode WHERE_RESULT; raises MalformedError."""
    return _decoded("WHERE_RESULT", payload, _take_where_result)


def decode_advert(payload: bytes) -> RelayAd:
    """Decode RELAY_AD; raises MalformedError."""
    return _decoded("RELAY_AD", payload, _take_advert)


def decode_relays_request(payload: bytes) -> RelaysRequest:
    """Decode RELAYS_REQ; raises MalformedError."""
    return _decoded("RELAYS_REQ", payload, lambda _cursor: RelaysRequest())


def decode_relays(payload: bytes) -> Relays:
    """Decode RELAYS; raises MalformedError."""
    return _decoded("RELAYS", payload, _take_relays)


def decode_qa_request(payload: bytes) -> QaRequest:
    """Decode QA_REQUEST; raises MalformedError."""
    return _decoded(
        "QA_REQUEST",
        payload,
        lambda cursor: QaRequest(cursor.take_u32(), _take_address(cursor, cursor.take_u16()), cursor.take_u16()),
    )


def decode_qa_report(payload: bytes) -> QaReport:
    """Decode QA_REPORT; raises MalformedError."""
    return _decoded("QA_REPORT", payload, _take_report)


def decode_watch(payload: bytes) -> Watch:
    """Decode WATCH; raises MalformedError."""
    return _decoded("WATCH", payload, _take_watch)


def decode_watched(payload: bytes) -> Watched:
    """Decode WATCHED; raises MalformedError."""
    return _decoded("WATCHED", payload, _take_watched)


def decode_authority(payload: bytes) -> Authority:
    """Decode AUTHORITY; raises MalformedError."""
    return _decoded("AUTHORITY", payload, _take_authority)


def split_gossip(payload: bytes) -> list[bytes]:
    """Return the tagged records of GOSSIP without reading them further.

    Raises:
        MalformedError: A length disagrees, or a tag is none of ours.
    """
    return _decoded("GOSSIP", payload, _take_gossip)


def decode_gossip(payload: bytes) -> Gossip:
    """Decode GOSSIP with every record in it; raises MalformedError."""
    return Gossip(tuple(decode_tagged(record) for record in split_gossip(payload)))


def decode_tagged(tagged: bytes) -> SignedRecord:
    """Decode one record of ``split_gossip``; raises MalformedError."""
    return decode_presence(tagged[1:]) if tagged[0] == FrameType.PRESENCE else decode_advert(tagged[1:])


def _decoded(name: str, payload: bytes, take: Callable[[Cursor], _Decoded]) -> _Decoded:
    cursor = Cursor(payload)
    try:
        message = take(cursor)
    except ShortError as error:
        raise MalformedError(Refusal.TRUNCATED, f"{name}: {error}") from error
    if cursor.left:
        raise MalformedError(Refusal.TRAILING_BYTES, f"{name}: {cursor.left} bytes after its end")
    return message


def _take_key(cursor: Cursor) -> PublicKey:
    return PublicKey(cursor.take(KEY_BYTES))


def _take_revoked(cursor: Cursor) -> RevokeCommits:
    count = cursor.take_u16()
    if count > COMMITS_MAX:
        raise MalformedError(Refusal.TOO_MANY_COMMITS, f"{count} commits, at most {COMMITS_MAX}")
    block = cursor.take(count * COMMIT_BYTES)
    return RevokeCommits(tuple(block[start : start + COMMIT_BYTES] for start in range(0, len(block), COMMIT_BYTES)))


def _take_presence(cursor: Cursor) -> Presence:
    identity, relay_id, issued_at_s, ttl_s, signature = _PRESENCE.unpack(cursor.take(PRESENCE_BYTES))
    return Presence(PublicKey(identity), PublicKey(relay_id), issued_at_s, ttl_s, signature)


def _take_advert(cursor: Cursor) -> RelayAd:
    relay_id = _take_key(cursor)
    issued_at_s, ttl_s = _TIMES.unpack(cursor.take(_TIMES.size))
    address = _take_address(cursor, cursor.take_u16())
    return RelayAd(relay_id, issued_at_s, ttl_s, address, cursor.take(SIGNATURE_BYTES))


def _take_address(cursor: Cursor, size: int, *, may_be_empty: bool = False) -> str:
    """Return an address; ASCII of a known shape, so that it can be shown and parsed without further care."""
    if size > ADDRESS_CHARS_MAX:
        raise MalformedError(Refusal.BAD_ADDRESS, f"an address of {size} bytes, at most {ADDRESS_CHARS_MAX}")
    raw = cursor.take(size)
    text = raw.decode("ascii", errors="replace")
    if not (is_address(text) or (may_be_empty and not raw)):
        raise MalformedError(Refusal.BAD_ADDRESS, "an address is tls://host:port or tcp://host:port")
    return text


def _take_where_result(cursor: Cursor) -> WhereResult:
    identity, count = _take_key(cursor), cursor.take_u8()
    entries = tuple(
        WhereEntry(_take_presence(cursor), _take_address(cursor, cursor.take_u16(), may_be_empty=True))
        for _ in range(count)
    )
    return WhereResult(identity, entries)


def _take_relays(cursor: Cursor) -> Relays:
    count = cursor.take_u16()
    if count * (2 + _ADVERT_BYTES_MIN) > cursor.left:
        raise ShortError(count * (2 + _ADVERT_BYTES_MIN), cursor.left)
    return Relays(tuple(decode_advert(cursor.take(cursor.take_u16())) for _ in range(count)))


def _take_report(cursor: Cursor) -> QaReport:
    probe_id, verdict, latency_us = _REPORT.unpack(cursor.take(_REPORT.size))
    try:
        return QaReport(probe_id, QaVerdict(verdict), latency_us)
    except ValueError as error:
        raise MalformedError(Refusal.BAD_VERDICT, f"QA_REPORT: {verdict} is no verdict") from error


def _take_watch(cursor: Cursor) -> Watch:
    identity, begins = _take_key(cursor), cursor.take_u8()
    if begins > 1:
        raise MalformedError(Refusal.BAD_WATCH, f"WATCH: {begins} is neither 0 nor 1")
    return Watch(identity, begins == 1)


def _take_watched(cursor: Cursor) -> Watched:
    identity, state = _take_key(cursor), cursor.take_u8()
    try:
        return Watched(identity, WatchState(state))
    except ValueError as error:
        raise MalformedError(Refusal.BAD_WATCH, f"WATCHED: {state} is no state") from error


def _take_authority(cursor: Cursor) -> Authority:
    size = cursor.take_u16()
    if not 0 < size <= AUTHORITY_BYTES_MAX:
        raise MalformedError(Refusal.BAD_AUTHORITY, f"AUTHORITY: {size} bytes, 1 to {AUTHORITY_BYTES_MAX}")
    return Authority(cursor.take(size))


def _take_gossip(cursor: Cursor) -> list[bytes]:
    count = cursor.take_u16()
    if count * _GOSSIPED_BYTES_MIN > cursor.left:
        raise ShortError(count * _GOSSIPED_BYTES_MIN, cursor.left)
    return [_take_gossiped(cursor) for _ in range(count)]


def _take_gossiped(cursor: Cursor) -> bytes:
    size = cursor.take_u16()
    tagged = cursor.take(size)
    shortest, longest = _TAGGED_BYTES.get(tagged[0], _NO_SIZE) if size else _NO_SIZE
    if not shortest <= size <= longest:
        raise MalformedError(Refusal.BAD_RECORD, f"GOSSIP: a record of {size} bytes that is none of ours")
    return tagged


def _encode_revoke_commits(message: RevokeCommits) -> bytes:
    return b"".join((_U16.pack(len(message.revoked)), *message.revoked))


def _encode_where_result(message: WhereResult) -> bytes:
    parts = [message.identity, bytes((len(message.entries),))]
    for entry in message.entries:
        address = entry.address.encode("ascii")
        parts += (encode_record(entry.presence), _U16.pack(len(address)), address)
    return b"".join(parts)


def _encode_relays(message: Relays) -> bytes:
    parts = [_U16.pack(len(message.adverts))]
    for advert in message.adverts:
        record = encode_record(advert)
        parts += (_U16.pack(len(record)), record)
    return b"".join(parts)


def _encode_qa_request(message: QaRequest) -> bytes:
    address = message.address.encode("ascii")
    return _U32.pack(message.probe_id) + _U16.pack(len(address)) + address + _U16.pack(message.deadline_s)


_ENCODERS: Final[Mapping[type[Any], Callable[[Any], bytes]]] = {
    RevokeCommits: _encode_revoke_commits,
    BindChallenge: lambda message: message.relay_id + message.nonce,
    BindProof: lambda message: message.signature,
    IAmOk: lambda message: _TWO_U16.pack(message.commits_count, message.responses_count),
    Presence: encode_record,
    Where: lambda message: message.identity,
    WhereResult: _encode_where_result,
    RelayAd: encode_record,
    RelaysRequest: lambda _message: b"",
    Relays: _encode_relays,
    QaRequest: _encode_qa_request,
    QaReport: lambda message: _REPORT.pack(message.probe_id, message.verdict, message.latency_us),
    Watch: lambda message: message.identity + bytes((message.begins,)),
    Watched: lambda message: message.identity + bytes((message.state,)),
    Authority: lambda message: _U16.pack(len(message.der)) + message.der,
    Gossip: lambda message: encode_gossip([encode_tagged(record) for record in message.records])[FRAME_HEADER_BYTES:],
}
