"""Relays and clients of MERK with one mistake each, for the tests of the simulator's laws."""

from waystation.core.effects import Dial
from waystation.core.instant import Instant
from waystation.protocols.merk import lookups as searches
from waystation.protocols.merk.client import MerkClient
from waystation.protocols.merk.client_events import FrameOutcome
from waystation.protocols.merk.delivery import Delivery
from waystation.protocols.merk.forwards import Forwards, SeenIds
from waystation.protocols.merk.lookups import Lookups
from waystation.protocols.merk.messages import DeliveryCode
from waystation.protocols.merk.outbox import Outbox
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.relay import MerkRelay
from waystation.protocols.merk.routing import Routing
from waystation.protocols.merk.runs import Runs
from waystation.protocols.merk.seen_messages import SeenMessages
from waystation.protocols.merk.session import Sending, State
from waystation.protocols.merk.wire import frame_hash


class _Parts(MerkRelay):
    """Has parts of classes with a mistake."""

    routing_kind, delivery_kind, lookups_kind = Routing, Delivery, Lookups
    forwards_kind, seen_kind, outbox_kind = Forwards, SeenIds, Outbox

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        routing = self._routing
        routing.__class__ = self.routing_kind
        routing.delivery.__class__ = self.delivery_kind
        routing.lookups.__class__ = self.lookups_kind
        routing.forwards.__class__ = self.forwards_kind
        routing.seen.__class__ = self.seen_kind
        self._outbox.__class__ = self.outbox_kind


class _Impatient(Forwards):
    def _send(self, *args):
        super()._send(*args)
        super()._send(*args)


class ForwardsTwice(_Parts):
    """Forwards each frame under two numbers."""

    forwards_kind = _Impatient


class _Forgetful(SeenIds):
    def __contains__(self, number):
        return False


class TakesReplays(_Parts):
    """Takes a forwarded frame as often as it comes."""

    seen_kind = _Forgetful


class _Careless(Delivery):
    def deliver(self, recipient, origin, target, frame, now):
        super().deliver(recipient, origin, target, frame[:8] + b"\x01" + frame[9:], now)


class TouchesFrames(_Parts):
    """Changes a reserved byte of the header."""

    delivery_kind = _Careless


class _Confused(Routing):
    def route(self, session, target, frame, now, *, may_ask):
        others = [each for key, each in self.clients.items() if key != target]
        if target in self.clients and others and frame[-1] % 16 == 0:
            self.delivery.deliver(others[0], session, target, frame, now)
        else:
            super().route(session, target, frame, now, may_ask=may_ask)


class MixesUp(_Parts):
    """Gives a frame to another client now and then."""

    routing_kind = _Confused


class _Hasty(Runs):
    def of_client(self, session, frames, start, now):
        taken = super().of_client(session, frames, start, now)
        return taken + 1 if taken > 2 else taken


