"""Devices and their models live through the same random events, and say and know the same."""

import random

import pytest

from tests.protocols.bsp.build import CLIENT_ID
from tests.protocols.bsp.device_model import DeviceModel, Known, Said, Way
from tests.protocols.bsp.graph_model import GraphModel, Told
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.protocols.bsp.device.links import LinkTerms, Mode, Visibility
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.graph.formats import DepsV1, InvalidMessageError, deps_v1_body
from waystation.protocols.bsp.graph.order import State
from waystation.protocols.bsp.messages import Ack, Message, Offer, Request
from waystation.protocols.bsp.profile import SEED
from waystation.protocols.bsp.wire import read_all
from waystation.store.memory import MemoryStore

GROUPS = [SEED.group(CLIENT_ID, bytes([number]), "deps_v1") for number in range(2)]
LIVE = (LinkTerms("live", 1_000), LinkTerms("slow", 4_000), LinkTerms("batch", 1_000, mode=Mode.BATCH))
LASTING = LinkTerms("kept", 8_000, outlives=True, cap_ms=32_000)
STEPS = 120


class Twin:
    """A device and its model."""

    def __init__(self, key, mode, peers):
        self.key, self.mode = key, mode
        self.store = MemoryStore()
        self.peers = peers
        self.model = DeviceModel(mode)
        self.is_committing = False
        self.fresh, self.in_flight = [], []
        self.dirty = set()
        self.numbers = {}
        for group in GROUPS:
            self.model.graphs[group.group_id] = GraphModel()
        for peer in peers:
            self.model.offered[peer], self.model.ways[peer] = [], []
        self.start(Instant(0))

    def start(self, now):
        """Begin a life of the device with what the store has."""
        self.device = BspDevice(SEED, self.store, mode=self.mode)
        self.device.set_wall(now, now)
        for group in GROUPS:
            self.device.join(group, now)
        for peer in self.peers:
            self.device.meet(peer)
        for (peer, group_id), visibility in self.model.visibility.items():
            self.device.share(group_id, peer, now, visibility)

    def begin_commit(self):
        """Hand changes to the disk."""
        self.pending = self.device.changes()
        self.in_flight, self.fresh = self.fresh, []
        self.is_committing = True

    def end_commit(self, now):
        """Changes are on disk."""
        self.store.commit(self.pending)
        self.device.committed(now)
        self.is_committing = False
        for known in self.in_flight:
            known.on_disk = True

    @property
    def is_quiet(self):
        """Whether nothing waits for the disk."""
        return not self.is_committing and not self.device.must_commit


