"""What a relay may ask about identities beside whether a key is admitted: the operator's lists, as an interface."""

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
