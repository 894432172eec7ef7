"""The reasons for which Strata refuses: the wire codes of RFC-0004 3.5, our additions, and details that name the rule.

A refusal becomes one ERROR message. The connection stays open unless an ``End`` closes it.
Spec: RFC-0004 3.5, 6.1, 6.2; specs/strata.md 11.
"""

from enum import Enum
from typing import Final, NamedTuple

from waystation.core.errors import RemoteError

__all__ = ["Code", "End", "Refusal", "RefusedError"]


class Code(Enum):
    """Wire codes of ERROR; the wire, journal and metrics show the value."""

    INVALID_SIGNATURE = "invalid_signature"
    INVALID_SCHEMA = "invalid_schema"
    PACKET_TOO_LARGE = "packet_too_large"
    RATE_LIMITED = "rate_limited"
    BLOCKED_AUTHOR = "blocked_author"
    UNAUTHENTICATED = "unauthenticated"
    INTERNAL_ERROR = "internal_error"
    INVALID_PROVENANCE = "invalid_provenance"
    MISSING_PROOF = "missing_proof"
    INVALID_ISSUER_CHAIN = "invalid_issuer_chain"
    INVALID_ATTESTATION = "invalid_attestation"
    # RFC-0007 and RFC-0001 11.1
    INVALID_CURSOR = "invalid_cursor"
    KEY_EXPIRED = "key_expired"
    KEY_REVOKED = "key_revoked"
    KEY_NOT_YET_VALID = "key_not_yet_valid"
    # Ours, legal because the RFC's list is of common codes only (D20).
    INVALID_TIMESTAMP = "invalid_timestamp"
    BLOCKED_CONTENT = "blocked_content"
    TOO_MANY_SUBSCRIPTIONS = "too_many_subscriptions"
    UNSUPPORTED_PROFILE = "unsupported_profile"


class End(Enum):
    """The reason for which a connection ends."""

    SHUTDOWN = "shutdown"
    INVALID_TEXT = "invalid_text"
    MALFORMED = "malformed"
    AUTH_FAILURES = "auth_failures"
    LIMIT_IGNORED = "limit_ignored"
    NOT_READING = "not_reading"
    IDENTITY_BANNED = "identity_banned"
    INTEGRITY_VIOLATION = "integrity_violation"
    UPSTREAM_FAILED = "upstream_failed"
    NOT_STORED = "not_stored"

    @property
    def status(self) -> int:
        """Return the close status of RFC 6455 7.4."""
        return _STATUSES.get(self, 1008)


# Spec 24.12: a text frame that is no UTF-8 closes with 1007; 13.3: shutdown with 1001, a stuck reader with 1013.
_STATUSES: Final = {
    End.SHUTDOWN: 1001,
    End.INVALID_TEXT: 1007,
    End.NOT_READING: 1013,
    End.UPSTREAM_FAILED: 1000,
    End.NOT_STORED: 1000,
}


class Refusal(NamedTuple):
    """The content of one ERROR."""

    code: Code
    detail: str = ""
    """The broken rule, in lower_snake_case; may be empty."""
    reason: str = ""
    """A sentence for display; empty takes a standard one."""
    extra: tuple[tuple[str, int | str], ...] = ()
    """Fields that the code demands, such as ``max_bytes`` or ``retry_after``."""


NOT_STORED: Final = Refusal(Code.INTERNAL_ERROR, "not_stored", "the relay cannot store packets now")
"""The disk refused. Nothing is kept, so the same packet may be published again (STRATA-REFUSED)."""


class RefusedError(RemoteError):
    """Raised by parsers; carries the refusal."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(f"{refusal.code.value}: {refusal.detail}")
        self.refusal = refusal
