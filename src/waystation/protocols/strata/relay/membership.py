"""Asks the operator's lists who may use this relay: identities by their DID, and clients that prove none.

The relay asks when a session begins and after each AUTH. A list of identities in ``[access] allow`` takes every
capability from anonymous clients, and the packets from plain HTTP, because neither proves who asks (NODE-ACCESS).
"""

from collections.abc import Callable, Iterable

from waystation.core.dids import identity_of, key_of_did
from waystation.core.identity_access import IdentityAccess
from waystation.core.ids import PublicKey
from waystation.protocols.strata.session import Session

__all__ = ["Membership"]


class Membership:
    """Asks the operator's lists about sessions."""

    def __init__(self, anonymous: frozenset[str], admits: Callable[[PublicKey], bool], access: IdentityAccess) -> None:
        """Ask ``admits`` about keys and ``access`` about the rest; ``anonymous`` is what nobody has to prove."""
        self._anonymous = anonymous
        self._admits = admits
        self._access = access

    @property
    def for_anybody(self) -> bool:
        """Whether a client that proves no identity may use the relay."""
        return not self._access.demands_identity

    def anonymous(self) -> frozenset[str]:
        """Return what a connection may do before it proves an identity."""
        return self._anonymous if self.for_anybody else frozenset()

    def admits(self, did: str) -> bool:
        """Return whether an identity that has proved itself may use the relay."""
        # Spec 4: a DID that is a key certifies itself.
        key = key_of_did(did)
        return self._admits(key) if key is not None else self._access.admits_did(did)

    def joined(self, session: Session, did: str) -> None:
        """Lift the allowances of an identity that the operator exempts."""
        if self._access.is_unlimited(identity_of(did)):
            session.limited, session.payers = False, ()

    def refused(self, sessions: Iterable[Session]) -> list[Session]:
        """Return the sessions that may not stay; the others have the capabilities of now."""
        anonymous, refused = self.anonymous(), []
        for session in sessions:
            if session.identity is not None:
                stays = self.admits(session.identity)
            else:
                # What an anonymous client has subscribed to must not go on.
                stays = session.capabilities <= anonymous
                session.capabilities = anonymous
            if not stays:
                refused.append(session)
        return refused
