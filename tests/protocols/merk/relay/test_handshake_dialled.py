"""Laws of protocols.merk.welcome: nodes that we dial."""

import pytest

from tests.protocols.merk.build_relay import ALICE, CHALLENGE, X, Y, confirmed, dialled
from tests.protocols.merk.net import Net, assert_closed, assert_nothing_left, ordered_keys
from tests.protocols.refusing import RefusingStore
from waystation.core.commits import COMMIT_AGAIN_MS
from waystation.core.facts import PeerIdentified
from waystation.crypto.signing import sign
from waystation.protocols.merk import wire
from waystation.protocols.merk.messages import (
    Auth,
    Hello,
    Limits,
    QueryClient,
    RequestServers,
    Role,
)
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.relay import authentication
from waystation.protocols.merk.session import State

# Nodes that are dialled


def test_a_dialled_node_is_answered_greeted_and_proved():
    """Its challenge is signed with the node key, its confirmation followed by our HELLO, its proof by ours."""
    net = Net()
    node, line = dialled(net)
    line.send(CHALLENGE)
    answer = line.hear()
    line.send(authentication.confirm_frame(X.public))
    (hello,) = line.told()
    line.greet(Role.NODE).say(line.proof(hello))
    auth, request, limits = line.told()

    assert answer == [authentication.answer_frame(b"\xff" * 32, node.key_pair)]
    assert auth == Auth(sign(node.key_pair, wire.auth_message(node.key, X.public, hello.nonce, line.nonce, 1, 1)))
    assert (request, limits) == (RequestServers(), Limits(8_388_608))
    assert node.links == {X.public}
    assert node.facts_of(PeerIdentified)[-1].identity == X.public


@pytest.mark.parametrize("at", [State.DIALLED, State.ANSWERED])
def test_a_dialled_node_that_is_silent_is_closed_and_dialled_again(at):
    """Five seconds for its challenge, five for its confirmation."""
    net = Net()
    node, line = dialled(net)
    if at is State.ANSWERED:
        line.send(CHALLENGE)
    net.pass_ms(4_999)
    before = line.closed
    net.pass_ms(1)
    net.pass_ms(500)

    assert before is None
    assert_closed(line, Refusal.AUTH_TIMEOUT)
    assert len(node.dials) == 2


def test_a_silent_answer_to_hello_is_an_original_relay():
    """After two seconds it may be asked for clients; its key is only its word."""
    net = Net()
    node, line = confirmed(net)
    net.pass_ms(1_999)
    before = line.session.state
    net.pass_ms(1)

    assert (before, line.session.state) == (State.AWAITING_HELLO, State.UPSTREAM)
    assert node.sizes["original_relays"] == 1
    assert node.facts_of(PeerIdentified) == []
    assert node.relay.mesh(net.now)["nodes"][0]["trust"] == "legacy"


def test_an_original_that_proves_itself_later_is_a_peer():
    """A node of ours that was slow."""
    net = Net()
    node, line = confirmed(net)
    net.pass_ms(2_000)
    line.greet(Role.NODE).prove()

    assert line.session.state is State.PEER
    assert (node.sizes["nodes"], node.sizes["original_relays"]) == (1, 0)


def test_what_a_dialled_node_says_besides_its_greeting_means_nothing():
    """Frames before the proof are not believed and not answered."""
    net = Net()
    _, line = confirmed(net)
    line.hear()
    line.say(QueryClient(ALICE.public), RequestServers())

    assert line.hear() == []
    assert line.session.state is State.AWAITING_HELLO


def test_a_dialled_node_that_proves_itself_wrongly_is_closed():
    """With a key that is not its own, or in another's name."""
    for named, signer in ((X, Y), (Y, Y)):
        net = Net()
        _, line = confirmed(net)
        (hello,) = line.told()
        line.say(Hello(0, Role.NODE, named.public, b"n" * 32, ""))
        line.nonce = b"n" * 32
        line.say(line.proof(hello, key=signer))

        assert_closed(line, Refusal.BAD_PEER_AUTH)


