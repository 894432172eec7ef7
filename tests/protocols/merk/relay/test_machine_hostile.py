"""Bad input at the relay: each defence of issue 4, told as what an attacker tries and what comes of it."""

import pytest

from tests.protocols.merk.build import SMALL_ORDER_POINTS, malleable
from tests.protocols.merk.build_relay import ALICE, BOB, CAROL, CHALLENGE, X, Y, world_of_two
from tests.protocols.merk.net import Net, assert_closed, assert_nothing_left, data_to
from waystation.crypto.signing import sign
from waystation.protocols.merk import wire
from waystation.protocols.merk.messages import (
    Auth,
    Hello,
    RequestServers,
    Role,
)
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.relay import authentication as greeting

FRAME = data_to(BOB, ALICE)


# Frames that are none


@pytest.mark.parametrize(
    ("frame", "refusal"),
    [
        (b"", Refusal.SHORT),
        (FRAME[:119], Refusal.SHORT),
        (b"\x59" + FRAME[1:], Refusal.BAD_MAGIC),
        (FRAME[:1] + b"\x02" + FRAME[2:], Refusal.BAD_VERSION),
        (FRAME + b"x", Refusal.BAD_LENGTH),
        (FRAME[:-1], Refusal.BAD_LENGTH),
        (FRAME[:4] + b"\xff\xff\xff\xff" + FRAME[8:], Refusal.BAD_LENGTH),
    ],
    ids=["empty", "short", "magic", "version", "long", "truncated", "lying"],
)
@pytest.mark.parametrize("who", ["stranger", "client", "peer", "original", "door"])
def test_what_is_no_frame_closes_with_1002(who, frame, refusal):
    """At any connection, whoever is at its end."""
    net = Net()
    node = net.node()
    line = {
        "stranger": lambda: net.connect(node, ALICE),
        "client": lambda: net.client(node, ALICE),
        "peer": lambda: net.peer(node, X),
        "original": lambda: net.original(node, X),
        "door": lambda: net.connect(node, X, door="mesh"),
    }[who]()
    line.send(frame)

    assert_closed(line, refusal)
    assert line.close.status == 1002
    assert_nothing_left(node)


@pytest.mark.parametrize(("size", "closed"), [(1_024, None), (1_025, Refusal.TOO_BIG)])
@pytest.mark.parametrize("together", [True, False])
def test_a_frame_over_the_limit_closes_with_1009(size, closed, together):
    """The limit counts the whole message, its header included; alone or in a run."""
    net = Net()
    node = net.node(max_frame_bytes=1_024)
    alice, bob = net.client(node, ALICE, hello=not together), net.client(node, BOB)
    frame = data_to(BOB, ALICE, bytes(size - 152))
    if together:
        node.relay.receive_many(alice.peer, [frame, frame], net.now)
        net.settle()
    else:
        alice.send(frame)

    assert alice.closed is closed
    assert bool(bob.content()) is (closed is None)
    assert closed is None or alice.close.status == 1009


# Before and instead of authentication


@pytest.mark.parametrize(
    "frame",
    [FRAME, wire.encode_info_frame(RequestServers(), ALICE.public), wire.encode_frame(9, b"", sender=ALICE.public)],
    ids=["data", "info", "unknown"],
)
def test_a_frame_before_the_answer_closes_with_4401(frame):
    """It reaches nobody, and no answer comes."""
    net = Net()
    node = net.node()
    bob, stranger = net.client(node, BOB), net.connect(node, ALICE)
    stranger.hear()
    stranger.send(frame)

    assert_closed(stranger, Refusal.FRAME_BEFORE_AUTH)
    assert stranger.close.status == 4401
    assert bob.hear() == stranger.hear() == []


@pytest.mark.parametrize("key", SMALL_ORDER_POINTS)
def test_no_key_of_small_order_gets_in(key):
    """The all-zero key with the all-zero signature passes lax checks one time in four: here never in fifty."""
    net = Net()
    node = net.node()
    signatures = [bytes(64), key + bytes(32), (1).to_bytes(32, "little") + bytes(32)]
    for attempt in range(50):
        line = net.connect(node)
        challenge = wire.decode_frame(line.hear()[0]).payload
        line.send(wire.encode_frame(1, challenge, sender=key, signature=signatures[attempt % 3]))

        assert_closed(line, Refusal.BAD_ANSWER)
    assert node.sizes["clients"] == 0


