"""Builds the relay's answer to one published packet, and the journal facts about refusals and ends of connections.

The relay calls it with a candidate and its verdict, or with a session. Spec: specs/strata.md 10, 11.
"""

from typing import Final

from waystation.core.dids import identity_of
from waystation.core.facts import PeerLeft, Refused
from waystation.core.networks import network_of
from waystation.protocols.strata.refusals import Code, End
from waystation.protocols.strata.relay.intake import Candidate, Verdict
from waystation.protocols.strata.session import Session
from waystation.protocols.strata.wire import encode_error, encode_ok

__all__ = ["left_fact", "refused_fact", "verdict_answer"]

PROTOCOL: Final = "strata"
_OF_NETWORKS: Final = frozenset(
    reason.value
    for reason in (
        Code.RATE_LIMITED,
        Code.TOO_MANY_SUBSCRIPTIONS,
        Code.PACKET_TOO_LARGE,
        End.AUTH_FAILURES,
        End.MALFORMED,
        End.LIMIT_IGNORED,
    )
)
"""Limits at which a connection without identity is named by its network (NODE-NAMED)."""


def verdict_answer(candidate: Candidate, verdict: Verdict) -> bytes:
    """Return the OK or ERROR of a packet that a client has published."""
    packet = candidate.packet
    if verdict.refusal is not None:
        packet_id = packet.packet_id if packet is not None else None
        # Spec 11: ERROR names the packet and echoes client_msg_id.
        return encode_error(verdict.refusal, client_msg_id=candidate.client_msg_id, packet_id=packet_id)
    assert packet is not None
    # Spec 10: OK names the packet, and an earlier one that it repeats.
    return encode_ok(
        packet.packet_id,
        candidate.client_msg_id,
        duplicate=verdict.duplicate,
        duplicate_of=verdict.duplicate_of,
        downgrade=verdict.row.downgrade if verdict.row is not None else b"",
    )


def refused_fact(session: Session, reason: str) -> Refused:
    """Return the fact that a connection was refused something; a limit names the network of who has no identity."""
    identity, network = _identity(session), None
    if identity is None and reason in _OF_NETWORKS:
        network = network_of(session.address).encode() or None
    return Refused(PROTOCOL, identity, reason, network=network)


def left_fact(session: Session, reason: str) -> PeerLeft:
    """Return the fact that a connection is over."""
    return PeerLeft(PROTOCOL, session.peer, _identity(session), reason)


def _identity(session: Session) -> bytes | None:
    return identity_of(session.identity) if session.identity is not None else None
