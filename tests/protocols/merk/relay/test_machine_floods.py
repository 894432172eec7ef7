"""Bad input at the relay: replays, floods, rates and readers that do not read (issue 4)."""

import itertools
import random

import pytest

from tests.protocols.merk.build_relay import (
    ALICE,
    BOB,
    CAROL,
    DELIVERED,
    FULL,
    MIB,
    UNKNOWN,
    X,
    Y,
    world_of_two,
)
from tests.protocols.merk.net import Net, assert_closed, assert_nothing_left, data_to, key_of
from waystation.protocols.merk import session, wire
from waystation.protocols.merk.limits import MerkLimits
from waystation.protocols.merk.messages import (
    ClientAbsent,
    DeliveryCode,
    MessageType,
    RequestServers,
)
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.relay import (
    delivery,
    forwards,
    key_directory,
    lookups,
    mesh,
)
from waystation.protocols.merk.session import State

FRAME = data_to(BOB, ALICE)


# Replays


def test_a_replayed_frame_of_a_client_needs_its_connection():
    """Frames carry no number: whoever recorded one can send it only in its own name."""
    _, node, alice, bob = world_of_two()
    recorded = alice.write(BOB)
    bob.content()
    bob.send(recorded)

    assert bob.content() == []
    assert node.refused(Refusal.FORGED_SENDER) == 1


def test_a_replayed_envelope_is_delivered_once():
    """And a peer that does nothing else loses its link."""
    _, _, _, bob, x = world_of_two(peers=1)
    for _ in range(17):
        x.forward(data_to(BOB, CAROL), b"i" * 16)

    assert len(bob.content()) == 1
    assert_closed(x, Refusal.STRIKES)


# Floods


def test_ten_thousand_searches_for_nobody_are_bounded():
    """A silent peer, one client: 64 at a time, the rest refused at once, and others still search."""
    net = Net()
    node = net.node(rate_limits=False)
    x, alice, bob = net.peer(node, X), net.client(node, ALICE), net.client(node, BOB)
    for number in range(10_000):
        node.relay.receive(alice.peer, wire.encode_frame(2, number.to_bytes(32, "big"), sender=ALICE.public), net.now)
    net.settle()
    sizes, codes = node.sizes, alice.codes()
    x.hear()
    bob.write(CAROL)

    assert (sizes["lookups"], sizes["lookup_bytes"]) == (64, 64 * 152)
    assert codes == [FULL] * (10_000 - 64)
    assert x.questions() == [CAROL.public]
    net.pass_ms(5_000)
    assert node.sizes["lookups"] == 0
    assert alice.codes() == [DeliveryCode.LOOKUP_TIMEOUT] * 64


def test_an_absence_is_asked_for_once_in_two_seconds():
    """A flood to one absent target costs the mesh one question."""
    _, _, alice, _, x = world_of_two(peers=1)
    alice.write(CAROL)
    asked = x.questions()
    x.say(ClientAbsent(CAROL.public))
    for _ in range(800):
        alice.write(CAROL)

    assert asked == [CAROL.public]
    assert x.questions() == []
    assert alice.codes() == [UNKNOWN] * 801


def test_the_rate_of_a_client_is_refused_with_code_5():
    """A thousand at once, 500 a second; nothing of the rest is delivered, and the connection stands."""
    net, node, alice, bob = world_of_two()
    used = 4  # its answer is not counted, its HELLO, AUTH and PRESENCE are
    frames = [data_to(BOB, ALICE, b"%d" % number) for number in range(1_100)]
    alice.send(*frames)
    codes = alice.codes()
    net.pass_ms(1_000)
    alice.send(*frames[:600])
    later = alice.codes()

    assert codes.count(DeliveryCode.RATE) in range(100, 100 + used)
    assert codes.count(DeliveryCode.RATE) + codes.count(DELIVERED) == 1_100
    assert (later.count(DELIVERED), later.count(DeliveryCode.RATE)) == (500, 100)
    assert len(bob.content()) == codes.count(DELIVERED) + 500
    assert alice.closed is None
    assert node.refused(Refusal.RATE) == codes.count(DeliveryCode.RATE) + 100


def test_questions_over_the_rate_are_dropped_and_counted():
    """They have no notice; the connection stands."""
    _, node, alice, _ = world_of_two()
    alice.say(*[RequestServers()] * 1_100)

    assert node.refused(Refusal.RATE) in range(100, 104)
    assert len(alice.told()) == 1_100 - node.refused(Refusal.RATE)


def test_a_slow_reader_is_not_cut_for_what_others_send():
    """At twice the largest frame the next is refused with code 2; reader and everybody else go on (finding 5)."""
    net, _, alice, bob = world_of_two(max_frame_bytes=1_024)
    carol = net.client(alice.node, CAROL)
    bob.stall()
    taken = [sender.write(BOB, bytes(1_024 - 152)) for sender in (alice, carol)]
    before = (alice.codes(), carol.codes())
    last = alice.write(BOB, bytes(1))
    refused = alice.notices()
    frame = alice.write(CAROL)
    bob.drain()

    assert before == ([], [])
    assert refused == [(FULL, wire.frame_hash(last))]
    assert bob.closed is None
    assert bob.content() == taken
    assert carol.content() == [frame]


def test_who_reads_nothing_for_a_minute_is_cut():
    """However little waits for it."""
    net, _, alice, bob = world_of_two()
    bob.stall()
    alice.write(BOB)
    net.pass_ms(59_999)
    before = bob.closed
    net.pass_ms(1)

    assert before is None
    assert_closed(bob, Refusal.NOT_READING)
    assert alice.codes() == [FULL]


