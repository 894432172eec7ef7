"""Laws of protocols.merk.routing: what other nodes answer, what they send, and original relays."""

import pytest

from tests.protocols.merk.build_relay import (
    ALICE,
    BOB,
    CAROL,
    DELIVERED,
    FULL,
    ID,
    LARGE,
    RATE,
    TIMEOUT,
    UNKNOWN,
    X,
    Y,
    absent_at,
    claimed_at,
    found_at,
    notice,
    tell,
    world,
)
from tests.protocols.merk.net import Net, data_to
from waystation.protocols.merk import wire
from waystation.protocols.merk.messages import (
    ClientAbsent,
    ClientFound,
    Delivery,
    Forward,
    Gone,
    Limits,
    QueryClient,
)
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.relay import authentication

# Answers of other nodes


@pytest.mark.parametrize("code", [DELIVERED, FULL, TIMEOUT, LARGE, RATE])
def test_the_other_nodes_word_is_the_senders_notice(code):
    """Every code but an absence is handed on."""
    _, _, alice, x = world()
    frame = alice.write(BOB)
    found_at(x)
    tell(x, code, frame)

    assert alice.notices() == notice(code, frame)


def test_a_code_nobody_knows_says_that_nobody_knows():
    """A later version may have more; the frame may have arrived."""
    _, _, alice, x = world()
    frame = alice.write(BOB)
    found_at(x)
    tell(x, 99, frame)

    assert alice.notices() == notice(TIMEOUT, frame)


def test_a_second_answer_means_nothing():
    """Each frame has one notice; so has its twin."""
    _, _, alice, x = world()
    frame = alice.write(BOB)
    alice.write(BOB)
    found_at(x)
    for _ in range(4):
        tell(x, DELIVERED, frame)

    assert alice.notices() == notice(DELIVERED, frame) * 2


def test_a_node_that_never_answers_is_a_time_out():
    """After five seconds; its late answer means nothing."""
    net, node, alice, x = world()
    frame = alice.write(BOB)
    found_at(x)
    net.pass_ms(4_999)
    before = alice.notices()
    net.pass_ms(1)
    told = alice.notices()
    tell(x, DELIVERED, frame)

    assert (before, told, alice.notices()) == ([], notice(TIMEOUT, frame), [])
    assert node.sizes["forwards"] == 0
    assert x.closed is None


def test_a_lost_node_ends_what_it_had():
    """Nobody knows whether it arrived, so it is not sent again: a time-out at once."""
    _, _, alice, x, y = world(peers=2)
    frame = alice.write(BOB)
    found_at(x)
    y.hear()
    x.hang_up()

    assert alice.notices() == notice(TIMEOUT, frame)
    assert y.hear() == []


def test_what_never_left_for_a_lost_node_goes_elsewhere():
    """It waited behind a slow link: it is searched anew, and nothing is sent behind the end."""
    _, _, alice, x, y = world(peers=2)
    alice.write(BOB, b"first")
    found_at(x)
    tell(x, DELIVERED, data_to(BOB, ALICE, b"first"))
    x.stall()
    alice.hear(), y.hear()
    frame = alice.write(BOB)
    x.hang_up()
    asked = y.questions()
    found_at(y)
    tell(y, DELIVERED, frame)

    assert asked == [BOB.public]
    assert y.forwarded() == [frame]
    assert alice.notices() == notice(DELIVERED, frame)


def test_a_slow_link_is_served_when_it_reads_again():
    """What waits goes in its order."""
    _, _, alice, x = world()
    alice.write(BOB, b"0")
    found_at(x)
    x.stall()
    x.hear()
    frames = [alice.write(BOB, b"%d" % number) for number in range(1, 4)]
    before = x.hear()
    x.drain()

    assert before == []
    assert x.forwarded() == frames


# What comes from other nodes


def test_a_forwarded_frame_ends_here():
    """A client of ours gets it, its node is told."""
    net, node, _, x = world()
    bob = net.client(node, BOB)
    frame = data_to(BOB, CAROL)
    x.forward(frame, ID)

    assert bob.content() == [frame]
    assert x.notices() == notice(DELIVERED, frame)


