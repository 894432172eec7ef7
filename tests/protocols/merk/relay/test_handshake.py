"""Laws of protocols.merk.welcome: how each kind of connection becomes known, or does not."""

import pytest

from tests.protocols.merk.build_relay import ALICE, BOB, CHALLENGE, X, Y
from tests.protocols.merk.net import ALL_FEATURES, Net, assert_closed, assert_nothing_left, data_to, key_of
from waystation.core.facts import PeerIdentified
from waystation.crypto.signing import sign
from waystation.protocols.merk import wire
from waystation.protocols.merk.limits import MerkLimits
from waystation.protocols.merk.messages import (
    Auth,
    Feature,
    Frame,
    Hello,
    Limits,
    RequestServers,
    Role,
)
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.relay import authentication
from waystation.protocols.merk.session import State

# Clients


def test_a_client_answers_and_is_confirmed():
    """Challenge, answer, confirmation in the node's name; the journal learns its key."""
    net = Net()
    node = net.node()
    line = net.connect(node, ALICE)
    challenge = wire.decode_frame(line.heard[0])
    line.answer()

    assert challenge == Frame(1, bytes(32), bytes(64), challenge.payload)
    assert challenge.payload[0] >= 0x80
    assert line.hear() == [authentication.confirm_frame(node.key)]
    assert node.facts_of(PeerIdentified) == [PeerIdentified("merk", line.peer, ALICE.public)]
    assert node.sizes["clients"] == 1


def test_who_does_not_answer_is_closed_after_five_seconds():
    """Not a moment earlier."""
    net = Net()
    line = net.connect(net.node(), ALICE)
    net.pass_ms(4_999)
    before = line.closed
    net.pass_ms(1)

    assert before is None
    assert_closed(line, Refusal.AUTH_TIMEOUT)
    assert line.close.status == 4408
    assert_nothing_left(line.node)


def test_an_answered_client_may_be_silent_for_ever():
    """Its deadline ended with its answer."""
    net = Net()
    line = net.client(net.node(), ALICE)
    net.pass_ms(3_600_000)

    assert line.closed is None


def test_a_banned_key_is_not_let_in():
    """The node is asked about each key that has proved itself."""
    net = Net()
    node = net.node(admits=lambda key: key != ALICE.public)
    line = net.connect(node, ALICE).answer()

    assert_closed(line, Refusal.IDENTITY_BANNED)
    assert node.sizes["clients"] == 0
    assert net.client(node, BOB).closed is None


def test_a_newer_connection_of_a_key_replaces_the_older():
    """The older is closed with 4409, and frames reach the newer."""
    net = Net()
    node = net.node()
    older, newer = net.client(node, BOB), net.client(node, BOB)
    frame = net.client(node, ALICE).write(BOB)

    assert_closed(older, Refusal.REPLACED)
    assert older.close.status == 4409
    assert newer.content() == [frame]
    assert node.refused(Refusal.REPLACED) == 0
    assert node.sizes["clients"] == 2


def test_a_client_that_greets_learns_who_the_node_is():
    """HELLO in the role of a node, and a proof over both nonces that the client can check."""
    net = Net()
    node = net.node(public_url="ws://me.example")
    line = net.client(node, ALICE, hello=False).greet()
    hello, auth, limits = line.told()
    message = wire.auth_message(node.key, ALICE.public, hello.nonce, line.nonce, 1, 0)

    assert hello == Hello(ALL_FEATURES | Feature.MAILBOX, Role.NODE, node.key, hello.nonce, "ws://me.example")
    assert auth == Auth(sign(node.key_pair, message))
    assert limits == Limits(8_388_608)


@pytest.mark.parametrize(("features", "wants"), [(0, False), (Feature.DELIVERY_NOTICES, True), (0xFFFFFFFE, False)])
def test_notices_are_for_those_who_ask(features, wants):
    """Bit 0 of the features, and no other."""
    net = Net()
    line = net.client(net.node(), ALICE, hello=False).greet(features=features)
    line.hear()
    line.write(BOB)

    assert bool(line.codes()) is wants


def test_a_client_may_prove_itself_and_nothing_follows():
    """It stays a client."""
    net = Net()
    line = net.client(net.node(), ALICE, hello=False).greet()
    hello = line.told()[0]
    line.say(line.proof(hello, Role.CLIENT))

    assert line.hear() == []
    assert line.session.state is State.CLIENT


def test_a_client_that_proves_itself_wrongly_is_closed():
    """Nobody needs to, so nobody does it wrong by accident."""
    net = Net()
    line = net.client(net.node(), ALICE, hello=False).greet()
    line.say(line.proof(line.told()[0], Role.NODE))

    assert_closed(line, Refusal.BAD_PEER_AUTH)


