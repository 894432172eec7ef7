"""The reasons for which BSP refuses, and the one exception that its parsers raise with one of them.

Journal, metrics and logs show the value. The protocol has no refusing record: the other side sees a closed connection,
an ignored record, or no acknowledgement, so that the author retries. Only the handshake verdict of bsp+tls and bsp+wss
has a status byte (``Refusal.status``).

Who calls a parser turns its ``MalformedError`` into a close in the handshake, into an unreadable command in a mailbox,
and into ``BundleRefused`` for a file. The reader of a stream keeps its ``Refusal``, and the session closes.
"""

from enum import Enum
from typing import Final

from waystation.core.errors import RemoteError

__all__ = ["MalformedError", "Refusal"]


class Refusal(Enum):
    """Closed set of reasons; the value is what journal, metrics and logs show."""

    # A stream that cannot be read on: closed at the record, earlier records count (BSP-D4, -D5, -D6).
    VERSION = "version"
    EMPTY_LIST = "empty_list"
    LIST_LENGTH = "list_length"
    TOO_MANY_IDS = "too_many_ids"
    MESSAGE_LENGTH = "message_length"
    TIMESTAMP = "timestamp"
    VERSIONS_LENGTH = "versions_length"
    PRIORITY_LENGTH = "priority_length"
    TRUNCATED = "truncated"
    STALLED = "stalled"
    # The handshake of bsp+tls and bsp+wss.
    HANDSHAKE = "handshake"
    HANDSHAKE_TIMEOUT = "handshake_timeout"
    BAD_SIGNATURE = "bad_signature"
    WRONG_PEER = "wrong_peer"
    UNKNOWN_PEER = "unknown_peer"
    REFUSED_BY_PEER = "refused_by_peer"
    BUSY = "busy"
    # Connections that end without a fault of the peer.
    REPLACED = "replaced"
    HALF_CLOSED = "half_closed"
    DRAINING = "draining"
    IDENTITY_BANNED = "identity_banned"
    SEND_STALLED = "send_stalled"
    # Messages that are refused: no acknowledgement, nothing stored.
    UNSHARED_GROUP = "unshared_group"
    PENDING_FULL = "pending_full"
    GROUP_FULL = "group_full"
    DEVICE_FULL = "device_full"
    QUOTA_FULL = "quota_full"
    # Messages that are acknowledged and then marked invalid.
    UNPARSABLE = "unparsable"
    TOO_MANY_DEPENDENCIES = "too_many_dependencies"
    NAMES_ITSELF = "names_itself"
    INVALID_DEPENDENCY = "invalid_dependency"
    INVALID_IN_CONTEXT = "invalid_in_context"
    # Files and datagrams (bsp 5, bsp file).
    FILE_FORM = "file_form"
    FILE_NOT_FOR_US = "file_not_for_us"
    FILE_SENDER = "file_sender"
    FILE_SIGNATURE = "file_signature"
    FILE_SEAL = "file_seal"
    FILE_TOO_LARGE = "file_too_large"
    # A command of a mailbox's owner that is refused.
    MAILBOX_COMMAND = "mailbox_command"
    MAILBOX_GROUP_ID = "mailbox_group_id"
    MAILBOX_GROUPS_FULL = "mailbox_groups_full"

    @property
    def status(self) -> int | None:
        """Return the status byte for the other side of a handshake, or None where nothing is sent."""
        return _STATUSES.get(self)


# Spec 5: 1 your key is not in our table, 2 busy; every other reason has no status of its own (BSP-TOLD).
_STATUSES: Final = {Refusal.UNKNOWN_PEER: 1, Refusal.BUSY: 2}


class MalformedError(RemoteError):
    """Bytes that break a rule of the wire format.

    Attributes:
        refusal: The rule that they break.
    """

    def __init__(self, refusal: Refusal, detail: str) -> None:
        super().__init__(f"{refusal.value}: {detail}")
        self.refusal = refusal
