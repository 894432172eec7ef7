"""Encodes and decodes Bhumi's core frames.

A frame is type (u16), payload length (u32), payload; all integers are big-endian (spec section 4). ``FrameBuffer`` cuts
a byte stream into frames. It refuses a frame by its header when type or length is not allowed, so a declared length
never causes an allocation. Every ``decode_*`` demands that the structure fills the payload exactly.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Final

from waystation.core.cursor import Cursor, ShortError
from waystation.core.ids import KEY_BYTES, PublicKey
from waystation.crypto.signing import SIGNATURE_BYTES
from waystation.protocols.bhumi.messages import (
    COMMIT_BYTES,
    PREIMAGE_BYTES,
    Ack,
    Deliver,
    Feature,
    FrameType,
    Hello,
    IAm,
    Keepalive,
    Message,
    Options,
    RecentResponse,
    Send,
    SendResult,
    UpdateCommits,
)
from waystation.protocols.bhumi.refusals import MalformedError, Refusal

__all__ = [
    "CARRIED_BYTES_MAX",
    "CARRIED_COUNT_MAX",
    "COMMITS_MAX",
    "EXTENSION_FRAME_BYTES_MAX",
    "FRAME_HEADER_BYTES",
    "FrameBuffer",
    "client_frame_limits",
    "decode_ack",
    "decode_deliver",
    "decode_hello",
    "decode_i_am",
    "decode_options",
    "decode_send",
    "decode_send_result",
    "decode_update_commits",
    "encode",
    "encode_deliver",
    "encode_send_result",
    "relay_frame_limits",
    "signed_bytes",
    "split_ack",
    "split_send",
]

FRAME_HEADER_BYTES: Final = 6  # spec 1
COMMITS_MAX: Final = 4_096  # BHUMI-L and BHUMI-C2 and BHUMI-C4
EXTENSION_TYPES_FROM: Final = 0x40  # BHUMI-24
EXTENSION_FRAME_BYTES_MAX: Final = 65_536  # BHUMI-C4
CARRIED_BYTES_MAX: Final = 1_048_576  # of responses in one I_AM, BHUMI-L
CARRIED_COUNT_MAX: Final = 256  # BHUMI-L

_FIXED_HELLO: Final = 9  # spec 2: u8, u32, u32
_FIXED_I_AM: Final = KEY_BYTES + SIGNATURE_BYTES + 2  # up to and with commit_count
_FIXED_SEND: Final = KEY_BYTES + PREIMAGE_BYTES + 4  # spec 2: up to and with the length
_FIXED_ACK: Final = 8  # number and length
_FIXED_DELIVER: Final = 8  # number and length; 32 more with the preimage
_FIXED_RESULT: Final = 5  # status and length
_FIXED_RESPONSE: Final = PREIMAGE_BYTES + 4  # of each carried response
_OPTIONS_BYTES: Final = 6  # spec 5: u16, u32

# Plain integers: reading a member off an enum class costs more than packing it.
_DELIVER: Final = int(FrameType.DELIVER)
_SEND_RESULT: Final = int(FrameType.SEND_RESULT)

_HEADER: Final = struct.Struct(">HI")
_unpack_header: Final = _HEADER.unpack_from
_HELLO: Final = struct.Struct(">BII")
_OPTIONS: Final = struct.Struct(">HI")
_ID_AND_LENGTH: Final = struct.Struct(">II")
_LENGTH: Final = struct.Struct(">I")
_RESULT: Final = struct.Struct(">BI")
_DELIVER_HEAD: Final = struct.Struct(">HIII")
_RESULT_HEAD: Final = struct.Struct(">HIBI")


def relay_frame_limits(max_payload_bytes: int) -> dict[int, int]:
    """Return the largest payload of each frame type that a relay takes. Spec: BHUMI-F, BHUMI-C2."""
    return {
        # BHUMI-C2: all commits and carried responses that one I_AM may have, to the byte.
        FrameType.I_AM: _FIXED_I_AM
        + COMMITS_MAX * COMMIT_BYTES
        + 2
        + CARRIED_BYTES_MAX
        + CARRIED_COUNT_MAX * _FIXED_RESPONSE,
        FrameType.SEND: _FIXED_SEND + max_payload_bytes,
        FrameType.ACK: _FIXED_ACK + max_payload_bytes,
        FrameType.KEEPALIVE: 0,
        # BHUMI-C4: a count above the limit is an oversize frame and closes.
        FrameType.UPDATE_COMMITS: 2 + COMMITS_MAX * COMMIT_BYTES,
        FrameType.OPTIONS: _OPTIONS_BYTES,
    }


def client_frame_limits(max_payload_bytes: int) -> dict[int, int]:
    """Return the largest payload of each frame type that a client takes."""
    return {
        FrameType.HELLO: _FIXED_HELLO,
        # BHUMI-2: room for the preimage, whether or not this connection asked for it.
        FrameType.DELIVER: _FIXED_DELIVER + PREIMAGE_BYTES + max_payload_bytes,
        FrameType.KEEPALIVE: 0,
        FrameType.SEND_RESULT: _FIXED_RESULT + max_payload_bytes,
        FrameType.OPTIONS: _OPTIONS_BYTES,
    }


class FrameBuffer:
    """Cuts one direction of a stream into frames.

    Feed bytes with ``feed``, then call ``next_frame`` until it returns None. Each byte is copied at most twice, however
    the stream is chunked.
    """

    __slots__ = ("_data", "_limits", "_needed", "_offset", "_partial", "waiting")

    def __init__(self, limits: Mapping[int, int]) -> None:
        self._limits = limits
        self._data = b""
        self._offset = 0
        self._partial = bytearray()
        self._needed = FRAME_HEADER_BYTES
        self.waiting = 0
        """Bytes that wait here: whole frames not taken yet, and the beginning of the next one."""

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        if not self.waiting:
            self._data = data
            self._offset = 0
            self.waiting = len(data)
            return
        if self._partial:
            self._partial += data
        else:
            self._partial += self._data[self._offset :]
            self._partial += data
        self.waiting += len(data)

    def only_frame(self, data: bytes) -> tuple[int, bytes] | None:
        """Return type and payload when nothing waits here and ``data`` is one whole frame, as it mostly is.

        Otherwise nothing was taken and the caller feeds the data.
        """
        size = len(data)
        if self.waiting or size < FRAME_HEADER_BYTES:
            return None
        frame_type, length = _unpack_header(data)
        # Anything unusual takes the slow path, which knows what to refuse and why.
        if length != size - FRAME_HEADER_BYTES or length > self._limits.get(frame_type, -1):
            return None
        return frame_type, data[FRAME_HEADER_BYTES:]

    def next_frame(self) -> tuple[int, bytes] | None:
        """Return type and payload of the next whole frame, or None.

        Raises:
            MalformedError: The header names a type that this side never takes, or a length above its limit.
        """
        if self.waiting < self._needed:
            self._keep()
            return None
        if self._partial:
            self._data = bytes(self._partial)
            self._offset = 0
            self._partial.clear()
        data, start = self._data, self._offset
        frame_type, length = _unpack_header(data, start)
        if length > self._limits.get(frame_type, -1):
            self._check_header(frame_type, length)
        size = FRAME_HEADER_BYTES + length
        if self.waiting < size:
            self._needed = size
            self._keep()
            return None
        self._offset = start + size
        self.waiting -= size
        self._needed = FRAME_HEADER_BYTES
        return frame_type, data[start + FRAME_HEADER_BYTES : start + size]

    def _keep(self) -> None:
        """Move the beginning of a frame to where more can be added."""
        if not self._partial and self.waiting:
            self._partial += self._data[self._offset :]
            self._data = b""
            self._offset = 0

    def _check_header(self, frame_type: int, length: int) -> None:
        limit = self._limits.get(frame_type)
        if limit is None:
            # BHUMI-24: below 0x40 an unknown type or a wrong direction closes; above, a bounded frame is skipped.
            if frame_type < EXTENSION_TYPES_FROM or frame_type == FrameType.OPTIONS:  # part of the core, BHUMI-C8
                known = frame_type in FrameType.__members__.values()
                refusal = Refusal.WRONG_DIRECTION if known else Refusal.UNKNOWN_TYPE
                raise MalformedError(refusal, f"frame type {frame_type:#04x}")
            limit = EXTENSION_FRAME_BYTES_MAX
        if length > limit:
            raise MalformedError(Refusal.OVERSIZE, f"type {frame_type:#04x}, {length} bytes, at most {limit}")


def signed_bytes(relay_nonce: int, identity: bytes) -> bytes:
    """Return the 36 bytes that I_AM signs: nonce (u32) and identity. Spec: 5.2, BHUMI-4."""
    return _LENGTH.pack(relay_nonce) + identity


def decode_hello(payload: bytes) -> Hello:
    """Decode HELLO; raises MalformedError."""
    if len(payload) != _FIXED_HELLO:
        raise _wrong_size("HELLO", payload, _FIXED_HELLO)
    version, nonce, max_payload_bytes = _HELLO.unpack(payload)
    return Hello(relay_nonce=nonce, max_payload_bytes=max_payload_bytes, protocol_version=version)


def decode_i_am(payload: bytes) -> IAm:
    """Decode I_AM; raises MalformedError. Counts are checked against what is left before anything is read."""
    cursor = Cursor(payload)
    try:
        identity = PublicKey(cursor.take(KEY_BYTES))
        signature = cursor.take(SIGNATURE_BYTES)
        commits = _take_commits(cursor)
        response_count = cursor.take_u16()
        # A count is checked against what is left before anything is built by it.
        if response_count * _FIXED_RESPONSE > cursor.left:
            raise ShortError(response_count * _FIXED_RESPONSE, cursor.left)
        responses = tuple(_take_response(cursor) for _ in range(response_count))
    except ShortError as error:
        raise MalformedError(Refusal.TRUNCATED, f"I_AM: {error}") from error
    _check_all_read(cursor, "I_AM")
    return IAm(identity=identity, signature=signature, commits=commits, responses=responses)


def split_send(payload: bytes) -> tuple[bytes, bytes, bytes]:
    """Return recipient, preimage and opaque payload of SEND without a message object; raises MalformedError."""
    size = len(payload)
    # BHUMI-F: the inner length must say exactly what the frame has left.
    if size < _FIXED_SEND or _LENGTH.unpack_from(payload, _FIXED_SEND - 4)[0] != size - _FIXED_SEND:
        _check_inner_length("SEND", payload, _FIXED_SEND)
    return payload[:32], payload[32:64], payload[_FIXED_SEND:]


def decode_send(payload: bytes) -> Send:
    """Decode SEND; raises MalformedError."""
    recipient, preimage, opaque = split_send(payload)
    return Send(PublicKey(recipient), preimage, opaque)


def decode_deliver(payload: bytes, *, with_preimage: bool) -> Deliver:
    """Decode DELIVER in the layout this connection agreed on; raises MalformedError."""
    fixed = _FIXED_DELIVER + (PREIMAGE_BYTES if with_preimage else 0)
    _check_inner_length("DELIVER", payload, fixed)
    (message_id,) = _LENGTH.unpack_from(payload)
    preimage = payload[4 : 4 + PREIMAGE_BYTES] if with_preimage else None
    return Deliver(message_id=message_id, payload=payload[fixed:], preimage=preimage)


def split_ack(payload: bytes) -> tuple[int, bytes]:
    """Return message number and opaque payload of ACK without a message object; raises MalformedError."""
    if len(payload) < _FIXED_ACK:
        _check_inner_length("ACK", payload, _FIXED_ACK)
    message_id, declared = _ID_AND_LENGTH.unpack_from(payload)
    if declared != len(payload) - _FIXED_ACK:
        _check_inner_length("ACK", payload, _FIXED_ACK)
    return message_id, payload[_FIXED_ACK:]


def decode_ack(payload: bytes) -> Ack:
    """Decode ACK; raises MalformedError."""
    return Ack(*split_ack(payload))


def decode_send_result(payload: bytes) -> SendResult:
    """Decode SEND_RESULT; raises MalformedError."""
    _check_inner_length("SEND_RESULT", payload, _FIXED_RESULT)
    return SendResult(status=payload[0], payload=payload[_FIXED_RESULT:])


def decode_update_commits(payload: bytes) -> UpdateCommits:
    """Decode UPDATE_COMMITS; raises MalformedError."""
    cursor = Cursor(payload)
    try:
        commits = _take_commits(cursor)
    except ShortError as error:
        raise MalformedError(Refusal.TRUNCATED, f"UPDATE_COMMITS: {error}") from error
    _check_all_read(cursor, "UPDATE_COMMITS")
    return UpdateCommits(commits)


def decode_options(payload: bytes) -> Options:
    """Decode OPTIONS; raises MalformedError. Bits without a meaning are kept for the caller to ignore."""
    if len(payload) != _OPTIONS_BYTES:
        raise _wrong_size("OPTIONS", payload, _OPTIONS_BYTES)
    version, bits = _OPTIONS.unpack(payload)
    return Options(features=Feature(bits), extension_version=version)


def encode(message: Message) -> bytes:
    """Return the whole frame of a message."""
    return _ENCODERS[type(message)](message)


def encode_deliver(message_id: int, payload: bytes, preimage: bytes | None) -> bytes:
    """Return a whole DELIVER frame; the relay's hot path, without a message object."""
    size = len(payload)
    if preimage is None:
        return _DELIVER_HEAD.pack(_DELIVER, _FIXED_DELIVER + size, message_id, size) + payload
    fixed = _FIXED_DELIVER + PREIMAGE_BYTES
    head = _HEADER.pack(_DELIVER, fixed + size) + _LENGTH.pack(message_id)
    return b"".join((head, preimage, _LENGTH.pack(size), payload))