def test_a_malleable_answer_is_refused():
    """S plus the group order is the same signature to a lax verifier; here a signature has one spelling."""
    net = Net()
    line = net.connect(net.node(), ALICE)
    challenge = wire.decode_frame(line.hear()[0]).payload
    line.send(wire.encode_frame(1, challenge, sender=ALICE.public, signature=malleable(sign(ALICE, challenge))))

    assert_closed(line, Refusal.BAD_ANSWER)


@pytest.mark.parametrize("how", ["other challenge", "other key", "replayed", "not signed"])
def test_a_wrong_answer_closes_with_4401(how):
    """One try per connection; an answer of another connection is worth nothing."""
    net = Net()
    node = net.node()
    earlier, line = net.connect(node, ALICE), net.connect(node, ALICE)
    old, new = (wire.decode_frame(each.hear()[0]).payload for each in (earlier, line))
    line.send(
        {
            "other challenge": greeting.answer_frame(b"\xff" * 32, ALICE),
            "other key": wire.encode_frame(1, new, sender=ALICE.public, signature=sign(BOB, new)),
            "replayed": greeting.answer_frame(old, ALICE),
            "not signed": wire.encode_frame(1, new, sender=ALICE.public),
        }[how]
    )

    assert_closed(line, Refusal.BAD_ANSWER)
    assert line.close.status == 4401


def test_a_second_answer_closes():
    """Once authenticated, no frame of the handshake has its place any more."""
    net = Net()
    line = net.connect(net.node(), ALICE)
    challenge = wire.decode_frame(line.heard[0]).payload
    line.answer().send(greeting.answer_frame(challenge, ALICE))

    assert_closed(line, Refusal.MISPLACED_HANDSHAKE)
    assert line.close.status == 4401


# Senders


@pytest.mark.parametrize("kind", [2, 3, 4, 5, 9])
def test_a_forged_sender_is_dropped_and_counted(kind):
    """A client speaks in its own name only; what it forged reaches nobody and has no notice."""
    _, node, alice, bob = world_of_two()
    alice.send(wire.encode_frame(kind, BOB.public + b"forged", sender=CAROL.public))

    assert node.refused(Refusal.FORGED_SENDER) == 1
    assert alice.hear() == bob.hear() == []
    assert alice.closed is None


def test_sixteen_forged_senders_close_with_1008():
    """Fifteen do not; and what follows is not looked at."""
    _, _, alice, bob = world_of_two()
    forged = [data_to(BOB, CAROL)] * 15
    alice.send(*forged)
    before = alice.closed
    alice.send(data_to(BOB, CAROL), data_to(BOB, ALICE))

    assert before is None
    assert_closed(alice, Refusal.STRIKES)
    assert alice.close.status == 1008
    assert bob.content() == []


def test_a_run_cannot_smuggle_a_forged_sender():
    """Several messages at once are checked one by one."""
    net = Net()
    node = net.node()
    alice, bob = net.client(node, ALICE, hello=False), net.client(node, BOB)
    node.relay.receive_many(alice.peer, [FRAME, data_to(BOB, CAROL), FRAME], net.now)
    net.settle()

    assert bob.content() == [FRAME, FRAME]
    assert node.refused(Refusal.FORGED_SENDER) == 1


def test_a_frame_without_a_target_is_a_strike():
    """31 bytes are nobody's key."""
    _, node, alice, _ = world_of_two()
    alice.send(wire.encode_frame(2, bytes(31), sender=ALICE.public))

    assert node.refused(Refusal.NO_TARGET) == 1


# Both sides of a handshake


def upstream(net, node):
    """Return the line of an original relay that the node has dialled."""
    (line,) = net.dialled()
    line.key = Y
    line.send(CHALLENGE, greeting.confirm_frame(Y.public))
    net.pass_ms(2_000)
    line.hear()
    return line


# Challenges that are traps


@pytest.mark.parametrize("first", [1, 2, 3, 0x10])
@pytest.mark.parametrize("at", ["dialled", "door"])
def test_no_challenge_makes_a_signed_text(first, at):
    """32 bytes that read as typed content are not signed with the node key, on either side."""
    net = Net()
    if at == "door":
        line = net.connect(net.node(), X, door="mesh")
    else:
        net.node(peers=["ws://test"])
        (line,) = net.dialled()
    line.send(greeting.challenge_frame(bytes((first,)) + b"I owe Mallory 1000 pounds. Bob."))

    assert_closed(line, Refusal.HOSTILE_CHALLENGE)
    assert line.hear() == []


