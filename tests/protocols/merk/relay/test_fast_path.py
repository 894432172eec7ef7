"""Laws of protocols.merk.runs: the short way gives what the long way gives, and costs no more than its frames."""

import random

import pytest

from tests.protocols.merk.build import forwards_in
from tests.protocols.merk.net import ALL_FEATURES, GATHERING, Net, assert_closed, data_to, key_of
from waystation.core.effects import SendMany
from waystation.core.facts import Refused
from waystation.protocols.merk import wire
from waystation.protocols.merk.messages import Deliveries, Delivery, Forward, ForwardRun, Gone, MessageType, QueryClient
from waystation.protocols.merk.refusals import Refusal

ALICE, BOB, CAROL, DAVE, X, Y = (key_of(name) for name in ("alice", "bob", "carol", "dave", "x", "y"))
LIMIT = 1_048_576


class World:
    """A node with two clients and a slow one, a peer that has Dave, and another that forwards."""

    def __init__(self, *, notices=True, features=ALL_FEATURES):
        self.net = Net()
        self.node = self.net.node(max_frame_bytes=LIMIT)
        self.alice = self.net.client(self.node, ALICE, hello=notices)
        self.bob, self.carol = self.net.client(self.node, BOB), self.net.client(self.node, CAROL).stall()
        self.x = self.net.peer(self.node, X)
        self.y = self.net.peer(self.node, Y, features=features)
        sought = self.alice.write(DAVE, b"seek")
        self.x.say(self.x.presence(DAVE), Delivery(0, DAVE.public, wire.frame_hash(sought)))
        self.lines = (self.alice, self.bob, self.carol, self.x, self.y)
        for line in self.lines:
            line.hear()
        self.node.facts.clear()

    def hand(self, line, messages, *, together):
        """Let messages arrive on a line, at once or one by one."""
        if together:
            self.node.relay.receive_many(line.peer, messages, self.net.now)
            self.net.settle()
        else:
            line.send(*messages)
        return self

    def outcome(self):
        """Return all that anybody can tell: content in order, notices by number, what was refused, and what is kept."""
        told = []
        for line in self.lines:
            heard = line.hear()
            content = [frame for frame in heard if frame[2] in (2, 4, 5)]
            infos = [wire.decode_info_frame(frame) for frame in heard if frame[2] == MessageType.NODE_INFO]
            forwarded = [forward.frame for info in infos for forward in forwards_in(info)]
            others = sorted(
                repr(each)
                for info in infos
                if not forwards_in(info)
                for each in ([(info.code, each) for each in info[1]] if isinstance(info, Deliveries) else [info])
            )
            told.append((content, forwarded, others, line.closed))
        refused = sorted((fact.reason, fact.times) for fact in self.node.facts if isinstance(fact, Refused))
        return told, refused, self.node.sizes


def client_frames(rng, count):
    """Return frames of Alice: mostly runs to one target, with something odd now and then."""
    frames, target = [], BOB
    for number in range(count):
        if rng.random() < 0.3:
            target = rng.choice((BOB, BOB, CAROL, DAVE, DAVE, ALICE))
        content = rng.randbytes(rng.choice((5, 5, 5, 300))) + b"%d" % number
        odd = rng.random()
        sender = CAROL if odd < 0.03 else ALICE
        frame = wire.encode_frame(rng.choice((2, 2, 4, 5)), target.public + content, sender=sender.public)
        if 0.03 < odd < 0.06:
            frame = wire.encode_frame(9, target.public, sender=ALICE.public)
        elif 0.06 < odd < 0.08:
            frame = wire.encode_frame(2, b"short", sender=ALICE.public)
        elif 0.08 < odd < 0.085:
            frame = frame[:-1]
        frames.append(frame)
    return frames


def peer_messages(rng, count):
    """Return messages of Y: envelopes, notices, and other things, with replays and lies among them."""
    messages = []
    for number in range(count):
        target = rng.choice((BOB, BOB, BOB, CAROL, DAVE))
        odd = rng.random()
        frame = data_to(target, key_of("far"), rng.randbytes(5) + b"%d" % number)
        message_id = (number if odd > 0.05 else max(0, number - 1)).to_bytes(16, "big")
        info = Forward(2 if 0.05 < odd < 0.08 else 1, message_id, X.public if 0.08 < odd < 0.1 else Y.public, frame)
        if 0.1 < odd < 0.2:
            notices = (Delivery(0, BOB.public, bytes(16)), Deliveries(0, (bytes(16), bytes(16))))
            info = rng.choice((QueryClient(BOB.public), Gone(BOB.public), *notices))
        elif 0.2 < odd < 0.23:
            info = Forward(1, message_id, Y.public, frame[:-1])
        elif odd > 0.8:
            others = [data_to(rng.choice((BOB, CAROL)), key_of("far"), b"%d %d" % (number, each)) for each in range(4)]
            ids = [rng.choice((message_id, rng.randbytes(16))) for _ in others]
            run = [(message_id, frame), *zip(ids, others, strict=True), (rng.randbytes(16), frame[:-1])]
            info = ForwardRun(info.hop, info.origin, tuple(run[: rng.randint(1, 6)]))
        messages.append(wire.encode_info_frame(info, Y.public))
    return messages


