"""Laws of the relay that keeps adverts, and asks and answers for keys."""

import pytest

from tests.protocols.merk.build import changed
from tests.protocols.merk.net import START, WALL_MS, Net, assert_closed, key_of
from waystation.core.effects import Peer
from waystation.protocols.merk.messages import KeyAdvert, KeyQuery, KeyUnknown
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.session import Session, State
from waystation.protocols.merk.wire import make_advert

ALICE, BOB, CAROL, X, Y = (key_of(name) for name in ("alice", "bob", "carol", "x", "y"))


def session(number):
    """Return a connection."""
    return Session(Peer(number), State.PEER, START)


def advert(time_ms=WALL_MS, key=BOB, agreement=b"a" * 32):
    """Return a signed advert."""
    return make_advert(key, agreement, time_ms)


def test_an_advert_is_told_unchanged():
    """Who asks gets it as it was signed, at the owner's node without asking others."""
    net = Net()
    node = net.node()
    bob, alice, peer = net.client(node, BOB), net.client(node, ALICE), net.peer(node, X)
    bob.say(advert())
    alice.say(KeyQuery(BOB.public))

    assert alice.told() == [advert()]
    assert peer.hear() == []


def test_a_key_is_found_at_another_node():
    """The asker's node asks the others once."""
    net = Net()
    a, b, c = net.mesh("a", "b", "c")
    net.client(c, BOB).say(advert())
    alice = net.client(a, ALICE).say(KeyQuery(BOB.public))

    assert alice.told() == [advert()]
    assert a.sizes["key_questions"] == b.sizes["key_questions"] == 0


def test_nobody_knows_the_key():
    """Unknown here when alone, and unknown when all peers have said so."""
    net = Net()
    alone = net.client(net.node("z"), ALICE).say(KeyQuery(BOB.public))
    among = net.client(net.mesh("a", "b")[0], ALICE).say(KeyQuery(BOB.public))

    assert alone.told() == among.told() == [KeyUnknown(BOB.public)]


def test_a_silent_peer_costs_five_seconds():
    """Then the asker gets what is known."""
    net = Net()
    node = net.node()
    net.peer(node, X)
    alice = net.client(node, ALICE).say(KeyQuery(BOB.public))
    net.pass_ms(4_999)
    before = alice.told()
    net.pass_ms(1)

    assert (before, alice.told()) == ([], [KeyUnknown(BOB.public)])


def test_the_owner_has_moved():
    """An advert held from former days is compared with what the peers hold."""
    net = Net()
    node = net.node()
    net.client(node, BOB).say(advert(WALL_MS - 9)).hang_up()
    peer, alice = net.peer(node, X), net.client(node, ALICE)
    alice.say(KeyQuery(BOB.public))
    asked = peer.told()
    peer.say(advert(WALL_MS))

    assert asked == [KeyQuery(BOB.public)]
    assert alice.told() == [advert(WALL_MS)]


def test_a_lost_peer_ends_the_question():
    """Nobody waits for an answer that cannot come."""
    net = Net()
    node = net.node()
    peer, alice = net.peer(node, X), net.client(node, ALICE).say(KeyQuery(BOB.public))
    peer.hang_up()

    assert alice.told() == [KeyUnknown(BOB.public)]


def test_a_retiring_node_asks_nobody():
    """It answers from what it holds."""
    net = Net()
    node = net.node()
    peer, alice = net.peer(node, X), net.client(node, ALICE)
    node.relay.retire()
    alice.say(KeyQuery(BOB.public))

    assert alice.told() == [KeyUnknown(BOB.public)]
    assert peer.hear() == []


