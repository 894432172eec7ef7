"""The dialect that a sender writes in: what the program asks for, as far as its peer was paired for that."""

from waystation.core.errors import LocalError
from waystation.protocols.bhumi.payload.invite import Invite
from waystation.sdk.bhumi.dialect import Dialect
from waystation.sdk.bhumi.state import PeerRecord

__all__ = ["dialect_for", "dialect_of_invite"]


def dialect_of_invite(named: Dialect | None, invite: Invite, known: PeerRecord | None) -> Dialect:
    """Return what to write a handshake in.

    Args:
        named: What was asked for; None for what the invite says.
        invite: That is used.
        known: Its maker, as far as we have met before.

    Raises:
        LocalError: The invite is not for what was asked for.
    """
    if invite.is_legacy:
        if named is not None and not named.is_legacy:
            raise LocalError(f"this token has no secret, which {named.value} needs; ask for a new invitation")
        if named is None and known is not None and known.is_legacy:
            return known.dialect
        return named or Dialect.E2E
    assert invite.suite is not None
    if named is not None and named.is_legacy:
        raise LocalError(f"the invitation is for suite-{invite.suite}; {named.value} is weaker and not taken")
    return named or Dialect(f"suite-{invite.suite}")


def dialect_for(named: Dialect | None, peer: PeerRecord) -> Dialect:
    """Return what to write a request in; ``named`` is what was asked for, None for what the pairing was in.

    Raises:
        LocalError: The peer was not paired for what was asked for.
    """
    if named is None or named is peer.dialect:
        return peer.dialect
    if named.is_legacy and not peer.is_legacy:
        raise LocalError(f"{peer.name} was paired in {peer.dialect.value}, and takes nothing in {named.value}")
    if not named.is_legacy and not peer.root:
        raise LocalError(f"{peer.name} was paired without a secret, which {named.value} needs; ask for a new invite")
    return named