def test_many_readers_of_one_network_leave_memory_for_others():
    """Twelve that read nothing, each with an address of its own, have an eighth; a reader elsewhere has its queue."""
    net = Net()
    node = net.node(rate_limits=False, limits=MerkLimits(buffered_bytes=8 * MIB))
    alice = net.client(node, ALICE)
    many = [net.connect(node, key_of(f"many {at}"), address=f"2001:db8:7:{at:x}::/64") for at in range(12)]
    bob = net.connect(node, BOB, address="2001:db8:8::/64")
    for each in (*many, bob):
        each.answer().greet().is_here().stall()
    for each in (*many, bob):
        alice.write(each.key, bytes(MIB // 4))

    assert alice.codes() == [FULL] * 9  # of a MiB three have a quarter, and a header each
    bob.drain()
    assert alice.codes() == [DELIVERED]


def test_who_asks_and_does_not_read_is_cut():
    """Our answers wait up to eight megabytes, for who was asking before we stopped reading it."""
    net = Net()
    node = net.node(rate_limits=False)
    for number in range(40):
        net.peer(node, key_of(number), address=f"ws://{number}.example/" + "x" * 200)
    alice = net.client(node, ALICE).stall()
    asked = 0
    while alice.closed is None and asked < 1_000:
        alice.say(RequestServers())
        asked += 1

    assert_closed(alice, Refusal.NOT_READING)
    assert sum(map(len, alice.hear())) <= 8 * MIB
    assert node.sizes["slow_readers"] == 0


def test_who_writes_to_itself_and_does_not_read_is_cut():
    """After a minute; nothing is said to it behind its end."""
    net, node, alice, _ = world_of_two(max_frame_bytes=1_024)
    alice.stall()
    for _ in range(4):
        alice.write(ALICE, bytes(700))
    net.pass_ms(60_000)

    assert_closed(alice, Refusal.NOT_READING)
    assert node.sizes["buffered_bytes"] == 0


def test_strikes_do_not_count_without_rate_limits():
    """[limits] enabled = false lifts rates and strikes, not the rules."""
    net = Net()
    node = net.node(rate_limits=False)
    alice, bob = net.client(node, ALICE), net.client(node, BOB)
    alice.send(*[data_to(BOB, CAROL)] * 50, *[FRAME] * 2_000)

    assert alice.closed is None
    assert node.refused(Refusal.FORGED_SENDER) == 50
    assert len(bob.content()) == 2_000


def test_noise_of_every_kind_ends_in_a_documented_way():
    """Bent frames at every kind of connection raise nothing and leave nothing."""
    rng = random.Random(9)
    net = Net()
    node = net.node(rate_limits=False)
    openers = (
        lambda: net.connect(node, ALICE),
        lambda: net.client(node, ALICE),
        lambda: net.peer(node, X),
        lambda: net.original(node, Y),
    )
    for attempt, opener in itertools.product(range(40), openers):
        line = opener()
        kind = rng.choice([1, 2, 3, 3, 3, 3, 4, 5, 6])
        payload = bytes([rng.choice([2, 3, 4, 5, 6, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, attempt])])
        line.send(wire.encode_frame(kind, payload + rng.randbytes(rng.randrange(200)), sender=line.key.public))
        if line.closed is None:
            line.hang_up()
        else:
            assert isinstance(line.closed, Refusal)

    net.pass_ms(200_000)
    assert_nothing_left(node)


def test_a_peer_cannot_speak_as_a_client_does():
    """Bare content on a link of ours is a strike and reaches nobody."""
    _, node, _, bob, x = world_of_two(peers=1)
    x.send(data_to(BOB, X))

    assert bob.content() == []
    assert node.refused(Refusal.UNKNOWN_TYPE) == 1
    assert x.session.state is State.PEER


def test_a_client_cannot_forward():
    """An envelope from a client is a strike, whatever is in it."""
    _, node, alice, bob = world_of_two()
    alice.forward(data_to(BOB, CAROL), b"i" * 16)

    assert bob.content() == []
    assert node.refused(Refusal.INFO_NOT_ALLOWED) == 1


@pytest.mark.parametrize("kind", MessageType)
def test_a_stranger_at_the_door_signs_nothing_and_sends_nothing_before_its_place(kind):
    """Only a challenge opens the door."""
    net = Net()
    node = net.node()
    bob, line = net.client(node, BOB), net.connect(node, X, door="mesh")
    line.send(wire.encode_frame(kind, BOB.public + b"x", sender=X.public))

    assert_closed(line, Refusal.HOSTILE_CHALLENGE)
    assert bob.content() == []


# Numbers


@pytest.mark.parametrize(
    ("module", "limits"),
    [
        (
            session,
            {
                "AUTH_DEADLINE_MS": 5_000,
                "CHALLENGE_DEADLINE_MS": 2_000,
                "HELLO_ANSWER_MS": 2_000,
                "PEER_PROOF_MS": 5_000,
            },
        ),
        (lookups, {"LOOKUP_MS": 5_000, "FOUND_MS": 60_000, "ABSENT_MS": 2_000}),
        (forwards, {"ANSWER_MS": 5_000, "SEEN_MS": 120_000}),
        (key_directory, {"AHEAD_MS_MAX": 300_000}),
        (mesh, {"FAILURES_MAX": 8, "RETRY_FIRST_MS": 500, "RETRY_MAX_MS": 30_000}),
        (delivery, {"NOT_READING_MS": 60_000}),
    ],
)
def test_limits_are_those_of_the_wire_reference(module, limits):
    """What specs/merk.md promises in sections 2, 5, 6, 8 and 10 is what holds: other tests scale limits down."""
    assert {name: getattr(module, name) for name in limits} == limits
