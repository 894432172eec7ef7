"""The relay's guide: it stores presences and adverts of their owners, and answers WHERE and RELAYS_REQ.

Any connection that negotiated the feature may ask anonymously. An answer contains only records that their owners signed
and that have not expired. A connection that exceeds its rate limit gets empty answers.

Spec: Bhumi v2 section 7 and 9.2; BHUMI-X.
"""

import random
from collections.abc import Callable
from typing import Final

from waystation.core.instant import Instant
from waystation.core.limits import TokenBucket
from waystation.protocols.bhumi import extension_wire
from waystation.protocols.bhumi.extension_messages import (
    ExtensionMessage,
    Relays,
    SignedRecord,
    WhereEntry,
    WhereResult,
)
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.relay.connections import Connections
from waystation.protocols.bhumi.relay.negotiated import Negotiated
from waystation.protocols.bhumi.relay.records import Records
from waystation.protocols.bhumi.session import Session

__all__ = ["ADVERTS_MAX", "HINTS_MAX", "RelayGuide"]

HINTS_MAX: Final = 8  # spec 5: at most 8 relays of one device
ADVERTS_MAX: Final = 64  # ours: one frame
_UNCOUNTED_STRIKES: Final = (Refusal.TABLE_FULL, Refusal.PRESENCE_FLOOD, Refusal.PRIVATE_ADDRESS)
"""Refusals that say nothing about the peer's honesty."""


class RelayGuide:
    """Takes PRESENCE and RELAY_AD of their owners, WHERE and RELAYS_REQ of anybody."""

    def __init__(
        self,
        connections: Connections,
        records: Records,
        rng: random.Random,
        on_new: Callable[[bytes, SignedRecord, Instant], None],
        *,
        rate_limits: bool = True,
    ) -> None:
        """Prepare.

        Args:
            connections: Who is here.
            records: What is believed.
            rng: Draws adverts.
            on_new: Called with each new record and its tagged bytes.
            rate_limits: False lifts the allowances.
        """
        self._connections = connections
        self._limits = connections.limits
        self._records = records
        self._rng = rng
        self._on_new = on_new
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
        # BHUMI-FLOOD: WHERE and RELAYS_REQ have allowances of their own, made on first use.
        if negotiated.questions is None and self._rate_limits and session.limited:
            negotiated.questions = self._question_allowance(now)
        if negotiated.questions is not None and not negotiated.questions.take(now):
            self._connections.note_refused(session, Refusal.WHERE_FLOOD)
            self._reply(session, WhereResult(identity))
            return
        # Spec 5: at most 8 relays of one device, the freshest first.
        found = self._records.presences.find(identity, self._records.now_s(now))[:HINTS_MAX]
        presences = [extension_wire.decode_presence(record) for record in found]
        entries = (WhereEntry(presence, self._records.address_of(presence, now)) for presence in presences)
        self._reply(session, WhereResult(identity, tuple(entries)))

    def on_relays_request(self, session: Session, payload: bytes, now: Instant) -> None:
        """Answer with adverts, our own first."""
        extension_wire.decode_relays_request(payload)
        negotiated = _negotiated(session)
        if negotiated.lists is None and self._rate_limits and session.limited:
            negotiated.lists = self._question_allowance(now)
        if negotiated.lists is not None and not negotiated.lists.take(now):
            self._connections.note_refused(session, Refusal.WHERE_FLOOD)
            self._reply(session, Relays())
            return
        self._reply(session, Relays(tuple(self._records.adverts(self._rng, ADVERTS_MAX, now))))

    def _on_record(self, session: Session, record: SignedRecord, now: Instant) -> None:
        negotiated = _negotiated(session)
        # BHUMI-OWNER: only the owner of a record asserts it; gossip is for what others signed.
        if session.identity != record.owner:
            self._refuse(session, Refusal.FOREIGN_PRESENCE, now)
            return
        if negotiated.presences is None and self._rate_limits and session.limited:
            limits = self._limits.now
            # A device renews every 240 s and sends each move to two relays.
            rate, burst = limits.presences_per_minute, limits.presences_burst
            negotiated.presences = TokenBucket(rate, burst, now, period_s=60)
        tagged = extension_wire.encode_tagged(record)
        verdict = self._records.take(tagged, negotiated.presences, now, by_gossip=False)
        if isinstance(verdict, Refusal):
            self._refuse(session, Refusal.PRESENCE_FLOOD if verdict is Refusal.GOSSIP_FLOOD else verdict, now)
        elif verdict is not None:
            self._on_new(tagged, verdict, now)

    def _refuse(self, session: Session, refusal: Refusal, now: Instant) -> None:
        """Count a record that is not taken; who sends such records all the time is closed."""
        self._connections.note_refused(session, refusal)
        negotiated = _negotiated(session)
        # BHUMI-STRIKE: on the owner's own connection the sixteenth wrong record closes.
        negotiated.record_strikes += refusal not in _UNCOUNTED_STRIKES
        if negotiated.record_strikes >= self._limits.now.record_strikes:
            self._connections.close(session, Refusal.RECORD_STRIKES, now)

    def _question_allowance(self, now: Instant) -> TokenBucket:
        limits = self._limits.now
        return TokenBucket(limits.questions_per_second, limits.questions_burst, now)

    def _reply(self, session: Session, message: ExtensionMessage) -> None:
        self._connections.reply(session, extension_wire.encode_extension(message))


def _negotiated(session: Session) -> Negotiated:
    assert session.negotiated is not None
    return session.negotiated
