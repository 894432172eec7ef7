"""Laws of protocols.merk.routing: the way of a frame, and the one notice that each gets."""

import pytest

from tests.protocols.merk.build_relay import (
    ALICE,
    BOB,
    CAROL,
    DELIVERED,
    FULL,
    TIMEOUT,
    UNKNOWN,
    absent_at,
    found_at,
    notice,
    tell,
    world,
)
from tests.protocols.merk.net import data_to, key_of
from waystation.core.facts import MeshLookup
from waystation.protocols.merk import wire
from waystation.protocols.merk.limits import MerkLimits
from waystation.protocols.merk.messages import (
    Forward,
    Gone,
    MessageType,
    QueryClient,
)
from waystation.protocols.merk.relay import notices

# Here


@pytest.mark.parametrize("kind", [MessageType.DATA, MessageType.SIGNED_DATA, MessageType.ENCRYPTED_DATA])
def test_a_frame_reaches_a_client_that_is_here_to_the_byte(kind):
    """Type, reserved bytes, signature and payload stay as they came, and nobody else is asked."""
    net, node, alice, peer = world()
    bob = net.client(node, BOB)
    frame = bytearray(wire.encode_frame(kind, BOB.public + b"x" * 99, sender=ALICE.public, signature=b"s" * 64))
    frame[3], frame[8:24] = 7, b"r" * 16
    alice.send(bytes(frame))

    assert bob.content() == [bytes(frame)]
    assert alice.notices() == notice(DELIVERED, bytes(frame))
    assert peer.hear() == []


def test_a_frame_to_oneself_arrives():
    """Like any other."""
    _, _, alice = world(peers=0)
    frame = alice.write(ALICE)
    heard = alice.hear()

    assert heard[0] == frame
    assert len(heard) == 2


# Searches


def test_nobody_to_ask_is_nobody_there():
    """A node alone answers at once."""
    _, node, alice = world(peers=0)

    assert alice.notices() == []
    frame = alice.write(BOB)
    assert alice.notices() == notice(UNKNOWN, frame)
    assert node.searches() == []


def test_all_peers_are_asked_and_the_frame_waits():
    """Then it goes to the one that has the client, in an envelope, and the sender hears when that has spoken."""
    _, node, alice, x, y = world(peers=2)
    frame = alice.write(BOB)
    asked = (x.questions(), y.questions())
    absent_at(x)
    found_at(y)
    before = alice.notices()
    (forwarded,) = y.forwarded()
    tell(y, DELIVERED, frame)

    assert asked == ([BOB.public], [BOB.public])
    assert (before, forwarded, x.hear()) == ([], frame, [])
    assert alice.notices() == notice(DELIVERED, frame)
    assert node.searches() == ["found"]


def test_one_no_of_two_decides_nothing():
    """All must say no; then nobody is asked for two seconds."""
    net, node, alice, x, y = world(peers=2)
    first = alice.write(BOB)
    absent_at(x)
    before = alice.notices()
    absent_at(y)
    told = alice.notices()
    x.hear(), y.hear()
    second = alice.write(BOB)
    at_once = alice.notices()
    net.pass_ms(2_000)
    alice.write(BOB)

    assert (before, told, at_once) == ([], notice(UNKNOWN, first), notice(UNKNOWN, second))
    assert x.questions() == y.questions() == [BOB.public]
    assert node.searches() == ["absent"]


def test_silence_is_no_no():
    """A peer that does not answer makes it a time-out after five seconds, and no absence."""
    net, node, alice, x, y = world(peers=2)
    frame = alice.write(BOB)
    absent_at(x)
    net.pass_ms(4_999)
    before = alice.notices()
    net.pass_ms(1)
    told = alice.notices()
    y.hear()
    alice.write(BOB)

    assert (before, told) == ([], notice(TIMEOUT, frame))
    assert y.questions() == [BOB.public]
    assert node.searches() == ["timeout"]


def test_frames_of_many_wait_for_one_search():
    """Nobody is asked twice, and all of them go in their order."""
    net, node, alice, x = world()
    carol = net.client(node, CAROL)
    frames = [alice.write(BOB, b"1"), carol.write(BOB, b"2"), alice.write(BOB, b"3")]
    questions = x.questions()
    found_at(x)

    assert questions == [BOB.public]
    assert x.forwarded() == frames


def test_sixty_four_frames_wait_and_no_more():
    """The next is refused with code 2, and the others keep their place."""
    _, node, alice, x = world()
    frames = [alice.write(BOB, b"%d" % number) for number in range(65)]
    refused = alice.notices()
    found_at(x)

    assert refused == notice(FULL, frames[64])
    assert x.forwarded() == frames[:64]
    assert node.sizes["lookup_bytes"] == 0