def test_a_forwarded_frame_for_nobody_here_is_never_sent_on():
    """The answer is no, and no other node is asked."""
    _, _, _, x, y = world(peers=2)
    frame = data_to(BOB, CAROL)
    x.forward(frame, ID)

    assert x.notices() == notice(UNKNOWN, frame)
    assert y.hear() == []


def test_a_forwarded_frame_over_the_limit_is_refused():
    """With code 4; exactly at the limit it is delivered."""
    net, node, _, x = world(max_frame_bytes=1_024)
    bob = net.client(node, BOB)
    fits, over = data_to(BOB, CAROL, bytes(1_024 - 152)), data_to(BOB, CAROL, bytes(1_025 - 152))
    x.forward(fits, ID).forward(over, b"j" * 16)

    assert bob.content() == [fits]
    assert x.notices() == [*notice(DELIVERED, fits), *notice(LARGE, over)]


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"hop": 0}, Refusal.LYING_PEER),
        ({"hop": 2}, Refusal.LYING_PEER),
        ({"origin": Y.public}, Refusal.LYING_PEER),
        ({"frame": b"x" * 120}, Refusal.MALFORMED_INFO),
        ({"frame": data_to(BOB, CAROL) + b"x"}, Refusal.MALFORMED_INFO),
        ({"frame": wire.encode_frame(2, b"short", sender=CAROL.public)}, Refusal.MALFORMED_INFO),
        ({"frame": wire.encode_frame(3, BOB.public + b"x", sender=CAROL.public)}, Refusal.MALFORMED_INFO),
        ({"frame": wire.encode_frame(1, BOB.public + b"x", sender=CAROL.public)}, Refusal.MALFORMED_INFO),
    ],
)
def test_an_envelope_must_be_what_it_says(changes, refusal):
    """One hop, its sender's own, with a frame of content in it; else a strike and no delivery."""
    net, node, _, x = world()
    bob = net.client(node, BOB)
    x.forward(**{"frame": data_to(BOB, CAROL), "message_id": ID} | changes)

    assert node.refused(refusal) == 1
    assert bob.hear() == x.hear() == []


def test_a_replayed_envelope_is_dropped():
    """Also on a newer connection of the node; with another number the same frame is another frame."""
    net, node, _, x = world()
    bob = net.client(node, BOB)
    frame = data_to(BOB, CAROL)
    x.forward(frame, ID).forward(frame, ID)
    net.peer(node, X).forward(frame, ID).forward(frame, b"j" * 16)

    assert bob.content() == [frame, frame]
    assert node.refused(Refusal.REPLAYED_FORWARD) == 2


def test_numbers_of_one_node_are_not_those_of_another():
    """Who learns a node's numbers cannot use them up for it."""
    net, node, _, x, y = world(peers=2)
    bob = net.client(node, BOB)
    x.forward(data_to(BOB, CAROL, b"1"), ID)
    y.forward(data_to(BOB, CAROL, b"2"), ID)

    assert len(bob.content()) == 2
    assert node.refused(Refusal.REPLAYED_FORWARD) == 0


def test_a_node_is_told_who_is_here_and_when_it_leaves():
    """Found with our own key, absent otherwise, and GONE to those who were told."""
    net, node, _, x, y = world(peers=2)
    bob = net.client(node, BOB)
    x.say(QueryClient(BOB.public), QueryClient(CAROL.public))
    told = x.told()
    bob.hang_up()

    assert told == [bob.presence(BOB, node=node.key), ClientAbsent(CAROL.public)]
    assert x.told() == [Gone(BOB.public)]
    assert y.hear() == []


def test_a_client_that_changes_its_connection_is_not_gone():
    """Until the last of them has ended."""
    net, node, _, x = world()
    net.client(node, BOB)
    x.say(QueryClient(BOB.public)).hear()
    newer = net.client(node, BOB)
    between = x.told()
    newer.hang_up()

    assert between == []
    assert x.told() == [Gone(BOB.public)]


def test_nodes_that_have_left_are_not_kept():
    """Who asks and reconnects for ever leaves nothing behind."""
    net, node, _ = world(peers=0)
    bob = net.client(node, BOB)
    for _ in range(5):
        net.peer(node, X).say(QueryClient(BOB.public)).hang_up()

    assert bob.session.asked_by == {}


