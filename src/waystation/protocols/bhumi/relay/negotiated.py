"""The features that a connection has negotiated by OPTIONS, and the relay's state for their frames.

A connection that never sends OPTIONS has no such state and gets only the seed's frames (BHUMI-X).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from waystation.core.instant import Instant
from waystation.core.limits import TokenBucket
from waystation.protocols.bhumi.extension_messages import BindChallenge
from waystation.protocols.bhumi.limits import BhumiLimits
from waystation.protocols.bhumi.messages import Feature, IAm
from waystation.protocols.bhumi.settings import BhumiSettings

if TYPE_CHECKING:
    from waystation.protocols.bhumi.relay.gossip_peer import Contact

__all__ = ["Negotiated", "offered_features"]


@dataclass(slots=True, eq=False)
class Negotiated:
    """Extension state of one connection."""

    features: Feature
    """The subset that the relay accepted."""
    challenge: BindChallenge | None = None
    """What BIND must answer; made once for a connection."""
    is_proven: bool = False
    """Whether the identity has answered the challenge."""
    waiting: IAm | None = None
    """A valid I_AM whose identity must answer the challenge before it counts."""
    waiting_bytes: int = 0
    """What it takes of memory, as counted last."""
    proof_by: Instant | None = None
    """When the answer must be there, while an I_AM waits for it."""
    has_authorities: bool = False
    """Whether it was shown the authorities that there were."""
    record_strikes: int = 0
    """Signed records of this connection that no honest peer would have sent."""
    presences: TokenBucket | None = None
    """Allowance for presences and adverts of its own; made with the first."""
    questions: TokenBucket | None = None
    """Allowance for WHERE."""
    lists: TokenBucket | None = None
    """Allowance for RELAYS_REQ."""
    contact: "Contact | None" = None
    """What gossip knows of it, once it has gossiped."""

    def lift_rates(self) -> None:
        """Drop the allowances that were made before the identity was known; that of gossip needs an identity."""
        self.presences = self.questions = self.lists = None

    def use_limits(self, limits: BhumiLimits) -> None:
        """Give the allowances their size anew; that of gossip is the contact's."""
        if self.presences is not None:
            self.presences.change(limits.presences_per_minute, limits.presences_burst)
        for bucket in (self.questions, self.lists):
            if bucket is not None:
                bucket.change(limits.questions_per_second, limits.questions_burst)


def offered_features(settings: BhumiSettings, *, has_key: bool) -> Feature:
    """Return the features that a relay accepts; ``has_key`` says whether it can name itself in a challenge."""
    offered = Feature.DELIVER_WITH_PREIMAGE | Feature.I_AM_OK | Feature.WATCH | Feature.AUTHORITY
    if not has_key:
        return offered
    # BHUMI-5: only a relay with a key can name itself in a challenge.
    offered |= Feature.BINDING
    if settings.gossip:
        offered |= Feature.PRESENCE
    return offered | Feature.QA if settings.qa else offered