def test_a_quarter_megabyte_or_one_larger_frame_waits():
    """What is beyond is refused with code 2."""
    _, _, alice, x = world()
    large = alice.write(BOB, bytes(300_000))
    small = alice.write(BOB, b"1")
    several = [alice.write(CAROL, bytes(130_000)) for _ in range(3)]
    refused = alice.notices()
    found_at(x)

    assert refused == [*notice(FULL, small), *notice(FULL, several[2])]
    assert x.forwarded() == [large]


def test_who_comes_while_it_is_searched_gets_what_waits():
    """And no peer's word matters any more."""
    net, node, alice, x = world()
    frame = alice.write(BOB)
    bob = net.connect(node, BOB).answer()
    found_at(x)
    x.hear()

    assert bob.content() == [frame]
    assert alice.notices() == notice(DELIVERED, frame)
    assert x.forwarded() == []
    assert node.sizes["places"] == 0


def test_the_last_silent_node_that_is_lost_has_said_no():
    """Nobody waits for who has gone."""
    _, _, alice, x, y = world(peers=2)
    frame = alice.write(BOB)
    absent_at(x)
    y.hang_up()

    assert alice.notices() == notice(UNKNOWN, frame)


def test_a_sender_that_has_left_is_told_nothing_and_its_frame_goes_on():
    """A frame that was taken is delivered whether its sender stays or not."""
    _, node, alice, x = world()
    frame = alice.write(BOB)
    alice.hang_up()
    found_at(x)
    tell(x, DELIVERED, frame)

    assert x.forwarded() == [frame]
    assert node.sizes["forwards"] == 0


# Places


def test_a_place_is_remembered_for_a_minute():
    """Without an answer to the question near its end (MERK-RENEW), a frame waits from then on."""
    net, _, alice, x = world()
    frame = alice.write(BOB)
    found_at(x)
    tell(x, DELIVERED, frame).hear()
    net.pass_ms(55_001)
    alice.write(BOB)
    net.pass_ms(4_998)
    alice.write(BOB)
    within = x.forwarded()
    tell(x, DELIVERED, frame)
    net.pass_ms(1)
    alice.write(BOB)

    assert within == [frame] * 2
    assert x.forwarded() == []


def test_who_is_gone_is_forgotten():
    """GONE from the node that has it; from another it means nothing."""
    _, _, alice, x, y = world(peers=2)
    alice.write(BOB)
    found_at(x)
    x.hear(), y.hear()
    y.say(Gone(BOB.public))
    alice.write(BOB)
    kept = x.forwarded()
    x.say(Gone(BOB.public))
    alice.write(BOB)

    assert len(kept) == 1
    assert x.questions() == y.questions() == [BOB.public]


def test_a_client_that_has_moved_is_found_again_once():
    """The old node says no, the others are asked, the new one gets the frame, and the sender hears one notice."""
    _, _, alice, x, y = world(peers=2)
    alice.write(BOB, b"before")
    found_at(x)
    tell(x, DELIVERED, data_to(BOB, ALICE, b"before"))
    absent_at(y)
    alice.hear(), x.hear(), y.hear()
    frame = alice.write(BOB)
    (left,) = x.forwarded()
    tell(x, UNKNOWN, frame)
    absent_at(x)
    asked = y.questions()
    found_at(y)
    (arrived,) = y.forwarded()
    before = alice.notices()
    tell(y, DELIVERED, frame)

    assert (left, arrived, asked, before) == (frame, frame, [BOB.public], [])
    assert alice.notices() == notice(DELIVERED, frame)


def test_a_frame_is_tried_at_four_nodes_at_most():
    """Two that claim and deny in turn get it no further; its sender has one notice."""
    _, node, alice, x, y = world(peers=2)
    frame = alice.write(BOB)
    tries = 0
    for _ in range(20):
        for peer in (x, y):
            told = peer.told()
            if QueryClient(BOB.public) in told:
                told += found_at(peer).told()
            for info in told:
                if isinstance(info, Forward):
                    tries += 1
                    tell(peer, UNKNOWN, frame)

    assert tries == 1 + notices.DENIALS_MAX == 4
    assert alice.notices() == notice(UNKNOWN, frame)
    assert node.sizes["forwards"] == node.sizes["lookups"] == 0


def test_a_client_that_returns_to_its_node_is_found_there():
    """A no between two visits keeps nobody away."""
    net, _, alice, x = world()
    frame = alice.write(BOB)
    found_at(x)
    tell(x, UNKNOWN, frame)
    x.deny()
    told = alice.notices()
    net.pass_ms(2_000)
    again = alice.write(BOB)
    x.hear()
    found_at(x)

    assert told == notice(UNKNOWN, frame)
    assert x.forwarded() == [again]


# Places that end (MERK-RENEW)


