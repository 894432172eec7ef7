"""Payloads of NODE_INFO frames: what nodes and clients report to each other beside messages.

``wire`` and the relay's ``routing`` call it: bytes go in, one ``Info`` record of ``messages`` comes out, or the
reverse. The first byte of a payload is its subtype; each subtype has one layout. Decoding an unknown subtype or version
gives None instead of an error, so that nodes can be upgraded one by one. Integers are big-endian; addresses are UTF-8
after a one-byte length.

Spec: specs/merk.md 4, 7, 10.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from waystation.core.cursor import Cursor, ShortError
from waystation.core.errors import LocalError
from waystation.protocols.merk.messages import (
    ADDRESS_BYTES_MAX,
    DELIVERIES_MAX,
    FORWARDS_MAX,
    HASH_BYTES,
    HEADER_BYTES,
    KEY_BYTES,
    MAIL_TAKEN_MAX,
    MESSAGE_ID_BYTES,
    NONCE_BYTES,
    SIGNATURE_BYTES,
    AddServer,
    Auth,
    ClientAbsent,
    ClientFound,
    Deliveries,
    Delivery,
    Forward,
    ForwardRun,
    Gone,
    Hello,
    Info,
    InfoType,
    KeyAdvert,
    KeyQuery,
    KeyUnknown,
    Limits,
    MailboxState,
    MailClose,
    MailFetch,
    MailOpen,
    MailState,
    MailTaken,
    MailVerb,
    Presence,
    PresenceKind,
    QueryClient,
    RequestServers,
    Role,
    ServerEntry,
    Servers,
)
from waystation.protocols.merk.refusals import MalformedError, Refusal

__all__ = [
    "EXTENSION_VERSION",
    "SERVERS_MAX",
    "decode_forward",
    "decode_forwards",
    "decode_info",
    "encode_info",
    "info_parts",
]

EXTENSION_VERSION: Final = 1  # specs/merk.md 10.1
SERVERS_MAX: Final = 1_024  # ours: of one frame
"""How many entries of one list are read (MERK-SERVERS): sixteen times what anybody keeps (specs/merk.md 8)."""

_SERVERS_COUNT_MAX: Final = 2**16 - 1  # u16 in RESPONSE_SERVERS
_TIME_BYTES: Final = 8  # u64 milliseconds
_SIZE_BYTES: Final = 4  # u32
_HELLO: Final = struct.Struct(">BBIB")
_HELLO_FIXED: Final = _HELLO.size + KEY_BYTES + NONCE_BYTES
_MAIL_HEAD: Final = 2  # spec 7: subtype and verb
_DELIVERIES_HEAD: Final = 2  # spec 7: subtype and code
_PRESENCE_BYTES: Final = 1 + 2 * KEY_BYTES + 2 * _TIME_BYTES + SIGNATURE_BYTES  # spec 7
_MAIL_STATE: Final = struct.Struct(">BIIQ")  # spec 7: state, messages, bytes, until
_FORWARD_FIXED: Final = 2 + MESSAGE_ID_BYTES + KEY_BYTES
_FORWARDS_FIXED: Final = 2 + KEY_BYTES + 1  # spec 7: subtype, hop, origin, count
_FORWARDED: Final = struct.Struct(f">{MESSAGE_ID_BYTES}sI")  # spec 7: id and length of each frame

# Plain bytes: making them of enum members costs more than the rest of encoding a query.
_QUERY_CLIENT: Final = bytes((InfoType.QUERY_CLIENT,))
_FOUND: Final = bytes((InfoType.QUERY_RESPONSE, 1))
_ABSENT: Final = bytes((InfoType.QUERY_RESPONSE, 0))
_KEY_QUERY: Final = bytes((InfoType.KEY_QUERY,))
_GONE: Final = bytes((InfoType.GONE,))
_LIMITS: Final = bytes((InfoType.LIMITS,))
_UNKNOWN: Final = b"\x00"  # spec 7, KEY_QUERY: no advert


# Out


def encode_info(info: Info) -> bytes:
    """Return the payload of the NODE_INFO frame that says ``info``.

    Raises:
        LocalError: An address is longer than 255 bytes, there are more than 65,535 servers, a TAKEN names none or
            more than 64 frames, or a DELIVERIES or FORWARDS none or more than 240.
    """
    return b"".join(info_parts(info))


def info_parts(info: Info) -> tuple[bytes, ...]:
    """Return what ``encode_info`` joins, for callers that join it with more and would copy a forwarded frame twice.

    Raises:
        LocalError: As ``encode_info``.
    """
    return _ENCODERS[type(info)](info)


def _add_server_parts(info: AddServer) -> tuple[bytes, ...]:
    return bytes((InfoType.ADD_SERVER,)), _text(info.address)


def _servers_parts(info: Servers) -> tuple[bytes, ...]:
    if len(info.entries) > _SERVERS_COUNT_MAX:
        raise LocalError(f"a list has at most {_SERVERS_COUNT_MAX} servers, this has {len(info.entries)}")
    listed = b"".join(entry.key + _text(entry.address) for entry in info.entries)
    return bytes((InfoType.RESPONSE_SERVERS,)), len(info.entries).to_bytes(2, "big"), listed


def _hello_parts(info: Hello) -> tuple[bytes, ...]:
    fixed = _HELLO.pack(InfoType.HELLO, EXTENSION_VERSION, info.features, info.role)
    return fixed, info.key, info.nonce, _text(info.address)


def _forward_parts(info: Forward) -> tuple[bytes, ...]:
    return bytes((InfoType.FORWARD, info.hop)), info.message_id, info.origin, info.frame


def _forwards_parts(info: ForwardRun) -> tuple[bytes, ...]:
    if not 1 <= len(info.frames) <= FORWARDS_MAX:
        raise LocalError(f"FORWARDS carries 1 to {FORWARDS_MAX} frames, this {len(info.frames)}")
    listed = (piece for name, frame in info.frames for piece in (_FORWARDED.pack(name, len(frame)), frame))
    return bytes((InfoType.FORWARDS, info.hop)), info.origin, bytes((len(info.frames),)), *listed


def _deliveries_parts(info: Deliveries) -> tuple[bytes, ...]:
    if not 1 <= len(info.message_ids) <= DELIVERIES_MAX:
        raise LocalError(f"DELIVERIES names 1 to {DELIVERIES_MAX} frames, this {len(info.message_ids)}")
    return bytes((InfoType.DELIVERIES, info.code)), *info.message_ids


def _advert_parts(info: KeyAdvert) -> tuple[bytes, ...]:
    time_bytes = info.time_ms.to_bytes(_TIME_BYTES, "big")
    return bytes((InfoType.KEY_ADVERT,)), info.key, info.agreement_key, time_bytes, info.signature


def _presence_parts(info: Presence) -> tuple[bytes, ...]:
    return bytes((InfoType.PRESENCE,)), _presence_body(info)


def _presence_body(info: Presence) -> bytes:
    """Return the 145 bytes of a presence, as PRESENCE and OPEN carry them."""
    times = (time_ms.to_bytes(_TIME_BYTES, "big") for time_ms in (info.issued_ms, info.until_ms))
    return b"".join((bytes((info.kind,)), info.client, info.node, *times, info.signature))


def _mail_parts(verb: MailVerb, *body: bytes) -> tuple[bytes, ...]:
    return bytes((InfoType.MAIL, verb)), *body


def _mail_state_parts(info: MailState) -> tuple[bytes, ...]:
    body = _MAIL_STATE.pack(info.state, info.messages_count, info.kept_bytes, info.until_ms)
    return _mail_parts(MailVerb.STATE, body)


def _mail_taken_parts(info: MailTaken) -> tuple[bytes, ...]:
    if not 1 <= len(info.hashes) <= MAIL_TAKEN_MAX:
        raise LocalError(f"TAKEN names 1 to {MAIL_TAKEN_MAX} frames, this {len(info.hashes)}")
    return _mail_parts(MailVerb.TAKEN, *info.hashes)


def _text(address: str) -> bytes:
    """Return an address with its length in front."""
    try:
        encoded = address.encode()
    except UnicodeEncodeError as error:
        raise LocalError("an address with lone surrogates has no UTF-8") from error
    if len(encoded) > ADDRESS_BYTES_MAX:
        raise LocalError(f"an address has at most {ADDRESS_BYTES_MAX} bytes, this has {len(encoded)}")
    return bytes((len(encoded),)) + encoded


_ENCODERS: Final[Mapping[type, Callable[[Any], tuple[bytes, ...]]]] = {
    RequestServers: lambda _info: (bytes((InfoType.REQUEST_SERVERS,)),),
    Servers: _servers_parts,
    AddServer: _add_server_parts,
    QueryClient: lambda info: (_QUERY_CLIENT, info.key),
    ClientFound: lambda info: (_FOUND, info.key, info.server),
    ClientAbsent: lambda info: (_ABSENT, info.key),
    Hello: _hello_parts,
    Auth: lambda info: (bytes((InfoType.AUTH,)), info.signature),
    Delivery: lambda info: (bytes((InfoType.DELIVERY, info.code)), info.target, info.frame_hash),
    Forward: _forward_parts,
    ForwardRun: _forwards_parts,
    KeyAdvert: _advert_parts,
    KeyQuery: lambda info: (_KEY_QUERY, info.key),
    KeyUnknown: lambda info: (_KEY_QUERY, info.key, _UNKNOWN),
    Gone: lambda info: (_GONE, info.key),
    Limits: lambda info: (_LIMITS, info.frame_bytes_max.to_bytes(_SIZE_BYTES, "big")),
    Presence: _presence_parts,
    MailOpen: lambda info: _mail_parts(MailVerb.OPEN, _presence_body(info.presence)),
    MailClose: lambda _info: _mail_parts(MailVerb.CLOSE),
    MailState: _mail_state_parts,
    MailTaken: _mail_taken_parts,
    MailFetch: lambda _info: _mail_parts(MailVerb.FETCH),
    Deliveries: _deliveries_parts,
}


# In


def decode_info(payload: bytes) -> Info | None:
    """Return what a NODE_INFO payload says, or None when it is empty or of a subtype or version that nobody knows.

    A list of servers that ends too early counts up to its last whole entry, as in the original, and after
    ``SERVERS_MAX`` entries the rest is not read.

    Raises:
        MalformedError: MALFORMED_INFO for a known subtype with a wrong length, a value that it does not have, or an
            address that is no UTF-8.
    """
    if not payload:
        return None
    subtype = payload[0]
    expected = _LENGTHS.get(subtype)
    if expected is not None and len(payload) not in expected:
        raise _malformed(f"subtype {subtype:#04x} with {len(payload)} bytes")
    decoder = _DECODERS.get(subtype)
    return decoder(payload) if decoder is not None else None


def decode_forward(data: bytes, start: int = 0) -> Forward:
    """Return the FORWARD whose payload begins at ``start`` and ends with ``data``; its frame is copied once.

    Raises:
        MalformedError: MALFORMED_INFO when not even a header fits in.
    """
    frame_at = start + _FORWARD_FIXED
    if len(data) < frame_at + HEADER_BYTES:
        raise _malformed(f"FORWARD with {len(data) - start} bytes")
    origin_at = start + 2 + MESSAGE_ID_BYTES
    return Forward(data[start + 1], data[start + 2 : origin_at], data[origin_at:frame_at], data[frame_at:])


def decode_forwards(data: bytes, start: int = 0) -> ForwardRun:
    """Return the FORWARDS whose payload begins at ``start`` and ends with ``data``; its frames are copied once.

    Raises:
        MalformedError: MALFORMED_INFO when it carries no frame or more than 240, when one is shorter than a header, or
            when they do not end with it.
    """
    at, end = start + _FORWARDS_FIXED, len(data)
    count = data[at - 1] if at <= end else 0
    if not 1 <= count <= FORWARDS_MAX:
        raise _malformed(f"FORWARDS with {end - start} bytes and {count} frames")
    frames: list[tuple[bytes, bytes]] = []
    for _ in range(count):
        frame_at = at + _FORWARDED.size
        if frame_at > end:
            raise _malformed(f"FORWARDS that ends in its frame {len(frames) + 1} of {count}")
        message_id, size = _FORWARDED.unpack_from(data, at)
        at = frame_at + size
        if size < HEADER_BYTES or at > end:
            raise _malformed(f"FORWARDS with a frame of {size} bytes at {frame_at} of {end}")
        frames.append((message_id, data[frame_at:at]))
    if at != end:
        raise _malformed(f"FORWARDS with {end - at} bytes behind its last frame")
    return ForwardRun(data[start + 1], data[start + 2 : start + 2 + KEY_BYTES], tuple(frames))


def _servers(payload: bytes) -> Servers:
    cursor = Cursor(payload)
    entries: list[ServerEntry] = []
    try:
        cursor.take(1)
        count = cursor.take_u16()
    except ShortError as error:
        raise _malformed(f"RESPONSE_SERVERS: {error}") from error
    for _ in range(min(count, SERVERS_MAX)):
        try:
            key = cursor.take(KEY_BYTES)
            address_bytes = cursor.take(cursor.take_u8())
        except ShortError:
            # The original keeps what it has read when a list breaks off (specs/merk.md 4), and so do we.
            return Servers(tuple(entries))
        entries.append(ServerEntry(key, _address(address_bytes, empty=False)))
    if count <= SERVERS_MAX and cursor.left:
        raise _malformed(f"RESPONSE_SERVERS: {cursor.left} bytes behind the last server")
    return Servers(tuple(entries))


def _add_server(payload: bytes) -> AddServer:
    return AddServer(_last_address(payload, 1, empty=False))


def _query_response(payload: bytes) -> ClientFound | ClientAbsent:
    found, key, server = payload[1], payload[2:34], payload[34:]
    if found == 1 and server:
        return ClientFound(key, server)
    if found == 0 and not server:
        return ClientAbsent(key)
    raise _malformed(f"QUERY_RESPONSE {found} with {len(payload)} bytes")


def _hello(payload: bytes) -> Hello | None:
    if len(payload) > 1 and payload[1] != EXTENSION_VERSION:
        return None
    if len(payload) <= _HELLO_FIXED:
        raise _malformed(f"HELLO with {len(payload)} bytes")
    _, _, features, role = _HELLO.unpack_from(payload)
    if role > Role.NODE:
        raise _malformed(f"HELLO of role {role}")
    key, nonce = payload[_HELLO.size : _HELLO.size + KEY_BYTES], payload[_HELLO.size + KEY_BYTES : _HELLO_FIXED]
    return Hello(features, Role(role), key, nonce, _last_address(payload, _HELLO_FIXED, empty=True))


def _key_advert(payload: bytes) -> KeyAdvert:
    return KeyAdvert(payload[1:33], payload[33:65], int.from_bytes(payload[65:73], "big"), payload[73:])


def _key_query(payload: bytes) -> KeyQuery | KeyUnknown:
    key, mark = payload[1:33], payload[33:]
    if not mark:
        return KeyQuery(key)
    if mark != _UNKNOWN:
        raise _malformed(f"KEY_QUERY that ends with {mark.hex()}")
    return KeyUnknown(key)


def _presence(payload: bytes) -> Presence:
    return _presence_at(payload, 1)


def _presence_at(payload: bytes, at: int) -> Presence:
    """Return the presence whose 145 bytes begin at ``at`` and end the payload."""
    cursor = Cursor(payload)
    cursor.take(at)
    kind = cursor.take_u8()
    if kind > PresenceKind.MAILBOX:
        raise _malformed(f"presence of kind {kind}")
    client, node = cursor.take(KEY_BYTES), cursor.take(KEY_BYTES)
    issued_ms, until_ms = (int.from_bytes(cursor.take(_TIME_BYTES), "big") for _ in range(2))
    return Presence(PresenceKind(kind), client, node, issued_ms, until_ms, cursor.take(SIGNATURE_BYTES))


def _mail(payload: bytes) -> Info | None:
    """Return what a MAIL payload says; a verb that nobody knows says nothing, as an unknown subtype."""
    if len(payload) < _MAIL_HEAD:
        raise _malformed("MAIL without a verb")
    verb, size = payload[1], len(payload) - _MAIL_HEAD
    if verb == MailVerb.TAKEN:
        return _mail_taken(payload, size)
    expected = _MAIL_LENGTHS.get(verb)
    if expected is None:
        return None
    if size != expected:
        raise _malformed(f"MAIL verb {verb} with {size} bytes")
    return _MAIL_DECODERS[verb](payload)


def _mail_taken(payload: bytes, size: int) -> MailTaken:
    count, rest = divmod(size, HASH_BYTES)
    if rest or not 1 <= count <= MAIL_TAKEN_MAX:
        raise _malformed(f"TAKEN with {size} bytes")
    return MailTaken(tuple(payload[at : at + HASH_BYTES] for at in range(_MAIL_HEAD, len(payload), HASH_BYTES)))


def _deliveries(payload: bytes) -> Deliveries:
    size = len(payload) - _DELIVERIES_HEAD
    count, rest = divmod(size, MESSAGE_ID_BYTES)
    if rest or not 1 <= count <= DELIVERIES_MAX:
        raise _malformed(f"DELIVERIES with {len(payload)} bytes")
    ids = (payload[at : at + MESSAGE_ID_BYTES] for at in range(_DELIVERIES_HEAD, len(payload), MESSAGE_ID_BYTES))
    return Deliveries(payload[1], tuple(ids))


def _mail_open(payload: bytes) -> MailOpen:
    presence = _presence_at(payload, _MAIL_HEAD)
    if presence.kind is not PresenceKind.MAILBOX:
        raise _malformed("OPEN with a presence of another kind")
    return MailOpen(presence)


def _mail_state(payload: bytes) -> MailState:
    state, messages_count, kept_bytes, until_ms = _MAIL_STATE.unpack_from(payload, _MAIL_HEAD)
    if state > MailboxState.REFUSED:
        raise _malformed(f"mailbox of state {state}")
    return MailState(MailboxState(state), messages_count, kept_bytes, until_ms)


def _last_address(payload: bytes, at: int, *, empty: bool) -> str:
    """Return the address whose length stands at ``at`` and which ends the payload."""
    if len(payload) <= at or payload[at] != len(payload) - at - 1:
        raise _malformed(f"subtype {payload[0]:#04x}: address does not fill the payload")
    return _address(payload[at + 1 :], empty=empty)


def _address(address_bytes: bytes, *, empty: bool) -> str:
    if not address_bytes and not empty:
        raise _malformed("empty address")
    try:
        return address_bytes.decode()
    except UnicodeDecodeError as error:
        raise _malformed("address is no UTF-8") from error


def _malformed(detail: str) -> MalformedError:
    return MalformedError(Refusal.MALFORMED_INFO, detail)


_LENGTHS: Final[Mapping[int, tuple[int, ...]]] = {
    InfoType.REQUEST_SERVERS: (1,),
    InfoType.QUERY_CLIENT: (1 + KEY_BYTES,),
    InfoType.QUERY_RESPONSE: (2 + KEY_BYTES, 2 + 2 * KEY_BYTES),
    InfoType.AUTH: (1 + SIGNATURE_BYTES,),
    InfoType.DELIVERY: (2 + KEY_BYTES + HASH_BYTES,),
    InfoType.KEY_ADVERT: (1 + 2 * KEY_BYTES + _TIME_BYTES + SIGNATURE_BYTES,),
    InfoType.KEY_QUERY: (1 + KEY_BYTES, 2 + KEY_BYTES),
    InfoType.GONE: (1 + KEY_BYTES,),
    InfoType.LIMITS: (1 + _SIZE_BYTES,),
    InfoType.PRESENCE: (1 + _PRESENCE_BYTES,),
}
"""Whole payloads of the subtypes that have a fixed length; the others check their own."""

_MAIL_LENGTHS: Final[Mapping[int, int]] = {
    MailVerb.OPEN: _PRESENCE_BYTES,
    MailVerb.CLOSE: 0,
    MailVerb.STATE: _MAIL_STATE.size,
    MailVerb.FETCH: 0,
}
"""Bodies of the verbs that have a fixed length."""

_MAIL_DECODERS: Final[Mapping[int, Callable[[bytes], Info]]] = {
    MailVerb.OPEN: _mail_open,
    MailVerb.CLOSE: lambda _payload: MailClose(),
    MailVerb.STATE: _mail_state,
    MailVerb.FETCH: lambda _payload: MailFetch(),
}

_DECODERS: Final[Mapping[int, Callable[[bytes], Info | None]]] = {
    InfoType.REQUEST_SERVERS: lambda _payload: RequestServers(),
    InfoType.RESPONSE_SERVERS: _servers,
    InfoType.ADD_SERVER: _add_server,
    InfoType.QUERY_CLIENT: lambda payload: QueryClient(payload[1:]),
    InfoType.QUERY_RESPONSE: _query_response,
    InfoType.HELLO: _hello,
    InfoType.AUTH: lambda payload: Auth(payload[1:]),
    InfoType.DELIVERY: lambda payload: Delivery(payload[1], payload[2:34], payload[34:]),
    InfoType.FORWARD: decode_forward,
    InfoType.FORWARDS: decode_forwards,
    InfoType.KEY_ADVERT: _key_advert,
    InfoType.KEY_QUERY: _key_query,
    InfoType.GONE: lambda payload: Gone(payload[1:]),
    InfoType.LIMITS: lambda payload: Limits(int.from_bytes(payload[1:], "big")),
    InfoType.PRESENCE: _presence,
    InfoType.MAIL: _mail,
    InfoType.DELIVERIES: _deliveries,
}