def test_a_hello_in_another_name_is_closed():
    """It must name the key that answered the challenge."""
    net = Net()
    line = net.client(net.node(), ALICE, hello=False)
    line.say(Hello(0, Role.CLIENT, BOB.public, bytes(32), ""))

    assert_closed(line, Refusal.BAD_PEER_AUTH)


def test_a_second_hello_is_a_strike_and_changes_nothing():
    """What was said first holds."""
    net = Net()
    line = net.client(net.node(), ALICE).greet(features=0)
    line.write(BOB)

    assert line.node.refused(Refusal.INFO_NOT_ALLOWED) == 1
    assert line.codes() != []


# Nodes that come


def test_a_node_that_proves_itself_is_a_peer():
    """It is a client no more, is asked for its servers, and is told the outcome of what it forwards."""
    net = Net()
    node = net.node()
    line = net.connect(node, X).answer().greet(Role.NODE)
    before = node.sizes["clients"]
    line.prove()

    assert (before, node.sizes["clients"], node.sizes["nodes"]) == (1, 0, 1)
    assert line.told() == [RequestServers(), Limits(8_388_608)]
    assert line.session.state is State.PEER


def test_a_node_that_only_greets_is_closed_after_five_seconds():
    """A HELLO in the role of a node must be followed by its proof."""
    net = Net()
    line = net.connect(net.node(), X).answer().greet(Role.NODE)
    net.pass_ms(4_999)
    before = line.closed
    net.pass_ms(1)

    assert before is None
    assert_closed(line, Refusal.BAD_PEER_AUTH)


def test_a_node_may_greet_late():
    """A client may turn out to be a node at any time; its alarms of before do it no harm."""
    net = Net()
    node = net.node()
    line = net.connect(node, X).answer()
    net.pass_ms(3_000)
    line.greet(Role.NODE)
    net.pass_ms(4_000)
    line.prove()
    net.pass_ms(60_000)

    assert line.closed is None
    assert node.links == {X.public}


def test_a_proved_peer_says_neither_hello_nor_proof_again():
    """Both are strikes."""
    net = Net()
    line = net.peer(net.node(), X).greet(Role.NODE)
    line.say(Auth(bytes(64)))

    assert line.node.refused(Refusal.INFO_NOT_ALLOWED) == 2
    assert line.session.state is State.PEER


def test_who_takes_no_peers_takes_no_peers():
    """accept_peers = false: who comes is told so with 1013; clients are handshake."""
    net = Net()
    node = net.node(accept_peers=False)
    line = net.connect(node, X).answer().greet(Role.NODE)

    assert_closed(line, Refusal.PEERS_NOT_ACCEPTED)
    assert line.close.status == 1013
    assert net.client(node, ALICE).closed is None
    assert_closed(net.original(node, Y), Refusal.PEERS_NOT_ACCEPTED)


def test_who_takes_no_peers_still_links_with_whom_it_dials():
    """And with them alone."""
    net = Net()
    b = net.node("b")
    a = net.node("a", peers=["ws://b"], accept_peers=False)

    assert (a.links, b.links) == ({b.key}, {a.key})


def test_strangers_have_half_of_the_places():
    """The next one is told so; a linked one may come anew."""
    net = Net()
    node = net.node()
    for number in range(32):
        net.stranger(node, key_of(number))
    late = net.connect(node, X).answer().greet(Role.NODE)
    again = net.stranger(node, key_of(5))

    assert_closed(late, Refusal.PEERS_FULL)
    assert again.session.state is State.PEER
    assert node.sizes["nodes"] == 32


def test_strangers_have_half_of_the_places_also_when_all_greet_before_they_prove():
    """The number of links holds whatever the order of their greetings."""
    net = Net()
    node = net.node()
    lines = [net.connect(node, key_of(number)).answer().greet(Role.NODE) for number in range(34)]
    for line in lines:
        line.prove()

    assert node.sizes["nodes"] == 32


def test_one_address_brings_four_strangers():
    """The fifth of it is refused, another address is not (finding 4)."""
    net = Net()
    node = net.node()
    for number in range(4):
        net.stranger(node, key_of(number), host="10.0.0.9")
    late = net.connect(node, X, "10.0.0.9").answer().greet(Role.NODE)
    other = net.stranger(node, Y, host="10.0.0.8")

    assert_closed(late, Refusal.PEERS_FULL)
    assert other.session.state is State.PEER


def test_peers_of_the_operator_have_room_when_strangers_have_taken_theirs():
    """Two nodes that name each other link, and keep the rates of named nodes, whoever was there before (finding 4)."""
    net = Net()
    a = net.node("a", peers=["ws://b"])
    for number in range(32):
        net.stranger(a, key_of(number))
    b = net.node("b", peers=["ws://a"])
    net.pass_ms(5_000)

    assert b.key in a.links
    assert a.key in b.links
    assert [link.is_unnamed for link in a.relay._mesh.links.values() if link.identity == b.key] == [False]
    assert [link.is_unnamed for link in b.relay._mesh.links.values()] == [False]


