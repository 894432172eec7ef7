"""Laws of protocols.merk.relay.notices: what nodes say became of forwarded frames, one by one and many at once."""

import random

import pytest

from tests.protocols.merk.build_relay import (
    ALICE,
    BOB,
    CAROL,
    DELIVERED,
    LARGE,
    RATE,
    TIMEOUT,
    UNKNOWN,
    X,
    Y,
    absent_at,
    found_at,
    notice,
)
from tests.protocols.merk.net import ALL_FEATURES, GATHERING, Net, assert_closed, data_to, key_of
from waystation.core.effects import Close, Send
from waystation.protocols.merk import wire
from waystation.protocols.merk.limits import MerkLimits
from waystation.protocols.merk.messages import (
    Deliveries,
    Delivery,
    DeliveryCode,
    Feature,
    Forward,
    ForwardRun,
    Hello,
    Limits,
    MessageType,
    Role,
)
from waystation.protocols.merk.refusals import Refusal

IDS = [bytes([number]) * 16 for number in range(1, 21)]
FRAMES = [data_to(BOB, ALICE, b"%d" % number) for number in range(20)]


def gathering(**settings):
    """Return a net, its node, Alice, and X, a node that gathers notices and has Bob."""
    net = Net()
    node = net.node(**settings)
    alice, x = net.client(node, ALICE), net.peer(node, X, features=GATHERING)
    x.hear()
    return net, node, alice, x


def forwarding(count=20):
    """Return the same when Alice has sent so many frames to Bob, and the envelopes in which X has them."""
    net, node, alice, x = gathering()
    node.relay.receive_many(alice.peer, FRAMES[:count], net.now)
    net.settle()
    found_at(x)
    return net, node, alice, x, [info for info in x.told() if isinstance(info, Forward)]


def bringing(**settings):
    """Return a net, its node, Bob and X, which forwards FRAMES; the messages that it sends."""
    net, node, _, x = gathering(**settings)
    messages = [
        wire.encode_info_frame(Forward(1, message_id, X.public, frame), X.public)
        for message_id, frame in zip(IDS, FRAMES, strict=True)
    ]
    return net, node, net.client(node, BOB), x, messages


# What we say


@pytest.mark.parametrize("size", [1, 3, 20])
def test_all_that_ends_alike_in_a_turn_is_one_notice(size):
    """However many reads brought it: the frames in their order to Bob, and every id once to the node."""
    net, node, bob, x, messages = bringing()
    for start in range(0, len(messages), size):
        node.relay.receive_many(x.peer, messages[start : start + size], net.now)
    net.settle()

    assert bob.content() == FRAMES
    assert x.gathered() == [(DELIVERED, tuple(IDS))]


def test_each_code_has_a_notice_of_its_own():
    """Delivered, nobody here, too large, and too fast."""
    net, node, _, x, _ = bringing(max_frame_bytes=1_024, limits=MerkLimits(node_factor=1, frames_burst=4))
    net.pass_ms(10_000)
    frames = [FRAMES[0], data_to(CAROL, ALICE), data_to(BOB, ALICE, bytes(2_000)), FRAMES[1], FRAMES[2]]
    for message_id, frame in zip(IDS, frames, strict=False):
        node.relay.receive(x.peer, wire.encode_info_frame(Forward(1, message_id, X.public, frame), X.public), net.now)
    net.settle()

    assert x.gathered() == [
        (DELIVERED, (IDS[0], IDS[3])),
        (UNKNOWN, (IDS[1],)),
        (LARGE, (IDS[2],)),
        (RATE, (IDS[4],)),
    ]


def test_a_frame_that_waits_is_in_the_notice_of_its_turn():
    """Bob does not read for a while: what the node learns of that is said when it is true."""
    net, node, bob, x, messages = bringing()
    node.relay.receive_many(x.peer, messages[:2], net.now)
    net.settle()
    before = x.gathered()
    bob.stall()
    node.relay.receive_many(x.peer, messages[2:], net.now)
    net.settle()
    meanwhile = x.gathered()
    bob.drain()

    assert (before, meanwhile) == ([(DELIVERED, tuple(IDS[:2]))], [])
    assert x.gathered() == [(DELIVERED, tuple(IDS[2:]))]


def test_a_node_without_the_feature_gets_what_it_got():
    """Its notices are to the byte those of one frame each, by target and hash."""
    net, node, _, _, _ = bringing()
    y = net.peer(node, Y)
    y.hear()
    messages = [
        wire.encode_info_frame(Forward(1, bytes([number]) * 16, Y.public, frame), Y.public)
        for number, frame in enumerate(FRAMES)
    ]
    node.relay.receive_many(y.peer, messages, net.now)
    net.settle()
    expected = [Delivery(DELIVERED, BOB.public, wire.frame_hash(frame)) for frame in FRAMES]

    assert y.hear() == [wire.encode_info_frame(info, node.key) for info in expected]


