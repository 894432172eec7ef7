"""Encodes, decodes and screens LPRP packets.

``Codec.screen`` is the host's first check of a datagram. It creates no object and raises nothing, so a flood stays
cheap to reject. ``Codec.read`` decodes the packets that passed; clients use it too. Neither verifies signatures.

The time is checked before the command. Random bytes fail that check first, and a packet in the other byte order is
recognised by it (LPRP-ORDER).

Spec: specs/lprp.md 2, 3 and 4.
"""

import struct
from typing import Final

from waystation.core.ids import KEY_BYTES, PublicKey
from waystation.crypto.signing import KeyPair, sign
from waystation.protocols.lprp.messages import (
    CLOCK_WINDOW_MS,
    HEADER_BYTES,
    PACKET_BYTES_MAX,
    PACKET_BYTES_MIN,
    REPLY_BYTES,
    SIGNATURE_BYTES,
    UPDATE_KEYS_MAX,
    Command,
    Packet,
    make_packet,
)
from waystation.protocols.lprp.refusals import MalformedError, Refusal

__all__ = ["REQUESTS", "Codec", "delivered_by", "packet_sizes", "signed_part"]


class Codec:
    """Reads, screens and writes packets in one byte order.

    Args:
        byte_order: Of time and command: ``big`` or ``little`` (LPRP-D1 and LPRP-D2; the text names none).
    """

    __slots__ = ("_layout", "_read_layout", "_read_marks")

    def __init__(self, byte_order: str = "big") -> None:
        mark = _MARKS[byte_order]
        self._layout = struct.Struct(mark + "Q32s32sQ")
        self._read_layout = struct.Struct(mark + "64sQ32s32sQ").unpack_from
        self._read_marks = struct.Struct(mark + "64xQ64xQ").unpack_from

    def screen(self, data: bytes, wall_ms: int) -> Refusal | None:
        """Return why a host drops a datagram unseen, or None when it has the form of a request and a fresh time.

        Args:
            data: The datagram, any length.
            wall_ms: The host's clock, milliseconds since the Unix epoch.

        Returns:
            LENGTH, CLOCK, UNKNOWN_COMMAND, WRONG_DIRECTION or COMMAND_LENGTH: the first in this order that applies.
        """
        size = len(data)
        # Spec 4.1: 144 to 508 bytes.
        if not PACKET_BYTES_MIN <= size <= PACKET_BYTES_MAX:
            return Refusal.LENGTH
        time_ms, command = self._read_marks(data)
        # Spec 4.1: within 2^19 ms of ours; exactly 2^19 passes.
        if not -CLOCK_WINDOW_MS <= time_ms - wall_ms <= CLOCK_WINDOW_MS:
            return Refusal.CLOCK
        # Spec 4.1: the command is known, goes to hosts, and has a length of section 3.
        sizes = _REQUEST_SIZES.get(command)
        if sizes is None:
            return Refusal.WRONG_DIRECTION if command in _FORMS else Refusal.UNKNOWN_COMMAND
        return None if size in sizes else Refusal.COMMAND_LENGTH

    def read(self, data: bytes) -> Packet:
        """Return the packet that ``data`` is, of either direction and any time.

        Raises:
            MalformedError: LENGTH, UNKNOWN_COMMAND or COMMAND_LENGTH.
        """
        size = len(data)
        if not PACKET_BYTES_MIN <= size <= PACKET_BYTES_MAX:
            raise MalformedError(Refusal.LENGTH, f"{size} bytes")
        signature, time_ms, sender, recipient, code = self._read_layout(data)
        form = _FORMS.get(code)
        if form is None:
            raise MalformedError(Refusal.UNKNOWN_COMMAND, f"{code:#x}")
        command, sizes = form
        if size not in sizes:
            raise MalformedError(Refusal.COMMAND_LENGTH, f"{command.name} of {size} bytes")
        return make_packet((data, signature, time_ms, sender, recipient, command, data[HEADER_BYTES:]))

    def seal(self, key_pair: KeyPair, recipient: bytes, command: Command, payload: bytes, time_ms: int) -> Packet:
        """Return a signed packet; its sender is the signer, in an 802 too (LPRP-D16).

        Args:
            key_pair: The signer's.
            recipient: 32-byte key.
            command: Its command.
            payload: As long as ``packet_sizes`` allows, without the header's 144 bytes.
            time_ms: The signer's clock, milliseconds since the Unix epoch; 0 to 2**64-1.
        """
        assert len(recipient) == KEY_BYTES
        assert HEADER_BYTES + len(payload) in packet_sizes(command)
        # Spec 2: the signature covers everything after it: time, sender, recipient, command, payload.
        body = self._layout.pack(time_ms, key_pair.public, recipient, command) + payload
        signature = sign(key_pair, body)
        return make_packet((signature + body, signature, time_ms, key_pair.public, bytes(recipient), command, payload))


def signed_part(data: bytes) -> bytes:
    """Return the bytes that the signature of a whole packet covers: all after it."""
    return data[SIGNATURE_BYTES:]


def delivered_by(packet: Packet, host_key: bytes) -> PublicKey:
    """Return the signer of an 802: its sender, or its recipient where the host is named as the sender.

    The text lays an 802 out with the host's key in front, though the tenant signs it; no host signs an 802, so the two
    orders cannot be mistaken for each other (LPRP-D16).
    """
    assert packet.command is Command.DELIVERED
    return packet.recipient if packet.sender == host_key else packet.sender


def packet_sizes(command: Command) -> frozenset[int]:
    """Return every length in bytes, header included, that a packet of this command may have. Spec: lprp 3."""
    return _FORMS[command][1]


_MARKS: Final = {"big": ">", "little": "<"}

_EMPTY: Final = frozenset({HEADER_BYTES})
_REPLY: Final = frozenset({REPLY_BYTES})  # also of 204, 404 and 604, whose layout forgets the payload (LPRP-LAYOUT)
_ANY: Final = frozenset(range(PACKET_BYTES_MIN, PACKET_BYTES_MAX + 1))
_AS_LONG_AS_ITS_REPLY: Final = frozenset(range(REPLY_BYTES, PACKET_BYTES_MAX + 1))
_UPDATE: Final = frozenset(HEADER_BYTES + KEY_BYTES * (1 + keys) for keys in range(1, UPDATE_KEYS_MAX + 1))

_SIZES: Final = {
    Command.HEARTBEAT: _EMPTY,
    Command.HEARTBEAT_ANSWER: _EMPTY,
    Command.WORK: _AS_LONG_AS_ITS_REPLY,
    Command.RELAY: _ANY,
    Command.ASK_LEASE: _AS_LONG_AS_ITS_REPLY,
    Command.UPDATE_WHITELIST: _UPDATE,
    Command.CLEAR_WHITELIST: _AS_LONG_AS_ITS_REPLY,
}

REQUESTS: Final = frozenset(
    {
        Command.HEARTBEAT,
        Command.WORK,
        Command.RELAY,
        Command.DELIVERED,
        Command.ASK_LEASE,
        Command.UPDATE_WHITELIST,
        Command.CLEAR_WHITELIST,
    }
)
"""Commands that a host receives; of these a client receives only RELAY."""

# Plain numbers and tuples, looked up once per datagram; asking the Enum for a member costs more than all the rest.
_FORMS: Final = {int(command): (command, _SIZES.get(command, _REPLY)) for command in Command}
_REQUEST_SIZES: Final = {code: sizes for code, (command, sizes) in _FORMS.items() if command in REQUESTS}
