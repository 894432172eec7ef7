"""Encodes and decodes MERK-BREP frames, and builds the bytes that its signatures cover.

Relay, client and sealing call it. A frame is one binary WebSocket message: a header of 120 bytes and a payload whose
length the header gives. Integers are big-endian; reserved bytes are sent as zero and ignored. ``read_head`` checks a
frame without copying its payload, for relays; ``decode_frame`` also decodes it. The payloads of NODE_INFO frames are in
``infos``.

Spec: specs/merk.md 1, 7, 10; seed "Protocol Details".
"""

import struct
from typing import Final

from waystation.core.errors import LocalError
from waystation.crypto.hashing import sha256
from waystation.crypto.signing import KeyPair, sign, verify
from waystation.protocols.merk.infos import decode_forward, decode_forwards, decode_info, encode_info, info_parts
from waystation.protocols.merk.messages import (
    HASH_BYTES,
    HEADER_BYTES,
    KEY_BYTES,
    MAGIC,
    SIGNATURE_BYTES,
    VERSION,
    ZERO_KEY,
    ZERO_SIGNATURE,
    Frame,
    Info,
    InfoType,
    KeyAdvert,
    MessageType,
    Presence,
    PresenceKind,
)
from waystation.protocols.merk.refusals import MalformedError, Refusal

__all__ = [
    "SIGNED_HEADER_BYTES",
    "advert_message",
    "auth_message",
    "decode_frame",
    "decode_info",
    "decode_info_frame",
    "encode_frame",
    "encode_header",
    "encode_info",
    "encode_info_frame",
    "frame_hash",
    "header_message",
    "is_advert_valid",
    "is_frame_signed",
    "is_presence_valid",
    "make_advert",
    "make_presence",
    "presence_message",
    "read_head",
    "target_of",
]

SIGNED_HEADER_BYTES: Final = 56  # spec 7: all but the signature
"""How much of the header a header signature covers: all in front of the signature. Spec: specs/merk.md 7."""

_PAYLOAD_BYTES_MAX: Final = 2**32 - 1  # u32 in the header
_TIME_BYTES: Final = 8  # u64 milliseconds
_NODE_INFO: Final = int(MessageType.NODE_INFO)
_AUTH_CONTEXT: Final = b"merk-ext-auth/1"  # specs/merk.md 10.1
_KEYS_CONTEXT: Final = b"merk-keys/1"  # specs/merk.md 10.2
_PRESENCE_CONTEXT: Final = b"merk-presence/1"  # specs/merk.md 7
_FRAME_CONTEXT: Final = b"merk-frame/1"  # specs/merk.md 7

_HEAD: Final = struct.Struct(">BBBxI16x32s")
_HEADER: Final = struct.Struct(">BBBxI16x32s64s")
_read_head: Final = _HEAD.unpack_from
_read_header: Final = _HEADER.unpack_from


# Frames


def encode_header(kind: int, payload_bytes: int, sender: bytes) -> bytes:
    """Return the first 56 bytes of a frame: all of its header but the signature.

    Raises:
        LocalError: The payload is longer than the header can give.
    """
    assert len(sender) == KEY_BYTES
    if payload_bytes > _PAYLOAD_BYTES_MAX:
        raise LocalError(f"a frame carries at most {_PAYLOAD_BYTES_MAX} bytes, this has {payload_bytes}")
    return _HEAD.pack(MAGIC, VERSION, kind, payload_bytes, sender)


def encode_frame(kind: int, payload: bytes, *, sender: bytes = ZERO_KEY, signature: bytes = ZERO_SIGNATURE) -> bytes:
    """Return a whole frame.

    Args:
        kind: Byte 2 of the header, see ``MessageType``.
        payload: What it carries.
        sender: 32-byte key.
        signature: 64 bytes; what it covers depends on the kind.

    Raises:
        LocalError: The payload is longer than the header can give.
    """
    assert len(signature) == SIGNATURE_BYTES
    return b"".join((encode_header(kind, len(payload), sender), signature, payload))


def read_head(data: bytes) -> tuple[int, bytes]:
    """Return kind and 32-byte sender of a whole frame after every check that ``decode_frame`` makes.

    Raises:
        MalformedError: As ``decode_frame``.
    """
    size = len(data)
    if size < HEADER_BYTES:
        raise MalformedError(Refusal.SHORT, f"{size} bytes, a header has {HEADER_BYTES}")
    # Spec 1: reserved bytes are ignored and forwarded as they came.
    magic, version, kind, length, sender = _read_head(data)
    if magic != MAGIC or version != VERSION or length != size - HEADER_BYTES:
        raise _wrong_header(magic, version, length, size)
    return kind, sender


def decode_frame(data: bytes) -> Frame:
    """Return the frame that ``data`` is; unknown kinds are kept, reserved bytes ignored.

    Raises:
        MalformedError: SHORT, BAD_MAGIC, BAD_VERSION, or BAD_LENGTH when the payload is not as long as declared.
    """
    size = len(data)
    if size < HEADER_BYTES:
        raise MalformedError(Refusal.SHORT, f"{size} bytes, a header has {HEADER_BYTES}")
    magic, version, kind, length, sender, signature = _read_header(data)
    if magic != MAGIC or version != VERSION or length != size - HEADER_BYTES:
        raise _wrong_header(magic, version, length, size)
    return Frame(kind, sender, signature, data[HEADER_BYTES:])


def target_of(data: bytes) -> bytes | None:
    """Return the 32-byte key at which a checked frame of content is aimed, or None when its payload is too short."""
    target = data[HEADER_BYTES : HEADER_BYTES + KEY_BYTES]
    return target if len(target) == KEY_BYTES else None