# The door for original relays


def test_at_the_door_the_other_side_speaks_first():
    """The relay says nothing, signs the challenge, and takes the key of the confirmation as a claim."""
    net = Net()
    node = net.node()
    line = net.connect(node, X, door="mesh")
    silence = line.hear()
    line.send(CHALLENGE)
    answer = line.hear()
    line.send(authentication.confirm_frame(X.public))

    assert silence == []
    assert answer == [authentication.answer_frame(b"\xff" * 32, node.key_pair)]
    assert line.session.state is State.DOWNSTREAM
    assert node.sizes["original_relays"] == 1
    assert node.facts_of(PeerIdentified) == []


def test_who_stands_silent_at_the_door_is_closed():
    """Two seconds for the challenge, five for the confirmation."""
    net = Net()
    node = net.node()
    silent = net.connect(node, X, door="mesh")
    half = net.connect(node, Y, door="mesh").send(CHALLENGE)
    net.pass_ms(1_999)
    before = silent.closed
    net.pass_ms(1)
    after = (silent.closed, half.closed)
    net.pass_ms(3_000)

    assert (before, after) == (None, (Refusal.AUTH_TIMEOUT, None))
    assert_closed(half, Refusal.AUTH_TIMEOUT)


def test_original_relays_are_bounded():
    """64 in all, dialled ones included."""
    net = Net()
    node = net.node()
    lines = [net.original(node, key_of(number)) for number in range(65)]

    assert [line.closed for line in lines] == [None] * 64 + [Refusal.PEERS_FULL]
    assert node.sizes["original_relays"] == 64


# Rates


@pytest.mark.parametrize("door", ["", "mesh"])
def test_connects_of_one_address_are_counted(door):
    """64 at once and 10 a second; another address is another matter, and no address is not counted."""
    net = Net()
    node = net.node()
    lines = [net.connect(node, address="192.0.2.1", door=door) for _ in range(65)]
    other = net.connect(node, address="192.0.2.2", door=door)
    nobody = [net.connect(node, door=door) for _ in range(65)]
    net.pass_ms(1_000)
    later = [net.connect(node, address="192.0.2.1", door=door) for _ in range(11)]

    assert [line.closed for line in lines] == [None] * 64 + [Refusal.CONNECT_RATE]
    assert lines[64].close.status == 1013
    assert lines[64].hear() == []
    assert (other.closed, {line.closed for line in nobody}) == (None, {None})
    assert [line.closed for line in later] == [None] * 10 + [Refusal.CONNECT_RATE]


def test_connects_are_not_counted_without_rate_limits():
    """A load test comes from one address."""
    net = Net()
    node = net.node(rate_limits=False)

    assert {net.connect(node, address="192.0.2.1").closed for _ in range(100)} == {None}


def test_counted_addresses_are_bounded():
    """The one that was quiet for longest is forgotten."""
    net = Net()
    node = net.node(limits=MerkLimits(connect_addresses=2))
    for address in ("a", "b", "a", "c"):
        net.connect(node, address=address)

    assert list(node.relay._handshakes._connects) == ["a", "c"]


def test_exempt_key_is_not_counted():
    """NODE-ACCESS: it has no allowance, as a client and as a node; other keys keep theirs."""
    net = Net()
    node = net.node(is_unlimited=lambda key: key == ALICE.public)
    alice, bob = net.client(node, ALICE), net.client(node, BOB)
    alice.send(*[data_to(BOB, ALICE, b"x") for _ in range(1_100)])
    bob.send(*[data_to(ALICE, BOB, b"x") for _ in range(1_100)])

    assert len(bob.content()) == 1_100
    assert len(alice.content()) < 1_100


def test_relay_that_proves_no_key_stays_out_of_a_relay_for_friends():
    """NODE-ACCESS: it could say the key of a friend."""
    net = Net()
    node = net.node(admits=lambda key: key == Y.public, admits_unproved=lambda: False)

    assert_closed(net.original(node, Y), Refusal.IDENTITY_BANNED)


def test_review_closes_whom_the_operator_refuses_now():
    """Clients by their key, and relays that have only said one."""
    refused, unproved = set(), [True]
    net = Net()
    node = net.node(admits=lambda key: key not in refused, admits_unproved=lambda: unproved[0])
    alice, bob, original = net.client(node, ALICE), net.client(node, BOB), net.original(node, Y)
    refused.add(ALICE.public)
    unproved[0] = False
    node.relay.review(net.now)
    net.settle()

    assert_closed(alice, Refusal.IDENTITY_BANNED)
    assert_closed(original, Refusal.IDENTITY_BANNED)
    assert bob.closed is None
