"""One connection at the Strata relay: its authentication state, capabilities, subscriptions and limits.

The relay keeps one for each connection and asks it what a client may do. A session is ANONYMOUS until an AUTH that
answers its challenge makes it AUTHENTICATED; CLOSED is final. ``TRANSITIONS`` is the complete state machine. Every
client message is legal in both open states; capabilities and rate limits differ. Each AUTH uses up its challenge,
whether it succeeds or not. A session has no access to other sessions.

Spec: RFC-0004 3.7; specs/strata.md 12, 14; D15, D23.
"""

import base64
import random
from collections.abc import Mapping
from enum import Enum
from typing import Final

from waystation.core.effects import Peer
from waystation.core.instant import Instant
from waystation.core.settings import InForce
from waystation.protocols.strata.limits import StrataLimits
from waystation.protocols.strata.messages import Auth, Subscribe
from waystation.protocols.strata.refusals import Code, Refusal
from waystation.protocols.strata.relay.limits import Rank, Scope
from waystation.protocols.strata.relay.subscription import Subscription

__all__ = ["PUBLISH", "REPLICATE", "SUBSCRIBE", "TRANSITIONS", "Move", "Session", "State", "challenge_input"]

PUBLISH: Final = "publish"
SUBSCRIBE: Final = "subscribe"
REPLICATE: Final = "replicate"

_CHALLENGE_BYTES: Final = 32


class State(Enum):
    """The state of a connection."""

    ANONYMOUS = "anonymous"
    """It has the capabilities that the policy gives to every connection."""
    AUTHENTICATED = "authenticated"
    """It has proved an identity and has the capabilities of AUTH_OK."""
    CLOSED = "closed"


class Move(Enum):
    """An event that changes the state of a connection."""

    AUTHENTICATE = "authenticate"
    CLOSE = "close"


# Spec 12: a second AUTH after success changes nothing, so only an anonymous connection authenticates.
TRANSITIONS: Final[Mapping[tuple[State, Move], State]] = {
    (State.ANONYMOUS, Move.AUTHENTICATE): State.AUTHENTICATED,
    (State.ANONYMOUS, Move.CLOSE): State.CLOSED,
    (State.AUTHENTICATED, Move.CLOSE): State.CLOSED,
    # The outbox closes a session and the relay forgets it: both are the same end.
    (State.CLOSED, Move.CLOSE): State.CLOSED,
}


class Session:
    """State of one connection; only the relay reads and moves it."""

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
        "limited",
        "limits",
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

    def __init__(self, peer: Peer, address: str, capabilities: frozenset[str], limits: InForce[StrataLimits]) -> None:
        """Open an anonymous session.

        Args:
            peer: The connection's number.
            address: Key of its host's allowance; "" counts the connection by itself.
            capabilities: The capabilities of every connection by policy.
            limits: What one connection may have under way.
        """
        self.peer = peer
        self.address = address or f"peer:{peer}"
        self.state = State.ANONYMOUS
        self.identity: str | None = None
        self.capabilities = capabilities
        self.limits = limits
        self.limited = True
        """Whether any allowance binds it."""
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

    def move(self, move: Move) -> None:
        """Change the state; a move that the table does not have is a bug of ours."""
        self.state = TRANSITIONS[self.state, move]

    def new_challenge(self, rng: random.Random, wall_s: int, life_s: int) -> None:
        """Replace the outstanding challenge by a fresh one that lives ``life_s`` seconds."""
        # Spec 12: base64 of 32 random bytes.
        self.challenge = base64.b64encode(rng.randbytes(_CHALLENGE_BYTES)).decode("ascii")
        # Spec 12: it may be answered for auth_challenge_s, whose range is checked at start (D23).
        self.challenge_expires_at = wall_s + life_s

    def check_challenge(self, message: Auth, wall_s: int) -> Refusal | None:
        """Return why the answer does not match our challenge, or None; the signature is checked after this."""
        # Spec 12: a second AUTH after success is already_authenticated and changes nothing.
        if self.state is State.AUTHENTICATED:
            return Refusal(Code.UNAUTHENTICATED, "already_authenticated")
        # Spec 12: a challenge may be answered once, on this connection.
        if not self.challenge or message.challenge != self.challenge:
            return Refusal(Code.UNAUTHENTICATED, "challenge_unknown")
        # Spec 12: for 120 s (auth_challenge_s).
        if wall_s > self.challenge_expires_at:
            return Refusal(Code.UNAUTHENTICATED, "challenge_expired")
        return None

    def authenticate(self, identity: str, capabilities: frozenset[str]) -> None:
        """Become AUTHENTICATED with the granted capabilities."""
        self.move(Move.AUTHENTICATE)
        self.identity = identity
        self.capabilities = capabilities
        self.challenge = ""
        replicates = REPLICATE in capabilities
        # Spec 14: per DID after AUTH, else per address.
        self.scope = Scope(identity, Rank.REPLICATING if replicates else Rank.AUTHENTICATED)
        # Identities cost nothing: the bytes of all of one address are counted together as well.
        self.payers = (self.scope,) if replicates else (self.scope, Scope(self.address, Rank.AUTHENTICATED))

    def must_hold(self) -> bool:
        """Return whether nothing more may be read for now."""
        limits = self.limits.now
        return (
            # Spec 14: at most 512 packets or 8 MiB of a connection at a time; then its socket is not read for a while.
            self.pending >= limits.pending_packets
            or self.pending_bytes >= limits.pending_bytes
            or self.unread_replies >= limits.unread_replies
        )

    def may_resume(self) -> bool:
        """Return whether a held connection may be read again; well below the marks, so that it does not flap."""
        limits = self.limits.now
        return (
            self.pending <= limits.pending_packets // 2
            and self.pending_bytes <= limits.pending_bytes // 2
            and self.unread_replies < limits.unread_replies
        )

    def why_no_room(self, message: Subscribe) -> Refusal | None:
        """Return why no more may be subscribed to, or None; one of the same id gives its room to the new one."""
        limits = self.limits.now
        others = [each.filters for each in self.subscriptions.values() if each.id != message.subscription_id]
        # Spec 13: a bounded number of subscriptions at a time on a connection.
        if len(others) >= limits.subscriptions:
            return Refusal(Code.TOO_MANY_SUBSCRIPTIONS, extra=(("limit", limits.subscriptions),))
        all_filters = (*others, message.filters)
        texts_count = sum(len(each.authors) + len(each.types) + len(each.ids) for each in all_filters)
        # Spec 13: a bounded number of authors, types and ids on one connection.
        if texts_count > limits.filter_texts:
            return Refusal(Code.TOO_MANY_SUBSCRIPTIONS, "filters", extra=(("limit", limits.filter_texts),))
        return None

    def lagging(self) -> bool:
        """Return whether some subscription is not live."""
        return any(not subscription.live for subscription in self.subscriptions.values())


def challenge_input(challenge: str, server_id: str) -> bytes:
    """Return the bytes that AUTH signs: both texts in UTF-8, one after the other (D15)."""
    return (challenge + server_id).encode()
