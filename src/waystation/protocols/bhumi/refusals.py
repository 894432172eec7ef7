"""The refusals of Bhumi: each reason, and the status or close that shows it on the wire.

The wire has no error frame (BHUMI-L). A malformed or refused connection is closed; a refused SEND gets one of four
statuses. Each member of ``Refusal`` names one reason for the journal, the counters and the logs.

``MalformedError`` is the one exception of this protocol's parsers; ``session`` and ``client`` turn it into a close.
"""

from enum import Enum

from waystation.core.errors import RemoteError

__all__ = ["MalformedError", "Refusal"]


class Refusal(Enum):
    """Closed set of reasons; the value is what journal, metrics and logs show."""

    # The peer broke framing or structure: the connection closes.
    TRUNCATED = "truncated"
    TRAILING_BYTES = "trailing_bytes"
    INNER_LENGTH = "inner_length"
    OVERSIZE = "oversize"
    WRONG_DIRECTION = "wrong_direction"
    UNKNOWN_TYPE = "unknown_type"
    TOO_MANY_COMMITS = "too_many_commits"
    BAD_VERSION = "bad_version"
    END_INSIDE_FRAME = "end_inside_frame"
    BAD_ADDRESS = "bad_address"
    BAD_VERDICT = "bad_verdict"
    BAD_WATCH = "bad_watch"
    BAD_AUTHORITY = "bad_authority"
    BAD_RECORD = "bad_record"
    # The peer may not do what it asked: the connection closes.
    BAD_SIGNATURE = "bad_signature"
    OTHER_IDENTITY = "other_identity"
    IDENTITY_BANNED = "identity_banned"
    ACK_STRIKES = "ack_strikes"
    RECORD_STRIKES = "record_strikes"
    BAD_BINDING = "bad_binding"
    BINDING_MISSING = "binding_missing"
    # Time ran out: the connection closes.
    FRAME_TIMEOUT = "frame_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    WRITE_TIMEOUT = "write_timeout"
    # The relay ends the connection for its own reasons.
    REPLACED = "replaced"
    SHUTDOWN = "shutdown"
    DOUBLE_LINK = "double_link"
    OWN_KEY = "own_key"
    NO_GOSSIP = "no_gossip"
    CONTACTS_FULL = "contacts_full"
    # Something was dropped or ignored and counted; the connection stays.
    UNSOLICITED_ACK = "unsolicited_ack"
    COMMITS_WITHOUT_IDENTITY = "commits_without_identity"
    COMMITS_OVER_LIMIT = "commits_over_limit"
    CARRIED_OVER_QUOTA = "carried_over_quota"
    CARRIED_DUPLICATE = "carried_duplicate"
    LATE_OVER_LIMIT = "late_over_limit"
    UNKNOWN_EXTENSION = "unknown_extension"
    RECORD_TTL = "record_ttl"
    RECORD_FROM_FUTURE = "record_from_future"
    RECORD_EXPIRED = "record_expired"
    RECORD_SIGNATURE = "record_signature"
    FOREIGN_PRESENCE = "foreign_presence"
    PRIVATE_ADDRESS = "private_address"
    TABLE_FULL = "table_full"
    PRESENCE_FLOOD = "presence_flood"
    WHERE_FLOOD = "where_flood"
    GOSSIP_FLOOD = "gossip_flood"
    GOSSIP_WITHOUT_IDENTITY = "gossip_without_identity"
    UNASKED_REPORT = "unasked_report"
    WATCHES_FULL = "watches_full"
    # A SEND is refused with status 1 and its commit kept, or with status 2.
    RECIPIENT_QUEUE_FULL = "recipient_queue_full"
    TOO_MANY_JOINERS = "too_many_joiners"


class MalformedError(RemoteError):
    """Bytes that are no Bhumi frame.

    Attributes:
        refusal: Which rule they break.
    """

    def __init__(self, refusal: Refusal, detail: str) -> None:
        super().__init__(f"{refusal.value}: {detail}")
        self.refusal = refusal