# Original relays


def test_an_original_gets_the_bare_frame_and_never_answers():
    """Its word that the client is there is all that will be heard."""
    net, node, alice = world(peers=0)
    original = net.original(node, X)
    frame = alice.write(BOB)
    asked = original.questions()
    claimed_at(original)

    assert asked == [BOB.public]
    assert original.content() == [frame]
    assert alice.notices() == notice(DELIVERED, frame)
    assert node.sizes["forwards"] == 0


def test_what_an_original_sends_reaches_our_clients():
    """Bare, from whomever it names, and nobody is told."""
    net, node, _ = world(peers=0)
    bob, original = net.client(node, BOB), net.original(node, X)
    frame = data_to(BOB, CAROL)
    original.send(frame, data_to(CAROL, BOB), wire.encode_frame(2, b"short", sender=CAROL.public))

    assert bob.content() == [frame]
    assert original.hear() == []
    assert original.closed is None


def test_an_originals_word_waits_for_the_peers():
    """Anybody may stand at the door and say found: a proved node that has the client goes before."""
    net, node, alice, x = world()
    original = net.original(node, Y)
    frame = alice.write(BOB)
    original.hear()
    found_at(original)
    found_at(x)

    assert original.content() == []
    assert x.forwarded() == [frame]


def test_an_original_that_asks_is_not_remembered():
    """It knows no GONE."""
    net, node, _ = world(peers=0)
    bob, original = net.client(node, BOB), net.original(node, X)
    original.say(QueryClient(BOB.public))
    told = original.told()
    bob.hang_up()

    assert told == [ClientFound(BOB.public, node.key)]
    assert original.hear() == []


# Between two original relays


def bridge():
    """Return a net, a node, an original that it dialled, one that came by the door, and a peer."""
    net = Net()
    node = net.node(peers=["ws://test"])
    (dialled,) = net.dialled()
    dialled.key = CAROL
    dialled.send(authentication.challenge_frame(b"\xff" * 32), authentication.confirm_frame(CAROL.public))
    net.pass_ms(2_000)
    came, peer = net.original(node, X), net.peer(node, Y)
    dialled.hear(), peer.hear()
    return net, node, dialled, came, peer


def test_clients_of_two_originals_can_talk():
    """Who came asks, who was dialled has the client: the answer is ours, and its frames go on to it."""
    _, node, dialled, came, peer = bridge()
    came.say(QueryClient(BOB.public))
    asked = (dialled.questions(), peer.questions())
    claimed_at(dialled)
    early = came.told()
    absent_at(peer)
    frame = data_to(BOB, ALICE)
    told = came.told()
    came.send(frame)

    assert asked == ([BOB.public], [BOB.public])
    assert (early, told) == ([], [ClientFound(BOB.public, node.key)])
    assert dialled.content() == [frame]
    came.say(QueryClient(BOB.public))
    assert came.told() == [ClientFound(BOB.public, node.key)]


@pytest.mark.parametrize("end", ["absent", "timeout", "at a peer"])
def test_what_an_original_cannot_reach_is_not_there(end):
    """Nobody has it, somebody is silent, or a peer has it: a frame from an original never crosses a second link."""
    net, _, dialled, came, peer = bridge()
    came.say(QueryClient(BOB.public))
    absent_at(dialled)
    if end == "timeout":
        net.pass_ms(5_000)
    elif end == "absent":
        absent_at(peer)
    else:
        found_at(peer)
    told = came.told()
    came.send(data_to(BOB, ALICE))
    peer.hear(), dialled.hear()
    came.say(QueryClient(BOB.public) if end != "timeout" else QueryClient(ALICE.public))

    assert told == [ClientAbsent(BOB.public)]
    assert peer.forwarded() == []
    assert came.told() == ([ClientAbsent(BOB.public)] if end != "timeout" else [])


def test_who_comes_here_while_an_original_asks_is_found_here():
    """The asker hears it at once."""
    net, node, _, came, _ = bridge()
    came.say(QueryClient(BOB.public))
    before = came.told()
    net.client(node, BOB)

    assert (before, came.told()) == ([], [ClientFound(BOB.public, node.key)])


