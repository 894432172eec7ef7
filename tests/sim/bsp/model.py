"""A dumb device: sections 2 to 4 of specs/bsp.md as lists and loops, with next to nothing on its disk.

It is the oracle of the scenarios that no formula covers. It shares nothing with the device but the codec's tuples.
"""

from types import SimpleNamespace

from waystation.core.records import Record
from waystation.protocols.bsp.device.events import Delivered
from waystation.protocols.bsp.device.links import Mode, Visibility
from waystation.protocols.bsp.messages import Ack, Message, Offer, Request
from waystation.sim.bsp.records import (
    ACK,
    OFFER,
    REQUEST,
    dependencies_of,
    ids_record,
    message_id_of,
    message_record,
)

UNKNOWN, PENDING, DELIVERED, INVALID = range(4)
CAP = 64


class Row(SimpleNamespace):
    """State of one message for one peer. Spec: seed 4.1."""


class Known(SimpleNamespace):
    """A message."""

    @property
    def body_present(self):
        return self.body is not None


class ModelDevice:
    """What ``BspDevice`` should do, without a thought for speed or for restarts."""

    must_commit = False

    def __init__(self, store, mode):
        assert mode is not Mode.AUTO
        self.store, self.mode = store, mode
        self.formats, self.shared, self.known = {}, set(), {}
        self.rows, self.offered, self.links, self.stirred, self.events = {}, {}, {}, {}, []
        self.orders, self.serial = {}, 0

    # Owner

    def set_wall(self, now, wall_us):
        """Nothing needs it."""

    def join(self, group, now):
        self.formats[group.group_id] = group.format

    def meet(self, peer):
        self.offered.setdefault(peer, [])
        self.links.setdefault(peer, [])

    def share(self, group_id, peer, now, visibility=Visibility.SHARED):
        self.shared.add((group_id, peer))
        for message in list(self.known.values()):
            if message.group_id == group_id:
                self._spread(message, now)

    def add(self, group_id, timestamp, body, now, *, share=True):
        message_id = message_id_of(group_id, timestamp, body)
        message = self._know(message_id, group_id, timestamp, body)
        self._deliver(message, now, share=share)
        self._cascade(now)
        return message_id

    def share_message(self, group_id, message_id, now):
        wanted = [message_id]
        while wanted:
            message = self.known[wanted.pop()]
            if not message.shared:
                message.shared = True
                self._spread(message, now)
                wanted += message.dependencies

    def delete(self, group_id, message_id):
        self.known[message_id].body = None

    # Lines

    def link_up(self, peer, terms, now):
        self.serial += 1
        self.links[peer].append((self.serial, terms))
        live = {number for number, _ in self.links[peer]}
        for (other, _), row in self.rows.items():
            if other == peer and row.link not in live:
                row.next = now
        self.stirred[peer] = None
        return self.serial

    def link_down(self, link, now):
        for links in self.links.values():
            links[:] = [each for each in links if each[0] != link]

    def link_of(self, peer):
        return self.links[peer][-1][0] if self.links[peer] else None

    # Records

    def receive(self, peer, record, now, link=None):
        self.stirred[peer] = None
        if isinstance(record, Message):
            self._hear_message(peer, record, now)
        else:
            handler = {Offer: self._hear_offer, Ack: self._hear_ack, Request: self._hear_request}[type(record)]
            for message_id in record.ids:
                handler(peer, message_id, now)

    def _hear_message(self, peer, record, now):
        if (record.group_id, peer) not in self.shared:
            return
        message_id = message_id_of(record.group_id, record.timestamp, record.body)
        message = self.known.get(message_id)
        if message is None:
            message = self._know(message_id, record.group_id, record.timestamp, record.body)
            message.state = PENDING if message.dependencies is not None else INVALID
            self._row(peer, message_id)
            self._has(peer, message_id)
            for other, offered in self.offered.items():
                if message_id in offered and (record.group_id, other) in self.shared:
                    offered.remove(message_id)
                    self._row(other, message_id)
                    self._has(other, message_id)
            self._cascade(now)
        else:
            self._has(peer, message_id)

    def _has(self, peer, message_id):
        row = self._row(peer, message_id)
        row.hold, row.ack, row.request = True, True, False
        self.stirred[peer] = None

    def _hear_offer(self, peer, message_id, now):
        message = self.known.get(message_id)
        if message is not None and (message.group_id, peer) in self.shared:
            self._has(peer, message_id)
        elif message_id not in self.offered[peer]:  # what is not shared with it must look unknown to it
            self.offered[peer].append(message_id)
            del self.offered[peer][:-1_000]

    def _hear_ack(self, peer, message_id, now):
        row = self.rows.get((peer, message_id))
        if row is not None:
            row.hold, row.request = True, False

    def _hear_request(self, peer, message_id, now):
        row, message = self.rows.get((peer, message_id)), self.known.get(message_id)
        if row is None or not message.shared or message.body is None:
            return
        row.request = True
        if row.sent is None or now - row.sent >= self._base(peer):
            row.next, row.count = now, 0

    def is_due(self, peer, now):
        return bool(self.links.get(peer)) and bool(self._due(peer, now))

    def send_due(self, peer, now):
        acks, requests, messages, offers = self._due(peer, now)
        records = [ids_record(ACK, *acks[at : at + 1_536]) for at in range(0, len(acks), 1_536)]
        records += [ids_record(REQUEST, *requests)] if requests else []
        for message_id in acks:
            self.rows[peer, message_id].ack = False
        self.offered[peer].clear()
        for message_id in messages:
            message = self.known[message_id]
            records.append(message_record(message.group_id, message.timestamp, message.body))
            self.rows[peer, message_id].sent = now
            self._went_out(peer, message_id, now)
        for message_id in offers:
            self._went_out(peer, message_id, now)
        records += [ids_record(OFFER, *offers[at : at + 1_536]) for at in range(0, len(offers), 1_536)]
        return records

    def _went_out(self, peer, message_id, now):
        row = self.rows[peer, message_id]
        row.next = now + min(CAP, 2**row.count) * self._base(peer)
        row.request, row.count, row.link = False, row.count + 1, self.link_of(peer)

    def _base(self, peer):
        return self.links[peer][-1][1].base_ms * 1_000

    def _due(self, peer, now):
        mine = sorted(
            (each for each in self.rows if each[0] == peer), key=lambda each: (self.known[each[1]].timestamp, each[1])
        )
        acks = [each[1] for each in mine if self.rows[each].ack]
        ready = [
            (self.known[each[1]], self.rows[each])
            for each in mine
            if self.known[each[1]].shared and self.known[each[1]].body is not None and self.rows[each].next <= now
        ]
        is_batch = self.mode is Mode.BATCH
        messages = [m.message_id for m, row in ready if row.request or (is_batch and not row.hold)]
        offers = [m.message_id for m, row in ready if not row.request and not row.hold and not is_batch]
        due = (acks, list(self.offered[peer]), messages, offers)
        return due if any(due) else ()

    def deadline(self):
        waits = [
            row.next
            for (peer, message_id), row in self.rows.items()
            if self.links[peer]
            and (row.request or not row.hold)
            and self.known[message_id].shared
            and self.known[message_id].body is not None
        ]
        return min(waits, default=None)

    def wake(self, now):
        self.stirred.update(dict.fromkeys(self.offered))

    def take_dirty(self):
        stirred, self.stirred = sorted(self.stirred), {}
        return stirred

    def take_events(self):
        events, self.events = self.events, []
        return events

    def messages(self, group_id):
        mine = [each for each in self.known.values() if each.group_id == group_id]
        return sorted(mine, key=lambda each: (each.order or 1 << 60, each.message_id))

    def body(self, group_id, message_id):
        return self.known[message_id].body

    # Graph

    def _know(self, message_id, group_id, timestamp, body):
        dependencies = dependencies_of(body) if self.formats[group_id] == "deps_v1" else ()
        if dependencies is not None and message_id in dependencies:
            dependencies = None
        self.store.commit([Record("bsp_messages", group_id + message_id, body)])
        message = self.known[message_id] = Known(
            message_id=message_id,
            group_id=group_id,
            timestamp=timestamp,
            body=body,
            dependencies=dependencies,
            state=UNKNOWN,
            shared=False,
            order=0,
        )
        return message

    @property
    def _pending(self):
        return [each for each in self.known.values() if each.state == PENDING]

    def _cascade(self, now):
        """Look at everything that waits, again and again, until nothing changes."""
        while True:
            for message in self._pending:
                if any(self._state_of(message, each) == INVALID for each in message.dependencies):
                    message.state = INVALID
            ready = [m for m in self._pending if all(self._state_of(m, each) == DELIVERED for each in m.dependencies)]
            if not ready:
                break
            self._deliver(min(ready, key=lambda each: (each.timestamp, each.message_id)), now)
        for message in self.known.values():
            if message.state == INVALID:
                message.body = None

    def _state_of(self, message, dependency):
        other = self.known.get(dependency)
        return other.state if other is not None and other.group_id == message.group_id else UNKNOWN

    def _deliver(self, message, now, *, share=True):
        message.state = DELIVERED
        message.order = self.orders[message.group_id] = self.orders.get(message.group_id, 0) + 1
        self.events.append(Delivered(message.group_id, message.message_id, message.timestamp, message.order))
        if share:
            self.share_message(message.group_id, message.message_id, now)

    def _row(self, peer, message_id):
        return self.rows.setdefault(
            (peer, message_id), Row(hold=False, ack=False, request=False, count=0, next=0, sent=None, link=None)
        )

    def _spread(self, message, now):
        """Give every peer that the group is shared with a row."""
        for group_id, peer in sorted(self.shared):
            if group_id != message.group_id or not message.shared:
                continue
            self._row(peer, message.message_id)
            if message.message_id in self.offered[peer]:
                self.offered[peer].remove(message.message_id)
                self._has(peer, message.message_id)
            self.stirred[peer] = None