def test_the_last_notice_leaves_in_front_of_a_close():
    """What has been handed over is said, though the node that brought it is sent away in the same turn."""
    net, node, _, x, messages = bringing()
    node.relay.receive_many(x.peer, [*messages, b""], net.now)
    effects = [each for each in node.relay.take() if getattr(each, "peer", None) == x.peer]
    sent = [wire.decode_info_frame(each.data) for each in effects if isinstance(each, Send)]

    assert sent == [Deliveries(DELIVERED, tuple(IDS))]
    assert [type(each) for each in effects if isinstance(each, Send | Close)] == [Send, Close]


def test_the_feature_is_said_to_nodes_alone():
    """A client hears of it no more than an original."""
    net = Net()
    node = net.node()
    features = {}
    for role in Role:
        line = net.connect(node, key_of(role.name)).answer().greet(role, GATHERING)
        features[role] = next(info.features for info in line.told() if isinstance(info, Hello))

    assert [bool(features[role] & Feature.DELIVERIES) for role in Role] == [False, True]


# What we take


def test_many_are_answered_at_once_in_any_order():
    """Each sender has one notice of each frame, and nothing is left under way."""
    _, node, alice, x, envelopes = forwarding()
    ids = [envelope.message_id for envelope in envelopes]
    random.Random(1).shuffle(ids)
    x.say(Deliveries(DELIVERED, tuple(ids)))
    told = alice.notices()
    x.say(Deliveries(DELIVERED, tuple(ids)))

    assert sorted(told) == sorted((DELIVERED, wire.frame_hash(frame)) for frame in FRAMES)
    assert (alice.notices(), node.sizes["forwards"], node.sizes["forward_bytes"]) == ([], 0, 0)


def test_any_partition_of_the_answers_gives_the_same():
    """One notice or twenty, in one read or in several."""
    for seed in range(20):
        net, node, alice, x, envelopes = forwarding()
        rng, ids = random.Random(seed), [envelope.message_id for envelope in envelopes]
        rng.shuffle(ids)
        cuts = sorted(rng.sample(range(1, 20), rng.randint(0, 6)))
        parts = [tuple(ids[start:end]) for start, end in zip([0, *cuts], [*cuts, 20], strict=True)]
        messages = [wire.encode_info_frame(Deliveries(DELIVERED, part), X.public) for part in parts]
        at = rng.randint(0, len(messages))
        for read in (messages[:at], messages[at:]):
            node.relay.receive_many(x.peer, read, net.now)
        net.settle()

        assert sorted(alice.notices()) == sorted((DELIVERED, wire.frame_hash(frame)) for frame in FRAMES)
        assert node.sizes["forwards"] == 0


@pytest.mark.parametrize("code", [*DeliveryCode, 7, 255])
def test_every_code_reaches_the_sender(code):
    """As it is; one that nobody knows as "nobody knows", and "not here" when nobody else has the recipient."""
    _, node, alice, x, (envelope,) = forwarding(1)
    x.say(Deliveries(code, (envelope.message_id,)))
    absent_at(x)

    assert alice.notices() == notice(code if code in list(DeliveryCode) else TIMEOUT, FRAMES[0])
    assert node.sizes["forwards"] == 0


def test_what_is_not_there_is_sought_elsewhere():
    """All frames of the notice, at the node that has the recipient now."""
    net, node, alice, x, envelopes = forwarding()
    y = net.peer(node, Y, features=GATHERING)
    y.hear()
    x.say(Deliveries(UNKNOWN, tuple(envelope.message_id for envelope in envelopes)))
    found_at(y)
    again = [info for info in y.told() if isinstance(info, Forward)]
    y.say(Deliveries(DELIVERED, tuple(envelope.message_id for envelope in again)))

    assert [envelope.frame for envelope in again] == FRAMES
    assert not {envelope.message_id for envelope in again} & {envelope.message_id for envelope in envelopes}
    assert sorted(alice.notices()) == sorted((DELIVERED, wire.frame_hash(frame)) for frame in FRAMES)
    assert node.sizes["forwards"] == 0