class World:
    """Devices, what is under way between them, and chance."""

    def __init__(self, seed, count, *, lasting):
        self.rng = random.Random(seed)
        self.now = Instant(1_000_000)
        self.lasting = lasting
        keys = [PublicKey(bytes([number]) * 32) for number in range(1, count + 1)]
        self.twins = [
            Twin(key, self.rng.choice((Mode.INTERACTIVE, Mode.BATCH)), [other for other in keys if other != key])
            for key in keys
        ]
        self.of = {twin.key: twin for twin in self.twins}
        self.under_way = []
        self.ids = [self.rng.randbytes(32) for _ in range(3)]
        self.counts = dict.fromkeys((*Said._fields, "repeats", "restarts"), 0)
        for twin in self.twins:
            for peer in twin.peers:
                self.begin(twin, peer)

    def begin(self, twin, peer):
        """Give a device a way to a peer, and let it share most groups with it."""
        self.raise_way(twin, peer)
        for group in GROUPS:
            if self.rng.random() < 0.8:
                twin.device.share(group.group_id, peer, self.now)
                twin.model.share_group(peer, group.group_id, Visibility.SHARED)

    def live(self, steps):
        """Let so many things happen, and compare after each."""
        happenings = {
            self.add: 3,
            self.share_message: 0.5,
            self.delete: 1.5,
            self.speak: 15,
            self.arrive: 12,
            self.forge: 6,
            self.way: 2,
            self.share_group: 1.5,
            self.commit: 14,
            self.pass_time: 5,
            self.rejoin: 0.2,
            self.restart: 0 if self.lasting else 0.3,
        }
        for _ in range(steps):
            (happening,) = self.rng.choices(list(happenings), list(happenings.values()))
            happening(self.rng.choice(self.twins))
            for twin in self.twins:
                self.compare(twin)

    # Happenings

    def add(self, twin):
        """Somebody writes, on what is delivered there; sometimes without sharing it."""
        group = self.rng.choice(GROUPS)
        delivered = sorted(twin.model.graphs[group.group_id].outcome()[0])
        above = self.rng.sample(delivered, min(len(delivered), self.rng.choice((0, 1, 1, 2))))
        body = deps_v1_body(above, self.rng.randbytes(self.rng.randrange(40)))
        timestamp, share = self.rng.randrange(50), self.rng.random() < 0.8
        message_id = twin.device.add(group.group_id, timestamp, body, self.now, share=share)
        told = Told(message_id, timestamp, tuple(above), own=True)
        twin.fresh.append(Known(group.group_id, told, body))
        twin.model.take_message(twin.fresh[-1], share=share)
        self.ids.append(message_id)

    def share_message(self, twin):
        """An application shares something delivered."""
        for group in GROUPS:
            delivered = sorted(twin.model.graphs[group.group_id].outcome()[0])
            if delivered:
                one = self.rng.choice(delivered)
                twin.device.share_message(group.group_id, one, self.now)
                twin.model.share_message(one)

    def delete(self, twin):
        """An application removes a body."""
        if twin.model.known:
            one = self.rng.choice(sorted(twin.model.known))
            twin.device.delete(twin.model.known[one].group_id, one)
            twin.model.delete(one)

    def speak(self, twin):
        """All that is due for a peer leaves at once, as the model says it must."""
        waiting = [(each, peer) for each in self.twins for peer in each.peers if peer in each.dirty]
        if waiting and self.rng.random() < 0.8:
            twin, peer = self.rng.choice(waiting)
        else:
            peer = self.rng.choice(twin.peers)
        if not twin.model.ways[peer]:
            twin.dirty.discard(peer)
            assert twin.device.send_due(peer, self.now) == []
            return
        expected = twin.model.due(peer, self.now)
        if self.rng.random() < 0.1:
            draft = twin.device.draft(peer, twin.model.ways[peer][-1].terms, self.now)
            twin.device.abandon(draft, self.now)
        records = read_all(SEED, b"".join(twin.device.send_due(peer, self.now)))
        said = self.read(records)
        if twin.is_quiet:
            assert Said(sorted(said.acks), *said[1:]) == Said(sorted(expected.acks), *expected[1:])
        assert all(set(ours) <= set(theirs) for ours, theirs in zip(said, expected, strict=True))
        twin.model.wrote(peer, said, self.now)
        if twin.is_quiet:
            twin.dirty.discard(peer)
        self.under_way += [(twin.key, peer, record) for record in records]
        for name, ids in said._asdict().items():
            self.counts[name] += len(ids)
        self.counts["repeats"] += sum(twin.model.of(peer, one).count > 1 for one in (*said.bodies, *said.offers))

    def arrive(self, _twin):
        """Something under way arrives, out of order, sometimes twice or never."""
        if not self.under_way:
            return
        place = self.rng.randrange(len(self.under_way))
        sender, receiver, record = self.under_way[place]
        if self.rng.random() < 0.8:
            del self.under_way[place]
        if self.rng.random() < 0.95:
            self.hear(self.of[receiver], sender, record)

    def forge(self, twin):
        """A peer says anything: lists of whatever, messages that do not parse or name what is not there."""
        peer = self.rng.choice(twin.peers)
        kind = self.rng.choice((Offer, Offer, Request, Request, Ack, Message))
        if kind is not Message:
            self.hear(twin, peer, kind(tuple(self.rng.choice(self.ids[-8:]) for _ in range(self.rng.randrange(1, 6)))))
            return
        above = [self.rng.choice(self.ids) for _ in range(self.rng.randrange(3))]
        body = (
            deps_v1_body(above, self.rng.randbytes(9)) if self.rng.random() < 0.7 else b"\x02" + self.rng.randbytes(9)
        )
        group, timestamp = self.rng.choice(GROUPS), self.rng.randrange(50)
        self.ids.append(SEED.message_id(group.group_id, timestamp, body))
        self.hear(twin, peer, Message(group.group_id, timestamp, body))

    def way(self, twin):
        """A way to a peer comes or goes."""
        peer = self.rng.choice(twin.peers)
        ways = twin.model.ways[peer]
        if ways and self.rng.random() < 0.5:
            way = self.rng.choice(ways)
            twin.device.link_down(twin.numbers.pop(way), self.now)
            twin.model.way_down(peer, way, self.now)
            self.under_way = [
                each for each in self.under_way if each[:2] != (twin.key, peer) or self.rng.random() < 0.5
            ]
        elif len(ways) < 3:
            self.raise_way(twin, peer)

    def raise_way(self, twin, peer):
        """Let a way of some kind stand."""
        way = Way(self.rng.choice((*LIVE, LASTING) if self.lasting else LIVE))
        twin.numbers[way] = twin.device.link_up(peer, way.terms, self.now)
        twin.model.way_up(peer, way, self.now)

    def share_group(self, twin):
        """A group becomes shared with a peer, or visible, or neither."""
        peer, group = self.rng.choice(twin.peers), self.rng.choice(GROUPS)
        visibility = self.rng.choice((Visibility.SHARED, Visibility.SHARED, *Visibility))
        twin.device.share(group.group_id, peer, self.now, visibility)
        twin.model.share_group(peer, group.group_id, visibility)

    def rejoin(self, twin):
        """A device leaves a group, and is a new member of it at once, sharing it with nobody."""
        group = self.rng.choice(GROUPS)
        twin.device.leave(group.group_id)
        twin.model.leave(group.group_id)
        twin.device.join(group, self.now)

    def commit(self, twin):
        """The disk takes changes, or has taken them."""
        twin = self.rng.choice([each for each in self.twins if not each.is_quiet] or [twin])
        if twin.is_committing:
            twin.end_commit(self.now)
        elif twin.device.must_commit:
            twin.begin_commit()

    def pass_time(self, _twin):
        """Time goes by; every device is woken when it asked for it."""
        self.now = Instant(self.now + self.rng.choice((1, 300_000, 1_000_000, 3_000_000, 20_000_000)))
        for twin in self.twins:
            at = twin.device.deadline()
            if at is not None and at <= self.now:
                twin.device.wake(self.now)

    def restart(self, twin):
        """A device ends with everything on disk, and begins again."""
        if twin.is_committing:
            twin.end_commit(self.now)
        twin.begin_commit()
        twin.end_commit(self.now)
        twin.model.restart()
        twin.numbers.clear()
        twin.start(self.now)
        twin.dirty = set()
        for peer in twin.peers:
            self.raise_way(twin, peer)
        self.counts["restarts"] += 1

    # Helpers

    def hear(self, twin, peer, record):
        """A record of a peer reaches a device."""
        twin.device.receive(peer, record, self.now)
        model = twin.model
        if isinstance(record, Offer):
            model.hear_offer(peer, record.ids)
        elif isinstance(record, Ack):
            model.hear_ack(peer, record.ids)
        elif isinstance(record, Request):
            model.hear_request(peer, record.ids, self.now)
        elif (peer, record.group_id) in model.visibility:
            message_id = SEED.message_id(*record)
            known = Known(record.group_id, told_of(message_id, record), record.body)
            if message_id not in model.known:
                twin.fresh.append(known)
            model.take_message(known, from_peer=peer)

    def read(self, records):
        """Return what records say, by kind and in order."""
        said = Said([], [], [], [])
        order = []
        for record in records:
            if isinstance(record, Message):
                said.bodies.append(SEED.message_id(*record))
            else:
                {Ack: said.acks, Request: said.requests, Offer: said.offers}[type(record)].extend(record.ids)
            order.append((Ack, Request, Message, Offer).index(type(record)))
        assert order == sorted(order)
        return said

    def compare(self, twin):
        """Compare what a device and its model know of every message and peer."""
        device, model = twin.device, twin.model
        twin.dirty.update(device.take_dirty())
        device.take_events()
        for group in GROUPS:
            delivered, invalid = model.graphs[group.group_id].outcome()
            shared = model.graphs[group.group_id].shared()
            vertices = device.graph(group.group_id).vertices
            assert set(vertices) == {one for one, known in model.known.items() if known.group_id == group.group_id}
            for one, vertex in vertices.items():
                state = State.DELIVERED if one in delivered else State.INVALID if one in invalid else State.PENDING
                assert (vertex.state, vertex.shared) == (state, one in shared)
                body = model.known[one].body if model.known[one].body_present else None
                assert device.body(group.group_id, one) == body
        for peer in twin.peers:
            self.compare_peer(twin, peer)

    def compare_peer(self, twin, peer):
        """Compare flags, lists, and what is to happen when."""
        device, model = twin.device, twin.model
        for one, known in model.known.items():
            if (peer, known.group_id) not in model.visibility:
                continue
            flags, standing = model.of(peer, one), device.delivery_status(peer, known.group_id, one, self.now)
            assert (standing.holds, standing.owes_ack) == (flags.hold, flags.ack)
            assert standing.offered == (one in model.offered[peer])
            if model.is_candidate(peer, one):
                next_in = max(0, flags.next_at - self.now) if flags.count else 0
                assert (standing.requested, standing.copies) == (flags.request, flags.count)
                assert standing.next_in_us == next_in
        shared = [one for one in model.known if model.is_shared(peer, one) and not model.of(peer, one).hold]
        assert device.owes(peer) == sum(model.known[one].body_present for one in shared)
        if not twin.is_quiet or not model.ways[peer]:
            return
        if any(model.due(peer, self.now)):
            assert device.is_due(peer, self.now) and peer in twin.dirty
        elif (at := model.next_at(peer)) is not None and peer not in twin.dirty:
            assert device.deadline() is not None and device.deadline() <= at


