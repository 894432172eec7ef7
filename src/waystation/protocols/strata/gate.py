"""Who an AUTH lets in, and with which capabilities.

Spec: RFC-0004 3.7; specs/strata.md 12; D15.
"""

from collections import deque
from typing import Final, NamedTuple

from waystation.protocols.strata.authors import Authors
from waystation.protocols.strata.keyring import judge_signer
from waystation.protocols.strata.messages import Auth
from waystation.protocols.strata.refusals import Code, Refusal
from waystation.protocols.strata.session import PUBLISH, REPLICATE, SUBSCRIBE, Session, challenge_input
from waystation.protocols.strata.settings import StrataSettings

__all__ = ["Gate", "TurnedAway"]

TURNED_AWAY_MAX: Final = 16
_CAPABILITIES: Final = (PUBLISH, SUBSCRIBE, REPLICATE)
_PURPOSE: Final = "AUTH"  # no content type: a recovery key may not sign for it


class TurnedAway(NamedTuple):
    """Somebody who proved who he is, and asked to replicate, or for nothing at all, that he may have."""

    did: str
    wanted: tuple[str, ...]
    at: int
    """Unix seconds."""


class Gate:
    """Judges answers to challenges by the policy of one relay."""

    def __init__(self, settings: StrataSettings, relay_id: str, authors: Authors) -> None:
        """Judge for ``relay_id``, the ``server_id`` that every answer must be signed for."""
        self._settings = settings
        self._relay_id = relay_id
        self._authors = authors
        self.turned_away: deque[TurnedAway] = deque(maxlen=TURNED_AWAY_MAX)
        """The newest of them, so that an operator sees which relay is missing in ``replicate_allow``."""

    def judge(self, session: Session, message: Auth, wall_s: int) -> Refusal | tuple[str, ...]:
        """Return the capabilities to give, at least one, or why there are none."""
        refusal = session.check_challenge(message, wall_s) or self._check_signer(session, message, wall_s)
        if refusal is not None:
            return refusal
        granted = self._granted(message)
        if not granted or (REPLICATE in (message.capabilities or ()) and REPLICATE not in granted):
            self.turned_away.append(TurnedAway(message.author_id, message.capabilities or (), wall_s))
        return granted or Refusal(Code.UNAUTHENTICATED, "no_capability")

    def _check_signer(self, session: Session, message: Auth, wall_s: int) -> Refusal | None:
        ring = self._authors.ring(message.author_id, wall_s)
        if ring is None:
            return Refusal(Code.INVALID_SIGNATURE, "unresolved_author")
        signed = challenge_input(session.challenge, self._relay_id)
        signer = self._authors.signer(ring, signed, message.signature)
        return judge_signer(ring, signer, _PURPOSE, wall_s, self._settings.clock_skew_s)

    def _granted(self, message: Auth) -> tuple[str, ...]:
        wanted = (PUBLISH, SUBSCRIBE) if message.capabilities is None else message.capabilities
        allowed = set(self._settings.auth_grants)
        if message.author_id in self._settings.replicate_allow:
            allowed.add(REPLICATE)
        return tuple(name for name in _CAPABILITIES if name in wanted and name in allowed)
