"""Target: a BSP device without connections: records, ways, commits, losses of memory, and an owner who changes plans.

An input is steps of three bytes: what happens, to whom, and a choice. Messages come from a small world, in which some
depend on others, some on themselves, and some are noise, so that everything meets everything. What is on disk is known
from the changes that were committed; nothing else is believed.
"""

import random
from typing import Final

from fuzz.mutate import mutate_bytes
from fuzz.target import expect
from waystation.core.errors import LocalError
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant, after_ms
from waystation.core.records import Change, Record
from waystation.protocols.bsp.device import WRITE_BYTES, BspDevice, Draft
from waystation.protocols.bsp.events import Delivered, Invalidated, PeerHolds, Stored
from waystation.protocols.bsp.formats import deps_v1_body
from waystation.protocols.bsp.graph import State
from waystation.protocols.bsp.groups import Group
from waystation.protocols.bsp.links import LinkTerms, Mode, Visibility
from waystation.protocols.bsp.messages import Ack, Message, Offer, Request
from waystation.protocols.bsp.profile import BRIAR, SEED, Profile
from waystation.protocols.bsp.wire import read_all
from waystation.store.memory import MemoryStore

__all__ = ["BspDeviceTarget"]

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


class _Universe:
    """The messages that there are in one profile."""

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


_UNIVERSES: Final = (_Universe(SEED), _Universe(BRIAR))


class _World:
    """One device under fire, its disk, and what it may say."""

    def __init__(self, universe: _Universe, mode: Mode) -> None:
        self.universe = universe
        self.profile = universe.profile
        self.mode = mode
        self.now = Instant(1_000_000)
        self.store = MemoryStore()
        self.on_disk: set[bytes] = set()
        self.given: dict[PublicKey, set[bytes]] = {peer: set() for peer in _PEERS}
        """What each peer has offered or sent, ever."""
        self.offered: dict[PublicKey, set[bytes]] = {peer: set() for peer in _PEERS}
        self.shared = {(group.group_id, peer): Visibility.SHARED for group in universe.groups[:1] for peer in _PEERS}
        self.told: dict[bytes, int] = {}
        """Order of each message that was told as delivered."""
        self.left: set[bytes] = set()
        """Groups that we have left once: what they told before may come again."""
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
        for group in self.universe.groups:
            self.device.join(group, self.now)
        for peer in _PEERS:
            self.device.meet(peer)
        for (group_id, peer), visibility in self.shared.items():
            self.device.share(group_id, peer, self.now, visibility)

    def restart(self, *, saved: bool) -> None:
        """Lose all memory; what is under way to the disk arrives there or not."""
        if self.pending is not None and saved:
            self._write(self.pending)
        self.start()

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
            self.hear_events()

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

    def hear_events(self) -> None:
        """Take what the device tells: what is delivered is told once, in order, and on disk."""
        for event in self.device.take_events():
            self.outcomes.add(type(event).__name__)
            if not isinstance(event, Stored | Delivered | Invalidated | PeerHolds) or event.group_id in self.left:
                continue
            expect(event.message_id in self.on_disk, f"told before it is on disk: {event}")
            if isinstance(event, Delivered):
                expect(event.message_id not in self.told, "told twice as delivered")
                self.told[event.message_id] = event.order

    # What it says

    def say(self, peer: PublicKey, bytes_max: int) -> int:
        """Let the device speak over its newest way; return how many records it says."""
        said = self.device.speak(peer, self.now, bytes_max)
        self.check_said(peer, said, bytes_max)
        return len(said)

    def check_said(self, peer: PublicKey, said: list[bytes], bytes_max: int) -> None:
        """See that every record may be said to this peer now."""
        expect(sum(map(len, said)) <= bytes_max, "more bytes than asked for")
        for record in read_all(self.profile, b"".join(said)):
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
        expect(message_id in self.on_disk, "says what is not on disk")
        group_id = self._group_of(message_id)
        expect(self.shared.get((group_id, peer)) is Visibility.SHARED, "says what is not shared")
        vertex = self.device.vertex(group_id, message_id)
        expect(vertex is not None and vertex.shared and vertex.body_present, "says what is not to be said")

    def _group_of(self, message_id: bytes) -> bytes:
        for group in self.universe.groups:
            if self.device.vertex(group.group_id, message_id) is not None:
                return group.group_id
        expect(False, "speaks of what it does not know")
        return b""

    # Its books

    def check_books(self) -> None:
        """See that counts, states and what each peer is owed agree with one another."""
        sizes, device = self.device.sizes(), self.device
        vertices = [(group, each) for group in device.groups() for each in device.messages(group.group_id)]
        expect(sizes["messages"] == len(vertices) <= _MESSAGES_MAX + len(self.universe.ids), "other messages")
        expect(sizes["links"] == len(self.links), "other ways")
        expect(sizes["offered"] <= _OFFERED_MAX * len(device.peers()), "too many offers kept")
        expect(sizes["pending"] == sum(each.state is State.PENDING for _, each in vertices), "other pending ones")
        expect(sizes["unheld"] == sum(map(device.owes, device.peers())), "owes otherwise than it says")
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
            told = self.told.get(each.message_id)
            expect(told in {None, each.order} or group.group_id in self.left, "another order than was told")

    def state(self) -> dict[object, object]:
        """Return what must outlive the device's memory."""
        device = self.device
        kept: dict[object, object] = {}
        for group in device.groups():
            for each in device.messages(group.group_id):
                row = (each.state, each.order, each.shared, each.body_present, each.seq, each.dependencies)
                kept[each.message_id] = row
                for peer in device.audience(group.group_id):
                    standing = device.standing(peer, group.group_id, each.message_id, self.now)
                    kept[peer, each.message_id] = standing.holds, standing.owes_ack
        return kept