def encode_send_result(status: int, payload: bytes) -> bytes:
    """Return a whole SEND_RESULT frame; the relay's hot path, without a message object."""
    size = len(payload)
    return _RESULT_HEAD.pack(_SEND_RESULT, _FIXED_RESULT + size, status, size) + payload


def _take_commits(cursor: Cursor) -> tuple[bytes, ...]:
    count = cursor.take_u16()
    # BHUMI-C4.
    if count > COMMITS_MAX:
        raise MalformedError(Refusal.TOO_MANY_COMMITS, f"{count} commits, at most {COMMITS_MAX}")
    block = cursor.take(count * COMMIT_BYTES)
    return tuple(block[start : start + COMMIT_BYTES] for start in range(0, len(block), COMMIT_BYTES))


def _take_response(cursor: Cursor) -> RecentResponse:
    preimage = cursor.take(PREIMAGE_BYTES)
    return RecentResponse(preimage=preimage, response=cursor.take(cursor.take_u32()))


def _check_all_read(cursor: Cursor, name: str) -> None:
    if cursor.left:
        raise MalformedError(Refusal.TRAILING_BYTES, f"{name}: {cursor.left} bytes after its end")


def _check_inner_length(name: str, payload: bytes, fixed: int) -> None:
    """Check that the u32 that ends the fixed part says how long the rest is."""
    size = len(payload)
    if size < fixed:
        raise MalformedError(Refusal.TRUNCATED, f"{name}: {size} bytes, at least {fixed}")
    (declared,) = _LENGTH.unpack_from(payload, fixed - 4)
    # BHUMI-F: strict equality; the original ignores trailing bytes, and no known writer emits any.
    if declared != size - fixed:
        raise MalformedError(Refusal.INNER_LENGTH, f"{name}: says {declared} bytes, frame has {size - fixed}")


