"""Fuzz target: a BSP device without network: records, links, commits, restarts, and changes by its owner.

Each input step has three bytes: the action, the peer or object, and a choice. Messages come from a small pool; some
depend on others, some on themselves, and some are random bytes. The expected disk content is derived only from
committed changes.
"""

import random
from collections.abc import Callable
from typing import Final

from fuzz.mutate import mutate_bytes
from fuzz.target import expect
from waystation.core.errors import LocalError
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant, after_ms
from waystation.core.records import Change, Record
from waystation.protocols.bsp.device.events import Delivered, Invalidated, PeerHolds, Stored
from waystation.protocols.bsp.device.groups import Group
from waystation.protocols.bsp.device.links import LinkTerms, Mode, Visibility
from waystation.protocols.bsp.device.sync import WRITE_BYTES, BspDevice, Draft
from waystation.protocols.bsp.graph.formats import deps_v1_body
from waystation.protocols.bsp.graph.order import State
from waystation.protocols.bsp.messages import Ack, Message, Offer, Request
from waystation.protocols.bsp.profile import BRIAR, SEED, Profile
from waystation.protocols.bsp.wire import read_all
from waystation.store.memory import MemoryStore

_PEERS: Final = tuple(PublicKey(bytes([number]) * 32) for number in range(1, 4))
_TERMS: Final = (
    LinkTerms("live", 1_000, measures=True),
    LinkTerms("slow", 4_000),
    LinkTerms("kept", 8_000, cap_ms=64_000, outlives=True, mode=Mode.BATCH),
)
_VISIBILITIES: Final = (Visibility.SHARED, Visibility.VISIBLE, Visibility.INVISIBLE, Visibility.SHARED)
_WAITS_MS: Final = (0, 1, 500, 1_000, 2_000, 9_000, 70_000)
_SIZES: Final = (36, 40, 200, 33_000, WRITE_BYTES)
_WALL_US: Final = 1_767_225_600_000_000
_STEP_BYTES: Final = 3
_STEPS_MAX: Final = 80
_LOOK_EVERY_BYTES: Final = 6 * _STEP_BYTES
_OFFERED_MAX: Final = 1_000
_MESSAGES_MAX: Final = 20
_ROUNDS_MAX: Final = 100
_MESSAGES_TABLE: Final = "bsp_messages"
_OUTCOMES: Final = ("Dropped", "Delivered", "Invalidated", "PeerHolds")