@pytest.mark.parametrize("notices", [True, False])
@pytest.mark.parametrize("seed", range(25))
def test_a_run_of_a_client_is_the_same_as_one_by_one(seed, notices):
    """The same frames to the same recipients in the same order, the same notices, refusals and tables."""
    frames = client_frames(random.Random(seed), 40)
    outcomes = []
    for together in (True, False):
        world = World(notices=notices)
        outcomes.append(world.hand(world.alice, frames, together=together).outcome())

    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("features", [ALL_FEATURES, GATHERING])
@pytest.mark.parametrize("seed", range(25))
def test_a_run_of_a_peer_is_the_same_as_one_by_one(seed, features):
    """Envelopes, notices and what stands between them; whatever its read boundaries, each frame has one outcome."""
    messages = peer_messages(random.Random(seed), 40)
    outcomes = []
    for together in (True, False):
        world = World(features=features)
        outcomes.append(world.hand(world.y, messages, together=together).outcome())

    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("together", [True, False])
def test_answers_of_a_peer_reach_the_senders(together):
    """A run of notices ends each frame once."""
    world = World()
    frames = [data_to(DAVE, ALICE, b"%d" % number) for number in range(20)]
    world.hand(world.alice, frames, together=together)
    notices = [Delivery(0, DAVE.public, wire.frame_hash(frame)) for frame in frames]
    answers = [wire.encode_info_frame(notice, X.public) for notice in [*notices, notices[0]]]
    forwarded = world.x.forwarded()
    world.hand(world.x, answers, together=together)

    assert forwarded == frames
    assert [name for _, name in world.alice.notices()] == [notice.frame_hash for notice in notices]
    assert world.node.sizes["forwards"] == 0


def test_a_run_leaves_as_one_effect():
    """That is what it is for: to a client here, and to a peer."""
    for target in (BOB, DAVE):
        world = World(notices=False)
        frames = [data_to(target, ALICE, b"%d" % number) for number in range(20)]
        world.node.relay.receive_many(world.alice.peer, frames, world.net.now)
        sends = [effect for effect in world.node.relay.take() if isinstance(effect, SendMany)]

        assert [len(send.messages) for send in sends] == [20]


def test_runs_to_a_place_that_ends_ask_for_it_once():
    """The whole run arrives in its order, and so does the next (MERK-RENEW)."""
    world = World()
    world.net.pass_ms(50_000)
    frames = [data_to(DAVE, ALICE, b"%d" % number) for number in range(40)]
    world.hand(world.alice, frames, together=True).hand(world.alice, frames, together=True)
    infos = world.x.told()

    assert [info.frame for info in infos if isinstance(info, Forward)] == frames * 2
    assert [info for info in infos if not isinstance(info, Forward)] == [QueryClient(DAVE.public)]


@pytest.mark.parametrize("target", [BOB, DAVE])
def test_every_frame_of_a_run_is_counted(target):
    """A thousand at once, whichever way they go."""
    world = World()
    frames = [data_to(target, ALICE, b"%d" % number) for number in range(300)]
    for _ in range(5):
        world.hand(world.alice, frames, together=True)

    delivered = len(world.bob.content()) + len(world.x.forwarded())
    assert delivered + world.node.refused(Refusal.RATE) == 1_500
    assert 995 <= delivered <= 1_000


def test_a_run_to_a_slow_reader_is_counted_once():
    """What goes the long way in the end has not been paid for twice."""
    world = World()
    world.hand(world.alice, [data_to(BOB, ALICE)] * 985, together=True)
    world.hand(world.alice, [data_to(CAROL, ALICE)] * 10, together=True)

    assert world.node.refused(Refusal.RATE) == 0


class Counted(list):
    """A list that counts how often one of its elements is looked at."""

    looks = 0

    def __getitem__(self, at):
        self.looks += isinstance(at, int)
        return super().__getitem__(at)


@pytest.mark.parametrize("why", ["rate", "slow reader", "nobody", "peer"])
def test_a_run_that_is_not_taken_costs_no_more_than_its_frames(why):
    """Each frame is looked at a bounded number of times, however the run ends."""
    world = World()
    target = {"slow reader": CAROL, "nobody": key_of("nobody")}.get(why, BOB)
    if why == "rate":
        world.hand(world.alice, [data_to(BOB, ALICE)] * 990, together=True)
    frames = Counted(data_to(target, ALICE, bytes([number % 256])) for number in range(600))
    if why == "peer":
        envelopes = (Forward(1, number.to_bytes(16, "big"), Y.public, frame) for number, frame in enumerate(frames))
        frames = Counted(wire.encode_info_frame(envelope, Y.public) for envelope in envelopes)
        world.carol.stall()
    world.node.relay.receive_many((world.y if why == "peer" else world.alice).peer, frames, world.net.now)

    assert frames.looks <= 4 * len(frames)


def test_a_run_stops_at_the_end_of_its_connection():
    """What stands behind a frame that closes is not looked at."""
    world = World()
    frame = data_to(BOB, ALICE)
    world.hand(world.alice, [frame, b"", frame], together=True)
    world.node.relay.receive_many(world.alice.peer, [frame], world.net.now)

    assert_closed(world.alice, Refusal.SHORT)
    assert world.bob.content() == [frame]
    assert world.node.relay.take() == []