def test_a_retiring_node_asks_nobody_for_an_original():
    """It tells who is here and nothing else."""
    _, node, dialled, came, _ = bridge()
    node.relay.retire()
    came.say(QueryClient(BOB.public))

    assert came.told() == [ClientAbsent(BOB.public)]
    assert dialled.hear() == []


def test_a_dialled_original_is_told_only_who_is_here():
    """It is one of those that are asked, so its questions begin no search."""
    _, _, dialled, came, peer = bridge()
    dialled.say(QueryClient(BOB.public))

    assert dialled.told() == [ClientAbsent(BOB.public)]
    assert came.hear() == peer.hear() == []


def test_an_original_without_others_is_told_at_once():
    """No dialled original, no search."""
    net, node, _, peer = world()
    came = net.original(node, Y)
    came.say(QueryClient(BOB.public))

    assert came.told() == [ClientAbsent(BOB.public)]
    assert peer.hear() == []


# What a node takes


@pytest.mark.parametrize("frames_count", [1, 3])
def test_a_frame_too_large_for_the_other_node_is_never_sent(frames_count):
    """It would cost the link (MERK-LIMITS); smaller ones go on."""
    net, node, alice, peer = world()
    peer.say(Limits(1_024))
    alice.write(BOB)
    found_at(peer)
    alice.hear()
    peer.hear()
    large = data_to(BOB, ALICE, bytes(1_024))
    node.relay.receive_many(alice.peer, [large] * frames_count, net.now)
    net.settle()

    assert peer.forwarded() == []
    assert alice.codes() == [LARGE] * frames_count
    alice.write(BOB, b"small")
    assert len(peer.forwarded()) == 1


# Original relays that read slowly


@pytest.mark.parametrize("then", ["drain", "hang_up"])
def test_a_frame_for_an_original_that_does_not_read_has_one_outcome(then):
    """It is refused, since nothing would be heard of it."""
    net = Net()
    node = net.node()
    alice, original = net.client(node, ALICE), net.original(node, X)
    alice.write(BOB)
    claimed_at(original)
    alice.hear()
    original.hear()
    original.stall()
    alice.write(BOB, b"2")
    getattr(original, then)()
    net.pass_ms(6_000)

    assert alice.codes() == [FULL]


# Bans


@pytest.mark.parametrize("frames_count", [1, 3])
def test_who_is_banned_here_reaches_nobody_here_through_another_node(frames_count):
    """To the other node the recipient is not here; other senders go through."""
    net = Net()
    node = net.node(admits=lambda key: key != CAROL.public)
    peer, bob = net.peer(node, X), net.client(node, BOB)
    peer.hear()
    bob.hear()
    banned, welcome = data_to(BOB, CAROL), data_to(BOB, ALICE)
    forwards = [Forward(1, bytes([number]) * 16, X.public, banned) for number in range(frames_count)]
    forwards.append(Forward(1, b"w" * 16, X.public, welcome))
    messages = [wire.encode_info_frame(each, X.public) for each in forwards]
    node.relay.receive_many(peer.peer, messages, net.now)
    net.settle()

    assert bob.content() == [welcome]
    assert peer.codes() == [UNKNOWN] * frames_count + [DELIVERED]


def test_who_is_banned_here_reaches_nobody_here_through_an_original():
    """Its frames end at the door."""
    net = Net()
    node = net.node(admits=lambda key: key != CAROL.public)
    original, bob = net.original(node, X), net.client(node, BOB)
    bob.hear()
    original.send(data_to(BOB, CAROL), data_to(BOB, ALICE))

    assert bob.content() == [data_to(BOB, ALICE)]


def test_a_forward_beyond_the_allowance_is_answered_at_once():
    """The other node need not wait for its time to be up, whatever else it sends too fast."""
    net = Net()
    node = net.node()
    peer = net.peer(node, X)
    peer.hear()
    frame = data_to(BOB, ALICE)
    peer.session.frames_allowance.take(net.now, 40_000)
    peer.forward(frame, ID)
    peer.say(QueryClient(BOB.public))
    peer.send(wire.encode_frame(3, b"\x83short", sender=X.public))

    assert peer.told() == [Delivery(RATE, BOB.public, wire.frame_hash(frame))]
    assert node.refused(Refusal.RATE) == 3
