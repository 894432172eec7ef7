"""The guide in a relay: presences that devices assert, and answers to who asks where somebody is.

Whoever negotiated the feature may ask, without saying who they are; an answer holds nothing but what its owners signed,
and nothing that has ended at the moment of answering. A flood of questions gets empty answers, so that asking costs
the relay less than telling.

Spec: Bhumi v2 section 7 and 9.2; BHUMI-X.
"""

import random
from collections.abc import Callable
from typing import Final

from waystation.core.instant import Instant
from waystation.core.limits import TokenBucket
from waystation.protocols.bhumi import extension_wire
from waystation.protocols.bhumi.connections import Connections
from waystation.protocols.bhumi.extension_messages import (
    ExtensionMessage,
    Relays,
    SignedRecord,
    WhereEntry,
    WhereResult,
)
from waystation.protocols.bhumi.gossip import RECORD_STRIKES_MAX
from waystation.protocols.bhumi.negotiated import Negotiated
from waystation.protocols.bhumi.records import Records
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.session import Session

__all__ = ["ADVERTS_MAX", "HINTS_MAX", "RelayGuide"]

HINTS_MAX: Final = 8
ADVERTS_MAX: Final = 64
QUESTIONS_PER_SECOND: Final = 5
QUESTIONS_BURST: Final = 20
PRESENCES_PER_MINUTE: Final = 6  # a device renews every 240 s and tells two relays of each move
PRESENCES_BURST: Final = 16
_UNCOUNTED_STRIKES: Final = (Refusal.TABLE_FULL, Refusal.PRESENCE_FLOOD, Refusal.PRIVATE_ADDRESS)
"""Refusals that say nothing about the peer's honesty."""


class RelayGuide:
    """Takes PRESENCE and RELAY_AD of their owners, WHERE and RELAYS_REQ of anybody."""

    def __init__(
        self,
        connections: Connections,
        records: Records,
        rng: random.Random,
        tell: Callable[[bytes, SignedRecord, Instant], None],
        *,
        rate_limits: bool = True,
    ) -> None:
        """Prepare.

        Args:
            connections: Who is here.
            records: What is believed.
            rng: Draws adverts.
            tell: Called with each new record and its tagged bytes.
            rate_limits: False lifts the allowances.
        """
        self._connections = connections
        self._records = records
        self._rng = rng
        self._tell = tell
        self._rate_limits = rate_limits

    def on_presence(self, session: Session, payload: bytes, now: Instant) -> None:
        """Take a device's word about itself."""
        self._on_record(session, extension_wire.decode_presence(payload), now)

    def on_advert(self, session: Session, payload: bytes, now: Instant) -> None:
        """Take a relay's word about itself."""
        self._on_record(session, extension_wire.decode_advert(payload), now)

    def on_where(self, session: Session, payload: bytes, now: Instant) -> None:
        """Answer with the freshest hints, each with the address of its relay as far as that is known."""
        identity = extension_wire.decode_where(payload).identity
        negotiated = _negotiated(session)
        if negotiated.questions is None and self._rate_limits:
            negotiated.questions = TokenBucket(QUESTIONS_PER_SECOND, QUESTIONS_BURST, now)
        if negotiated.questions is not None and not negotiated.questions.take(now):
            self._connections.note_refused(session, Refusal.WHERE_FLOOD)
            self._reply(session, WhereResult(identity))
            return
        found = self._records.presences.find(identity, self._records.now_s(now))[:HINTS_MAX]
        presences = [extension_wire.decode_presence(record) for record in found]
        entries = (WhereEntry(presence, self._records.address_of(presence, now)) for presence in presences)
        self._reply(session, WhereResult(identity, tuple(entries)))

    def on_relays_request(self, session: Session, payload: bytes, now: Instant) -> None:
        """Answer with adverts, our own first."""
        extension_wire.decode_relays_request(payload)
        negotiated = _negotiated(session)
        if negotiated.lists is None and self._rate_limits:
            negotiated.lists = TokenBucket(QUESTIONS_PER_SECOND, QUESTIONS_BURST, now)
        if negotiated.lists is not None and not negotiated.lists.take(now):
            self._connections.note_refused(session, Refusal.WHERE_FLOOD)
            self._reply(session, Relays())
            return
        self._reply(session, Relays(tuple(self._records.adverts(self._rng, ADVERTS_MAX, now))))

    def _on_record(self, session: Session, record: SignedRecord, now: Instant) -> None:
        negotiated = _negotiated(session)
        if session.identity != record.owner:
            self._refuse(session, Refusal.FOREIGN_PRESENCE, now)
            return
        if negotiated.presences is None and self._rate_limits:
            negotiated.presences = TokenBucket(PRESENCES_PER_MINUTE, PRESENCES_BURST, now, period_s=60)
        tagged = extension_wire.encode_tagged(record)
        verdict = self._records.take(tagged, negotiated.presences, now, is_hearsay=False)
        if isinstance(verdict, Refusal):
            self._refuse(session, Refusal.PRESENCE_FLOOD if verdict is Refusal.GOSSIP_FLOOD else verdict, now)
        elif verdict is not None:
            self._tell(tagged, verdict, now)

    def _refuse(self, session: Session, refusal: Refusal, now: Instant) -> None:
        """Count a record that is not taken; who sends such records all the time is closed."""
        self._connections.note_refused(session, refusal)
        negotiated = _negotiated(session)
        negotiated.record_strikes += refusal not in _UNCOUNTED_STRIKES
        if negotiated.record_strikes >= RECORD_STRIKES_MAX:
            self._connections.close(session, Refusal.RECORD_STRIKES, now)

    def _reply(self, session: Session, message: ExtensionMessage) -> None:
        self._connections.reply(session, extension_wire.encode_extension(message))


def _negotiated(session: Session) -> Negotiated:
    assert session.negotiated is not None
    return session.negotiated
