"""Routing: sends a frame to a connected client, to the node that has the client, or a notice back.

The relay passes it every frame of an identified connection. A frame of our own client may cross one link. A frame that
arrived over a link is delivered to a client of ours or refused. One exception: a frame from a reference relay that
dialled us may be sent to one that we dialled (MERK-BRIDGE). A node that is asked for a client asks no other node. Loops
are therefore impossible, whatever other nodes claim.

Spec: specs/merk.md 3, 5, 10.3, 10.7.
"""

import random
from collections.abc import Callable
from typing import Final

from waystation.core.facts import MeshLookup, Refused
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.core.limits import TokenBucket
from waystation.core.settings import InForce
from waystation.protocols.merk import wire
from waystation.protocols.merk.infos import decode_forward
from waystation.protocols.merk.limits import MerkLimits
from waystation.protocols.merk.messages import (
    HEADER_BYTES,
    KEY_BYTES,
    MESSAGE_ID_BYTES,
    ClientAbsent,
    ClientFound,
    DeliveryCode,
    Feature,
    Forward,
    Gone,
    Info,
    InfoType,
    MessageType,
    Presence,
    QueryClient,
)
from waystation.protocols.merk.refusals import MalformedError, Refusal
from waystation.protocols.merk.relay.delivery import PROTOCOL, Delivery
from waystation.protocols.merk.relay.forwards import Forwards, SeenIds
from waystation.protocols.merk.relay.key_directory import KeyDirectory
from waystation.protocols.merk.relay.lookups import Absent, Location, Lookup, Lookups
from waystation.protocols.merk.relay.mesh import Mesh
from waystation.protocols.merk.relay.outbox import Outbox
from waystation.protocols.merk.relay.presences import WallClock, is_presence_current
from waystation.protocols.merk.session import ORIGINALS, Sending, Session, State

__all__ = ["CARRIED", "Routing"]

CARRIED: Final = frozenset({MessageType.DATA, MessageType.SIGNED_DATA, MessageType.ENCRYPTED_DATA})
SWEEP_MS: Final = 10_000  # ours: places live for a minute
_BOOT_BYTES: Final = 8
FORWARD_BYTES: Final = HEADER_BYTES + 2 + MESSAGE_ID_BYTES + KEY_BYTES  # spec 7: what FORWARD puts before a frame
_FORWARD: Final = bytes((InfoType.FORWARD,))


