"""Laws of protocols.bsp.device through random lives: after every step the books agree, and what is said is true."""

import contextlib
import itertools
import random

import pytest

from tests.protocols.bsp.build_device import (
    KEPT,
    LIVE,
    SLOW,
    Bench,
    P,
    Q,
    R,
    assert_nobody_waits,
    audit,
    state_of,
)
from waystation.core.errors import LocalError
from waystation.core.instant import Instant, after_ms
from waystation.protocols.bsp.device.events import Delivered, Invalidated, PeerHolds, Stored
from waystation.protocols.bsp.device.links import Mode, Visibility, stream_terms
from waystation.protocols.bsp.graph.formats import deps_v1_body
from waystation.protocols.bsp.graph.order import State
from waystation.protocols.bsp.messages import Ack, Message, Offer, Request
from waystation.protocols.bsp.profile import BRIAR, SEED
from waystation.protocols.bsp.wire import read_all

OFFERED_MAX = 1_000
"""Identifiers of one peer that a device keeps."""


class Life:
    """A device that a seed lets live through hundreds of steps."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        profile_how = {"shares_delivered": self.rng.random() < 0.7, "messages_max": 400}
        form, profile = self.rng.choice(("judging", "deps_v1")), self.rng.choice((SEED, SEED, BRIAR))
        mode = self.rng.choice(list(Mode))
        self.bench = Bench(format=form, mode=mode, profile=profile, peers=(P, Q, R), **profile_how)
        self.links = []
        self.drafts = []
        self.owed = set()
        """Who is due although nobody stirs: it is on us to speak again."""
        self.numbers = itertools.count()
        self.names = []
        self.sharings = {(self.bench.group_id, peer): Visibility.SHARED for peer in (P, Q, R)}
        self.sharings[self.bench.other_id, P] = Visibility.SHARED
        self.given = {peer: set() for peer in (P, Q, R)}
        """What each peer has ever offered or sent; of that in ``offered``, what it has offered."""
        self.offered = {peer: set() for peer in (P, Q, R)}
        self.reported = {}
        """Order of each message that was reported as delivered."""
        self.left = set()
        """Groups that were left once: what was reported of them may come again."""

    def name(self):
        """Return an identifier: mostly of a message, known or not yet."""
        return self.rng.choice(self.names) if self.names and self.rng.random() < 0.9 else self.rng.randbytes(32)

    def fresh(self):
        """Return a message that may depend on others, or be broken."""
        group_id = self.rng.choice(self.bench.groups).group_id
        known = [vertex.message_id for vertex in self.vertices(group_id)]
        above = self.rng.sample(known, min(len(known), self.rng.randrange(3)))
        if self.rng.random() < 0.1:
            above.append(self.name())
        end = self.rng.choice([b"", b"", b"", b"bad", bytes(300)])
        body = deps_v1_body(above, next(self.numbers).to_bytes(3, "big") + end)
        return Message(group_id, self.rng.randrange(50), body if self.rng.random() < 0.95 else b"?" + body)

    def vertices(self, group_id):
        joined = {group.group_id for group in self.bench.device.groups()}
        return self.bench.device.messages(group_id) if group_id in joined else []

    def step(self):
        """Let something happen."""
        self.bench.now = after_ms(self.bench.now, self.rng.choice([0, 0, 1, 50, 900, 5_000]))
        getattr(self, "_" + self.rng.choice(STEPS))(self.rng.choice((P, Q, R)))
        self.bench.device.wake(self.bench.now)
        self.check_stirred()
        self.check_reports()

    def on_disk(self):
        """Return the identifiers of what the store has."""
        return {key[32:] for key, _ in self.bench.store.scan("bsp_messages", b"", 10_000)}

    def check_reports(self):
        """See that what was reported is on disk, and each delivery was reported once, with its place in the order."""
        reports = [*self.bench.events, *self.bench.device.take_events()]
        self.bench.events = []
        on_disk = self.on_disk()
        for event in reports:
            if not isinstance(event, Stored | Delivered | Invalidated | PeerHolds) or event.group_id in self.left:
                continue
            assert event.message_id in on_disk
            if isinstance(event, Delivered):
                assert event.message_id not in self.reported
                self.reported[event.message_id] = event.order
        for group in self.bench.device.groups():
            for vertex in self.vertices(group.group_id) if group.group_id not in self.left else ():
                assert self.reported.get(vertex.message_id, vertex.order) == vertex.order

    def hear(self, record, peer, link=None):
        """Let a record come, and remember what it gives or offers."""
        ids = {self.bench.id_of(record)} if isinstance(record, Message) else set(record.ids)
        if isinstance(record, Message | Offer):
            self.given[peer] |= ids
        if isinstance(record, Offer):
            self.offered[peer] |= ids
        before = self.bench.device.sizes()["offered"]
        self.bench.hear(record, peer=peer, link=link)
        assert self.bench.device.sizes()["offered"] <= before + OFFERED_MAX

    def check_stirred(self):
        """See that whoever is due, and can be spoken to, was stirred."""
        device = self.bench.device
        stirred = {state.key for state in device._repository.dirty} | self.owed
        for peer in device.peers():
            assert peer in stirred or device.link_of(peer) is None or not device.is_due(peer, self.bench.now)

    def _message(self, peer):
        message = self.fresh()
        self.names.append(self.bench.id_of(message))
        if self.rng.random() < 0.3:
            self.hear(Offer((self.names[-1],)), self.rng.choice((P, Q, R)))
        for _ in range(self.rng.choice((1, 1, 2))):
            self.hear(message, peer)
            peer = self.rng.choice((P, Q, R))

    def _add(self, _peer):
        message = self.fresh()
        try:
            self.names.append(self.bench.device.add(*message, self.bench.now, share=self.rng.random() < 0.8))
        except LocalError:
            self.names.append(self.bench.id_of(message))

    def _record(self, peer):
        kind = self.rng.choice((Ack, Ack, Offer, Request, Request))
        names = [self.name() for _ in range(self.rng.randrange(1, 6))]
        if self.rng.random() < 0.03:  # more than may be kept
            kind, names = Offer, [self.rng.randbytes(32) for _ in range(1_300)]
        self.hear(kind(tuple(names)), peer, self.rng.choice([None, *self.links]))

    def _speak(self, peer):
        bytes_max = self.rng.choice((40, 500, 100_000))
        records = self.bench.device.send_due(peer, self.bench.now, bytes_max)
        assert sum(map(len, records)) <= bytes_max
        self.check(peer, records)
        if self.bench.device.is_due(peer, self.bench.now):
            self.owed.add(peer)

    def _left(self, peer):
        self.bench.device.drained(peer, self.bench.now)

    def _turn(self, _peer):
        for peer in self.bench.device.take_dirty():
            for records in iter(lambda peer=peer: self.bench.device.send_due(peer, self.bench.now), []):
                self.check(peer, records)
            self.owed.discard(peer)

    def check(self, peer, records):
        """See that what is said is on disk, and about what the peer may hear of, has offered or has given."""
        on_disk = self.on_disk()
        for record in read_all(self.bench.profile, b"".join(records)):
            if isinstance(record, Request):
                assert self.offered[peer].issuperset(record.ids)
                continue
            ids = {self.bench.id_of(record)} if isinstance(record, Message) else set(record.ids)
            assert on_disk.issuperset(ids)
            if isinstance(record, Ack):
                assert self.given[peer].issuperset(ids)
                continue
            for group in self.bench.groups:
                for vertex in self.vertices(group.group_id):
                    if vertex.message_id in ids:
                        ids.discard(vertex.message_id)
                        assert self.sharings[group.group_id, peer] is Visibility.SHARED
                        assert vertex.shared and vertex.body_present
                        assert not isinstance(record, Message) or record.group_id == group.group_id
            assert not ids

    def _begin(self, _peer):
        if self.bench.pending is None:
            self.bench.begin()

    def _finish(self, _peer):
        if self.bench.pending is not None:
            self.bench.finish()

    def _up(self, peer):
        if self.bench.device.knows(peer) and len(self.links) < 6:
            self.links.append(self.bench.up(peer, self.rng.choice((LIVE, SLOW, KEPT, stream_terms("tls")))))

    def _down(self, _peer):
        if self.links:
            self.bench.device.link_down(self.links.pop(self.rng.randrange(len(self.links))), self.bench.now)

    def _draft(self, peer):
        if self.bench.device.knows(peer) and len(self.drafts) < 3:
            again = self.rng.random() < 0.2
            if again:
                self.owed.add(peer)
            draft = self.bench.device.draft(peer, KEPT, self.bench.now, 2_000, again=again)
            self.check(peer, draft.records)
            self.drafts.append(draft)

    def _end_draft(self, _peer):
        if self.drafts:
            draft = self.drafts.pop(0)
            device = self.bench.device
            (device.sent if self.rng.random() < 0.6 else device.abandon)(draft, self.bench.now)

    def _visibility(self, peer):
        group_id = self.rng.choice(self.bench.groups).group_id
        visibility = self.rng.choice([*Visibility, Visibility.SHARED])
        self.share(group_id, peer, visibility)

    def share(self, group_id, peer, visibility):
        if group_id in {group.group_id for group in self.bench.device.groups()} and self.bench.device.knows(peer):
            self.bench.device.share(group_id, peer, self.bench.now, visibility)
            self.sharings[group_id, peer] = visibility

    def _delete(self, _peer):
        group_id = self.rng.choice(self.bench.groups).group_id
        for vertex in self.rng.sample(self.vertices(group_id), min(1, len(self.vertices(group_id)))):
            with contextlib.suppress(LocalError):
                self.bench.device.delete(group_id, vertex.message_id)

    def _share_message(self, _peer):
        group_id = self.rng.choice(self.bench.groups).group_id
        delivered = [each for each in self.vertices(group_id) if each.state is State.DELIVERED]
        for vertex in self.rng.sample(delivered, min(1, len(delivered))):
            self.bench.device.share_message(group_id, vertex.message_id, self.bench.now)

    def _membership(self, peer):
        """Leave a group or part with a peer, and mostly come back at once; or end, and begin anew."""
        if self.rng.random() < 0.7:
            return
        group = self.rng.choice(self.bench.groups)
        action = self.rng.choice(("leave", "part", "restart", "restart"))
        if action == "leave":
            self.bench.device.leave(group.group_id)
            self.left.add(group.group_id)
            self.sharings = {key: value for key, value in self.sharings.items() if key[0] != group.group_id}
            self.bench.device.join(group, self.bench.now)
            self.share(group.group_id, peer, Visibility.SHARED)
        elif action == "part":
            self.bench.device.part(peer)
            self.sharings = {key: value for key, value in self.sharings.items() if key[1] != peer}
            self.bench.device.meet(peer)
            self.share(group.group_id, peer, Visibility.SHARED)
        else:
            self.restart()

    def restart(self):
        if self.bench.pending is not None and self.rng.random() < 0.5:
            self.bench.store.commit(self.bench.pending)  # the disk had it, nobody was told
        self.drafts, self.links = [], []
        sharings = dict(self.sharings)
        self.bench.start(shares=False)
        for (group_id, peer), visibility in sharings.items():
            self.share(group_id, peer, visibility)

    def end(self):
        """Say and save all that is left; a restart finds all of it again."""
        bench = self.bench
        while self.drafts:
            self._end_draft(P)
        self._finish(P)
        for _ in range(3):
            bench.commit()
            for peer in bench.device.peers():
                while bench.device.send_due(peer, bench.now):
                    audit(bench.device)
        assert_nobody_waits(bench)
        bench.now = Instant(bench.now + 3_000_000)
        bench.device.wake(bench.now)
        bench.commit()
        before = state_of(bench)
        self.restart()
        audit(bench.device)

        assert state_of(bench) == before


STEPS = (
    *("message", "message", "message", "add", "record", "record", "record", "speak", "turn", "turn"),
    *("begin", "begin", "finish", "finish", "up", "down", "draft", "end_draft", "visibility", "delete"),
    *("share_message", "membership", "left"),
)


@pytest.mark.parametrize("seed", range(12))
def test_books_agree_after_every_step_of_a_random_life(seed):
    """Counts, rows, heaps, alarms, acknowledgements and flags fit together, whatever happens in whatever order."""
    life = Life(seed)

    for _ in range(250):
        life.step()
        audit(life.bench.device, life.drafts)

    assert len(life.names) > 30


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 200))
def test_books_agree_through_long_random_lives(seed):
    """As above, with more seeds and steps; at the end all is said, saved, and found again by a restart."""
    life = Life(seed)
    for _ in range(500):
        life.step()
        audit(life.bench.device, life.drafts)

    life.end()
