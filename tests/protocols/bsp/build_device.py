"""A device on a bench: its disk is memory, its clock a number, its peers are keys; and an audit of its books."""

import random
from typing import NamedTuple

from tests.protocols.bsp.build import CLIENT_ID, CLIENT_NAME
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant, after_ms
from waystation.core.records import Record
from waystation.protocols.bsp.device.flags import ACK, HOLD
from waystation.protocols.bsp.device.links import LinkTerms, Mode, Visibility
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.graph.formats import FORMATS, DepsV1
from waystation.protocols.bsp.graph.order import State
from waystation.protocols.bsp.messages import Message
from waystation.protocols.bsp.profile import SEED
from waystation.protocols.bsp.wire import read_all
from waystation.store.memory import MemoryStore

P, Q, R = (PublicKey(bytes([number]) * 32) for number in (1, 2, 3))
LIVE = LinkTerms("live", 1_000)
SLOW = LinkTerms("slow", 4_000)
KEPT = LinkTerms("kept", 8_000, cap_ms=64_000, outlives=True, mode=Mode.BATCH)
WALL_US = 1_767_225_600_000_000
START = Instant(5_000_000)


class Judging(DepsV1):
    """Bodies with dependencies, of which those that end in ``bad`` are invalid in context."""

    judges = True

    def __init__(self):
        self.looked = []
        """What was found of the dependencies of each message judged."""

    def validate(self, context):
        self.looked.append([context.look(name) for name in (*context.dependencies, bytes(32))])
        return not context.body.endswith(b"bad")


class Flags(NamedTuple):
    """What seed 4.1 stores of one message and one peer."""

    hold: bool = False
    ack: bool = False
    request: bool = False
    count: int = 0
    next_ms: int = 0


class Bench:
    """One device that shares its first group with P and Q, and its second with P only."""

    def __init__(self, *, mode=Mode.INTERACTIVE, profile=SEED, format="opaque", peers=(P, Q), **how):  # noqa: A002
        name = CLIENT_NAME if profile.is_layered else CLIENT_ID
        self.groups = [profile.group(name, bytes([number]), format) for number in range(2)]
        self.group_id, self.other_id = (group.group_id for group in self.groups)
        self.profile = profile
        self.peers = peers
        self.store = MemoryStore()
        self.now = START
        self.judging = Judging()
        self._how = {"mode": mode, "formats": {**FORMATS, "judging": self.judging}, **how}
        self.start()

    def start(self, *, shares=True):
        """Begin a life of the device with what the store has."""
        self.device = BspDevice(self.profile, self.store, **self._how)
        self.device.set_wall(self.now, WALL_US + self.now)
        self.pending = None
        self.events = []
        for group in self.groups:
            self.device.join(group, self.now)
        for peer in self.peers:
            self.device.meet(peer)
        if shares:
            for peer in self.peers:
                self.device.share(self.group_id, peer, self.now)
            self.device.share(self.other_id, self.peers[0], self.now)

    # Commits

    def begin(self):
        """Hand what is gathered to the disk."""
        self.pending = self.device.changes()

    def finish(self):
        """Let the disk be done."""
        self.store.commit(self.pending)
        self.pending = None
        self.device.committed(self.now)
        self.events += self.device.take_events()

    def commit(self):
        """Commit until nobody waits for the disk."""
        while self.device.must_commit:
            self.begin()
            self.finish()
        self.events += self.device.take_events()

    def restart(self):
        """Let the device end without a word, whatever is under way, and begin anew."""
        self.start()

    # Time, ways, records

    def pass_ms(self, ms):
        """Let time pass, and ring."""
        self.now = after_ms(self.now, ms)
        self.device.wake(self.now)

    def up(self, peer=P, terms=LIVE):
        """Let a way to a peer stand."""
        return self.device.link_up(peer, terms, self.now)

    def hear(self, *records, peer=P, link=None):
        """Let records come."""
        for record in records:
            self.device.receive(peer, record, self.now, link)

    def say(self, peer=P, bytes_max=524_288):
        """Return the records that one opportunity gives."""
        return read_all(self.profile, b"".join(self.device.send_due(peer, self.now, bytes_max)))

    # Messages

    def message(self, body=b"hello", timestamp=1, group_id=None):
        """Return a message of a group that is nowhere yet."""
        return Message(group_id or self.group_id, timestamp, body)

    def id_of(self, message):
        return self.profile.message_id(*message)

    def add(self, body=b"hello", timestamp=1, group_id=None, **how):
        """Create a message of our own, not on disk yet."""
        return self.device.add(group_id or self.group_id, timestamp, body, self.now, **how)

    def added(self, body=b"hello", timestamp=1, group_id=None, **how):
        """Create a message of our own that is on disk."""
        message_id = self.add(body, timestamp, group_id, **how)
        self.commit()
        return message_id

    def vertex(self, message_id, group_id=None):
        return self.device.vertex(group_id or self.group_id, message_id)

    def flags(self, message_id, peer=P, group_id=None):
        """Return what the books say of a message and a peer."""
        group_id = group_id or self.group_id
        standing = self.device.delivery_status(peer, group_id, message_id, self.now)
        ms = standing.next_in_us // 1_000
        return Flags(standing.holds, standing.owes_ack, standing.requested, standing.copies, ms)

    def offered(self, message_id, peer=P):
        """Return whether an identifier is in a peer's list of offers."""
        return self.device.delivery_status(peer, self.group_id, message_id, self.now).offered


