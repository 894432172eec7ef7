"""Relays and clients of MERK with one mistake each, for the tests of the simulator's laws."""

from dataclasses import replace

from waystation.core.effects import Dial
from waystation.core.instant import Instant
from waystation.crypto.hashing import sha256
from waystation.protocols.merk.client.awaited_reads import AwaitedReads
from waystation.protocols.merk.client.events import FrameOutcome, KeyFound, ReceiptArrived
from waystation.protocols.merk.client.machine import MerkClient
from waystation.protocols.merk.client.seen_messages import SeenMessages
from waystation.protocols.merk.messages import KEY_BYTES, DeliveryCode, KeyAdvert, MessageType
from waystation.protocols.merk.payload.contents import decode_content
from waystation.protocols.merk.payload.sealing import Auth, Mode, Opened, decrypt_package, message_id_of
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.relay import lookups as searches
from waystation.protocols.merk.relay.delivery import Delivery
from waystation.protocols.merk.relay.fast_path import Runs
from waystation.protocols.merk.relay.forwards import Forwards, SeenIds
from waystation.protocols.merk.relay.known_frames import KnownFrames
from waystation.protocols.merk.relay.lookups import Lookups
from waystation.protocols.merk.relay.machine import MerkRelay
from waystation.protocols.merk.relay.mail_rows import MAIL
from waystation.protocols.merk.relay.mailboxes import Mailboxes
from waystation.protocols.merk.relay.notices import Notices
from waystation.protocols.merk.relay.outbox import Outbox
from waystation.protocols.merk.relay.routing import Routing
from waystation.protocols.merk.session import Sending, State
from waystation.protocols.merk.wire import decode_frame, frame_hash


class _WithPart(MerkRelay):
    """Has one part of a class with a mistake."""

    mistaken: type

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        routing = self._routing
        parts = (routing, routing.delivery, routing.lookups, routing.forwards, routing.seen, self._outbox, self._runs)
        for part in parts:
            if issubclass(self.mistaken, type(part)):
                part.__class__ = self.mistaken
        if issubclass(self.mistaken, KnownFrames):  # its table of handlers is made at the start
            others = (
                self._sessions,
                self._mesh,
                routing,
                self._handshakes,
                self._key_frames,
                self._clock,
                self._mailing,
                Notices(routing, self._sessions),
            )
            self._frames = self.mistaken(self._settings, *others)


def in_relay(part: type) -> type[MerkRelay]:
    """Return a relay with this part in the place of the right one."""
    return type(part.__name__, (_WithPart,), {"mistaken": part})


@in_relay
class ForwardsTwice(Forwards):
    """Forwards each frame under two numbers."""

    def _send(self, *args):
        super()._send(*args)
        super()._send(*args)


@in_relay
class TakesReplays(SeenIds):
    """Takes a forwarded frame as often as it comes."""

    def __contains__(self, number):
        return False


@in_relay
class TouchesFrames(Delivery):
    """Changes a reserved byte of the header."""

    def deliver(self, recipient, origin, target, frame, now, message_id=b""):
        super().deliver(recipient, origin, target, frame[:8] + b"\x01" + frame[9:], now, message_id)


@in_relay
class MixesUp(Routing):
    """Gives a frame to another client now and then."""

    def route(self, session, target, frame, now, *, may_ask):
        others = [each for key, each in self.clients.items() if key != target]
        if target in self.clients and others and frame[-1] % 16 == 0:
            self.delivery.deliver(others[0], session, target, frame, now)
        else:
            super().route(session, target, frame, now, may_ask=may_ask)


@in_relay
class SkipsInBunches(Runs):
    """Leaves out the frame behind a run to one recipient."""

    def of_client(self, session, frames, start, now):
        taken = super().of_client(session, frames, start, now)
        return taken + 1 if taken > 2 else taken


@in_relay
class BelievesSenders(KnownFrames):
    """Takes every sender for the client itself."""

    def of_client(self, session, kind, sender, data, now):
        super().of_client(session, kind, session.identity, data, now)


@in_relay
class TellsEverybody(Delivery):
    """Tells outcomes to clients that have never asked for them."""

    def deliver(self, recipient, origin, target, frame, now, message_id=b""):
        if origin is not None:
            origin.wants_notices = True
        super().deliver(recipient, origin, target, frame, now, message_id)