class SkipsInBunches(MerkRelay):
    """Leaves out the frame behind a run to one recipient."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._runs.__class__ = _Hasty


class _Doubling(Forwards):
    def send_run(self, node, origin, target, frames, now):
        return super().send_run(node, origin, target, [*frames, frames[-1]], now)


class DoublesInBunches(_Parts):
    """Forwards the last frame of a run twice."""

    forwards_kind = _Doubling


class BelievesSenders(MerkRelay):
    """Takes every sender for the client itself."""

    def _on_client_frame(self, session, kind, sender, data, now):
        super()._on_client_frame(session, kind, session.identity, data, now)


class _Talkative(Delivery):
    def deliver(self, recipient, origin, target, frame, now):
        if origin is not None:
            origin.wants_notices = True
        super().deliver(recipient, origin, target, frame, now)


class TellsEverybody(_Parts):
    """Tells outcomes to clients that have never asked for them."""

    delivery_kind = _Talkative


class _Dismissive(Routing):
    def absent(self, node, answer, now):
        lookup = self.lookups.running(answer.key)
        if lookup is not None:
            lookup.open = {node: None}
        super().absent(node, answer, now)


class StopsAtFirstNo(_Parts):
    """Believes that nobody has a client as soon as one node has not."""

    routing_kind = _Dismissive


class _Stubborn(Lookups):
    def end_absent(self, lookup, now):
        super().end_absent(lookup, now)
        self._remember(lookup.target, searches.Absent(now + 60_000_000))


class KeepsAbsences(_Parts):
    """Believes for a minute that somebody is nowhere."""

    lookups_kind = _Stubborn


class _Faithful(Lookups):
    def moved(self, target, node):
        return

    def distrust(self, node, target, now):
        return


class BelievesOldPlaces(_Parts):
    """Goes on sending to where a client was."""

    lookups_kind = _Faithful


class _Gullible(Lookups):
    def was_asked(self, node, target, now):
        super().was_asked(node, target, now)
        return True


class BelievesAnybody(_Parts):
    """Takes answers that nobody asked for."""

    lookups_kind = _Gullible


class _Mute(Delivery):
    counted = 0

    def _notify(self, origin, code, target, frame_hash):
        self.counted += 1
        if origin.state is not State.CLIENT or self.counted % 20:
            super()._notify(origin, code, target, frame_hash)


class ForgetsOutcomes(_Parts):
    """Does not tell every twentieth outcome."""

    delivery_kind = _Mute


class _Echoing(Delivery):
    def _notify(self, origin, code, target, frame_hash):
        super()._notify(origin, code, target, frame_hash)
        if frame_hash[0] % 16 == 0:
            super()._notify(origin, code, target, frame_hash)


class TellsTwice(_Parts):
    """Tells some outcomes twice."""

    delivery_kind = _Echoing


class _Optimist(Routing):
    def _seek(self, sending, owner, now, *, may_ask):
        self.delivery.finish(sending, DeliveryCode.DELIVERED, now)
        sending.session = None
        super()._seek(sending, owner, now, may_ask=may_ask)


class CallsQueuedDelivered(_Parts):
    """Says that a frame is delivered before it knows where the recipient is."""

    routing_kind = _Optimist


class _Relaying(Routing):
    def _arrived(self, node, sender, target, frame, now):
        if target in self.clients:
            super()._arrived(node, sender, target, frame, now)
        else:
            self._seek(Sending(node, target, frame, frame_hash(frame)), None, now, may_ask=True)


class ForwardsOn(_Parts):
    """Looks for the recipients of frames that came from other nodes."""

    routing_kind = _Relaying


class _Vague(Routing):
    def _ended(self, lookup, failure, now):
        super()._ended(lookup, "timeout", now)


class BlamesTime(_Parts):
    """Says that a search timed out when all nodes have answered."""

    routing_kind = _Vague


class _Full(Lookups):
    def queue(self, lookup, sending):
        return len(lookup.queue) < 1 and sending.frame[-1] % 4 != 0 and super().queue(lookup, sending)


class HasNoQueue(_Parts):
    """Says that there is no room when there is."""

    lookups_kind = _Full


class DialsForClients(MerkRelay):
    """Dials what a client names."""

    def _on_add_server(self, session, info, now):
        self._mesh.learn(info.address, None, session.identity, now)


class DialsAnything(MerkRelay):
    """Dials private addresses, too."""

    def take(self):
        effects = super().take()
        return [each._replace(only_public=False) if isinstance(each, Dial) else each for each in effects]


class DialsMuch(MerkRelay):
    """Dials as many learnt addresses as it is told."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._mesh._may_dial_at = lambda: Instant(0)


class _Hospitable(Routing):
    def left(self, session, now):
        self.delivery.abandon(session, now)


class KeepsClients(_Parts):
    """Forgets to forget who has left."""

    routing_kind = _Hospitable


class _Nostalgic(Lookups):
    def sweep(self, nodes, now):
        return None


class KeepsPlaces(_Parts):
    """Never sweeps out what is out of date."""

    lookups_kind = _Nostalgic


class NeverAsks(MerkRelay):
    """Does not care who else there is."""

    def _on_servers(self, session, servers, now):
        return

    def _on_add_server(self, session, info, now):
        return


class _Endless(Delivery):
    def wake(self, now):
        for session in self._outbox.congested:
            session.progress_at = now
        super().wake(now)


class WaitsForDeaf(_Parts):
    """Never lets go of a client that reads nothing."""

    delivery_kind = _Endless


class _Generous(Outbox):
    def takes(self, session, size):
        return True

    def would_take(self, session, size):
        return True


class GivesCredit(_Parts):
    """Sends everything to everybody, whether they read it or not."""

    outbox_kind = _Generous


class HidesKeys(MerkRelay):
    """Keeps no adverts."""

    def _on_advert(self, session, advert, now):
        return


class NeverRedials(MerkRelay):
    """Dials every node once."""

    def upstream_failed(self, name, now):
        return

    def disconnect(self, peer, now):
        self._mesh.failed = lambda *_args, **_kwargs: None
        super().disconnect(peer, now)


class _Naive(SeenMessages):
    __slots__ = ()

    def is_new(self, fingerprint, now):
        return True


class HandsOnTwice(MerkClient):
    """Hands on whatever comes, however often."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._seen = _Naive()


class Doubts(MerkClient):
    """Turns down good frames now and then."""

    def _on_content(self, frame, data, now):
        if frame.signature[0] % 16 == 1:
            self._drop(Refusal.BAD_SIGNATURE, frame.sender)
        else:
            super()._on_content(frame, data, now)


class LosesOutcomes(MerkClient):
    """Forgets what became of frames when its connection ends."""

    def take_events(self):
        events = super().take_events()
        return [event for event in events if not (isinstance(event, FrameOutcome) and event.code is None)]