def told(records):
    """Return what records say, by kind: (kind, identifiers or body)."""
    return [(type(record).__name__, record.body if isinstance(record, Message) else record.ids) for record in records]


def only(kind, *ids):
    """Return what one list looks like in ``told``."""
    return [(kind, ids)]


def carry(source, target, here, there, *, commits=True):
    """Carry what ``source`` (whose key is ``here``) has to say to ``target``; return the records."""
    records = source.say(there)
    target.hear(*records, peer=here)
    if commits:
        target.commit()
    return records


def state_of(bench):
    """Return all that must survive a restart: messages, what peers hold, acknowledgements that are owed."""
    device = bench.device
    state = {}
    for group in device.groups():
        group_id = group.group_id
        for vertex in device.messages(group_id):
            state[vertex.message_id] = (
                *(vertex.timestamp, vertex.size_bytes, vertex.seq, vertex.stored_ms, vertex.state, vertex.order),
                *(vertex.shared, vertex.body_present, vertex.refusal, vertex.dependencies),
                device.body(group_id, vertex.message_id),
            )
            for peer in device.audience(group_id):
                flags = bench.flags(vertex.message_id, peer, group_id)
                state[vertex.message_id, peer] = (flags.hold, flags.ack)
        state[group_id] = device.usage(group_id)
    state["owed"] = {peer: device.owes(peer) for peer in device.peers()}
    return state


# The audit


def audit(device, drafts=()):
    """Check that the books agree with one another; ``drafts`` are those that are neither sent nor abandoned."""
    books = device._repository
    _audit_groups(books)
    for peer in books.peers.values():
        held_out = {id(row) for draft in drafts if draft.peer is peer for row in (*draft.bodies, *draft.offers)}
        _audit_rows(books, peer, held_out)
        _audit_acks(books, peer)
        _audit_ways(device, peer)
    assert {number: state for number, (state, _) in device._links.items()} == {
        link.number: state for state in books.peers.values() for link in state.links
    }
    assert {state.number: state for state in books.peers.values()} == device._by_number
    assert set(books.dirty) <= set(books.peers.values())


def _audit_groups(books):
    index = {}
    for group_id, member in books.members.items():
        vertices = member.graph.vertices.values()
        index.update((vertex.message_id, member) for vertex in vertices)
        live = [vertex for vertex in vertices if vertex.body_present]
        assert (member.live_count, member.live_bytes) == (len(live), sum(vertex.size_bytes for vertex in live))
        places = [vertex.seq for vertex in vertices]
        assert len(set(places)) == len(places) and all(0 <= seq < member.next_seq for seq in places)
        assert all(vertex.state is not State.INVALID for vertex in live)
        assert all(vertex.state is State.DELIVERED for vertex in vertices if vertex.shared)
        assert member.graph.pending_count == sum(vertex.state is State.PENDING for vertex in vertices)
        orders = {vertex.message_id: vertex.order for vertex in vertices if vertex.state is State.DELIVERED}
        assert sorted(orders.values()) == list(range(1, len(orders) + 1))
        for vertex in vertices:
            if vertex.state is State.DELIVERED:
                assert all(orders.get(name, vertex.order) < vertex.order for name in vertex.dependencies)
        for key, sharing in member.sharings.items():
            assert books.peers[key].sharings[group_id] is sharing
            assert sharing.visibility is not Visibility.INVISIBLE
            assert len(sharing.flags) <= member.next_seq
    assert books.index == index
    for peer in books.peers.values():
        assert all(books.members[group_id].sharings[peer.key] is each for group_id, each in peer.sharings.items())