def test_our_own_address_is_dialled_once():
    """The confirmation comes from ourselves; nobody is left on either end."""
    net = Net()
    node = net.node("a", peers=["ws://a"])
    net.pass_ms(600_000)

    assert node.refused(Refusal.SELF_LINK) == 1
    assert len(node.dials) == 1
    assert_nothing_left(node)


def test_an_original_that_claims_our_key_is_ourselves():
    """At the door too."""
    net = Net()
    node = net.node()
    line = net.original(node, node.key_pair)

    assert_closed(line, Refusal.SELF_LINK)


def test_a_learnt_address_must_have_its_key():
    """Another node there is closed and the rumour forgotten; an original that claims another key too."""
    for proves in (True, False):
        net = Net()
        node, line = dialled(net, ALICE, learnt=True)
        line.send(CHALLENGE, authentication.confirm_frame(ALICE.public))
        if proves:
            line.greet(Role.NODE).prove()
        net.pass_ms(2_000)

        assert_closed(line, Refusal.WRONG_PEER_KEY)
        assert line.close.status == 4401
        assert node.sizes["addresses"] == 0


def test_a_learnt_address_with_its_key_stands():
    """And is kept for the next life."""
    net = Net()
    node, line = dialled(net, X, learnt=True)
    line.send(CHALLENGE, authentication.confirm_frame(X.public))
    line.greet(Role.NODE).prove()

    assert node.links == {X.public, Y.public}
    assert list(node.store.scan("merk_peers")) == [(b"ws://test", X.public)]


def test_a_banned_node_is_no_peer():
    """Also when we dialled it."""
    net = Net()
    node, line = confirmed(net, admits=lambda key: key != X.public)
    line.greet(Role.NODE).prove()

    assert_closed(line, Refusal.IDENTITY_BANNED)
    assert node.sizes["nodes"] == 0


@pytest.mark.parametrize("first", ["dialled", "came"])
@pytest.mark.parametrize("node_is_smaller", [True, False])
def test_two_links_to_one_node_become_one(first, node_is_smaller):
    """Of two that greet at once the smaller key's dial stays, whichever stood first; the other is closed with 4409."""
    small, great = ordered_keys(2)
    ours, theirs = (small, great) if node_is_smaller else (great, small)
    net = Net()
    node, by_us = dialled(net, theirs, key_pair=ours)
    by_us.send(CHALLENGE, authentication.confirm_frame(theirs.public))
    by_us.greet(Role.NODE)
    came = net.connect(node, theirs).answer().greet(Role.NODE)
    for line in (by_us, came) if first == "dialled" else (came, by_us):
        line.prove()
    stays, goes = (by_us, came) if node_is_smaller else (came, by_us)

    assert stays.session.state is State.PEER
    assert_closed(goes, Refusal.DOUBLE_LINK)
    assert goes.close.status == 4409
    assert node.links == {theirs.public}


def test_a_dialled_node_that_is_linked_already_is_left():
    """It says its key in its confirmation: no second link begins."""
    net = Net()
    node, by_us = dialled(net)
    came = net.peer(node, X)
    by_us.send(CHALLENGE, authentication.confirm_frame(X.public))
    net.pass_ms(60_000)

    assert_closed(by_us, Refusal.DOUBLE_LINK)
    assert came.session.state is State.PEER
    assert len(node.dials) == 1


def test_address_that_the_store_refuses_is_kept_a_second_later():
    """The link stands meanwhile and nobody is told; what was refused is asked for again, once."""
    net = Net()
    node, line = dialled(net, X, learnt=True, store=(store := RefusingStore()))
    store.refuses = True
    line.send(CHALLENGE, authentication.confirm_frame(X.public))
    line.greet(Role.NODE).prove()
    links, kept = node.links, list(store.scan("merk_peers"))
    store.refuses = False
    net.pass_ms(COMMIT_AGAIN_MS)

    assert (links, kept) == ({X.public, Y.public}, [])
    assert list(store.scan("merk_peers")) == [(b"ws://test", X.public)]