@in_relay
class StopsAtFirstNo(Routing):
    """Believes that nobody has a client as soon as one node has not."""

    def absent(self, node, answer, now):
        lookup = self.lookups.running(answer.key)
        if lookup is not None:
            lookup.open = {node: None}
        super().absent(node, answer, now)


@in_relay
class KeepsAbsences(Lookups):
    """Believes for a minute that somebody is nowhere."""

    def end_absent(self, lookup, now):
        super().end_absent(lookup, now)
        self._remember(lookup.target, searches.Absent(now + 60_000_000))


@in_relay
class BelievesOldPlaces(Lookups):
    """Goes on sending to where a client was."""

    def moved(self, target, node):
        return

    def distrust(self, node, target, now):
        return


@in_relay
class BelievesAnybody(Lookups):
    """Takes answers that nobody asked for."""

    def was_asked(self, node, target, now):
        super().was_asked(node, target, now)
        return True


@in_relay
class BelievesClaims(Lookups):
    """Believes any node that says it has a client, though it shows nothing."""

    def found(self, target, node, now, presence=None):
        self._is_able, node.is_unnamed = (lambda _target: False), False
        return super().found(target, node, now, presence)


@in_relay
class TakesRelayedLogins(Routing):
    """Gives a key to whoever has its answer to a challenge."""

    def needs_proof(self, key):
        return False


@in_relay
class TakesInventedSenders(Routing):
    """Takes frames of unnamed nodes that nobody has signed."""

    def _arrived(self, node, sender, target, frame, message_id, now):
        was, node.is_unnamed = node.is_unnamed, False
        super()._arrived(node, sender, target, frame, message_id, now)
        node.is_unnamed = was


@in_relay
class ForgetsOutcomes(Delivery):
    """Does not tell every twentieth outcome."""

    counted = 0

    def _notify(self, origin, *said):
        self.counted += 1
        if origin.state is not State.CLIENT or self.counted % 20:
            super()._notify(origin, *said)


@in_relay
class TellsTwice(Delivery):
    """Tells some outcomes twice."""

    def _notify(self, origin, code, target, frame, *names):
        super()._notify(origin, code, target, frame, *names)
        if frame_hash(frame)[0] % 16 == 0 and origin.state is State.CLIENT:
            super()._notify(origin, code, target, frame, *names)


@in_relay
class TellsNodesTwice(Delivery):
    """Names a frame twice in a notice of many."""

    def gather(self, node, code, message_ids):
        super().gather(node, code, [*message_ids, message_ids[0]])


@in_relay
class CallsQueuedDelivered(Routing):
    """Says that a frame is delivered before it knows where the recipient is."""

    def seek(self, sending, owner, now, *, may_ask, without=None):
        self.delivery.finish(sending, DeliveryCode.DELIVERED, now)
        sending.session = None
        super().seek(sending, owner, now, may_ask=may_ask, without=without)


@in_relay
class ForwardsOn(Routing):
    """Looks for the recipients of frames that came from other nodes."""

    def _arrived(self, node, sender, target, frame, message_id, now):
        if target in self.clients:
            super()._arrived(node, sender, target, frame, message_id, now)
        else:
            self.seek(Sending(node, target, frame, b"", message_id), None, now, may_ask=True)


@in_relay
class BlamesTime(Routing):
    """Says that a search timed out when all nodes have answered."""

    def _ended(self, lookup, failure, now):
        super()._ended(lookup, "timeout", now)


@in_relay
class HasNoQueue(Lookups):
    """Says that there is no room when there is."""

    def queue(self, lookup, sending):
        return len(lookup.queue) < 1 and sending.frame[-1] % 4 != 0 and super().queue(lookup, sending)


@in_relay
class DialsForClients(KnownFrames):
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


@in_relay
class KeepsClients(Routing):
    """Forgets to forget who has left."""

    def left(self, session, now):
        self.delivery.abandon(session, now)


@in_relay
class KeepsPlaces(Lookups):
    """Never sweeps out what is out of date."""

    def sweep(self, nodes, now):
        return None


