"""Authenticates a client to a relay, and checks the relay's challenge before signing it.

The client machine passes AUTH_CHALLENGE in and sends the AUTH that comes out. AUTH signs two concatenated texts that
the relay chose (D15). A hostile relay could offer bytes of a packet, or the challenge of another relay, and misuse the
signature. So a challenge must have the form of one, and ``server_id`` must be the DID that is known for this relay.
Spec: RFC-0004 3.7; specs/strata.md 12.
"""

import random
import re
from typing import Any, Final

from waystation.core.dids import is_did
from waystation.core.instant import MICROSECONDS_PER_MS, Instant, after_ms
from waystation.crypto.signing import KeyPair, sign
from waystation.protocols.strata.client.wire import encode_auth, text_in
from waystation.protocols.strata.session import challenge_input

__all__ = ["ANSWER_MS", "AUTH_ATTEMPTS_MAX", "BACKOFF_MAX_MS", "BACKOFF_MIN_MS", "Authentication"]

ANSWER_MS: Final = 5_000  # specs/strata.md 12
BACKOFF_MIN_MS: Final = 500
BACKOFF_MAX_MS: Final = 3_000
AUTH_ATTEMPTS_MAX: Final = 4  # on one connection; a relay closes at the fifth failure (specs/strata.md 12)
_BACKOFF_CEILING_MS: Final = 60_000
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9+/_=-]{22,172}")
_AUTH_CODES: Final = frozenset(
    {"unauthenticated", "invalid_signature", "key_expired", "key_revoked", "key_not_yet_valid", "rate_limited"}
)


class Authentication:
    """State of one client's authentication to one relay."""

    def __init__(
        self,
        rng: random.Random,
        key_pair: KeyPair | None,
        identity: str,
        capabilities: tuple[str, ...],
        server_id: str | None,
    ) -> None:
        self._rng = rng
        self._key_pair = key_pair
        self._identity = identity
        self._capabilities = capabilities
        self._challenge: str | None = None
        self._msg_id = ""
        self._failures = 0
        self.server_id = server_id
        self.attempts = 0
        """On this connection."""
        self.sent_at = Instant(0)
        self.answer_by = Instant(0)
        self.retry_at: Instant | None = None
        """Before this no other attempt is made."""

    def begin(self) -> None:
        """Start on a new connection; the count of failures stays."""
        # Spec 12: the challenge is good on its own connection only.
        self._challenge = None
        self.attempts = 0

    def challenge(self, challenge: str | None, server_id: str | None) -> str | None:
        """Hold a challenge to be answered, or return why it never will be."""
        # Spec 12: clients refuse to sign a challenge of another form: it could be the preimage of a packet.
        if challenge is None or _CHALLENGE.fullmatch(challenge) is None:
            return "challenge_form"
        # Spec 12: nor a server_id that is no DID.
        if server_id is None or not is_did(server_id):
            return "server_id_form"
        # Spec 12: nor one other than the DID known or first met at this address.
        if self.server_id is not None and server_id != self.server_id:
            return "server_id_changed"
        self.server_id = server_id
        self._challenge = challenge
        return None

    def answer(self, now: Instant) -> bytes | None:
        """Return AUTH for the challenge held, which is spent by it; None while there is none or it is too early."""
        if self._challenge is None or self._key_pair is None or self.attempts >= AUTH_ATTEMPTS_MAX:
            self.retry_at = None
            return None
        if self.retry_at is not None and now < self.retry_at:
            return None
        assert self.server_id is not None
        # Spec 12: UTF-8 of the challenge exactly as sent, then UTF-8 of server_id.
        signature = sign(self._key_pair, challenge_input(self._challenge, self.server_id))
        self.attempts += 1
        self._msg_id = f"a{self.attempts}"
        # Spec 12: wait 5 s for the answer.
        self.sent_at, self.answer_by, self.retry_at = now, after_ms(now, ANSWER_MS), None
        frame = encode_auth(self._identity, self._challenge, signature, self._capabilities, self._msg_id)
        # Spec 12: a challenge may be answered once.
        self._challenge = None
        return frame

    def fits(self, body: dict[str, Any]) -> bool:
        """Return whether an AUTH_OK is for us and for what we sent last."""
        msg_id = text_in(body, "client_msg_id")
        if body.get("author_id") == self._identity and msg_id in {None, self._msg_id}:
            self._failures = 0
            return True
        return False

    def is_answered_by(self, body: dict[str, Any], msg_id: str | None, code: str) -> bool:
        """Return whether an ERROR answers our AUTH; one without any reference does when its code is about that."""
        # Spec 10: client_msg_id is echoed in AUTH_OK and ERROR.
        if msg_id is not None:
            return msg_id == self._msg_id
        about_other = any(body.get(name) is not None for name in ("subscription_id", "packet_id"))
        return not about_other and code in _AUTH_CODES

    def failed(self, now: Instant) -> None:
        """Set when the next attempt may be made: 0.5 to 3 s, doubled by each failure in a row."""
        # Spec 12: then 0.5 to 3 s, doubling, before the next try.
        span_us = self._rng.randrange(BACKOFF_MIN_MS, BACKOFF_MAX_MS + 1) * MICROSECONDS_PER_MS
        delay_us = min(span_us << min(self._failures, 16), _BACKOFF_CEILING_MS * MICROSECONDS_PER_MS)
        self.retry_at = Instant(now + delay_us)
        self._failures += 1