@pytest.mark.parametrize("at", ["dialled", "door"])
def test_one_challenge_is_signed_per_connection(at):
    """A second one ends it before it is answered."""
    net = Net()
    if at == "door":
        line = net.connect(net.node(), X, door="mesh")
    else:
        net.node(peers=["ws://test"])
        (line,) = net.dialled()
    line.send(CHALLENGE)
    answers = len(line.hear())
    line.send(greeting.challenge_frame(b"\xee" * 32))

    assert answers == 1
    assert_closed(line, Refusal.BAD_ANSWER)
    assert line.hear() == []


@pytest.mark.parametrize("who", ["downstream", "upstream"])
def test_a_challenge_behind_the_handshake_is_not_signed(who):
    """An original may challenge for ever; nothing is answered."""
    net = Net()
    node = net.node(peers=["ws://test"])
    line = upstream(net, node) if who == "upstream" else net.original(node, X)
    line.send(greeting.challenge_frame(b"\xee" * 32))

    assert line.hear() == []
    assert line.closed is None


def test_our_own_challenges_are_never_a_text():
    """Each first byte is 0x80 or more: who answers has signed noise."""
    net = Net()
    node = net.node()
    firsts = [wire.decode_frame(net.connect(node).heard[0]).payload[0] for _ in range(200)]

    assert min(firsts) >= 0x80


# Proofs between nodes


def test_a_proof_made_for_one_node_is_worth_nothing_at_another():
    """Keys and nonces of both sides are signed."""
    net = Net()
    a, b = net.node("a"), net.node("b")
    at_a, at_b = (net.connect(node, X).answer().greet(Role.NODE) for node in (a, b))
    hello_a = next(info for info in at_a.told() if isinstance(info, Hello))
    at_b.say(at_a.proof(hello_a))

    assert_closed(at_b, Refusal.BAD_PEER_AUTH)
    assert b.links == set()


def test_a_proof_of_yesterday_is_worth_nothing_today():
    """Each connection has new nonces."""
    net = Net()
    node = net.node()
    first = net.connect(node, X).answer().greet(Role.NODE)
    proof = first.proof(next(info for info in first.told() if isinstance(info, Hello)))
    first.say(proof).hang_up()
    again = net.connect(node, X).answer()
    again.nonce = first.nonce
    again.say(Hello(0, Role.NODE, X.public, first.nonce, "")).say(proof)

    assert_closed(again, Refusal.BAD_PEER_AUTH)


def test_our_own_proof_sent_back_is_worth_nothing():
    """A mirror has no key."""
    net = Net()
    node = net.node()
    line = net.connect(node, X).answer().greet(Role.NODE)
    mirrored = next(info for info in line.told() if isinstance(info, Auth))
    line.say(mirrored)

    assert_closed(line, Refusal.BAD_PEER_AUTH)


def test_a_proof_with_swapped_roles_is_worth_nothing():
    """What a client signs makes it no node, and the other way round."""
    for said, signed in ((Role.NODE, Role.CLIENT), (Role.CLIENT, Role.NODE)):
        net = Net()
        line = net.connect(net.node(), X).answer().greet(said)
        hello = next(info for info in line.told() if isinstance(info, Hello))
        line.say(line.proof(hello, signed))

        assert_closed(line, Refusal.BAD_PEER_AUTH)


@pytest.mark.parametrize("key", SMALL_ORDER_POINTS[:2])
def test_a_dialled_node_of_small_order_proves_nothing(key):
    """Its confirmation may claim any key; the proof is checked strictly."""
    net = Net()
    net.node(peers=["ws://test"])
    (line,) = net.dialled()
    line.send(CHALLENGE, greeting.confirm_frame(key) if any(key) else greeting.confirm_frame(X.public))
    line.say(Hello(0, Role.NODE, key, bytes(32), ""))
    if line.closed is None:
        line.say(Auth(key + bytes(32)))

    assert_closed(line, Refusal.BAD_PEER_AUTH)


def test_a_nameless_confirmation_is_none():
    """The zero key is nobody."""
    net = Net()
    net.node(peers=["ws://test"])
    (line,) = net.dialled()
    line.send(CHALLENGE, greeting.confirm_frame(bytes(32)))

    assert_closed(line, Refusal.BAD_ANSWER)
