"""What a connection has agreed on by OPTIONS, and what the relay keeps of it for the extension frames.

A connection that never sends OPTIONS has none of this: it sees the seed's protocol and nothing else (BHUMI-X).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from waystation.core.instant import Instant
from waystation.core.limits import TokenBucket
from waystation.protocols.bhumi.extension_messages import BindChallenge
from waystation.protocols.bhumi.messages import Feature, IAm

if TYPE_CHECKING:
    from waystation.protocols.bhumi.contact import Contact

__all__ = ["Negotiated"]


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