@pytest.mark.parametrize(
    "bad",
    [
        advert(key=CAROL),
        KeyAdvert(advert().key, b"b" * 32, advert().time_ms, advert().signature),
        KeyAdvert(advert().key, advert().agreement_key, advert().time_ms + 1, advert().signature),
        KeyAdvert(advert().key, advert().agreement_key, advert().time_ms, changed(advert().signature, 40)),
        advert(WALL_MS + 300_001),
    ],
    ids=["foreign", "other key", "other time", "bad signature", "future"],
)
def test_a_client_says_only_the_truth_about_itself(bad):
    """Anything else is refused, counted and not kept."""
    net = Net()
    node = net.node()
    net.client(node, BOB).say(bad)

    assert node.refused(Refusal.BAD_ADVERT) == 1
    assert node.sizes["adverts"] == 0


def test_a_forged_answer_of_a_peer_counts_as_none():
    """The other peers' answers still count, and the liar gets a strike."""
    net = Net()
    node = net.node()
    liar, honest, alice = net.peer(node, X), net.peer(node, Y), net.client(node, ALICE)
    alice.say(KeyQuery(BOB.public))
    liar.say(KeyAdvert(BOB.public, b"b" * 32, WALL_MS + 1, bytes(64)))
    honest.say(advert())

    assert alice.told() == [advert()]
    assert node.refused(Refusal.BAD_ADVERT) == 1


def test_a_peers_answer_is_not_kept():
    """A node holds only what its own clients said; it cannot be filled by others."""
    net = Net()
    node = net.node()
    peer, alice = net.peer(node, X), net.client(node, ALICE)
    alice.say(KeyQuery(BOB.public))
    peer.say(advert())

    assert node.sizes["adverts"] == 0


@pytest.mark.parametrize("answer", [advert(), KeyUnknown(BOB.public)], ids=["advert", "unknown"])
def test_answers_that_nobody_asked_for_are_refused(answer):
    """From a peer, and again after the first answer."""
    net = Net()
    node = net.node()
    peer, alice = net.peer(node, X), net.client(node, ALICE)
    peer.say(answer)
    alice.say(KeyQuery(BOB.public))
    peer.say(answer, answer)

    assert node.refused(Refusal.UNASKED_ANSWER) == 2
    assert len(alice.told()) == 1


def test_many_false_answers_end_the_link():
    """Sixteen are enough."""
    net = Net()
    peer = net.peer(net.node(), X)
    peer.say(*[KeyUnknown(BOB.public)] * 16)

    assert_closed(peer, Refusal.STRIKES)


def test_a_client_that_asks_too_much_is_told_what_is_known():
    """At once, and others still get their answers."""
    net = Net()
    node = net.node()
    net.client(node, BOB).say(advert()).hang_up()
    peer, alice, carol = net.peer(node, X), net.client(node, ALICE), net.client(node, CAROL)
    alice.say(*(KeyQuery(bytes([number]) * 32) for number in range(17)), KeyQuery(BOB.public))
    told = alice.told()
    carol.say(KeyQuery(ALICE.public))
    peer.say(KeyUnknown(ALICE.public))

    assert told == [KeyUnknown(b"\x10" * 32), advert()]
    assert carol.told() == [KeyUnknown(ALICE.public)]


def test_a_forged_answer_that_ends_the_link_ends_the_question():
    """The sixteenth strike may be the answer that somebody waits for."""
    net = Net()
    node = net.node()
    alice, liar = net.client(node, ALICE), net.peer(node, X)
    liar.say(*[KeyUnknown(CAROL.public)] * 15)
    alice.say(KeyQuery(BOB.public))
    liar.say(KeyAdvert(BOB.public, b"b" * 32, WALL_MS, bytes(64)))

    assert_closed(liar, Refusal.STRIKES)
    assert alice.told() == [KeyUnknown(BOB.public)]


def test_a_peer_is_told_what_we_hold_and_nobody_else_is_asked():
    """A question goes over one link only."""
    net = Net()
    node = net.node()
    net.client(node, BOB).say(advert())
    one, other = net.peer(node, X), net.peer(node, Y)
    other.hear()
    one.say(KeyQuery(BOB.public), KeyQuery(CAROL.public))

    assert one.told()[-2:] == [advert(), KeyUnknown(CAROL.public)]
    assert other.hear() == []
