"""Devices of BSP with one mistake each, for the tests of the simulator's laws."""

from waystation.core.effects import Commit
from waystation.protocols.bsp.device.events import Delivered
from waystation.protocols.bsp.device.flags import ACK as OWES
from waystation.protocols.bsp.device.links import Mode
from waystation.protocols.bsp.device.offered import OfferedList
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.graph.formats import FORMATS
from waystation.protocols.bsp.messages import Ack, Message, Offer, Request
from waystation.protocols.bsp.stream.machine import BspMachine
from waystation.sim.bsp.host import SEED
from waystation.sim.bsp.records import ACK, MESSAGE, OFFER, REQUEST, ids_record, message_record
from waystation.store.memory import MemoryStore


class _Wrong(BspDevice):
    """A device that remembers who it is for."""

    def __init__(self, store, mode, **options):
        super().__init__(SEED, store, mode=mode, **options)


def _with(**options):
    """Return what makes devices with wrong options."""
    return lambda store, mode: BspDevice(SEED, store, **{"mode": mode, **options})


def _saying(change):
    """Return a device whose records are changed before they are sent."""

    class Mutant(_Wrong):
        def send_due(self, peer, now, bytes_max=0):
            return change(super().send_due(peer, now))

    return Mutant


def _of(kind, records):
    return [record for record in records if record[1] == kind]


OffersAlways = _with(mode=Mode.INTERACTIVE)
"""Offers in batch mode, too."""

SendsAlways = _with(mode=Mode.BATCH)
"""Sends without being asked in interactive mode, too."""

ReadsNoDependencies = _with(formats={**FORMATS, "deps_v1": FORMATS["opaque"]})
"""Takes every message for one without dependencies."""

SharesNothing = _with(shares_delivered=False)
"""Keeps to itself what others have written."""

RequestsTwice = _saying(lambda records: records + _of(REQUEST, records))
"""Says each REQUEST twice."""

AcksTwice = _saying(lambda records: _of(ACK, records) + records)
"""Says each ACK twice."""

NeverAcks = _saying(lambda records: [record for record in records if record[1] != ACK])
"""Keeps its acknowledgements to itself."""

AltersBodies = _saying(
    lambda records: [each[:-1] + bytes([each[-1] ^ 1]) if each[1] == MESSAGE else each for each in records]
)
"""Changes what it sends on."""


class AcksEarly(_Wrong):
    """Acknowledges what is on its way to the disk."""

    def receive(self, peer, record, now, link=None):
        super().receive(peer, record, now, link)
        for sharing, vertex in self._repository._gathering.acks:
            sharing.peer.to_ack[vertex.message_id] = (sharing, vertex)
            self._repository.mark_dirty(sharing.peer)


class SendsEarly(_Wrong):
    """Hands its own messages out before they are on its disk."""

    def add(self, group_id, timestamp, body, now, *, share=True):
        message_id = super().add(group_id, timestamp, body, now, share=share)
        for row in self._repository._gathering.rows:
            row.sharing.peer.put(row, now)
            self._repository.mark_dirty(row.sharing.peer)
        self._repository._gathering.rows.clear()
        return message_id


class AcksStrangers(_Wrong):
    """Tells whoever offers a message that it has it, whether or not the group is shared."""

    def receive(self, peer, record, now, link=None):
        super().receive(peer, record, now, link)
        if isinstance(record, Offer):
            state = self._repository.peers[peer]
            for message_id in record.ids:
                member = self._repository.index.get(message_id)
                if member is not None and member.group.group_id not in state.sharings and member.sharings:
                    state.to_ack[message_id] = (next(iter(member.sharings.values())), member.graph.vertices[message_id])


class TellsEverybody(_Wrong):
    """Offers everything that it has to everybody."""

    def send_due(self, peer, now, bytes_max=0):
        ids = list(self._repository.index)[-5:]
        return super().send_due(peer, now) + ([ids_record(OFFER, *ids)] if ids else [])


class HandsOutAnything(_Wrong):
    """Gives the application another body."""

    def body(self, group_id, message_id):
        body = super().body(group_id, message_id)
        return body and body[::-1]


class DeliversTwice(_Wrong):
    """Tells of a delivery twice."""

    def take_events(self):
        events = super().take_events()
        return events + [event for event in events if isinstance(event, Delivered)]


class DeliversBackwards(_Wrong):
    """Hands out what became ready at one moment in the reverse order, and counts on regardless."""

    def take_events(self):
        events = super().take_events()
        told = [event for event in events if isinstance(event, Delivered)]
        orders = sorted(event.order for event in told)
        return [event._replace(order=order) for event, order in zip(reversed(told), orders, strict=True)]


class ForgetsAll(_Wrong):
    """Never finds what it has written."""

    def __init__(self, _store, mode):
        super().__init__(MemoryStore(), mode)