def _audit_rows(books, peer, held_out):
    assert peer.unheld_count == sum(not row.holds for row in peer.rows.values())
    due = [row for _, _, stamp, row in peer._due if row.stamp == stamp]
    waiting = [row for _, stamp, row in peer._waiting if row.stamp == stamp]
    places = [id(row) for row in due + waiting]
    assert len(set(places)) == len(places)
    unsaved = [each for each in (books._gathering, books._writing._unsaved) if each is not None]
    for message_id, row in peer.rows.items():
        member = books.index[message_id]
        assert peer.sharings[member.group.group_id] is row.sharing
        assert member.graph.vertices[message_id] is row.vertex
        assert row.sharing.visibility is Visibility.SHARED
        assert row.vertex.shared and row.vertex.body_present and row.stamp >= 0
        if row.stamp == 0:
            assert any(each is row for one in unsaved if message_id in one.fresh for each in one.rows)
            assert id(row) not in places
        else:
            assert id(row) in places or id(row) in held_out
    assert set(places) <= {id(row) for row in peer.rows.values()}
    _audit_heaps(peer)
    for sharing in peer.sharings.values():
        assert all(
            peer.rows[row.vertex.message_id] is row and row.vertex.seq == seq for seq, row in sharing.slow.items()
        )
        if sharing.visibility is Visibility.SHARED:
            shared = (each for each in books.members[sharing.group_id].graph.vertices.values() if each.shared)
            for vertex in shared:
                assert vertex.message_id not in peer.offered
                if vertex.body_present and not sharing.has(vertex.seq, HOLD):
                    assert vertex.message_id in peer.rows


def _audit_heaps(peer):
    assert len(peer._due) + len(peer._waiting) <= 2 * len(peer.rows) + 1_024 + 64
    for heap in (peer._due, peer._waiting):
        assert all(
            heap[at] <= heap[child]
            for at in range(len(heap))
            for child in (2 * at + 1, 2 * at + 2)
            if child < len(heap)
        )


def _audit_acks(books, peer):
    waiting = {(sharing, vertex.message_id) for sharing, vertex in books._gathering.acks}
    if books._writing._unsaved is not None:
        waiting |= {(sharing, vertex.message_id) for sharing, vertex in books._writing._unsaved.acks}
    fresh = set(books._gathering.fresh) | (
        books._writing._unsaved.fresh if books._writing._unsaved is not None else set()
    )
    for message_id, (sharing, vertex) in peer.to_ack.items():
        assert peer.sharings[sharing.group_id] is sharing and vertex.message_id == message_id
        assert sharing.has(vertex.seq, ACK) and message_id not in fresh
    for sharing in peer.sharings.values():
        for message_id, vertex in books.members[sharing.group_id].graph.vertices.items():
            if sharing.has(vertex.seq, ACK):
                assert message_id in peer.to_ack or (sharing, message_id) in waiting


def _audit_ways(device, peer):
    books = device._repository
    if peer.link is None or peer in books.dirty:
        return
    at = peer.next_at()
    pending = books.alarms._pending.get(peer.number)
    assert at is None or (pending is not None and pending <= at), "a copy that waits and no alarm"


def assert_nobody_waits(bench):
    """After everything was said, nothing is due for a peer that could be spoken to, and nothing is lost."""
    for peer in bench.device.peers():
        if bench.device.link_of(peer) is not None:
            assert not bench.device.is_due(peer, bench.now)
            assert bench.say(peer) == []


def kept_rows(store, table):
    """Return the rows of a table of a store."""
    return dict(store.scan(table, b"", 1_000_000))


def damage(store, table, change):
    """Change the value of the first row of a table."""
    key, value = next(iter(store.scan(table)))
    store.commit([Record(table, key, change(value))])


def shuffled(items, seed):
    """Return items in an order that a number decides."""
    items = list(items)
    random.Random(seed).shuffle(items)
    return items