def told_of(message_id, record):
    """Return a message as its format reads it."""
    try:
        return Told(message_id, record.timestamp, tuple(DepsV1().parse(record.body)))
    except InvalidMessageError:
        return Told(message_id, record.timestamp, (), parses=False)


@pytest.mark.parametrize("lasting", [False, True], ids=["live", "lasting"])
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("seed", range(16))
def test_devices_agree_with_their_models(seed, count, lasting):
    """Flags, lists, graph, what is written and when: after every event as scanning all of it would have it."""
    worlds = [World(f"bsp devices {seed} {number}", count, lasting=lasting) for number in range(3)]

    for world in worlds:
        world.live(STEPS)

    assert any(world.counts["bodies"] for world in worlds)


def test_chance_reaches_what_matters():
    """Random events make acknowledgements, requests, messages, offers, repeats and restarts."""
    worlds = [World(f"bsp devices, reach {number}", 3, lasting=False) for number in range(4)]

    for world in worlds:
        world.live(STEPS)

    assert min(sum(world.counts[name] for world in worlds) for name in worlds[0].counts) > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_devices_agree_with_their_models_for_long(seed):
    """The same in 300 worlds of two to four devices that live three times as long."""
    for number in range(25):
        world = World(f"bsp devices, long {seed} {number}", 2 + number % 3, lasting=number % 2 == 0)
        world.live(3 * STEPS)

        assert sum(world.counts.values())
