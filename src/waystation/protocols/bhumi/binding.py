"""Binding: an identity proves itself to this very relay, so that no relay can pass another one's nonce on (BHUMI-5).

The challenge leaves right behind the answer to OPTIONS; the proof comes once the client has said I_AM. Where the
operator demands binding, an I_AM counts for nothing before its proof: it waits, for ``PROOF_WITHIN_MS`` at most, and an
I_AM that can never be proven closes the connection at once.
"""

import random
from typing import Final

from waystation.core.ids import PublicKey
from waystation.core.instant import Instant, after_ms
from waystation.crypto.signing import verify
from waystation.protocols.bhumi import extension_wire
from waystation.protocols.bhumi.extension_messages import BindChallenge
from waystation.protocols.bhumi.messages import Feature, IAm
from waystation.protocols.bhumi.negotiated import Negotiated
from waystation.protocols.bhumi.session import Session
from waystation.protocols.bhumi.signed_records import binding_bytes

__all__ = ["PROOF_WITHIN_MS", "WAITING_BYTES_MAX", "Binding"]

PROOF_WITHIN_MS: Final = 10_000
WAITING_BYTES_MAX: Final = 67_108_864
"""Of all I_AMs that wait for a proof together; ours, as much as the response cache may hold."""
_COMMIT_COST: Final = 128  # measured 105: 32 bytes, an object around them, places in a tuple and in a set
_CARRIED_COST: Final = 192  # measured 156: a preimage, and objects around it, the response and both


class Binding:
    """Challenges of one relay."""

    def __init__(self, relay_id: PublicKey, rng: random.Random, *, is_required: bool) -> None:
        """Prepare.

        Args:
            relay_id: Our key.
            rng: Source of challenges; must be unpredictable to peers.
            is_required: Whether an identity counts only once it is proven.
        """
        self._relay_id = relay_id
        self._rng = rng
        self.is_required = is_required
        self._waiting_bytes = 0

    def challenge(self, session: Session) -> bytes | None:
        """Return the frame to send behind the answer to OPTIONS, None when there is nothing to prove (any more)."""
        negotiated = session.negotiated
        assert negotiated is not None
        if Feature.BINDING not in negotiated.features or negotiated.challenge is not None:
            return None
        nonce = self._rng.randbytes(extension_wire.BIND_NONCE_BYTES)
        negotiated.challenge = BindChallenge(self._relay_id, nonce)
        return extension_wire.encode_extension(negotiated.challenge)

    def must_wait(self, session: Session) -> bool:
        """Return whether an I_AM of this connection counts only once it is proven."""
        negotiated = session.negotiated
        return self.is_required and not (negotiated is not None and negotiated.is_proven)

    def wait(self, session: Session, message: IAm, now: Instant) -> bool:
        """Keep a valid I_AM until its proof; False when it can never be proven, or too many wait."""
        negotiated = session.negotiated
        if negotiated is None or negotiated.challenge is None:
            return False
        self.forget(session)
        negotiated.waiting = message
        session.commits = set(message.commits)
        if negotiated.proof_by is None:
            negotiated.proof_by = after_ms(now, PROOF_WITHIN_MS)
        carried_bytes = sum(_CARRIED_COST + len(carried.response) for carried in message.responses)
        return self._count(negotiated, _COMMIT_COST * len(session.commits) + carried_bytes)

    def holds(self, session: Session) -> bool:
        """Return whether an I_AM of this connection waits; its commits are the session's by then, but do not count."""
        return session.negotiated is not None and session.negotiated.waiting is not None

    def resize(self, session: Session, commits_count: int) -> bool:
        """Note that so many commits have come to those that wait, or have left; False when that is too much."""
        assert session.negotiated is not None
        return self._count(session.negotiated, _COMMIT_COST * commits_count)

    def proves(self, session: Session, payload: bytes) -> bool:
        """Return whether the identity of a connection has answered its challenge; raises MalformedError."""
        negotiated = session.negotiated
        assert negotiated is not None
        proof = extension_wire.decode_bind_proof(payload)
        identity = negotiated.waiting.identity if negotiated.waiting is not None else session.identity
        if identity is None or negotiated.challenge is None:
            return False
        negotiated.is_proven = verify(identity, binding_bytes(negotiated.challenge, identity), proof.signature)
        return negotiated.is_proven

    def take_waiting(self, session: Session) -> IAm | None:
        """Return and forget the I_AM that waited for its proof."""
        message = session.negotiated.waiting if session.negotiated is not None else None
        self.forget(session)
        if session.negotiated is not None:
            session.negotiated.proof_by = None
        return message

    def forget(self, session: Session) -> None:
        """Drop an I_AM that waits, if one does."""
        negotiated = session.negotiated
        if negotiated is not None and negotiated.waiting is not None:
            self._waiting_bytes -= negotiated.waiting_bytes
            negotiated.waiting, negotiated.waiting_bytes = None, 0

    def _count(self, negotiated: Negotiated, more_bytes: int) -> bool:
        negotiated.waiting_bytes += more_bytes
        self._waiting_bytes += more_bytes
        return self._waiting_bytes <= WAITING_BYTES_MAX