def frame_hash(frame: bytes) -> bytes:
    """Return the 16 bytes that name a whole frame in DELIVERY. Spec: specs/merk.md 10.3."""
    return sha256(frame)[:HASH_BYTES]


def _wrong_header(magic: int, version: int, length: int, size: int) -> MalformedError:
    if magic != MAGIC:
        return MalformedError(Refusal.BAD_MAGIC, f"{magic:#04x}")
    if version != VERSION:
        return MalformedError(Refusal.BAD_VERSION, f"{version}")
    return MalformedError(Refusal.BAD_LENGTH, f"says {length} bytes, {size - HEADER_BYTES} follow the header")


# NODE_INFO frames


def encode_info_frame(info: Info, sender: bytes) -> bytes:
    """Return the whole NODE_INFO frame that says ``info``, with a zero signature; a forwarded frame is copied once.

    Raises:
        LocalError: As ``encode_info``.
    """
    parts = info_parts(info)
    header56 = encode_header(_NODE_INFO, sum(map(len, parts)), sender)
    return b"".join((header56, ZERO_SIGNATURE, *parts))


def decode_info_frame(data: bytes) -> Info | None:
    """Return what a whole NODE_INFO frame says, as ``decode_info`` does; a forwarded frame is copied once.

    The header is checked already, by ``read_head``.

    Raises:
        MalformedError: As ``decode_info``.
    """
    # A forwarded frame may be large, so it is not copied twice.
    if len(data) > HEADER_BYTES and data[HEADER_BYTES] == InfoType.FORWARD:
        return decode_forward(data, HEADER_BYTES)
    if len(data) > HEADER_BYTES and data[HEADER_BYTES] == InfoType.FORWARDS:
        return decode_forwards(data, HEADER_BYTES)
    return decode_info(data[HEADER_BYTES:])


# What is signed


def auth_message(
    signer_key: bytes, other_key: bytes, signer_nonce: bytes, other_nonce: bytes, signer_role: int, other_role: int
) -> bytes:
    """Return the 145 bytes that EXT_AUTH signs; keys and nonces have 32 bytes. Spec: specs/merk.md 10.1."""
    roles = bytes((signer_role, other_role))
    return b"".join((_AUTH_CONTEXT, signer_key, other_key, signer_nonce, other_nonce, roles))


def advert_message(key: bytes, agreement_key: bytes, time_ms: int) -> bytes:
    """Return the 83 bytes that a KEY_ADVERT signs; keys of 32 bytes, Unix milliseconds. Spec: specs/merk.md 10.2."""
    return b"".join((_KEYS_CONTEXT, key, agreement_key, time_ms.to_bytes(_TIME_BYTES, "big")))


def presence_message(kind: int, client: bytes, node: bytes, issued_ms: int, until_ms: int) -> bytes:
    """Return the 96 bytes that a PRESENCE signs; keys of 32 bytes, Unix milliseconds. Spec: specs/merk.md 7."""
    times = (time_ms.to_bytes(_TIME_BYTES, "big") for time_ms in (issued_ms, until_ms))
    return b"".join((_PRESENCE_CONTEXT, bytes((kind,)), client, node, *times))


def header_message(header56: bytes, payload: bytes) -> bytes:
    """Return what the header signature of DATA and SIGNED_DATA covers. Spec: specs/merk.md 7.

    Args:
        header56: The frame's first 56 bytes, as they are on the wire.
        payload: All that follows its header.
    """
    assert len(header56) == SIGNED_HEADER_BYTES
    return b"".join((_FRAME_CONTEXT, header56, payload))


def is_frame_signed(data: bytes) -> bool:
    """Return whether a checked frame of content bears its sender's header signature, or that of type 5.

    Cost: O(bytes), about 25 ms for 8 MiB; twice that for an encrypted frame whose signature is no client's of ours.
    """
    frame = decode_frame(data)
    if frame.kind != MessageType.ENCRYPTED_DATA:
        message = header_message(data[:SIGNED_HEADER_BYTES], frame.payload)
        return verify(frame.sender, message, frame.signature)
    # Spec 3: ours signs the whole payload, an original all behind the target.
    return verify(frame.sender, frame.payload, frame.signature) or verify(
        frame.sender, frame.payload[KEY_BYTES:], frame.signature
    )


def make_advert(key_pair: KeyPair, agreement_public: bytes, time_ms: int) -> KeyAdvert:
    """Return a signed statement that a 32-byte X25519 key belongs to ``key_pair`` since ``time_ms``."""
    signature = sign(key_pair, advert_message(key_pair.public, agreement_public, time_ms))
    return KeyAdvert(key_pair.public, agreement_public, time_ms, signature)


def is_advert_valid(advert: KeyAdvert) -> bool:
    """Return whether the key itself signed the advert; how old it is stays the caller's to judge."""
    return verify(advert.key, advert_message(advert.key, advert.agreement_key, advert.time_ms), advert.signature)


def make_presence(key_pair: KeyPair, kind: PresenceKind, node: bytes, issued_ms: int, until_ms: int) -> Presence:
    """Return the signed word of ``key_pair`` on the node with this 32-byte key."""
    signature = sign(key_pair, presence_message(kind, key_pair.public, node, issued_ms, until_ms))
    return Presence(kind, key_pair.public, node, issued_ms, until_ms, signature)


def is_presence_valid(presence: Presence) -> bool:
    """Return whether the client itself signed the presence; node and times stay the caller's to judge."""
    message = presence_message(presence.kind, presence.client, presence.node, presence.issued_ms, presence.until_ms)
    return verify(presence.client, message, presence.signature)
