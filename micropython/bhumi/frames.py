"""The frames of the Bhumi wire, as far as a device has to do with them.

A frame is its type (u16), its length (u32) and so many bytes; integers are big-endian. Every length is checked before
it is used, and a structure must fill its frame exactly. Spec: Bhumi v2 sections 4 and 5; BHUMI-X for OPTIONS and
I_AM_OK; ``extensions`` has what comes seldom.
"""

import struct
from hashlib import sha256

from .port import const

__all__ = [
    "ACK",
    "AUTHORITY",
    "BIND",
    "DELIVER",
    "HELLO",
    "I_AM",
    "I_AM_OK",
    "KEEPALIVE",
    "OPTIONS",
    "PRESENCE",
    "SEND_RESULT",
    "UPDATE_COMMITS",
    "WITH_AUTHORITY",
    "WITH_BINDING",
    "WITH_I_AM_OK",
    "WITH_PREIMAGE",
    "WITH_PRESENCE",
    "MalformedError",
    "Reader",
    "ack",
    "commit_of",
    "deliver_of",
    "frame",
    "hello_of",
    "i_am",
    "i_am_ok_of",
    "options",
    "options_of",
    "result_of",
    "send",
    "update_commits",
]

HELLO = const(0x01)
I_AM = const(0x02)
SEND = const(0x03)
DELIVER = const(0x04)
ACK = const(0x05)
KEEPALIVE = const(0x06)
SEND_RESULT = const(0x07)
UPDATE_COMMITS = const(0x08)
OPTIONS = const(0x40)
BIND = const(0x42)
I_AM_OK = const(0x43)
PRESENCE = const(0x44)
AUTHORITY = const(0x4F)

WITH_PREIMAGE = const(1)
WITH_PRESENCE = const(4)
WITH_BINDING = const(16)
WITH_I_AM_OK = const(32)
WITH_AUTHORITY = const(128)

_HEADER_BYTES = const(6)
_DELIVER_BYTES = const(40)  # in front of the payload, in the layout that names the preimage
_BEGINNING_BYTES = const(77)  # of a payload that is too large: as far as the tag of its envelope
_PAYLOAD_BYTES_MAX = const(1048576)  # what the original relay's reader takes, BHUMI-F
_EXTENSION_BYTES_MAX = const(65536)
_AUTHORITY_BYTES_MAX = const(4098)  # with its length in front
_PART_BYTES = const(512)
_RESULT_BYTES = const(5)  # in front of the payload of SEND_RESULT
_SIZES = {HELLO: 9, KEEPALIVE: 0, OPTIONS: 6, I_AM_OK: 4, BIND: 64}


class MalformedError(Exception):
    """The relay sent what no relay sends; the connection must end."""


def frame(kind: int, payload: bytes = b"") -> bytes:
    """Return the bytes of a frame."""
    return struct.pack(">HI", kind, len(payload)) + payload


def commit_of(preimage: bytes) -> bytes:
    """Return the 32-byte commit that a relay is given for a preimage."""
    return sha256(preimage).digest()


def i_am(identity: bytes, signature: bytes, count: int, preimages: object, responses: list) -> object:
    """Yield I_AM in pieces of about a kilobyte, because a board may have no room for all of it.

    Args:
        identity: 32 bytes.
        signature: 64 bytes over nonce and identity.
        count: How many preimages there are.
        preimages: Yields those whose commits the relay is to have.
        responses: Pairs of a preimage and the answer that was given to it.
    """
    length = 100 + 32 * count
    for _, response in responses:
        length += 36 + len(response)
    yield struct.pack(">HI", I_AM, length) + identity + signature + struct.pack(">H", count)
    part = bytearray()
    for preimage in preimages:
        part.extend(commit_of(preimage))
        if len(part) >= _PART_BYTES:
            yield part
            part = bytearray()
    yield part
    yield struct.pack(">H", len(responses))
    for preimage, response in responses:
        yield preimage + struct.pack(">I", len(response))
        yield response


def ack(message_id: int, payload: bytes) -> bytes:
    """Return the answer to the delivery ``message_id``."""
    return struct.pack(">HIII", ACK, 8 + len(payload), message_id, len(payload)) + payload


def update_commits(commits: list) -> bytes:
    """Return what adds 32-byte commits to the relay's set."""
    return struct.pack(">HIH", UPDATE_COMMITS, 2 + 32 * len(commits), len(commits)) + b"".join(commits)


def options(features: int) -> bytes:
    """Return OPTIONS, asking for feature bits."""
    return struct.pack(">HIHI", OPTIONS, 6, 1, features)


def send(recipient: bytes, preimage: bytes, payload: bytes) -> bytes:
    """Return SEND: an opaque payload to a 32-byte identity, with the preimage that permits it."""
    head = struct.pack(">HI", SEND, 68 + len(payload))
    return b"".join((head, recipient, preimage, struct.pack(">I", len(payload)), payload))


def hello_of(payload: bytes) -> tuple:
    """Return the nonce (4 bytes) of HELLO and how large an opaque payload may be; raises MalformedError."""
    if len(payload) != 9 or payload[0] != 1:
        raise MalformedError("not the HELLO of protocol version 1")
    return payload[1:5], struct.unpack_from(">I", payload, 5)[0]


