"""Relays and clients of Strata with one mistake each, for the tests of the simulator's laws."""

from waystation.core.effects import Commit
from waystation.core.packets import LowerWitness
from waystation.protocols.strata.client.events import PacketArrived, Published, PublishUnknown
from waystation.protocols.strata.client.machine import StrataClient
from waystation.protocols.strata.refusals import Code, Refusal
from waystation.protocols.strata.relay.intake import Verdict
from waystation.protocols.strata.relay.machine import StrataRelay
from waystation.protocols.strata.relay.outbox import Outbox
from waystation.protocols.strata.relay.replication import Place
from waystation.protocols.strata.relay.subscription import Part, Subscription
from waystation.protocols.strata.session import Session
from waystation.protocols.strata.wire import encode_ok


class _Serves(StrataRelay):
    """Serves subscriptions of a class with a mistake."""

    kind = Subscription

    def _on_subscribe(self, session, message, over, now):
        super()._on_subscribe(session, message, over, now)
        subscription = session.subscriptions.get(message.subscription_id)
        if subscription is not None:
            subscription.__class__ = self.kind
            if subscription.part is Part.B:
                subscription._enter_b()


class _WithoutPartB(Subscription):
    __slots__ = ()

    def _enter_b(self):
        self._finish(has_more=False)


class SkipsPartB(_Serves):
    """Takes what came between a cursor and now for delivered."""

    kind = _WithoutPartB


class _LosesTail(Subscription):
    __slots__ = ()

    def fall_behind(self, seq):
        self.lags += 1


class LosesTail(_Serves):
    """Forgets what a congested reader could not take."""

    kind = _LosesTail


class _Backwards(Subscription):
    __slots__ = ()

    def took(self, page, newest):
        return super().took(page, newest)[::-1]


class ReadsBackwards(_Serves):
    """Delivers each page from its end."""

    kind = _Backwards


class _LagsBehind(Subscription):
    __slots__ = ()

    def _cursors(self, rows):
        before = self._encode(self._cursor)
        return [before, *super()._cursors(rows)][: len(rows)]


class CursorLags(_Serves):
    """Gives each packet the cursor of the one before it."""

    kind = _LagsBehind


class _CutsShort(Subscription):
    __slots__ = ()

    def _finish(self, *, has_more):
        super()._finish(has_more=False)


class SaysComplete(_Serves):
    """Takes one page for all of history."""

    kind = _CutsShort


class OkBeforeCommit(StrataRelay):
    """Says OK when the packet is on its way to the disk."""

    def take(self):
        effects = super().take()
        for commit in [effect for effect in effects if isinstance(effect, Commit)]:
            for candidate, _ in self._intake._committing[commit.ticket]:
                if isinstance(candidate.origin, Session):
                    answer = encode_ok(candidate.packet.packet_id, candidate.client_msg_id)
                    self._outbox.reply(candidate.origin, answer)
        return effects + self._outbox.take()


class BelievesSignatures(StrataRelay):
    """Takes every signature for good."""

    def verified(self, ticket, answers, now):
        super().verified(ticket, [max(0, answer) for answer in answers], now)


class IgnoresWitness(StrataRelay):
    """Counts a replicated packet as received when it came here."""

    def _offer(self, candidate, now):
        candidate.witness = None
        super()._offer(candidate, now)


class KeepsItsTime(StrataRelay):
    """Holds to its own time when another relay saw a packet earlier."""

    def take(self):
        self._intake._changes = [each for each in self._intake._changes if not isinstance(each, LowerWitness)]
        return super().take()


class SkipsReplicated(StrataRelay):
    """Leaves out every tenth packet of its upstream."""

    skipped = 0

    def _offer(self, candidate, now):
        if isinstance(candidate.origin, Place):
            self.skipped += 1
            if self.skipped % 10 == 0:
                self._report_verdict(candidate, Verdict(duplicate=True), now)
                return
        super()._offer(candidate, now)


class _Generous(Outbox):
    def takes_live(self, session):
        return True


class GivesCredit(StrataRelay):
    """Sends everything to everybody, whether they read it or not."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._outbox.__class__ = _Generous


class _OneSpace:
    """Packets of a store, of which key events count as all others do."""

    def __init__(self, packets):
        self._packets = packets

    def bytes_held(self):
        return 0

    def __getattr__(self, name):
        return getattr(self._packets, name)


class DropsForKeyEvents(StrataRelay):
    """Drops the oldest packets when packets and key events together have no room."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._retention._packets = _OneSpace(self._retention._packets)


class WaitsForSilent(StrataRelay):
    """Never ends a connection that takes nothing."""

    def congested(self, peer, now):
        super().congested(peer, now)
        self._outbox.congested.clear()


class KeepsSessions(StrataRelay):
    """Forgets to forget who has left."""

    def disconnect(self, peer, now):
        if peer not in self._sessions:
            super().disconnect(peer, now)


class RefusesGood(StrataRelay):
    """Refuses every thirtieth packet for no reason."""

    counted = 0

    def _offer(self, candidate, now):
        self.counted += 1
        if self.counted % 30 == 0:
            self._report_verdict(candidate, Verdict(Refusal(Code.INVALID_SCHEMA, "mood")), now)
        else:
            super()._offer(candidate, now)


class LosesRequests(StrataRelay):
    """Forgets a SUBSCRIBE with a cursor."""

    def _on_subscribe(self, session, message, over, now):
        if message.cursor is None:
            super()._on_subscribe(session, message, over, now)


class TakesSilenceForSuccess(StrataClient):
    """Reports a packet as published when the connection ends before its answer."""

    def disconnect(self, peer, now):
        super().disconnect(peer, now)
        self._events[:] = [
            Published(each.msg_id, each.packet_id, False, None, None, 0) if isinstance(each, PublishUnknown) else each
            for each in self._events
        ]


class LosesEvents(StrataClient):
    """Drops every fortieth packet."""

    seen = 0

    def take_events(self):
        kept = []
        for output in super().take_events():
            self.seen += isinstance(output, PacketArrived)
            if not isinstance(output, PacketArrived) or self.seen % 40:
                kept.append(output)
        return kept


class BeginsWithNews(StrataClient):
    """Resumes with what is new instead of what it missed."""

    def disconnect(self, peer, now):
        super().disconnect(peer, now)
        for reading in self._subscriptions._readings.values():
            reading.limit = 0
