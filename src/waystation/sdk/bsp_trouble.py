"""What a carrier of bundles says when something goes wrong: to whoever called it, and to whoever watches.

::

    RemoteError
    └── NotCarriedError   a relay has not taken a bundle, or cannot say that it has: it counts as lost
"""

from typing import NamedTuple

from waystation.core.errors import RemoteError
from waystation.core.ids import PublicKey

__all__ = ["CarrierFailure", "NotCarriedError"]


class NotCarriedError(RemoteError):
    """A bundle counts as lost.

    Attributes:
        peer: Whom it was for, 32 bytes.
    """

    def __init__(self, kind: str, peer: PublicKey, reason: str) -> None:
        super().__init__(f"{kind} has not carried a bundle to {peer.hex()[:8]}: {reason}")
        self.peer = peer


class CarrierFailure(NamedTuple):
    """Something that nobody waits for has failed; the carrier goes on."""

    kind: str
    """merk, bhumi or lprp."""
    peer: PublicKey | None
    """Whom it was about, if anybody."""
    reason: str
    """A sentence for people."""
