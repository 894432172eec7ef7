"""The records that BSP devices exchange, and the constants that both sides share. Spec: bsp 1.

``wire`` encodes and decodes them; the device's ``receiving`` and ``sending`` take and make them.
"""

from enum import IntEnum
from typing import Final, NamedTuple

__all__ = [
    "BODY_BYTES_MAX",
    "HEADER_BYTES",
    "ID_BYTES",
    "MESSAGE_HEAD_BYTES",
    "TIMESTAMP_MAX",
    "Ack",
    "Message",
    "Offer",
    "Priority",
    "Record",
    "RecordType",
    "Request",
    "Versions",
]

ID_BYTES: Final = 32
"""Of a client, group or message identifier (HASH_LEN)."""
HEADER_BYTES: Final = 4
"""Of a record: version, type, payload length as two bytes, big-endian."""
MESSAGE_HEAD_BYTES: Final = 40
"""Of a MESSAGE payload before its body: group identifier and timestamp."""
# Spec 1: body 0 to 32,768 bytes.
BODY_BYTES_MAX: Final = 32_768
TIMESTAMP_MAX: Final = (1 << 63) - 1
"""Milliseconds since the Unix epoch, as a signed 64-bit integer that is not negative (BSP-D1)."""


class RecordType(IntEnum):
    """Second byte of a record."""

    ACK = 0
    MESSAGE = 1
    OFFER = 2
    REQUEST = 3
    VERSIONS = 4
    """Profile briar only."""
    PRIORITY = 5
    """Profile briar only."""


# Spec 1: ACK, OFFER and REQUEST carry at least one identifier; MESSAGE carries one message.
class Ack(NamedTuple):
    """The sender holds these messages."""

    ids: tuple[bytes, ...]
    """At least one, 32 bytes each."""


class Message(NamedTuple):
    """One message."""

    group_id: bytes
    """32 bytes."""
    timestamp: int
    """Milliseconds since the Unix epoch, 0 to 2**63 - 1."""
    body: bytes
    """At most 32,768 bytes; the application's."""


class Offer(NamedTuple):
    """The sender holds these messages, shares them, and does not know whether the recipient holds them."""

    ids: tuple[bytes, ...]
    """At least one, 32 bytes each."""


class Request(NamedTuple):
    """The sender asks for these messages."""

    ids: tuple[bytes, ...]
    """At least one, 32 bytes each."""


class Versions(NamedTuple):
    """Versions that the sender speaks (profile briar, sent first)."""

    versions: bytes
    """1 to 10 bytes, one version each."""


class Priority(NamedTuple):
    """Chooses among parallel connections of one peer (profile briar)."""

    nonce: bytes
    """16 bytes."""


Record = Ack | Message | Offer | Request | Versions | Priority
"""Every kind of record."""
