"""Binding: a client proves its identity to this very relay, so that no relay can reuse another's nonce (BHUMI-5).

The challenge is sent right after the answer to OPTIONS; the proof arrives after the client's I_AM. If the operator
requires binding, an I_AM takes effect only with its proof. It waits at most ``PROOF_WITHIN_MS``. An I_AM that can never
be proven closes the connection at once.
"""

import random
from typing import Final

from waystation.core.ids import PublicKey
from waystation.core.instant import Instant, after_ms
from waystation.core.settings import InForce
from waystation.crypto.signing import verify
from waystation.protocols.bhumi import extension_wire
from waystation.protocols.bhumi.extension_messages import BindChallenge
from waystation.protocols.bhumi.limits import BhumiLimits
from waystation.protocols.bhumi.messages import Feature, IAm
from waystation.protocols.bhumi.relay.negotiated import Negotiated
from waystation.protocols.bhumi.session import Session
from waystation.protocols.bhumi.signed_records import binding_bytes

__all__ = ["PROOF_WITHIN_MS", "Binding"]

PROOF_WITHIN_MS: Final = 10_000  # BHUMI-BINDING
_COMMIT_COST: Final = 128  # measured 105: 32 bytes, an object around them, places in a tuple and in a set
_CARRIED_COST: Final = 192  # measured 156: a preimage, and objects around it, the response and both


class Binding:
    """Challenges of one relay."""

    def __init__(
        self, relay_id: PublicKey, rng: random.Random, limits: InForce[BhumiLimits], *, is_required: bool
    ) -> None:
        """Prepare.

        Args:
            relay_id: Our key.
            rng: Source of challenges; must be unpredictable to peers.
            limits: How much may wait for a proof.
            is_required: Whether an identity counts only once it is proven.
        """
        self._relay_id = relay_id
        self._rng = rng
        self._limits = limits
        self.is_required = is_required
        self.waiting_bytes = 0
        """What I_AMs take that wait for their proof, all together."""

    def challenge(self, session: Session) -> bytes | None:
        """Return the frame to send behind the answer to OPTIONS, None when there is nothing to prove (any more)."""
        negotiated = session.negotiated
        assert negotiated is not None
        # One challenge and one proof a connection (BHUMI-MIDDLE).
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
        # Without a challenge there is nothing to prove, so this I_AM can never count.
        if negotiated is None or negotiated.challenge is None:
            return False
        self.forget(session)
        negotiated.waiting = message
        session.commits = set(message.commits)
        if negotiated.proof_by is None:
            negotiated.proof_by = after_ms(now, PROOF_WITHIN_MS)
        # BHUMI-BINDING: what waits is bounded by the memory it takes, over all connections together.
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
        # The proof may come before or after I_AM is accepted: it speaks for whichever identity was named.
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
            self.waiting_bytes -= negotiated.waiting_bytes
            negotiated.waiting, negotiated.waiting_bytes = None, 0

    def _count(self, negotiated: Negotiated, more_bytes: int) -> bool:
        negotiated.waiting_bytes += more_bytes
        self.waiting_bytes += more_bytes
        return self.waiting_bytes <= self._limits.now.unproven_bytes
