"""Authorises an AUTH, a client's signed answer to the relay's challenge: which capabilities it gets by policy.

The relay calls it with the session and the answer; granted capabilities or ``Rejected`` come out. The keys of the
author come from ``authors``. Spec: RFC-0004 3.7; specs/strata.md 12; D15.
"""

from collections import deque
from typing import Final, NamedTuple

from waystation.protocols.strata.keys.keyring import check_signer
from waystation.protocols.strata.messages import Auth
from waystation.protocols.strata.refusals import Code, Refusal
from waystation.protocols.strata.relay.authors import Authors
from waystation.protocols.strata.session import PUBLISH, REPLICATE, SUBSCRIBE, Session, challenge_input
from waystation.protocols.strata.settings import StrataSettings

__all__ = ["Authorizer", "Rejected"]

REJECTED_MAX: Final = 16
_CAPABILITIES: Final = (PUBLISH, SUBSCRIBE, REPLICATE)
_PURPOSE: Final = "AUTH"  # no content type: a recovery key may not sign for it


class Rejected(NamedTuple):
    """A client that proved its identity and was refused ``replicate``, or every capability."""

    did: str
    wanted: tuple[str, ...]
    at: int
    """Unix seconds."""


class Authorizer:
    """Authorizes answers to challenges by the policy of one relay."""

    def __init__(self, settings: StrataSettings, relay_id: str, authors: Authors) -> None:
        """Authorize for ``relay_id``, the ``server_id`` that every answer must be signed for."""
        self._settings = settings
        self._relay_id = relay_id
        self._authors = authors
        self.rejected: deque[Rejected] = deque(maxlen=REJECTED_MAX)
        """The newest rejected clients, so that an operator sees which relay is missing in ``replicate_allow``."""

    def authorize(self, session: Session, message: Auth, wall_s: int) -> Refusal | tuple[str, ...]:
        """Return the granted capabilities, at least one, or why there are none."""
        # The challenge comes first: a signature check for a wrong one would be wasted.
        refusal = session.check_challenge(message, wall_s) or self._check_signer(session, message, wall_s)
        if refusal is not None:
            return refusal
        granted = self._granted(message)
        # Only a proved identity gets here: no client can fill the list with the DIDs of others.
        if not granted or (REPLICATE in (message.capabilities or ()) and REPLICATE not in granted):
            self.rejected.append(Rejected(message.author_id, message.capabilities or (), wall_s))
        # Spec 12: nothing at all is unauthenticated: no_capability.
        return granted or Refusal(Code.UNAUTHENTICATED, "no_capability")

    def _check_signer(self, session: Session, message: Auth, wall_s: int) -> Refusal | None:
        ring = self._authors.ring(message.author_id, wall_s)
        if ring is None:
            return Refusal(Code.INVALID_SIGNATURE, "unresolved_author")
        # Spec 12: the text of the challenge exactly as sent, then server_id.
        signed = challenge_input(session.challenge, self._relay_id)
        signer = self._authors.signer(ring, signed, message.signature)
        # Spec 12: by the key of author_id, not a recovery key.
        return check_signer(ring, signer, _PURPOSE, wall_s, self._settings.clock_skew_s)

    def _granted(self, message: Auth) -> tuple[str, ...]:
        # Spec 12: publish and subscribe when ``capabilities`` is absent.
        wanted = (PUBLISH, SUBSCRIBE) if message.capabilities is None else message.capabilities
        allowed = set(self._settings.auth_grants)
        # Spec 12: replicate only to DIDs in strata.replicate_allow.
        if message.author_id in self._settings.replicate_allow:
            allowed.add(REPLICATE)
        return tuple(name for name in _CAPABILITIES if name in wanted and name in allowed)