class BspDeviceTarget:
    """Nothing is said that is not on disk, shared and owed; books agree; a restart changes nothing that was saved."""

    name = "bsp_device"

    def make(self, rng: random.Random) -> bytes:
        """Return a beginning in which ways stand and messages come, then anything."""
        begin = b"".join(bytes([0x49, who, rng.randrange(256)]) for who in range(3))
        steps = b"".join(
            bytes([0x40 | rng.randrange(len(_STEPS))]) + rng.randbytes(2) for _ in range(rng.randrange(61))
        )
        data = rng.randbytes(1) + begin + steps
        return mutate_bytes(rng, data, _CORPUS) if rng.random() < 0.2 else data

    def run(self, data: bytes) -> str:
        """Live through it, then come to rest, and see that nothing of it was only in memory."""
        first = data[0] if data else 0
        mode = (Mode.AUTO, Mode.INTERACTIVE, Mode.BATCH)[(first >> 1) % 3]
        world = _World(_UNIVERSES[first & 1], mode)
        for at in range(1, min(len(data) - _STEP_BYTES + 1, _STEPS_MAX * _STEP_BYTES), _STEP_BYTES):
            what, who, choice = data[at : at + _STEP_BYTES]
            _STEPS[what % 0x40 % len(_STEPS)](world, _PEERS[who % 3], choice)
            world.hear_events()
            if at % _LOOK_EVERY_BYTES == 1:
                world.check_books()
        self._rest(world)
        return " ".join(each for each in _OUTCOMES if each in world.outcomes) or "nothing"

    def _rest(self, world: _World) -> None:
        for peer in world.device.peers():
            world.links.append(world.device.link_up(peer, _TERMS[0], world.now))
        for _ in range(_ROUNDS_MAX):
            world.save()
            if not sum(world.say(peer, WRITE_BYTES) for peer in world.device.peers()):
                break
        else:
            expect(False, "never done with speaking")
        device = world.device
        for peer in device.peers():
            expect(not device.is_due(peer, world.now), "is due and says nothing")
            expect(not device.owes(peer) or device.deadline() is not None, "owes something and sleeps for ever")
        world.save()
        before = world.state()
        world.start()
        world.check_books()
        expect(world.state() == before, "a restart changes what is known")


def _hear_message(world: _World, peer: PublicKey, choice: int) -> None:
    message = world.universe.messages[choice % len(world.universe.messages)]
    world.given[peer].add(world.profile.message_id(*message))
    world.device.hear(peer, message, world.now, world.device.link_of(peer))


def _hear_strange(world: _World, peer: PublicKey, choice: int) -> None:
    """Hear a message of a group that nobody has, or a new one of ours that waits for ever."""
    group_id = bytes([choice]) * 32 if choice % 2 else world.universe.groups[0].group_id
    message = Message(group_id, choice, deps_v1_body([bytes([choice % 8]) * 32], b"?"))
    world.given[peer].add(world.profile.message_id(*message))
    world.device.hear(peer, message, world.now)


def _some_ids(world: _World, choice: int) -> tuple[bytes, ...]:
    ids = world.universe.ids
    return tuple(ids[(choice + at * (1 + choice % 5)) % len(ids)] for at in range(1 + choice % 6))


def _hear_offer(world: _World, peer: PublicKey, choice: int) -> None:
    ids = _some_ids(world, choice)
    if choice % 16 == 15:
        ids = tuple(choice.to_bytes(30, "big") + at.to_bytes(2, "big") for at in range(1_300))
    world.given[peer].update(ids)
    world.offered[peer].update(ids)
    before = world.device.sizes()["offered"]
    world.device.hear(peer, Offer(ids), world.now, world.device.link_of(peer))
    expect(world.device.sizes()["offered"] <= before + _OFFERED_MAX, "keeps all offers of one peer")