def test_a_node_answers_for_its_own_frames_alone():
    """Ids that it was not sent, hashes, and ids of another node's frames end nothing and cost it nothing."""
    net, node, alice, x, envelopes = forwarding()
    y = net.peer(node, Y, features=GATHERING)
    ids = tuple(envelope.message_id for envelope in envelopes)
    y.say(Deliveries(DELIVERED, ids), Deliveries(UNKNOWN, ids))
    x.say(Deliveries(DELIVERED, tuple(wire.frame_hash(frame) for frame in FRAMES)), Deliveries(DELIVERED, (bytes(16),)))

    assert (alice.notices(), node.sizes["forwards"]) == ([], 20)
    assert (x.session.strikes, y.session.strikes) == (0, 0)


def test_what_is_not_answered_is_told_as_unknown_once():
    """5 s later, and then no answer counts."""
    net, node, alice, x, envelopes = forwarding()
    x.say(Deliveries(DELIVERED, tuple(envelope.message_id for envelope in envelopes[:10])))
    alice.hear()
    net.pass_ms(5_000)
    late = alice.notices()
    x.say(Deliveries(DELIVERED, tuple(envelope.message_id for envelope in envelopes)))

    assert late == [(TIMEOUT, wire.frame_hash(frame)) for frame in FRAMES[10:]]
    assert (alice.notices(), node.sizes["forwards"]) == ([], 0)


@pytest.mark.parametrize("who", ["client", "node without the feature", "original"])
def test_who_has_not_said_the_feature_says_no_notice_of_many(who):
    """A strike, except for an original, which is not answerable; nothing ends."""
    net, node, _, _, envelopes = forwarding()
    lines = {
        "client": lambda: net.client(node, BOB),
        "node without the feature": lambda: net.peer(node, Y, features=ALL_FEATURES),
        "original": lambda: net.original(node, Y),
    }
    line = lines[who]()
    line.say(Deliveries(DELIVERED, tuple(envelope.message_id for envelope in envelopes)))

    assert node.refused(Refusal.INFO_NOT_ALLOWED) == 1
    assert line.session.strikes == (who != "original")
    assert node.sizes["forwards"] == 20


def test_malformed_notices_of_many_are_strikes():
    """Cut anywhere but behind an id, or with too many of them: sixteen end the connection, and nothing ends a frame."""
    _, node, alice, x, envelopes = forwarding()
    whole = wire.encode_info(Deliveries(DELIVERED, tuple(envelope.message_id for envelope in envelopes)))
    broken = [whole[:count] for count in (1, 2, 3, 17, 19, 33, 35)] + [whole * 20]
    for payload in (broken * 2)[:15]:
        x.send(wire.encode_frame(MessageType.NODE_INFO, payload, sender=X.public))
    before = (node.refused(Refusal.MALFORMED_INFO), node.sizes["forwards"], x.closed)
    x.send(wire.encode_frame(MessageType.NODE_INFO, broken[0], sender=X.public))

    assert before == (15, 20, None)
    assert_closed(x, Refusal.STRIKES)
    assert alice.codes() == [TIMEOUT] * 20


def test_two_nodes_of_ours_say_one_notice_for_many_frames():
    """Through two real relays: equal frames too have an outcome each."""
    net = Net()
    a, b = net.node("a", settles=False, peers=["ws://b"]), net.node("b", peers=["ws://a"])
    net.pass_ms(10_000)
    alice, bob = net.client(a, ALICE), net.client(b, BOB)
    alice.write(BOB, b"first")
    bob.hear()
    alice.hear()
    frames = [*FRAMES, *FRAMES]
    a.relay.receive_many(alice.peer, frames, net.now)
    net.settle()

    assert bob.content() == frames
    assert alice.notices() == [(DELIVERED, wire.frame_hash(frame)) for frame in frames]
    assert a.sizes["forwards"] == 0


# Runs of frames (MERK-RUNS)


def known_at_x():
    """Return a net, its node, Alice and X when X, which gathers, has had one frame for Bob."""
    net, node, alice, x, envelopes = forwarding(1)
    x.say(Deliveries(0, (envelopes[0].message_id,))).hear()
    alice.hear()
    return net, node, alice, x


def hand(net, node, line, frames):
    """Let frames arrive in one read."""
    node.relay.receive_many(line.peer, frames, net.now)
    net.settle()


def test_a_run_to_a_node_that_gathers_is_one_message():
    """Every frame with an id of its own, and each is answered by it."""
    net, node, alice, x = known_at_x()
    hand(net, node, alice, FRAMES)
    (run,) = x.told()
    x.say(Deliveries(0, tuple(message_id for message_id, _ in run.frames)))

    assert (run.hop, run.origin) == (1, node.key)
    assert [frame for _, frame in run.frames] == FRAMES
    assert len({message_id for message_id, _ in run.frames}) == len(FRAMES)
    assert alice.notices() == [(DELIVERED, wire.frame_hash(frame)) for frame in FRAMES]