@in_relay
class NeverAsks(KnownFrames):
    """Does not care who else there is."""

    def _on_servers(self, session, servers, now):
        return

    def _on_add_server(self, session, info, now):
        return


@in_relay
class WaitsForDeaf(Delivery):
    """Never lets go of a client that reads nothing."""

    def wake(self, now):
        for session in self._outbox.congested:
            session.progress_at = now
        super().wake(now)


@in_relay
class GivesCredit(Outbox):
    """Sends everything to everybody, whether they read it or not."""

    def takes(self, session, size):
        return True

    def would_take(self, session, size):
        return True


class HidesKeys(MerkRelay):
    """Keeps no adverts."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        frames = self._frames
        frames._on_info = {**frames._on_info, KeyAdvert: lambda _session, _advert, _now: None}


class NeverRedials(MerkRelay):
    """Dials every node once."""

    def upstream_failed(self, name, now):
        return

    def disconnect(self, peer, now):
        self._mesh.failed = lambda *_args, **_kwargs: None
        super().disconnect(peer, now)


class _Naive(SeenMessages):
    __slots__ = ()

    def refusal_of(self, opened, wall_ms):
        return None


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


class CallsEverythingBound(MerkClient):
    """Says of what anybody may have signed anew that its sender wrote it."""

    def _open(self, data):
        return replace(super()._open(data), auth=Auth.BOUND)


class SkipsSignatures(MerkClient):
    """Takes a bound message whose signature does not hold."""

    def _open(self, data):
        frame = decode_frame(data)
        package = frame.payload[KEY_BYTES:]
        opened = (
            decrypt_package(package, frame.sender, self._keys) if frame.kind == MessageType.ENCRYPTED_DATA else None
        )
        if opened is None or not opened[1]:
            return super()._open(data)
        content, name = decode_content(opened[0]), (frame.sender, sha256(frame.payload))
        return Opened(
            frame.sender, Mode.ENCRYPTED, Auth.BOUND, content, frame_hash(data), name, message_id_of(content, package)
        )


class BelievesAdverts(MerkClient):
    """Takes anybody's word for an agreement key."""

    def _on_key(self, answer):
        if isinstance(answer, KeyAdvert) and answer.key in self._key_queries:
            del self._key_queries[answer.key]
            self._events.append(KeyFound(answer))
        else:
            super()._on_key(answer)


class TakesUnboundReceipts(MerkClient):
    """Takes a receipt in whatever form it comes."""

    def _on_receipt(self, opened, receipt):
        self._events.append(ReceiptArrived(opened.sender, receipt.message_ids, opened.frame_hash))


class TakesReceiptsOfAnybody(AwaitedReads):
    """Looks only at the ids that a receipt names."""

    def receipt(self, event):
        for recipient, _ in list(self._awaited):
            super().receipt(event._replace(sender=recipient))


class CountsNoticesAsRead(AwaitedReads):
    """Takes for read what a mailbox keeps."""

    def stored(self, recipient, message_id, now_ms):
        self._read.append((recipient, message_id))


class ReportsReadAgain(AwaitedReads):
    """Forgets what was read already."""

    def receipt(self, event):
        self._read += [each for each in self._awaited if each[0] == event.sender and each[1] in event.message_ids]


class _WithMailboxes(MerkRelay):
    """Has mailboxes with a mistake."""

    mistaken: type

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._mailing.boxes.__class__ = self.mistaken


def _with_mailboxes(part: type) -> type[MerkRelay]:
    """Return a relay with these mailboxes in the place of the right ones."""
    return type(part.__name__, (_WithMailboxes,), {"mistaken": part})


@_with_mailboxes
class GivesUpWhatItGives(Mailboxes):
    """Deletes a frame once it is sent to its owner."""

    def read(self, owner, stored):
        frame = super().read(owner, stored)
        self.taken(owner, [stored.frame_hash])
        return frame


@_with_mailboxes
class KeepsInMemory(Mailboxes):
    """Calls a frame stored that is not on the disk."""

    def changes(self):
        return tuple(change for change in super().changes() if change.table != MAIL or change.value is None)


@_with_mailboxes
class IgnoresTaken(Mailboxes):
    """Goes on giving what its owner has taken."""

    def taken(self, owner, hashes):
        return 0