def _hear_ack(world: _World, peer: PublicKey, choice: int) -> None:
    world.device.hear(peer, Ack(_some_ids(world, choice)), world.now, world.device.link_of(peer))


def _hear_request(world: _World, peer: PublicKey, choice: int) -> None:
    world.device.hear(peer, Request(_some_ids(world, choice)), world.now, world.device.link_of(peer))


def _speak(world: _World, peer: PublicKey, choice: int) -> None:
    if world.device.knows(peer):
        world.say(peer, _SIZES[choice % len(_SIZES)])


def _begin(world: _World, _peer: PublicKey, _choice: int) -> None:
    world.begin()


def _finish(world: _World, _peer: PublicKey, _choice: int) -> None:
    world.finish()


def _restart(world: _World, _peer: PublicKey, choice: int) -> None:
    world.restart(saved=bool(choice % 2))


def _link_up(world: _World, peer: PublicKey, choice: int) -> None:
    if world.device.knows(peer) and len(world.links) < 16:
        world.links.append(world.device.link_up(peer, _TERMS[choice % len(_TERMS)], world.now))


def _link_down(world: _World, _peer: PublicKey, choice: int) -> None:
    if world.links:
        world.device.link_down(world.links.pop(choice % len(world.links)), world.now)


def _pass(world: _World, _peer: PublicKey, choice: int) -> None:
    world.now = after_ms(world.now, _WAITS_MS[choice % len(_WAITS_MS)])
    world.device.wake(world.now)
    at = world.device.deadline()
    expect(at is None or at > world.now, "wants to be woken for what was done")


def _add(world: _World, _peer: PublicKey, choice: int) -> None:
    group_id, timestamp, body = world.universe.messages[choice % len(world.universe.messages)]
    try:
        world.device.add(group_id, timestamp, body, world.now, share=choice < 200)
    except LocalError:
        world.outcomes.add("not added")


def _delete(world: _World, _peer: PublicKey, choice: int) -> None:
    message_id = world.universe.ids[choice % len(world.universe.ids)]
    try:
        world.device.delete(world.universe.by_id[message_id].group_id, message_id)
    except LocalError:
        world.outcomes.add("not deleted")


def _share(world: _World, peer: PublicKey, choice: int) -> None:
    group_id = world.universe.groups[choice % 2].group_id
    visibility = _VISIBILITIES[choice // 2 % len(_VISIBILITIES)]
    if world.device.knows(peer):
        world.device.share(group_id, peer, world.now, visibility)
        world.shared[group_id, peer] = visibility


def _draft(world: _World, peer: PublicKey, choice: int) -> None:
    """Say something in two steps, over a way that is up or none, and succeed or not."""
    if not world.device.knows(peer):
        return
    terms = _TERMS[choice % len(_TERMS)]
    draft: Draft = world.device.draft(peer, terms, world.now, WRITE_BYTES, again=choice % 7 == 0)
    world.check_said(peer, draft.records, WRITE_BYTES)
    (world.device.sent if choice < 180 else world.device.abandon)(draft, world.now)


def _leave(world: _World, _peer: PublicKey, choice: int) -> None:
    """Forget a group, and come back at once."""
    group = world.universe.groups[choice % 2]
    world.device.leave(group.group_id)
    world.left.add(group.group_id)
    world.device.join(group, world.now)
    for (group_id, peer), visibility in world.shared.items():
        if group_id == group.group_id:
            world.device.share(group_id, peer, world.now, visibility)


def _part(world: _World, peer: PublicKey, _choice: int) -> None:
    """Forget a peer, and meet it again; its ways are gone."""
    world.device.part(peer)
    world.device.meet(peer)
    world.links = [link for link in world.links if world.device.link_terms(link) is not None]
    for (group_id, other), visibility in world.shared.items():
        if other == peer:
            world.device.share(group_id, peer, world.now, visibility)


_STEPS: Final = (
    *(_hear_message, _hear_message, _hear_message, _hear_strange, _hear_offer, _hear_ack, _hear_request),
    *(_speak, _speak, _link_up, _begin, _finish, _finish, _pass, _add, _delete, _share, _draft, _link_down),
    *(_restart, _leave, _part),
)
_CORPUS: Final = (
    bytes(1) + bytes([0x49, 0, 0, 0, 0, 0, 10, 0, 0, 11, 0, 0, 7, 0, 4]),
    bytes([2]) + bytes([0x49, 1, 0, 14, 0, 0, 10, 0, 0, 11, 0, 0, 7, 1, 4, 5, 1, 0]),
)
