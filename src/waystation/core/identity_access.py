"""Interface through which a relay asks the operator's lists about an identity.

The Strata relay calls it for each author and subscriber; ``engine.access.Access`` implements it. An identity (32 bytes)
or a DID goes in, a bool comes out. It stands in core because a relay may not import the engine.
"""

from typing import Final, Protocol

__all__ = ["EVERYBODY", "IdentityAccess"]


class IdentityAccess(Protocol):
    """The operator's lists of ``[access]`` (NODE-ACCESS)."""

    @property
    def demands_identity(self) -> bool:
        """Whether only listed identities may use the node, so that who proves none may not."""

    def admits_did(self, did: str) -> bool:
        """Return whether a DID that is no key may use the node."""

    def is_unlimited(self, identity: bytes) -> bool:
        """Return whether no rate binds an identity, as ``identity_of`` has it, that has proved itself."""


class _Everybody:
    demands_identity = False

    def admits_did(self, _did: str) -> bool:
        return True

    def is_unlimited(self, _identity: bytes) -> bool:
        return False


EVERYBODY: Final[IdentityAccess] = _Everybody()