def options_of(payload: bytes) -> int:
    """Return the feature bits that the relay took; raises MalformedError."""
    if len(payload) != 6:
        raise MalformedError("OPTIONS of a wrong size")
    return struct.unpack_from(">I", payload, 2)[0]


def i_am_ok_of(payload: bytes) -> tuple:
    """Return how many commits and responses the relay keeps; raises MalformedError."""
    if len(payload) != 4:
        raise MalformedError("I_AM_OK of a wrong size")
    return struct.unpack(">HH", payload)


def result_of(payload: bytes, length: int) -> tuple:
    """Return status and opaque payload of a SEND_RESULT; raises MalformedError.

    Args:
        payload: What was read of the frame; of one that is too large only the beginning.
        length: What the frame's header says; if ``payload`` is shorter, the opaque payload is None.
    """
    if length < _RESULT_BYTES or struct.unpack_from(">I", payload, 1)[0] != length - _RESULT_BYTES:
        raise MalformedError("SEND_RESULT lies about its length")
    return payload[0], payload[_RESULT_BYTES:] if len(payload) == length else None


def deliver_of(payload: bytes, length: int, with_preimage: bool) -> tuple:
    """Return id, preimage or None, and opaque payload of a DELIVER; raises MalformedError.

    Args:
        payload: What was read of the frame; of one that is too large only the beginning.
        length: What the frame's header says; if ``payload`` is shorter, so is the opaque payload.
        with_preimage: Whether this relay puts the preimage behind the id.
    """
    fixed = _DELIVER_BYTES if with_preimage else 8
    if len(payload) < fixed:
        raise MalformedError("DELIVER is cut short")
    message_id, size = struct.unpack_from(">I", payload)[0], struct.unpack_from(">I", payload, fixed - 4)[0]
    if size != length - fixed:
        raise MalformedError("DELIVER lies about its length")
    preimage = bytes(payload[4:36]) if with_preimage else None
    return message_id, preimage, payload[fixed:]


class Reader:
    """Cuts what a relay sends into frames, in one buffer that never grows.

    A frame of an unknown extension is passed over; of a DELIVER or SEND_RESULT that is larger than the buffer only the
    beginning is kept, so that it can be refused.
    """

    def __init__(self, payload_bytes_max: int, carries: int = DELIVER) -> None:
        """Take frames with opaque payloads of at most so many bytes, in DELIVER or in SEND_RESULT."""
        self._carries = carries
        self._buffer = bytearray(_HEADER_BYTES + _DELIVER_BYTES + max(payload_bytes_max, _BEGINNING_BYTES))
        self._view = memoryview(self._buffer)
        self.begin()

    def begin(self) -> None:
        """Begin with a new connection; the buffer stays, for a heap may have no other place as large."""
        self._start = 0
        self._end = 0
        self._skip = 0
        self._greeted = False

    def room(self) -> memoryview:
        """Return where to read into; never empty after ``next`` has returned None."""
        if self._start:
            left = self._end - self._start
            self._buffer[:left] = self._buffer[self._start : self._end]
            self._start, self._end = 0, left
        return self._view[self._end :]

    def took(self, count: int) -> None:
        """Note that so many bytes were read into the room."""
        self._end += count

    def next(self) -> tuple:
        """Return type, length and payload of the next frame, or None; raises MalformedError.

        The payload is a copy; of a DELIVER that is too large it is shorter than the length.
        """
        while True:
            if self._skip:
                gone = min(self._skip, self._end - self._start)
                self._start += gone
                self._skip -= gone
            if self._skip or self._end - self._start < _HEADER_BYTES:
                return None
            kind, length = struct.unpack_from(">HI", self._buffer, self._start)
            wanted = self._kept(kind, length)
            begin = self._start + _HEADER_BYTES
            if wanted and self._end - begin < wanted:
                return None
            self._start = begin + wanted
            self._skip = length - wanted
            if kind in _SIZES or kind == self._carries or (kind == AUTHORITY and wanted):
                self._greeted = True
                return kind, length, bytes(self._view[begin : begin + wanted])

    def _kept(self, kind: int, length: int) -> int:
        """Return how many bytes of a frame are kept; raises MalformedError for one that no relay sends."""
        if self._greeted == (kind == HELLO):
            raise MalformedError("frame of type %d out of order" % kind)
        if kind == self._carries:
            if length > _DELIVER_BYTES + _PAYLOAD_BYTES_MAX:
                raise MalformedError("frame of type %d with %d bytes" % (kind, length))
            return length if length <= len(self._buffer) - _HEADER_BYTES else _BEGINNING_BYTES
        if kind in _SIZES:
            if length != _SIZES[kind]:
                raise MalformedError("frame of type %d with %d bytes" % (kind, length))
            return length
        # One that does not fit is passed over, as those of unknown extensions are.
        if kind == AUTHORITY and self._carries == DELIVER and length <= _AUTHORITY_BYTES_MAX:
            return length if length <= len(self._buffer) - _HEADER_BYTES else 0
        if kind < 0x40 or length > _EXTENSION_BYTES_MAX:
            raise MalformedError("frame of type %d with %d bytes" % (kind, length))
        return 0
