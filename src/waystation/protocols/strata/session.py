"""One connection at the relay, and its half of AUTH.

A session is ANONYMOUS until an AUTH over its one outstanding challenge makes it AUTHENTICATED, and CLOSED for ever
after; every message a client may send is legal in both open states, and what differs is capabilities and allowance.
An AUTH spends its challenge whether it succeeds or not. The session knows its own numbers and nothing of other
sessions.

Spec: RFC-0004 3.7; specs/strata.md 12, 14; D15, D23.
"""

import base64
import random
from enum import Enum
from typing import Final

from waystation.core.effects import Peer
from waystation.core.instant import Instant
from waystation.protocols.strata.limits import Rank, Scope
from waystation.protocols.strata.messages import Auth, Subscribe
from waystation.protocols.strata.refusals import Code, Refusal
from waystation.protocols.strata.subscription import Subscription

__all__ = ["PUBLISH", "REPLICATE", "SUBSCRIBE", "Session", "State", "challenge_input"]

PUBLISH: Final = "publish"
SUBSCRIBE: Final = "subscribe"
REPLICATE: Final = "replicate"

AUTH_FAILURES_MAX: Final = 5  # specs/strata.md 12
MALFORMED_MAX: Final = 20  # in a row, specs/strata.md 10
LIMIT_IGNORED_MAX: Final = 100  # in a row, specs/strata.md 14
SUBSCRIPTIONS_MAX: Final = 32  # specs/strata.md 13
FILTER_TEXTS_MAX: Final = 8_000  # ours: authors and types of all its subscriptions; each may cost 600 bytes
PENDING_MAX: Final = 512  # packets of one connection between their frame and their verdict; then we stop reading it
PENDING_BYTES_MAX: Final = 8_388_608
UNREAD_REPLIES_MAX: Final = 256  # replies to a connection that does not read, before we stop reading it
_CHALLENGE_BYTES: Final = 32


class State(Enum):
    """Where a connection stands."""

    ANONYMOUS = "anonymous"
    AUTHENTICATED = "authenticated"
    CLOSED = "closed"


class Session:
    """State of one connection; the relay reads and moves it, nobody else does."""

    __slots__ = (
        "address",
        "auth_failures",
        "awaits_receipt",
        "capabilities",
        "challenge",
        "challenge_expires_at",
        "congested",
        "held",
        "identity",
        "limits_ignored",
        "malformed",
        "payers",
        "peer",
        "pending",
        "pending_bytes",
        "progress_at",
        "scope",
        "state",
        "subscriptions",
        "unconfirmed_bytes",
        "unread_replies",
    )

    def __init__(self, peer: Peer, address: str, capabilities: frozenset[str]) -> None:
        """Open an anonymous session.

        Args:
            peer: The connection's number.
            address: What its host is counted under; "" counts the connection by itself.
            capabilities: What the policy gives to anybody.
        """
        self.peer = peer
        self.address = address or f"peer:{peer}"
        self.state = State.ANONYMOUS
        self.identity: str | None = None
        self.capabilities = capabilities
        self.scope = Scope(self.address, Rank.ANONYMOUS)
        self.payers: tuple[Scope, ...] = (self.scope,)
        self.challenge = ""
        self.challenge_expires_at = 0
        self.auth_failures = 0
        self.malformed = 0
        self.limits_ignored = 0
        self.pending = 0
        self.pending_bytes = 0
        self.unread_replies = 0
        self.unconfirmed_bytes = 0
        self.held = False
        self.congested = False
        self.awaits_receipt = False
        self.progress_at = Instant(0)
        self.subscriptions: dict[str, Subscription] = {}

    def new_challenge(self, rng: random.Random, wall_s: int, life_s: int) -> None:
        """Replace the outstanding challenge by a fresh one that lives ``life_s`` seconds."""
        self.challenge = base64.b64encode(rng.randbytes(_CHALLENGE_BYTES)).decode("ascii")
        self.challenge_expires_at = wall_s + life_s

    def check_challenge(self, message: Auth, wall_s: int) -> Refusal | None:
        """Return why the answer cannot be to our challenge, or None; the signature comes after this."""
        if self.state is State.AUTHENTICATED:
            return Refusal(Code.UNAUTHENTICATED, "already_authenticated")
        if not self.challenge or message.challenge != self.challenge:
            return Refusal(Code.UNAUTHENTICATED, "challenge_unknown")
        if wall_s > self.challenge_expires_at:
            return Refusal(Code.UNAUTHENTICATED, "challenge_expired")
        return None

    def authenticate(self, identity: str, capabilities: frozenset[str]) -> None:
        """Become AUTHENTICATED with what policy gave."""
        assert self.state is State.ANONYMOUS
        self.state = State.AUTHENTICATED
        self.identity = identity
        self.capabilities = capabilities
        self.challenge = ""
        replicates = REPLICATE in capabilities
        self.scope = Scope(identity, Rank.REPLICATING if replicates else Rank.AUTHENTICATED)
        self.payers = (self.scope,) if replicates else (self.scope, Scope(self.address, Rank.AUTHENTICATED))

    def must_hold(self) -> bool:
        """Return whether nothing more may be read for now."""
        return (
            self.pending >= PENDING_MAX
            or self.pending_bytes >= PENDING_BYTES_MAX
            or self.unread_replies >= UNREAD_REPLIES_MAX
        )

    def may_resume(self) -> bool:
        """Return whether a held connection may be read again; well below the marks, so that it does not flap."""
        return (
            self.pending <= PENDING_MAX // 2
            and self.pending_bytes <= PENDING_BYTES_MAX // 2
            and self.unread_replies < UNREAD_REPLIES_MAX
        )

    def why_no_room(self, message: Subscribe) -> Refusal | None:
        """Return why no more may be subscribed to, or None; a subscription of the same id makes room for its heir."""
        others = [each.filters for each in self.subscriptions.values() if each.id != message.subscription_id]
        if len(others) >= SUBSCRIPTIONS_MAX:
            return Refusal(Code.TOO_MANY_SUBSCRIPTIONS, extra=(("limit", SUBSCRIPTIONS_MAX),))
        texts_count = sum(len(each.authors) + len(each.types) for each in (*others, message.filters))
        if texts_count > FILTER_TEXTS_MAX:
            return Refusal(Code.TOO_MANY_SUBSCRIPTIONS, "filters", extra=(("limit", FILTER_TEXTS_MAX),))
        return None

    def lagging(self) -> bool:
        """Return whether some subscription is behind what is stored."""
        return any(not subscription.live for subscription in self.subscriptions.values())


def challenge_input(challenge: str, server_id: str) -> bytes:
    """Return the bytes that AUTH signs: both texts in UTF-8, one behind the other (D15)."""
    return (challenge + server_id).encode()