def _wrong_size(name: str, payload: bytes, size: int) -> MalformedError:
    refusal = Refusal.TRUNCATED if len(payload) < size else Refusal.TRAILING_BYTES
    return MalformedError(refusal, f"{name}: {len(payload)} bytes, exactly {size}")


def _frame(frame_type: FrameType, *parts: bytes) -> bytes:
    payload = b"".join(parts)
    return _HEADER.pack(frame_type, len(payload)) + payload


def _encode_hello(message: Hello) -> bytes:
    return _frame(
        FrameType.HELLO,
        _HELLO.pack(message.protocol_version, message.relay_nonce, message.max_payload_bytes),
    )


def _encode_i_am(message: IAm) -> bytes:
    parts = [message.identity, message.signature, len(message.commits).to_bytes(2, "big"), *message.commits]
    parts.append(len(message.responses).to_bytes(2, "big"))
    for carried in message.responses:
        parts += (carried.preimage, _LENGTH.pack(len(carried.response)), carried.response)
    return _frame(FrameType.I_AM, *parts)


def _encode_send(message: Send) -> bytes:
    return _frame(
        FrameType.SEND,
        message.recipient,
        message.preimage,
        _LENGTH.pack(len(message.payload)),
        message.payload,
    )


def _encode_deliver(message: Deliver) -> bytes:
    return encode_deliver(message.message_id, message.payload, message.preimage)


def _encode_ack(message: Ack) -> bytes:
    return _frame(FrameType.ACK, _ID_AND_LENGTH.pack(message.message_id, len(message.payload)), message.payload)


def _encode_keepalive(_message: Keepalive) -> bytes:
    return _frame(FrameType.KEEPALIVE)


def _encode_send_result(message: SendResult) -> bytes:
    return encode_send_result(message.status, message.payload)


def _encode_update_commits(message: UpdateCommits) -> bytes:
    return _frame(FrameType.UPDATE_COMMITS, len(message.commits).to_bytes(2, "big"), *message.commits)


def _encode_options(message: Options) -> bytes:
    return _frame(FrameType.OPTIONS, _OPTIONS.pack(message.extension_version, message.features))


_ENCODERS: Final[Mapping[type[Message], Callable[..., bytes]]] = {
    Hello: _encode_hello,
    IAm: _encode_i_am,
    Send: _encode_send,
    Deliver: _encode_deliver,
    Ack: _encode_ack,
    Keepalive: _encode_keepalive,
    SendResult: _encode_send_result,
    UpdateCommits: _encode_update_commits,
    Options: _encode_options,
}
