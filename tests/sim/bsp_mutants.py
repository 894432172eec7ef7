"""Devices of BSP with one mistake each, for the tests of the simulator's laws."""

from waystation.core.effects import Commit
from waystation.protocols.bsp.device import BspDevice
from waystation.protocols.bsp.events import Delivered
from waystation.protocols.bsp.flags import ACK as OWES
from waystation.protocols.bsp.formats import FORMATS
from waystation.protocols.bsp.links import Mode
from waystation.protocols.bsp.machine import BspMachine
from waystation.protocols.bsp.messages import Ack, Message, Offer, Request
from waystation.protocols.bsp.offered import OfferedList
from waystation.sim.bsp_party import SEED
from waystation.sim.bsp_records import ACK, MESSAGE, OFFER, REQUEST, ids_record, message_record
from waystation.store.memory import MemoryStore


class _Wrong(BspDevice):
    """A device that remembers who it is for."""

    def __init__(self, store, mode, **options):
        super().__init__(SEED, store, mode=mode, **options)


def _kind(record):
    return record[1]


class AcksEarly(_Wrong):
    """Acknowledges what is on its way to the disk."""

    def hear(self, peer, record, now, link=None):
        super().hear(peer, record, now, link)
        for sharing, vertex in self._books._gathering.acks:
            sharing.peer.to_ack[vertex.message_id] = (sharing, vertex)
            self._books.stir(sharing.peer)


class SendsEarly(_Wrong):
    """Hands its own messages out before they are on its disk."""

    def add(self, group_id, timestamp, body, now, *, share=True):
        message_id = super().add(group_id, timestamp, body, now, share=share)
        for row in self._books._gathering.rows:
            row.sharing.peer.put(row, now)
            self._books.stir(row.sharing.peer)
        self._books._gathering.rows.clear()
        return message_id


class AcksStrangers(_Wrong):
    """Tells whoever offers a message that it has it, whether or not the group is shared."""

    def hear(self, peer, record, now, link=None):
        super().hear(peer, record, now, link)
        if isinstance(record, Offer):
            state = self._books.peers[peer]
            for message_id in record.ids:
                member = self._books.index.get(message_id)
                if member is not None and member.group.group_id not in state.sharings and member.sharings:
                    state.to_ack[message_id] = (next(iter(member.sharings.values())), member.graph.vertices[message_id])


class TellsEverybody(_Wrong):
    """Offers everything that it has to everybody."""

    def speak(self, peer, now, bytes_max=0):
        ids = list(self._books.index)[-5:]
        return super().speak(peer, now) + ([ids_record(OFFER, *ids)] if ids else [])


class RequestsTwice(_Wrong):
    """Says each REQUEST twice."""

    def speak(self, peer, now, bytes_max=0):
        records = super().speak(peer, now)
        return records + [record for record in records if _kind(record) == REQUEST]


class AcksTwice(_Wrong):
    """Says each ACK twice."""

    def speak(self, peer, now, bytes_max=0):
        records = super().speak(peer, now)
        return [record for record in records if _kind(record) == ACK] + records


class OffersAlways(_Wrong):
    """Offers in batch mode, too."""

    def __init__(self, store, _mode):
        super().__init__(store, Mode.INTERACTIVE)


class SendsAlways(_Wrong):
    """Sends without being asked in interactive mode, too."""

    def __init__(self, store, _mode):
        super().__init__(store, Mode.BATCH)


class AltersBodies(_Wrong):
    """Changes what it sends on."""

    def speak(self, peer, now, bytes_max=0):
        return [
            record[:-1] + bytes([record[-1] ^ 1]) if _kind(record) == MESSAGE else record
            for record in super().speak(peer, now)
        ]


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


class ReadsNoDependencies(_Wrong):
    """Takes every message for one without dependencies."""

    def __init__(self, store, mode):
        super().__init__(store, mode, formats={**FORMATS, "deps_v1": FORMATS["opaque"]})


class ForgetsAll(_Wrong):
    """Never finds what it has written."""

    def __init__(self, _store, mode):
        super().__init__(MemoryStore(), mode)