class _Pool:
    """The messages of one profile."""

    def __init__(self, profile: Profile) -> None:
        name = b"fuzz" if profile is BRIAR else b"f" * 32
        self.profile = profile
        self.groups = [profile.group(name, bytes([number]), "deps_v1") for number in range(2)]
        self.messages: list[Message] = []
        self.ids: list[bytes] = []
        for number in range(24):
            self._enter(number)
        self.by_id = dict(zip(self.ids, self.messages, strict=True))

    def _enter(self, number: int) -> None:
        group_id = self.groups[number % 5 == 4].group_id
        above = [self.ids[at] for at in (number - 1, number - 3, number // 2) if 0 <= at < number and number % 4]
        body = deps_v1_body(above, bytes([number]))
        if number % 7 == 6:
            body = b"noise" * number
        elif number % 11 == 10:
            body = deps_v1_body([bytes([at]) * 32 for at in range(65 if number > 11 else 3)], b"")
        message = Message(group_id, 1_000 - number // 3, body)
        self.messages.append(message)
        self.ids.append(self.profile.message_id(*message))


_POOLS: Final = (_Pool(SEED), _Pool(BRIAR))


class _Subject:
    """One device under fire, its disk, and what it may send."""

    def __init__(self, pool: _Pool, mode: Mode) -> None:
        self.pool = pool
        self.profile = pool.profile
        self.mode = mode
        self.now = Instant(1_000_000)
        self.store = MemoryStore()
        self.on_disk: set[bytes] = set()
        self.given: dict[PublicKey, set[bytes]] = {peer: set() for peer in _PEERS}
        """What each peer has ever offered or sent."""
        self.offered: dict[PublicKey, set[bytes]] = {peer: set() for peer in _PEERS}
        self.shared = {(group.group_id, peer): Visibility.SHARED for group in pool.groups[:1] for peer in _PEERS}
        self.reported: dict[bytes, int] = {}
        """Order of each message that was reported as delivered."""
        self.left: set[bytes] = set()
        """Groups that we have left once: what was reported of them may come again."""
        self.pending: tuple[Change, ...] | None = None
        self.links: list[int] = []
        self.outcomes: set[str] = set()
        self.start()

    # Lives

    def start(self) -> None:
        """Begin a life with what is on disk."""
        self.pending = None
        self.links = []
        self.device = BspDevice(self.profile, self.store, mode=self.mode, messages_max=_MESSAGES_MAX)
        self.device.set_wall(self.now, _WALL_US + self.now)
        for group in self.pool.groups:
            self.device.join(group, self.now)
        for peer in _PEERS:
            self.device.meet(peer)
        self._share_again(*self.shared)

    def _share_again(self, *shares: tuple[bytes, PublicKey]) -> None:
        for group_id, peer in shares:
            self.device.share(group_id, peer, self.now, self.shared[group_id, peer])

    # The disk

    def begin(self) -> None:
        """Hand what is gathered to the disk."""
        if self.pending is None:
            self.pending = self.device.changes()

    def finish(self) -> None:
        """Let the disk be done."""
        if self.pending is not None:
            self._write(self.pending)
            self.pending = None
            self.device.committed(self.now)
            self.take_events()

    def save(self) -> None:
        """Bring everything to the disk."""
        self.finish()
        for _ in range(_ROUNDS_MAX):
            self.begin()
            self.finish()
            if not self.device.must_commit:
                return
        expect(False, "the disk is never done")

    def _write(self, changes: tuple[Change, ...]) -> None:
        self.store.commit(changes)
        for change in changes:
            assert isinstance(change, Record)
            if change.table == _MESSAGES_TABLE:
                message_id = change.key[32:]
                (self.on_disk.discard if change.value is None else self.on_disk.add)(message_id)

    def take_events(self) -> None:
        """Take the events of the device: a delivery is reported once, in order, and on disk."""
        for event in self.device.take_events():
            self.outcomes.add(type(event).__name__)
            if not isinstance(event, Stored | Delivered | Invalidated | PeerHolds) or event.group_id in self.left:
                continue
            expect(event.message_id in self.on_disk, f"reported before it is on disk: {event}")
            if isinstance(event, Delivered):
                expect(event.message_id not in self.reported, "reported twice as delivered")
                self.reported[event.message_id] = event.order

    # What it sends

    def send(self, peer: PublicKey, bytes_max: int) -> int:
        """Let the device send over its newest link; return how many records it sends."""
        sent = self.device.send_due(peer, self.now, bytes_max)
        self.check_sent(peer, sent, bytes_max)
        return len(sent)

    def check_sent(self, peer: PublicKey, sent: list[bytes], bytes_max: int) -> None:
        """See that every record may be sent to this peer now."""
        expect(sum(map(len, sent)) <= bytes_max, "more bytes than asked for")
        for record in read_all(self.profile, b"".join(sent)):
            self.outcomes.add(type(record).__name__)
            if isinstance(record, Message):
                self._check_message(peer, record)
            elif isinstance(record, Ack):
                expect(self.given[peer].issuperset(record.ids), "acknowledges what it was not given")
                expect(self.on_disk.issuperset(record.ids), "acknowledges what is not on disk")
            elif isinstance(record, Request):
                expect(self.offered[peer].issuperset(record.ids), "asks for what was not offered")
            elif isinstance(record, Offer):
                for message_id in record.ids:
                    self._check_shared(peer, message_id)

    def _check_message(self, peer: PublicKey, record: Message) -> None:
        message_id = self.profile.message_id(*record)
        self._check_shared(peer, message_id)
        expect(record.group_id == self._group_of(message_id), "a message of another group")

    def _check_shared(self, peer: PublicKey, message_id: bytes) -> None:
        expect(message_id in self.on_disk, "sends what is not on disk")
        group_id = self._group_of(message_id)
        expect(self.shared.get((group_id, peer)) is Visibility.SHARED, "sends what is not shared")
        vertex = self.device.vertex(group_id, message_id)
        expect(vertex is not None and vertex.shared and vertex.body_present, "sends what is not to be sent")

    def _group_of(self, message_id: bytes) -> bytes:
        for group in self.pool.groups:
            if self.device.vertex(group.group_id, message_id) is not None:
                return group.group_id
        expect(False, "sends what it does not know")
        return b""

    # Its tables

    def check_tables(self) -> None:
        """See that counts, states and what each peer is owed agree with one another."""
        sizes, device = self.device.sizes(), self.device
        vertices = [(group, each) for group in device.groups() for each in device.messages(group.group_id)]
        expect(sizes["messages"] == len(vertices) <= _MESSAGES_MAX + len(self.pool.ids), "other messages")
        expect(sizes["links"] == len(self.links), "other links")
        expect(sizes["offered"] <= _OFFERED_MAX * len(device.peers()), "too many offers kept")
        expect(sizes["pending"] == sum(each.state is State.PENDING for _, each in vertices), "other pending ones")
        expect(sizes["unheld"] == sum(map(device.owes, device.peers())), "owes otherwise than it reports")
        for group in device.groups():
            self._check_group(group)
        for peer in device.peers():
            owed = [
                each
                for group, each in vertices
                if self.shared.get((group.group_id, peer)) is Visibility.SHARED
                and each.shared
                and each.body_present
                and not device.holds(peer, group.group_id, each.message_id)
            ]
            expect(device.owes(peer) == len(owed), f"owes {device.owes(peer)}, not {len(owed)}")

    def _check_group(self, group: Group) -> None:
        messages, usage = self.device.messages(group.group_id), self.device.usage(group.group_id)
        live = [each for each in messages if each.body_present]
        expect(usage == (len(live), sum(each.size_bytes for each in live), len(messages) - len(live)), "other weight")
        delivered = {each.message_id: each.order for each in messages if each.state is State.DELIVERED}
        expect(sorted(delivered.values()) == list(range(1, len(delivered) + 1)), "a gap in the order of delivery")
        for each in messages:
            if each.state is State.DELIVERED:
                expect(all(delivered.get(above, 1 << 32) < each.order for above in each.dependencies), "before another")
            expect(each.state is not State.INVALID or not each.body_present, "an invalid body is kept")
            reported = self.reported.get(each.message_id)
            expect(reported in {None, each.order} or group.group_id in self.left, "another order than was reported")

    def state(self) -> dict[object, object]:
        """Return what must outlive the device's memory."""
        device = self.device
        kept: dict[object, object] = {}
        for group in device.groups():
            for each in device.messages(group.group_id):
                row = (each.state, each.order, each.shared, each.body_present, each.seq, each.dependencies)
                kept[each.message_id] = row
                for peer in device.audience(group.group_id):
                    status = device.delivery_status(peer, group.group_id, each.message_id, self.now)
                    kept[peer, each.message_id] = status.holds, status.owes_ack
        return kept

    # Steps of a script: each has a peer and a choice

    def receive_message(self, peer: PublicKey, choice: int) -> None:
        self._receive(peer, self.pool.messages[choice % len(self.pool.messages)])

    def receive_foreign(self, peer: PublicKey, choice: int) -> None:
        """Receive a message of an unknown group, or a new one of ours that waits for ever."""
        group_id = bytes([choice]) * 32 if choice % 2 else self.pool.groups[0].group_id
        self._receive(peer, Message(group_id, choice, deps_v1_body([bytes([choice % 8]) * 32], b"?")))

    def receive_offer(self, peer: PublicKey, choice: int) -> None:
        ids = self._some_ids(choice)
        if choice % 16 == 15:
            ids = tuple(choice.to_bytes(30, "big") + at.to_bytes(2, "big") for at in range(1_300))
        self.given[peer].update(ids)
        self.offered[peer].update(ids)
        before = self.device.sizes()["offered"]
        self._receive(peer, Offer(ids))
        expect(self.device.sizes()["offered"] <= before + _OFFERED_MAX, "keeps all offers of one peer")

    def receive_ack(self, peer: PublicKey, choice: int) -> None:
        self._receive(peer, Ack(self._some_ids(choice)))

    def receive_request(self, peer: PublicKey, choice: int) -> None:
        self._receive(peer, Request(self._some_ids(choice)))

    def _receive(self, peer: PublicKey, record: Message | Offer | Ack | Request) -> None:
        if isinstance(record, Message):
            self.given[peer].add(self.profile.message_id(*record))
        self.device.receive(peer, record, self.now, self.device.link_of(peer))

    def _some_ids(self, choice: int) -> tuple[bytes, ...]:
        ids = self.pool.ids
        return tuple(ids[(choice + at * (1 + choice % 5)) % len(ids)] for at in range(1 + choice % 6))

    def send_some(self, peer: PublicKey, choice: int) -> None:
        if self.device.knows(peer):
            self.send(peer, _SIZES[choice % len(_SIZES)])

    def restart(self, _peer: PublicKey, choice: int) -> None:
        """Lose all memory; what is under way to the disk arrives there or not."""
        if self.pending is not None and choice % 2:
            self._write(self.pending)
        self.start()

    def link_up(self, peer: PublicKey, choice: int) -> None:
        if self.device.knows(peer) and len(self.links) < 16:
            self.links.append(self.device.link_up(peer, _TERMS[choice % len(_TERMS)], self.now))

    def link_down(self, _peer: PublicKey, choice: int) -> None:
        if self.links:
            self.device.link_down(self.links.pop(choice % len(self.links)), self.now)

    def pass_time(self, _peer: PublicKey, choice: int) -> None:
        self.now = after_ms(self.now, _WAITS_MS[choice % len(_WAITS_MS)])
        self.device.wake(self.now)
        at = self.device.deadline()
        expect(at is None or at > self.now, "wants to be woken for what was done")

    def add(self, _peer: PublicKey, choice: int) -> None:
        group_id, timestamp, body = self.pool.messages[choice % len(self.pool.messages)]
        try:
            self.device.add(group_id, timestamp, body, self.now, share=choice < 200)
        except LocalError:
            self.outcomes.add("not added")

    def delete(self, _peer: PublicKey, choice: int) -> None:
        message_id = self.pool.ids[choice % len(self.pool.ids)]
        try:
            self.device.delete(self.pool.by_id[message_id].group_id, message_id)
        except LocalError:
            self.outcomes.add("not deleted")

    def share(self, peer: PublicKey, choice: int) -> None:
        group_id = self.pool.groups[choice % 2].group_id
        visibility = _VISIBILITIES[choice // 2 % len(_VISIBILITIES)]
        if self.device.knows(peer):
            self.device.share(group_id, peer, self.now, visibility)
            self.shared[group_id, peer] = visibility

    def draft(self, peer: PublicKey, choice: int) -> None:
        """Send something in two steps, over a link that is up or none, and succeed or not."""
        if not self.device.knows(peer):
            return
        terms = _TERMS[choice % len(_TERMS)]
        draft: Draft = self.device.draft(peer, terms, self.now, WRITE_BYTES, again=choice % 7 == 0)
        self.check_sent(peer, draft.records, WRITE_BYTES)
        (self.device.sent if choice < 180 else self.device.abandon)(draft, self.now)

    def leave(self, _peer: PublicKey, choice: int) -> None:
        """Forget a group, and come back at once."""
        group = self.pool.groups[choice % 2]
        self.device.leave(group.group_id)
        self.left.add(group.group_id)
        self.device.join(group, self.now)
        self._share_again(*(share for share in self.shared if share[0] == group.group_id))

    def part(self, peer: PublicKey, _choice: int) -> None:
        """Forget a peer, and meet it again; its links are gone."""
        self.device.part(peer)
        self.device.meet(peer)
        self.links = [link for link in self.links if self.device.link_terms(link) is not None]
        self._share_again(*(share for share in self.shared if share[1] == peer))


class BspDeviceTarget:
    """Nothing is sent that is not on disk, shared and owed; tables agree; a restart changes nothing that was saved."""

    name = "bsp_device"

    def make(self, rng: random.Random) -> bytes:
        """Return a beginning in which links are up and messages come, then anything."""
        begin = b"".join(bytes([0x49, who, rng.randrange(256)]) for who in range(3))
        steps = b"".join(
            bytes([0x40 | rng.randrange(len(_STEPS))]) + rng.randbytes(2) for _ in range(rng.randrange(61))
        )
        data = rng.randbytes(1) + begin + steps
        return mutate_bytes(rng, data, _CORPUS) if rng.random() < 0.2 else data

    def run(self, data: bytes) -> str:
        """Play it, then come to rest, and see that nothing of it was only in memory."""
        first = data[0] if data else 0
        mode = (Mode.AUTO, Mode.INTERACTIVE, Mode.BATCH)[(first >> 1) % 3]
        subject = _Subject(_POOLS[first & 1], mode)
        for at in range(1, min(len(data) - _STEP_BYTES + 1, _STEPS_MAX * _STEP_BYTES), _STEP_BYTES):
            what, who, choice = data[at : at + _STEP_BYTES]
            _STEPS[what % 0x40 % len(_STEPS)](subject, _PEERS[who % 3], choice)
            subject.take_events()
            if at % _LOOK_EVERY_BYTES == 1:
                subject.check_tables()
        self._rest(subject)
        return " ".join(each for each in _OUTCOMES if each in subject.outcomes) or "nothing"

    def _rest(self, subject: _Subject) -> None:
        for peer in subject.device.peers():
            subject.links.append(subject.device.link_up(peer, _TERMS[0], subject.now))
        for _ in range(_ROUNDS_MAX):
            subject.save()
            if not sum(subject.send(peer, WRITE_BYTES) for peer in subject.device.peers()):
                break
        else:
            expect(False, "never done with sending")
        device = subject.device
        for peer in device.peers():
            expect(not device.is_due(peer, subject.now), "is due and sends nothing")
            expect(not device.owes(peer) or device.deadline() is not None, "owes something and sleeps for ever")
        subject.save()
        before = subject.state()
        subject.start()
        subject.check_tables()
        expect(subject.state() == before, "a restart changes what is known")


_STEPS: Final[tuple[Callable[[_Subject, PublicKey, int], object], ...]] = (
    *(_Subject.receive_message,) * 3,
    *(_Subject.receive_foreign, _Subject.receive_offer, _Subject.receive_ack, _Subject.receive_request),
    *(_Subject.send_some, _Subject.send_some, _Subject.link_up, lambda subject, _peer, _choice: subject.begin()),
    *(lambda subject, _peer, _choice: subject.finish(),) * 2,
    *(_Subject.pass_time, _Subject.add, _Subject.delete, _Subject.share, _Subject.draft, _Subject.link_down),
    *(_Subject.restart, _Subject.leave, _Subject.part),
)
_CORPUS: Final = (
    bytes(1) + bytes([0x49, 0, 0, 0, 0, 0, 10, 0, 0, 11, 0, 0, 7, 0, 4]),
    bytes([2]) + bytes([0x49, 1, 0, 14, 0, 0, 10, 0, 0, 11, 0, 0, 7, 1, 4, 5, 1, 0]),
)