class Routing:
    """Where every frame goes."""

    def __init__(
        self,
        node_key: bytes,
        outbox: Outbox,
        mesh: Mesh,
        keys: KeyDirectory,
        clock: WallClock,
        rng: random.Random,
        frame_bytes_max: int,
        strike: Callable[[Session, Refusal, Instant], None],
        admits: Callable[[PublicKey], bool],
        limits: InForce[MerkLimits],
    ) -> None:
        """Start with nobody here.

        Args:
            node_key: Our own key.
            outbox: Where everything leaves.
            mesh: The other nodes.
            keys: Which keys are known as able.
            clock: What presences are judged by.
            rng: Source of the number of this life.
            frame_bytes_max: Largest frame of a client.
            strike: Called when a node breaks a rule.
            admits: Asked about the sender of a frame that a node brings.
            limits: How much there may be of everything.
        """
        self.node_key = node_key
        self.outbox = outbox
        self._mesh = mesh
        self._keys = keys
        self._clock = clock
        self._frame_bytes_max = frame_bytes_max
        self._strike = strike
        self.admits = admits
        self._limits = limits
        self.clients: dict[bytes, Session] = {}
        """Clients that are here, by key."""
        self.delivery = Delivery(outbox, node_key, limits)
        self.mail_word: Callable[[bytes, Instant], Presence | None] = lambda _target, _now: None
        """Returns a client's word that we keep its mail, None when we do not."""
        self.lookups = Lookups(limits, keys.is_able)
        self.forwards = Forwards(outbox, node_key, rng.randbytes(_BOOT_BYTES), limits)
        self.seen = SeenIds(limits)
        now = limits.now
        self._facts = TokenBucket(now.lookup_facts_per_second, now.lookup_facts_burst, Instant(0))
        self._unreported: dict[str, list[int]] = {}

    def use_limits(self) -> None:
        """Count reported searches against the limits in force, which have changed."""
        limits = self._limits.now
        self._facts.change(limits.lookup_facts_per_second, limits.lookup_facts_burst)

    def holds(self, session: Session) -> bool:
        """Return whether a connection has its key: what is meant for the key goes to it, and its frames are taken."""
        return self.clients.get(session.identity or b"") is session

    def needs_proof(self, key: bytes) -> bool:
        """Return whether only AUTH gives a connection this key (MERK-PROVED)."""
        holder = self.clients.get(key)
        return (holder is not None and holder.is_proved) or self._keys.is_able(key)

    # Frames

    def route(self, session: Session, target: bytes, frame: bytes, now: Instant, *, may_ask: bool) -> None:
        """Send a client's frame on its way.

        Args:
            session: The client it came from.
            target: The recipient's key.
            frame: As it came.
            now: Monotonic time.
            may_ask: False when no new work is taken.
        """
        # Spec 5: local connections first, then a known location, then a question to every node.
        recipient = self.clients.get(target)
        if recipient is not None:
            self.delivery.deliver(recipient, session, target, frame, now)
            return
        wanted = session.wants_notices
        sending = Sending(session if wanted else None, target, frame, wire.frame_hash(frame) if wanted else b"")
        self.seek(sending, session, now, may_ask=may_ask)

    def arrived(self, node: Session, forward: Forward, now: Instant) -> None:
        """Take a frame that a peer forwarded: it ends here."""
        # Spec 7 and 10.7: FORWARD is one hop, and names the node that sends it.
        if forward.hop != 1 or forward.origin != node.identity:
            self._strike(node, Refusal.LYING_PEER, now)
            return
        try:
            kind, sender = wire.read_head(forward.frame)
        except MalformedError:
            self._strike(node, Refusal.MALFORMED_INFO, now)
            return
        target = wire.target_of(forward.frame)
        if kind not in CARRIED or target is None:
            self._strike(node, Refusal.MALFORMED_INFO, now)
            return
        # Spec 8: a forwarded id is known for 120 s, so that a node cannot have a frame delivered twice.
        number = forward.message_id + forward.origin
        if number in self.seen:
            self._strike(node, Refusal.REPLAYED_FORWARD, now)
            return
        self.seen.add(number, now)
        message_id = forward.message_id if node.gathers_notices else b""
        self._arrived(node, sender, target, forward.frame, message_id, now)

    def arrived_too_fast(self, node: Session, data: bytes, now: Instant) -> None:
        """Refuse a frame of a peer beyond its allowance, so that it need not wait for an answer."""
        # Only FORWARD is answered; an original expects nothing.
        if node.state is not State.PEER or data[HEADER_BYTES : HEADER_BYTES + 1] != _FORWARD:
            return
        try:
            self._too_fast(node, decode_forward(data, HEADER_BYTES), now)
        except MalformedError:
            return

    def arrived_in_run(self, node: Session, forward: Forward, now: Instant) -> None:
        """Take one of the frames of a FORWARDS as if it had come alone: counted, and answered by itself."""
        size = len(forward.frame)
        assert node.link is not None
        if not node.affords(FORWARD_BYTES + size, now):
            self.outbox.add(Refused(PROTOCOL, None, Refusal.RATE.value))
            self._too_fast(node, forward, now)
            return
        node.link.frames_in += 1
        node.link.bytes_in += size
        self.arrived(node, forward, now)

    def _too_fast(self, node: Session, forward: Forward, now: Instant) -> None:
        target = wire.target_of(forward.frame)
        if target is not None:
            message_id = forward.message_id if node.gathers_notices else b""
            self.delivery.refuse(node, DeliveryCode.RATE, target, forward.frame, now, message_id)

    def arrived_bare(self, node: Session, frame: bytes, now: Instant) -> None:
        """Take a frame from an original relay: it ends here, or at an original that we dialled; no notice is sent."""
        target = wire.target_of(frame)
        # A ban holds for senders behind other nodes, too.
        if target is None or not self.admits(PublicKey(wire.read_head(frame)[1])):
            return
        # An original takes 100 MiB, our clients what we have said to them; the link stays (MERK-LARGE).
        if len(frame) > self._frame_bytes_max:
            self.outbox.add(Refused(PROTOCOL, None, Refusal.TOO_BIG.value))
            return
        # Spec 5: a frame that came from a node ends at that node.
        recipient = self.clients.get(target)
        place = self.lookups.place(target, now)
        if recipient is not None:
            self.delivery.deliver(recipient, node, target, frame, now)
        # MERK-BRIDGE: originals that dialled us reach originals that we dialled; no other frame goes on.
        elif node.state is State.DOWNSTREAM and isinstance(place, Location) and place.node.state is State.UPSTREAM:
            self._forward(place.node, Sending(None, target, frame, b""), now)

    def _arrived(
        self, node: Session, sender: bytes, target: bytes, frame: bytes, message_id: bytes, now: Instant
    ) -> None:
        recipient = self.clients.get(target)
        # Spec 6: code 4, larger than this node takes.
        if len(frame) > self._frame_bytes_max:
            self.delivery.refuse(node, DeliveryCode.TOO_LARGE, target, frame, now, message_id)
        elif not self.admits(PublicKey(sender)) or (recipient is None and self.mail_word(target, now) is None):
            self.delivery.refuse(node, DeliveryCode.UNKNOWN_TARGET, target, frame, now, message_id)
        # MERK-UNNAMED: a node that nobody has named brings no senders of its own invention.
        elif node.is_unnamed and not wire.is_frame_signed(frame):
            # Not "unknown": one sender's unsigned frames must not make others believe that the recipient has left.
            self.outbox.add(Refused(PROTOCOL, node.identity, Refusal.UNSIGNED.value))
            self.delivery.refuse(node, DeliveryCode.QUEUE_FULL, target, frame, now, message_id)
        elif recipient is None:
            self.unreached(Sending(node, target, frame, b"", message_id), DeliveryCode.UNKNOWN_TARGET, now)
        else:
            self.delivery.deliver(recipient, node, target, frame, now, message_id)

    def seek(
        self, sending: Sending, owner: Session | None, now: Instant, *, may_ask: bool, without: Session | None = None
    ) -> None:
        """Send a frame to where its target is, or let it wait until that is known; ``without`` has just said no."""
        target = sending.target
        recipient = self.clients.get(target)
        if recipient is not None:
            self.delivery.deliver(recipient, sending.session, target, sending.frame, now)
            return
        # Spec 5: then a known location, which counts for 60 s.
        place = self.lookups.place(target, now)
        if isinstance(place, Location):
            self._forward(place.node, sending, now)
            if may_ask and self.lookups.is_to_be_renewed(target, place, now):
                self._renew(target, place, owner, now)
            return
        lookup = self.lookups.running(target)
        # Spec 5: that nobody has a client is remembered for 2 s.
        if lookup is None and (isinstance(place, Absent) or not may_ask or not self._mesh.has_nodes):
            self.unreached(sending, DeliveryCode.UNKNOWN_TARGET, now)
            return
        if lookup is None:
            lookup = self._begin(target, owner, without, now)
        # Spec 5: 64 frames and 256 KiB wait for one search, or one larger frame.
        if lookup is None or not self.lookups.queue(lookup, sending):
            self.delivery.finish(sending, DeliveryCode.QUEUE_FULL, now)
        if lookup is not None and not lookup.open:
            self.lookups.end_absent(lookup, now)
            self._ended(lookup, "absent", now)

    def unreached(self, sending: Sending, code: DeliveryCode, now: Instant) -> None:
        """Nobody is connected: the recipient's mailbox here keeps a frame, or its sender gets ``code``."""
        if not self.delivery.keep(sending, now):
            self.delivery.finish(sending, code, now)

    def _forward(self, node: Session, sending: Sending, now: Instant) -> None:
        # Spec 7: the node has said what it takes (LIMITS); a larger frame would cost the link.
        if len(sending.frame) > node.frame_bytes_max:
            self.delivery.finish(sending, DeliveryCode.TOO_LARGE, now)
            return
        # Spec 5: to an original the bare frame.
        done = self.forwards.send(node, sending, now)
        if done is False:
            self.delivery.finish(sending, DeliveryCode.QUEUE_FULL, now)
        elif done is True:
            self.delivery.finish(sending, DeliveryCode.DELIVERED, now)

    # Searches

    def _begin(self, target: bytes, owner: Session | None, without: Session | None, now: Instant) -> Lookup | None:
        nodes = [node for node in self._mesh.nodes() if node is not without]
        lookup = self.lookups.begin(target, owner, nodes, now)
        if lookup is not None:
            # Spec 5: one QUERY_CLIENT to every node.
            question = wire.encode_info_frame(QueryClient(target), self.node_key)
            for node in lookup.open:
                self.outbox.reply(node, question)
        return lookup

    def _renew(self, target: bytes, place: Location, owner: Session | None, now: Instant) -> None:
        """Search for a client whose place is about to end; frames go there until the answer comes or it ends."""
        lookup = self._begin(target, owner, None, now)
        if lookup is not None:
            place.is_asked_again = True
        if lookup is not None and not lookup.open:
            self.lookups.end_absent(lookup, now)
            self._ended(lookup, "absent", now)

    def asked(self, node: Session, target: bytes, now: Instant, *, may_ask: bool) -> None:
        """Answer another node's question about a client.

        An original relay that dialled us also learns of clients at those that we dialled, so that clients of both can
        talk (MERK-BRIDGE). Originals that we dialled never ask us, so no question runs in a circle.
        """
        client = self.clients.get(target)
        # Spec 7: a node that asked gets GONE when the client leaves.
        if client is not None and node.state is State.PEER:
            client.asked_by[node] = None
        bridges = node.state is State.DOWNSTREAM and client is None and may_ask and self._mesh.has_upstreams
        if not bridges or not self._ask_for(node, target, now):
            self._answer(node, target, now, is_here=client is not None)

    def _ask_for(self, node: Session, target: bytes, now: Instant) -> bool:
        """Look for a client as if one of ours wrote to it; False when its place is known, or there is no room."""
        place = self.lookups.place(target, now)
        if isinstance(place, Location) and place.node.state is State.UPSTREAM:
            self._answer(node, target, now, is_here=True)
            return True
        if place is not None:
            return False
        lookup = self.lookups.running(target)
        if lookup is None:
            lookup = self._begin(target, node, node, now)
        if lookup is not None and not lookup.open:
            self.lookups.end_absent(lookup, now)
            lookup = None
        if lookup is None or len(lookup.askers) >= self._limits.now.lookup_askers:
            return False
        lookup.askers.append(node)
        return True

    def _answer(self, node: Session, target: bytes, now: Instant, *, is_here: bool) -> None:
        # Spec 4: `server` is the key of the node that has the client.
        answer: Info = ClientFound(target, self.node_key) if is_here else ClientAbsent(target)
        client = self.clients.get(target)
        # Spec 7: the client's own word, for whoever understands it; that we keep its mail when it is away.
        word = client.presence if client is not None else self.mail_word(target, now)
        understands = node.hello is not None and node.hello.features & Feature.PRESENCE
        if word is not None and understands:
            answer = word if word.until_ms > self._clock.ms(now) else answer
        self.outbox.reply(node, wire.encode_info_frame(answer, self.node_key))

    def found(self, node: Session, answer: ClientFound, now: Instant) -> None:
        """A node says that it has a client."""
        # Spec 4: taken from the node that was asked, on the connection it was asked on.
        if not self.lookups.was_asked(node, answer.key, now):
            self._strike(node, Refusal.UNASKED_ANSWER, now)
            return
        # Spec 4: `server` must be the answering node's own key.
        if answer.server != node.identity:
            self._strike(node, Refusal.LYING_PEER, now)
            self._ended(self.lookups.absent(answer.key, node, now), "absent", now)
        elif answer.key not in self.clients:
            self._ended(self.lookups.found(answer.key, node, now), "absent", now)

    def present(self, node: Session, presence: Presence, now: Instant) -> None:
        """A node shows that it has a client, or keeps its mail, by what the client has signed."""
        client = presence.client
        # Spec 4: as for any answer; then the node's key, the times, and last the signature.
        if not self.lookups.was_asked(node, client, now):
            self._strike(node, Refusal.UNASKED_ANSWER, now)
        elif presence.node != node.identity:
            self._strike(node, Refusal.LYING_PEER, now)
            self._ended(self.lookups.absent(client, node, now), "absent", now)
        elif not is_presence_current(presence, self._clock.ms(now)):
            # Clocks differ: no offence, and no proof.
            self.outbox.add(Refused(PROTOCOL, node.identity, Refusal.BAD_PRESENCE.value))
            self._ended(self.lookups.absent(client, node, now), "absent", now)
        elif not wire.is_presence_valid(presence):
            self._strike(node, Refusal.BAD_PRESENCE, now)
            self._ended(self.lookups.absent(client, node, now), "absent", now)
        else:
            self._keys.note_able(client)
            if client not in self.clients:
                self._ended(self.lookups.found(client, node, now, presence), "found", now)

    def absent(self, node: Session, answer: ClientAbsent, now: Instant) -> None:
        """A node says that it has not got a client."""
        # Spec 4: the same holds for a no.
        if not self.lookups.was_asked(node, answer.key, now):
            self._strike(node, Refusal.UNASKED_ANSWER, now)
            return
        self.lookups.moved(answer.key, node)
        self._ended(self.lookups.absent(answer.key, node, now), "absent", now)

    def _ended(self, lookup: Lookup | None, failure: str, now: Instant) -> None:
        """A search is over: send what waited for it, or report that it failed."""
        if lookup is None:
            return
        node = lookup.node
        self._report_lookup(lookup, "found" if node is not None else failure, now)
        for asker in lookup.askers:
            # MERK-BRIDGE: an original learns only of clients at originals that we dialled.
            self._answer(asker, lookup.target, now, is_here=node is not None and node.state is State.UPSTREAM)
        # Spec 6: 1 needs the word of all nodes; 3 says that some did not answer in time.
        code = DeliveryCode.LOOKUP_TIMEOUT if failure == "timeout" else DeliveryCode.UNKNOWN_TARGET
        for sending in lookup.queue:
            if node is not None:
                self._forward(node, sending, now)
            else:
                self.unreached(sending, code, now)

    # Comings and goings

    def came(self, session: Session, now: Instant) -> Session | None:
        """A client has proved its key; return its older connection, which must be closed."""
        key = session.identity
        assert key is not None
        older = self.clients.pop(key, None)
        self.clients[key] = session
        if older is not None:
            # Nodes that asked for the older connection get GONE when this one leaves.
            session.asked_by, older.asked_by = older.asked_by, {}
        lookup = self.lookups.here(key)
        if lookup is not None:
            self._report_lookup(lookup, "found", now)
            for asker in lookup.askers:
                self._answer(asker, key, now, is_here=True)
            for sending in lookup.queue:
                self.delivery.deliver(session, sending.session, key, sending.frame, now)
        return older

    def left(self, session: Session, now: Instant) -> None:
        """A client's connection is over, or it has become a peer."""
        self.delivery.abandon(session, now)
        key = session.identity
        if key is None or self.clients.get(key) is not session:
            return
        del self.clients[key]
        # Spec 7: GONE makes who has asked forget where the client is.
        gone = wire.encode_info_frame(Gone(key), self.node_key)
        for node in session.asked_by:
            self.outbox.reply(node, gone)
        session.asked_by.clear()

    def node_lost(self, node: Session, now: Instant) -> None:
        """A node's connection is over: try elsewhere what never left, and end what waited for it."""
        for client in self.clients.values():
            client.asked_by.pop(node, None)
        for lookup in self.lookups.lost(node, now):
            self._ended(lookup, "absent", now)
        # Spec 6: what had left may have arrived, so its outcome is 3; what had not is sent elsewhere.
        unsent, sent = self.forwards.lost(node)
        for sending in sent:
            self.delivery.finish(sending, DeliveryCode.LOOKUP_TIMEOUT, now)
        for sending in unsent:
            self.seek(sending, None, now, may_ask=True)
        node.asked.clear()
        node.distrusted.clear()

    # Time

    def wake(self, now: Instant) -> None:
        """End what has waited long enough."""
        for lookup in self.lookups.expired(now):
            self._ended(lookup, "timeout", now)
        for node, sending in self.forwards.wake(now):
            self.lookups.distrust(node, sending.target, now)
            self.delivery.finish(sending, DeliveryCode.LOOKUP_TIMEOUT, now)
        self.delivery.wake(now)

    def sweep(self, now: Instant) -> bool:
        """Forget what is out of date, and report what was gathered; return whether anything is left to forget."""
        self.lookups.sweep(self._mesh.nodes(), now)
        self.seen.sweep(now)
        unreported, self._unreported = self._unreported, {}
        for result, (times, asked, found) in unreported.items():
            self.outbox.add(MeshLookup(PROTOCOL, None, asked, found, None, result, times))
        return bool(self.lookups.places_count or len(self.seen))

    def deadline(self) -> Instant | None:
        """Return when ``wake`` is due."""
        times = (self.lookups.deadline(), self.forwards.deadline(), self.delivery.deadline())
        return min((at for at in times if at is not None), default=None)

    def release(self, session: Session, now: Instant) -> None:
        """A connection has taken everything: hand over what waits for it."""
        if session.state is State.PEER or session.state in ORIGINALS:
            self.forwards.release(session, now)
        else:
            self.delivery.release(session, now)

    def _report_lookup(self, lookup: Lookup, result: str, now: Instant) -> None:
        if self._facts.take(now):
            first = now - lookup.began if result == "found" else None
            self.outbox.add(MeshLookup(PROTOCOL, lookup.target, lookup.asked_count, lookup.found_count, first, result))
            return
        gathered = self._unreported.setdefault(result, [0, 0, 0])
        for place, count in enumerate((1, lookup.asked_count, lookup.found_count)):
            gathered[place] += count