def test_a_run_to_a_node_without_the_feature_is_the_old_envelopes():
    """To the byte, each a message of its own, as one by one."""
    told = []
    for is_together in (True, False):
        net = Net()
        node = net.node()
        alice, x = net.client(node, ALICE), net.peer(node, X)
        alice.write(BOB)
        found_at(x).hear()
        if is_together:
            hand(net, node, alice, FRAMES)
        else:
            alice.send(*FRAMES)
        told.append(x.hear())

    assert told[0] == told[1]
    assert len(told[0]) == len(FRAMES)


def test_a_run_has_at_most_240_frames():
    """What is beyond goes into the next one, in its order."""
    net, node, alice, x = known_at_x()
    hand(net, node, alice, FRAMES * 25)
    runs = [info.frames for info in x.told()]

    assert [len(frames) for frames in runs] == [240, 240, 20]
    assert [frame for frames in runs for _, frame in frames] == FRAMES * 25


@pytest.mark.parametrize("size", [1_000, 2_000])
def test_a_run_is_no_larger_than_what_the_node_takes(size):
    """LIMITS and 256 bytes: an exact fit is one message, and not a byte more is."""
    net, node, alice, x = known_at_x()
    x.say(Limits(size))
    least = wire.encode_frame(2, BOB.public, sender=ALICE.public)
    room = size + 256 - 155 - 4 * (20 + len(least))
    fits, too_large = (wire.encode_frame(2, BOB.public + bytes(room + more), sender=ALICE.public) for more in (0, 1))
    hand(net, node, alice, [least, least, least, fits])
    whole = x.hear()
    hand(net, node, alice, [least, least, least, too_large])
    parted = x.hear()

    assert [len(message) for message in whole] == [size + 256]
    assert [len(wire.decode_info_frame(message).frames) for message in parted] == [3, 1]


def test_a_run_from_a_node_without_the_feature_is_an_offence():
    """It has not said that it knows it."""
    net = Net()
    node = net.node()
    bob, x = net.client(node, BOB), net.peer(node, X)
    x.say(ForwardRun(1, X.public, ((IDS[0], FRAMES[0]),)))

    assert bob.content() == []
    assert node.refused(Refusal.INFO_NOT_ALLOWED) == 1


@pytest.mark.parametrize("together", [True, False])
def test_each_frame_of_a_run_counts_and_is_answered(together):
    """A message of many frames takes as much of the rate as they would alone."""
    net, node, bob, x, _ = bringing(limits=MerkLimits(node_factor=1, frames_burst=4))
    net.pass_ms(10_000)
    data = wire.encode_info_frame(ForwardRun(1, X.public, tuple(zip(IDS, FRAMES, strict=True))), X.public)
    if together:
        hand(net, node, x, [data])
    else:
        x.send(data)

    assert bob.content() == FRAMES[:4]
    assert x.gathered() == [(DELIVERED, tuple(IDS[:4])), (RATE, tuple(IDS[4:]))]
    assert node.refused(Refusal.RATE) == 16


def test_a_stranger_brings_no_unsigned_frames_in_a_run():
    """The rights of a node that nobody has named are those of its single frames (MERK-UNNAMED)."""
    net = Net()
    node = net.node()
    bob, x = net.client(node, BOB), net.stranger(node, X, features=GATHERING)
    unsigned = wire.encode_frame(2, BOB.public + b"!", sender=ALICE.public)
    x.say(ForwardRun(1, X.public, ((IDS[0], unsigned), (IDS[1], FRAMES[0]))))

    assert bob.content() == [FRAMES[0]]
    assert node.refused(Refusal.UNSIGNED) == 1


@pytest.mark.parametrize("lie", ["hop", "origin", "replay"])
def test_a_run_that_lies_is_struck_for_each_frame_until_it_is_closed(lie):
    """Sixteen lies in one message are as many as in sixteen; what stands behind them is not looked at."""
    net, node, bob, x, _ = bringing()
    ids = [IDS[0]] * 20 if lie == "replay" else IDS
    run = ForwardRun(
        2 if lie == "hop" else 1, Y.public if lie == "origin" else X.public, tuple(zip(ids, FRAMES, strict=True))
    )
    hand(net, node, x, [wire.encode_info_frame(run, X.public)])

    assert x.close is not None
    assert bob.content() == FRAMES[:1] * (lie == "replay")