class RemembersAllOffers(_Wrong):
    """Has room for any number of offers."""

    def meet(self, peer):
        super().meet(peer)
        self._books.peers[peer].offered = OfferedList(drops_oldest=True, bound=1_000_000)


class ServesGreed(_Wrong):
    """Sends a message whenever it is asked for."""

    def hear(self, peer, record, now, link=None):
        super().hear(peer, record, now, link)
        if isinstance(record, Request):
            for row in self._books.peers[peer].rows.values():
                if row.request:
                    row.count, row.next_at = 0, now
                    self._books.peers[peer].put(row, now)


class NeverRepeats(_Wrong):
    """Says everything once."""

    def speak(self, peer, now, bytes_max=0):
        records = super().speak(peer, now)
        for row in list(self._books.peers[peer].rows.values()):
            if row.count:
                self._books.peers[peer].drop(row)
        return records


class NeverWakes(_Wrong):
    """Repeats nothing unless something else happens."""

    def deadline(self):
        return None


class NeverAcks(_Wrong):
    """Keeps its acknowledgements to itself."""

    def speak(self, peer, now, bytes_max=0):
        return [record for record in super().speak(peer, now) if _kind(record) != ACK]


class IgnoresAcks(_Wrong):
    """Repeats what is long acknowledged."""

    def hear(self, peer, record, now, link=None):
        if not isinstance(record, Ack):
            super().hear(peer, record, now, link)


class IgnoresKnownOffers(_Wrong):
    """Says nothing to an offer of what it holds, as MVDS does (bsp 7)."""

    def hear(self, peer, record, now, link=None):
        if isinstance(record, Offer):
            record = Offer(tuple(each for each in record.ids if each not in self._books.index))
        super().hear(peer, record, now, link)


class IgnoresRepeats(_Wrong):
    """Says nothing to a message that it has already: the first ACK was lost."""

    def hear(self, peer, record, now, link=None):
        if isinstance(record, Message):
            member = self._books.members.get(record.group_id)
            if member is not None and member.hasher(record.timestamp, record.body) in member.graph.vertices:
                return
        super().hear(peer, record, now, link)


class SharesNothing(_Wrong):
    """Keeps to itself what others have written."""

    def __init__(self, store, mode):
        super().__init__(store, mode, shares_delivered=False)


class TakesAnything(_Wrong):
    """Takes messages of groups that are not shared with their sender."""

    def hear(self, peer, record, now, link=None):
        state = self._books.peers[peer]
        if isinstance(record, Message) and record.group_id in self._books.members:
            for other in self._books.peers.values():
                if record.group_id in other.sharings and record.group_id not in state.sharings:
                    peer = other.key
                    break
        super().hear(peer, record, now, link)


class Talkative(_Wrong):
    """Sends again what is long known to be held, every minute."""

    def deadline(self):
        return min(super().deadline() or 1 << 62, getattr(self, "_again", 60_000_000))

    def wake(self, now):
        super().wake(now)
        if now >= getattr(self, "_again", 60_000_000):
            self._again = now + 60_000_000
            self._books.stirred.update(dict.fromkeys(self._books.peers.values()))
            self._talks = True

    def is_due(self, peer, now):
        return super().is_due(peer, now) or getattr(self, "_talks", False)

    def speak(self, peer, now, bytes_max=0):
        records = super().speak(peer, now)
        if getattr(self, "_talks", False):
            self._talks = False
            for sharing in self._books.peers[peer].sharings.values():
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
        self._dials._wanted.clear()
        self._dials._look()


class LosesAcks(BspMachine):
    """Never hands an acknowledgement to its device."""

    def __init__(self, device, *args, **options):
        hear = device.hear
        device.hear = lambda peer, record, now, link=None: (
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
        state = self._books.peers[peer]
        sharing = state.sharings.get(group_id)
        owed = [] if sharing is None else [
            vertex for vertex in self.messages(group_id) if sharing.has(vertex.seq, OWES)
        ]  # fmt: skip
        super().share(group_id, peer, now, visibility)
        for vertex in owed:
            state.to_ack[vertex.message_id] = (sharing, vertex)
            self._books.stir(state)