class RemembersAllOffers(_Wrong):
    """Has room for any number of offers."""

    def meet(self, peer):
        super().meet(peer)
        self._repository.peers[peer].offered = OfferedList(drops_oldest=True, bound=1_000_000)


class ServesGreed(_Wrong):
    """Sends a message whenever it is asked for."""

    def receive(self, peer, record, now, link=None):
        super().receive(peer, record, now, link)
        if isinstance(record, Request):
            for row in self._repository.peers[peer].rows.values():
                if row.request:
                    row.count, row.next_at = 0, now
                    self._repository.peers[peer].put(row, now)


class NeverRepeats(_Wrong):
    """Says everything once."""

    def send_due(self, peer, now, bytes_max=0):
        records = super().send_due(peer, now)
        for row in list(self._repository.peers[peer].rows.values()):
            if row.count:
                self._repository.peers[peer].drop(row)
        return records


class NeverWakes(_Wrong):
    """Repeats nothing unless something else happens."""

    def deadline(self):
        return None


class IgnoresAcks(_Wrong):
    """Repeats what is long acknowledged."""

    def receive(self, peer, record, now, link=None):
        if not isinstance(record, Ack):
            super().receive(peer, record, now, link)


class IgnoresKnownOffers(_Wrong):
    """Says nothing to an offer of what it holds, as MVDS does (bsp 7)."""

    def receive(self, peer, record, now, link=None):
        if isinstance(record, Offer):
            record = Offer(tuple(each for each in record.ids if each not in self._repository.index))
        super().receive(peer, record, now, link)


class IgnoresRepeats(_Wrong):
    """Says nothing to a message that it has already: the first ACK was lost."""

    def receive(self, peer, record, now, link=None):
        if isinstance(record, Message):
            member = self._repository.members.get(record.group_id)
            if member is not None and member.hasher(record.timestamp, record.body) in member.graph.vertices:
                return
        super().receive(peer, record, now, link)


class TakesAnything(_Wrong):
    """Takes messages of groups that are not shared with their sender."""

    def receive(self, peer, record, now, link=None):
        state = self._repository.peers[peer]
        if isinstance(record, Message) and record.group_id in self._repository.members:
            for other in self._repository.peers.values():
                if record.group_id in other.sharings and record.group_id not in state.sharings:
                    peer = other.key
                    break
        super().receive(peer, record, now, link)


class Talkative(_Wrong):
    """Sends again what is long known to be held, every minute."""

    def deadline(self):
        return min(super().deadline() or 1 << 62, getattr(self, "_again", 60_000_000))

    def wake(self, now):
        super().wake(now)
        if now >= getattr(self, "_again", 60_000_000):
            self._again = now + 60_000_000
            self._repository.dirty.update(dict.fromkeys(self._repository.peers.values()))
            self._talks = True

    def is_due(self, peer, now):
        return super().is_due(peer, now) or getattr(self, "_talks", False)

    def send_due(self, peer, now, bytes_max=0):
        records = super().send_due(peer, now)
        if getattr(self, "_talks", False):
            self._talks = False
            for sharing in self._repository.peers[peer].sharings.values():
                for vertex in self.messages(sharing.group_id)[:1]:
                    body = self.body(sharing.group_id, vertex.message_id)
                    if body is not None and vertex.shared:
                        records.append(message_record(sharing.group_id, vertex.timestamp, body))
        return records


class AnswersEarly(BspMachine):
    """Takes a commit for done when it has asked for it."""

    def take(self):
        effects = super().take()
        if any(isinstance(effect, Commit) for effect in effects):
            self.device.committed(self._now)
        return effects + super().take()

    def committed(self, ticket, now):
        self._is_saving = False


class DialsOnce(BspMachine):
    """Does not dial again."""

    def disconnect(self, peer, now):
        super().disconnect(peer, now)
        self.redials._wanted.clear()
        self.redials._look()


class LosesAcks(BspMachine):
    """Never hands an acknowledgement to its device."""

    def __init__(self, device, *args, **options):
        hear = device.receive
        device.receive = lambda peer, record, now, link=None: (
            None if isinstance(record, Ack) else hear(peer, record, now, link)
        )
        super().__init__(device, *args, **options)


class BelievesStrangers(BspMachine):
    """Takes whoever dials for the first peer in its table."""

    def _on_open(self, session):
        session.key = self.device.peers()[0]
        super()._on_open(session)


class AcksTheUnshared(_Wrong):
    """Goes on acknowledging to a peer with whom the group is shared no more."""

    def share(self, group_id, peer, now, visibility):
        state = self._repository.peers[peer]
        sharing = state.sharings.get(group_id)
        owed = [] if sharing is None else [
            vertex for vertex in self.messages(group_id) if sharing.has(vertex.seq, OWES)
        ]  # fmt: skip
        super().share(group_id, peer, now, visibility)
        for vertex in owed:
            state.to_ack[vertex.message_id] = (sharing, vertex)
            self._repository.mark_dirty(state)