def test_a_steady_flow_outlives_the_place_of_its_recipient():
    """Sixteen frames a second for 70 s, a node that answers questions after 4.75 s: every frame is delivered."""
    net, _, alice, x = world()
    frame = alice.write(BOB)
    found_at(x)
    codes, answer_at, asked = [], None, 0
    for tick in range(280):
        for info in x.told():
            if info == QueryClient(BOB.public):
                asked, answer_at = asked + 1, tick + 19
            elif isinstance(info, Forward):
                tell(x, DELIVERED, frame)
        if tick == answer_at:
            found_at(x)
        codes += alice.codes()
        net.pass_ms(250)
        alice.send(*[frame] * 4)

    assert codes == [DELIVERED] * 1_117  # the last four are on their way
    assert asked == 2


def flowing(*, peers=1, **settings):
    """Return a net, its node, Alice and its peers, near the end of the place of Bob, who is at X."""
    net, node, alice, x, *others = world(peers=peers, **settings)
    frame = alice.write(BOB)
    found_at(x)
    for other in others:
        absent_at(other)
        other.hear()
    tell(x, DELIVERED, frame).hear()
    alice.hear()
    net.pass_ms(49_999)
    return net, node, alice, x, *others


def test_a_place_is_asked_for_again_once_in_its_last_ten_seconds():
    """Not before, not without a frame, and not for each frame; every node is asked."""
    net, _, alice, x, y = flowing(peers=2)
    alice.write(BOB)
    before = y.questions()
    net.pass_ms(1)
    unasked = y.questions()
    for _ in range(3):
        alice.write(BOB)
        y.deny()
        net.pass_ms(1)

    assert (before, unasked) == ([], [])
    assert x.questions() == [BOB.public]


def test_frames_go_to_the_old_place_until_the_answer_comes():
    """And to the new one from then on, which a newer presence shows (MERK-NEWEST)."""
    net, _, alice, x, y = flowing(peers=2)
    net.pass_ms(1)
    first = alice.write(BOB, b"first")
    meanwhile = x.forwarded()
    found_at(y, issued_ms=1)
    second = alice.write(BOB, b"second")

    assert (meanwhile, x.forwarded()) == ([first], [])
    assert y.forwarded() == [second]


def test_a_node_that_has_the_client_no_more_ends_its_place_at_once():
    """Its "not here" to the new question sends frames into the search that is under way."""
    net, _, alice, x, y = flowing(peers=2)
    net.pass_ms(1)
    alice.write(BOB)
    x.hear()
    absent_at(x)
    frame = alice.write(BOB)
    found_at(y)

    assert x.forwarded() == []
    assert y.forwarded() == [frame]


@pytest.mark.parametrize("answer", ["silence", "old presence"])
def test_a_search_in_vain_ends_no_place_before_its_time(answer):
    """Nobody shows the client: its place counts to its end, and the next frame is searched for."""
    net, node, alice, x = flowing()
    net.pass_ms(1)
    tell(x, DELIVERED, alice.write(BOB))
    if answer == "old presence":
        found_at(x, issued_ms=-600_000)
    net.pass_ms(9_999)
    alice.write(BOB)
    within = len(x.forwarded())
    net.pass_ms(1)
    alice.write(BOB)

    assert (within, x.questions()) == (2, [BOB.public])
    assert node.searches()[:2] == ["found", "timeout" if answer == "silence" else "absent"]


def test_a_node_that_retires_asks_for_no_place_again():
    """It takes no new work; frames go to the place as long as it counts."""
    net, node, alice, x = flowing()
    net.pass_ms(1)
    node.relay.retire()
    frame = alice.write(BOB)
    told = x.told()

    assert [type(info) for info in told] == [Forward]
    assert told[0].frame == frame


def test_nobody_can_be_asked_for_a_place_that_still_counts():
    """The node has as many open questions as it may have: its place is left as it is."""
    net, _, alice, x = flowing(limits=MerkLimits(questions_per_node=1))
    net.pass_ms(1)
    alice.write(CAROL)
    x.hear()
    frames = [alice.write(BOB), alice.write(BOB)]

    assert x.forwarded() == frames


# What is told of searches


def test_searches_beyond_fifty_a_second_are_told_together():
    """None is lost: the sum of both is their number."""
    net, node, alice, x = world(limits=MerkLimits(lookup_facts_burst=2))
    for number in range(20):
        alice.write(key_of(number))
        x.deny()
    one_by_one = len(node.searches())
    net.pass_ms(10_000)
    facts = node.facts_of(MeshLookup)

    assert one_by_one == 2
    assert sum(fact.times for fact in facts) == 20
    assert facts[-1] == MeshLookup("merk", None, 18, 0, None, "absent", 18)


def test_a_search_that_finds_tells_how_long_it_took():
    """In microseconds from its beginning; the other ends tell none."""
    net, node, alice, x = world()
    alice.write(BOB)
    net.pass_ms(7)
    found_at(x)

    assert node.facts_of(MeshLookup) == [MeshLookup("merk", BOB.public, 1, 1, 7_000, "found")]
