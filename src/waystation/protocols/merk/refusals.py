"""The refusals of MERK: each reason, and the close code or notice that shows it on the wire.

The reference implementation has no error frame: a broken rule closes the connection, everything else is silently
dropped. We close with the statuses of specs/merk.md 10.4. Clients that sent EXT_HELLO also get a ``DeliveryCode`` for
each of their frames.

``MalformedError`` is the one exception of this protocol's parsers; relay and client turn it into a close or a drop.
"""

from enum import Enum
from typing import Final

from waystation.core.errors import RemoteError

__all__ = ["MalformedError", "Refusal"]


class Refusal(Enum):
    """Closed set of reasons; the value is what journal, metrics and logs show."""

    # No frame: the connection closes with 1002, or 1009.
    SHORT = "short"
    BAD_MAGIC = "bad_magic"
    BAD_VERSION = "bad_version"
    BAD_LENGTH = "bad_length"
    TOO_BIG = "too_big"
    # The handshake failed: 4401, 4408, 4409.
    FRAME_BEFORE_AUTH = "frame_before_auth"
    BAD_ANSWER = "bad_answer"
    MISPLACED_HANDSHAKE = "misplaced_handshake"
    AUTH_TIMEOUT = "auth_timeout"
    REPLACED = "replaced"
    IDENTITY_BANNED = "identity_banned"
    CONNECT_RATE = "connect_rate"
    # Between nodes: 4401.
    BAD_PEER_AUTH = "bad_peer_auth"
    WRONG_PEER_KEY = "wrong_peer_key"
    SELF_LINK = "self_link"
    DOUBLE_LINK = "double_link"
    PEERS_FULL = "peers_full"
    PEERS_NOT_ACCEPTED = "peers_not_accepted"
    # A client whose key needs AUTH: 4401 at the deadline, before that its frames are dropped.
    UNPROVED = "unproved"
    # Who dialled refuses the other side: 4401.
    HOSTILE_CHALLENGE = "hostile_challenge"
    WRONG_SERVER = "wrong_server"
    # The connection ends for other reasons.
    STRIKES = "strikes"
    NOT_READING = "not_reading"
    SHUTDOWN = "shutdown"
    # Dropped and counted; with STRIKES the connection closes at last.
    FORGED_SENDER = "forged_sender"
    NO_TARGET = "no_target"
    UNKNOWN_TYPE = "unknown_type"
    MALFORMED_INFO = "malformed_info"
    INFO_NOT_ALLOWED = "info_not_allowed"
    UNASKED_ANSWER = "unasked_answer"
    LYING_PEER = "lying_peer"
    BAD_ADVERT = "bad_advert"
    BAD_PRESENCE = "bad_presence"
    UNSIGNED = "unsigned"
    REPLAYED_FORWARD = "replayed_forward"
    PRIVATE_ADDRESS = "private_address"
    RATE = "rate"
    QUEUE_FULL = "queue_full"
    KEY_QUESTIONS = "key_questions"
    # Mailboxes: MAIL state 2, DELIVERY code 2, or 4 for what is too large.
    MAILBOX_OFF = "mailbox_off"
    MAILBOXES_FULL = "mailboxes_full"
    MAILBOX_FULL = "mailbox_full"
    MAIL_SHARE = "mail_share"
    MAIL_FULL = "mail_full"
    MAIL_TOO_LARGE = "mail_too_large"
    MAIL_NOT_KEPT = "mail_not_kept"
    # Contents that a receiving client drops.
    NOT_FOR_US = "not_for_us"
    BAD_SIGNATURE = "bad_signature"
    CANNOT_DECRYPT = "cannot_decrypt"
    BAD_CONTENT = "bad_content"
    DUPLICATE = "duplicate"
    STALE = "stale"
    DOWNGRADED = "downgraded"

    @property
    def status(self) -> int:
        """Return the close status of RFC 6455 7.4 that shows it; 1008 where the specification names none."""
        return _STATUSES.get(self, 1008)


_STATUSES: Final = {
    Refusal.SHORT: 1002,
    Refusal.BAD_MAGIC: 1002,
    Refusal.BAD_VERSION: 1002,
    Refusal.BAD_LENGTH: 1002,
    Refusal.TOO_BIG: 1009,
    Refusal.FRAME_BEFORE_AUTH: 4401,
    Refusal.BAD_ANSWER: 4401,
    Refusal.MISPLACED_HANDSHAKE: 4401,
    Refusal.IDENTITY_BANNED: 4401,
    Refusal.BAD_PEER_AUTH: 4401,
    Refusal.UNPROVED: 4401,
    Refusal.WRONG_PEER_KEY: 4401,
    Refusal.SELF_LINK: 4401,
    Refusal.HOSTILE_CHALLENGE: 4401,
    Refusal.WRONG_SERVER: 4401,
    Refusal.AUTH_TIMEOUT: 4408,
    Refusal.REPLACED: 4409,
    Refusal.DOUBLE_LINK: 4409,
    Refusal.CONNECT_RATE: 1013,
    Refusal.PEERS_FULL: 1013,
    Refusal.PEERS_NOT_ACCEPTED: 1013,
    Refusal.NOT_READING: 1013,
    Refusal.SHUTDOWN: 1001,
}


class MalformedError(RemoteError):
    """Bytes that are not what they should be.

    Attributes:
        refusal: Which rule they break.
    """

    def __init__(self, refusal: Refusal, detail: str) -> None:
        super().__init__(f"{refusal.value}: {detail}")
        self.refusal = refusal
