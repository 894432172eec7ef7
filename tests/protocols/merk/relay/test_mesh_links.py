"""Laws of protocols.merk.mesh: which links stand, what is said about others, and what survives."""

import random

import pytest

from tests.protocols.merk.build_relay import (
    ALICE,
    NODE,
    PUBLIC,
    X,
    Y,
    later,
    learn,
    link,
    mesh_of,
    number_url,
    urls,
)
from tests.protocols.merk.net import START, Net, assert_closed, in_force, key_of, ordered_keys
from waystation.core.facts import RelayObserved
from waystation.core.instant import Instant
from waystation.core.records import Record
from waystation.protocols.merk.messages import AddServer, Hello, Limits, RequestServers, Role, ServerEntry, Servers
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.relay import authentication
from waystation.protocols.merk.relay.mesh import TABLE, Mesh
from waystation.protocols.merk.relay.outbox import Outbox
from waystation.protocols.merk.session import Contact
from waystation.protocols.merk.settings import MerkSettings
from waystation.store.memory import MemoryStore

# Links


def test_who_is_linked_is_not_dialled():
    """Until its link is lost."""
    known = mesh_of(peers=["ws://mine"])
    one = link(X, url="ws://mine")
    known.stands(one, START)
    known.failed("ws://mine", START)
    linked = (urls(known, later(60_000)), known.deadline())
    known.lost(one)

    assert linked == ([], later(120_000))
    assert urls(known, later(60_000)) == ["ws://mine"]


def test_of_two_links_the_one_that_the_smaller_key_dialled_stays():
    """Whichever came first, and both sides close the same one."""
    small, great = ordered_keys(2)
    for first_by_small in (True, False):
        closed = []
        for ours, theirs in ((small, great), (great, small)):
            known = Mesh(MerkSettings(), ours.public, MemoryStore(), random.Random(1), in_force())
            mine, its = link(theirs, 1, url="ws://x"), link(theirs, 2)
            by_small, by_great = (mine, its) if ours is small else (its, mine)
            order = (by_small, by_great) if first_by_small else (by_great, by_small)
            assert known.stands(order[0], START) is None
            spare = known.stands(order[1], START)
            closed.append(spare is by_great)
            assert known.links[theirs.public] is by_small

        assert closed == [True, True]


def test_of_two_links_of_one_side_the_one_with_the_smaller_nonce_stays():
    """What the dialler said in its HELLO is known to both sides, so they agree in whatever order proofs arrive."""
    small, great = ordered_keys(2)
    for smaller_first in (True, False):
        kept = []
        for ours, theirs, dials in ((small, great, True), (great, small, False)):
            known = Mesh(MerkSettings(), ours.public, MemoryStore(), random.Random(1), in_force())
            pair = [link(theirs, number, url="ws://x" if dials else "") for number in (1, 2)]
            for number, one in enumerate(pair):
                nonce = bytes([number]) * 32
                one.nonce, their_nonce = (nonce, bytes(32)) if dials else (b"\xff" * 32, nonce)
                one.hello = Hello(0, Role.NODE, theirs.public, their_nonce, "")
            for one in pair if smaller_first else pair[::-1]:
                known.stands(one, START)
            kept.append(known.links[theirs.public] is pair[0])

        assert kept == [True, True]


@pytest.mark.parametrize("seed", range(12))
def test_a_second_name_of_a_node_leaves_one_link(seed):
    """In every order of the bytes, and nothing is dialled again while it stands."""
    net = Net(seed)
    net.aliases["b2"] = "b"
    b = net.node("b")
    a = net.node("a", peers=["ws://b", "ws://b2"])
    net.pass_ms(10_000)
    dials = len(a.dials)
    net.pass_ms(60_000)

    assert (a.links, b.links) == ({b.key}, {a.key})
    assert len(net.pipes_between(a, b)) == 1
    assert len(a.dials) == dials <= 3


def test_an_alias_that_a_peer_names_costs_the_link_nothing():
    """The node that answers there says its key, and is left before it can replace the link that stands."""
    net = Net()
    net.aliases["b2.example"] = "b"
    a, b = net.node("a"), net.node("b", peers=["ws://a"])
    before = net.pipes_between(a, b)
    net.peer(a, X).say(AddServer("ws://b2.example"))

    assert [dial.url for dial in a.dials] == ["ws://b2.example"]
    assert net.pipes_between(a, b) == before
    assert a.links == {b.key, X.public}
    assert not b.link_ends()


def test_the_end_of_the_spare_link_leaves_the_other():
    """Nothing is lost with it."""
    known = mesh_of()
    one, other = link(X, 1), link(X, 2)
    known.stands(one, START)
    spare = known.stands(other, START)
    known.lost(spare)

    assert len(known.links) == 1
    assert known.links[X.public] is not spare


@pytest.mark.parametrize("accept_peers", [True, False])
def test_who_may_become_a_peer(accept_peers):
    """Anybody while there is room, or those that we dial and those that answer where the operator said."""
    known = mesh_of(accept_peers=accept_peers, peers=["ws://operator.example"])
    learn(known, PUBLIC, X)
    known.confirmed("ws://operator.example", key_of("carol").public, START)
    stranger = None if accept_peers else Refusal.PEERS_NOT_ACCEPTED

    assert known.no_room(Y.public, "") is stranger
    assert known.no_room(X.public, "") is stranger
    assert known.no_room(Y.public, "", Contact(PUBLIC, None)) is None
    assert known.no_room(key_of("carol").public, "") is None
    for number in range(32):
        known.stands(link(key_of(number), number, stranger=True), START)
    assert known.no_room(X.public, "", Contact(PUBLIC, None)) is Refusal.PEERS_FULL
    assert known.no_room(key_of(5).public, "") is None
    assert known.no_room(key_of("carol").public, "") is None
    assert known.no_room(Y.public, "", Contact("ws://operator.example", None)) is None


def test_two_nodes_that_accept_nobody_else_link():
    """Each dials the other, and each takes who proves the key that answers there."""
    net = Net()
    one = net.node(name="one", accept_peers=False, peers=["ws://two"])
    two = net.node(name="two", accept_peers=False, peers=["ws://one"])
    net.pass_ms(5_000)

    assert (one.links, two.links) == ({two.key}, {one.key})


def test_an_original_that_proves_itself_is_one_no_more():
    """A slow node of ours, taken for an original at first."""
    known, one = mesh_of(), link(X)
    known.originals[one] = None
    before = (known.has_nodes, known.nodes())
    known.stands(one, START)

    assert before == (True, [one])
    assert (known.originals, known.nodes()) == ({}, [one])
    known.lost(one)
    assert not known.has_nodes


# What is said about others


def test_linked_nodes_are_told_with_their_addresses():
    """As they say, or as we dialled them; who came and says nothing is not told."""
    known = mesh_of()
    for number, (key, url, address) in enumerate(
        [(X, "ws://dialled", ""), (Y, "ws://dialled2", "ws://said"), (ALICE, "", ""), (key_of("z"), "", "ws://z")]
    ):
        known.stands(link(key, number, url=url, address=address), START)

    expected = (
        ServerEntry(X.public, "ws://dialled"),
        ServerEntry(Y.public, "ws://said"),
        ServerEntry(key_of("z").public, "ws://z"),
    )
    assert known.servers() == expected


def test_a_peers_list_is_learnt_and_its_private_entries_counted():
    """No more than 64 entries are looked at, and 16 kept."""
    known = mesh_of()
    one = link(X)
    known.stands(one, START)
    entries = [ServerEntry(key_of(number).public, number_url(number)) for number in range(60)]
    private = [ServerEntry(key_of(f"p{number}").public, f"ws://10.0.0.{number}") for number in range(10)]

    assert known.named(one, [*entries, *private], START) == 4
    assert known.addresses_count == 16


def test_limit_of_learnt_addresses_does_not_cut_what_a_peer_says():
    """Its whole list is read, for the links that it names; how many of its addresses are kept is another limit."""
    known = mesh_of(limits=in_force(learnt_addresses=1))
    one, other = link(X, 1), link(Y, 2)
    for session in (one, other):
        known.stands(session, START)
    known.named(one, [ServerEntry(ALICE.public, PUBLIC), ServerEntry(Y.public, "ws://9.9.9.9")], START)

    assert tuple(sorted((X.public, Y.public))) in known.links_named()
    assert known.learnt_count == 1


def test_configured_servers_take_no_place_of_learnt_ones():
    """All that the operator names are dialled, and an address of an earlier life that is named now counts as named."""
    store = MemoryStore()
    store.commit([Record(TABLE, number_url(number).encode(), key_of(number).public) for number in range(3)])
    named = [number_url(number) for number in (0, 1, 10, 11)]
    known = mesh_of(store, limits=in_force(learnt_addresses=1), peers=named)

    assert {dial.name for dial in known.dials(START)} == {*named, number_url(2)}
    assert known.learnt_count == 1


def test_links_among_others_are_drawn_as_they_say():
    """Ours for certain, theirs where both ends are linked with us, each pair once, the smaller key first."""
    known = mesh_of()
    one, other = link(X, 1), link(Y, 2)
    known.stands(one, START)
    known.stands(other, START)
    known.named(one, [ServerEntry(Y.public, PUBLIC), ServerEntry(ALICE.public, "ws://9.9.9.9")], START)
    known.named(other, [ServerEntry(X.public, "ws://9.9.9.8")], START)
    pairs = [{NODE.public, X.public}, {NODE.public, Y.public}, {X.public, Y.public}]
    named = known.links_named()
    known.lost(one)

    assert [set(pair) for pair in named] == pairs
    assert all(small < great for small, great in named)
    assert len(known.links_named()) == 1


def test_peers_are_asked_again_every_two_minutes():
    """As long as there are any."""
    known = mesh_of()
    one = link(X)
    before = known.deadline()
    known.stands(one, START)

    assert before is None
    assert known.refresh(Instant(later(120_000) - 1)) == []
    assert known.refresh(later(120_000)) == [one]
    assert known.deadline() == later(240_000)
    known.lost(one)
    assert known.refresh(later(240_000)) == []
    assert known.deadline() is None


# The table that survives


def test_a_proved_address_is_kept_with_its_key():
    """Once, and only if it was learnt; the operator's stand in the configuration."""
    known = mesh_of(peers=["ws://mine"])
    learn(known, PUBLIC)
    known.stands(link(X, 1, url=PUBLIC), START)
    known.stands(link(Y, 2, url="ws://mine"), START)
    known.stands(link(ALICE, 3, url="ws://forgotten"), START)
    first = known.take_changes()
    known.stands(link(X, 4, url=PUBLIC), START)

    assert first == (Record(TABLE, PUBLIC.encode(), X.public),)
    assert known.take_changes() == ()


def test_an_address_that_is_given_up_leaves_the_table():
    """Nobody dials it after a restart either."""
    known = mesh_of()
    learn(known, PUBLIC)
    known.stands(link(X, url=PUBLIC), START)
    known.take_changes()
    known.forget(PUBLIC)

    assert known.take_changes() == (Record(TABLE, PUBLIC.encode(), None),)


def test_the_table_is_read_with_the_guards_of_today():
    """Keys are expected, private addresses are not dialled any more, a configured one counts as configured."""
    store = MemoryStore()
    rows = {PUBLIC: X.public, "ws://10.0.0.1": X.public, "ws://9.9.9.9": b"odd", "ws://mine": Y.public}
    store.commit([Record(TABLE, url.encode(), key) for url, key in rows.items()])
    known = mesh_of(store, peers=["ws://mine"])

    assert known.contact(PUBLIC).expected_key == X.public
    assert known.contact("ws://9.9.9.9").expected_key is None
    assert known.contact("ws://mine").expected_key is None
    assert sorted(urls(known)) == ["ws://8.8.8.8/merk", "ws://9.9.9.9", "ws://mine"]


def test_the_table_survives_a_restart():
    """A node that was met once is dialled by the next life, with the key that it proved."""
    net = Net()
    store = MemoryStore()
    a = net.node("a", store=store)
    peer = net.peer(a, X)
    peer.say(AddServer("ws://test.example"))
    (line,) = net.dialled()
    line.key = Y
    line.send(authentication.challenge_frame(b"\xff" * 32), authentication.confirm_frame(Y.public))
    line.greet(Role.NODE).prove()
    net.kill(a)
    again = net.node("a", store=store)

    assert a.links == {X.public, Y.public}
    assert [dial.url for dial in again.dials] == ["ws://test.example"]
    assert again.dials[0].only_public
    (line,) = net.dialled()
    line.key = key_of("impostor")
    line.send(authentication.challenge_frame(b"\xff" * 32), authentication.confirm_frame(line.key.public))
    line.greet(Role.NODE).prove()
    assert_closed(line, Refusal.WRONG_PEER_KEY)


# Nodes in a net


@pytest.mark.parametrize("seed", range(12))
def test_nodes_of_a_line_find_each_other(seed):
    """Each knows one neighbour at first; by their lists and introductions all are linked in the end."""
    net = Net(seed)
    nodes = []
    for number in range(4):
        peers = [f"ws://{nodes[-1].name}"] if nodes else []
        settings = {"peers": peers, "public_url": f"ws://n{number}", "allow_private_peers": True}
        nodes.append(net.node(f"n{number}", **settings))
    net.pass_ms(180_000)

    assert [len(node.links) for node in nodes] == [3] * 4
    assert [len(net.pipes_between(nodes[0], other)) for other in nodes[1:]] == [1] * 3
    assert all(len(node.relay.mesh(net.now)["links"]) == 6 for node in nodes)


@pytest.mark.parametrize("seed", range(20))
def test_two_that_dial_each_other_keep_one_link(seed):
    """In every order of their bytes, and it is the same one on both sides."""
    net = Net(seed)
    a = net.node("a", peers=["ws://b"], settles=False)
    b = net.node("b", peers=["ws://a"])
    dials = (len(a.dials), len(b.dials))
    net.pass_ms(60_000)

    (at_a,) = net.pipes_between(a, b)
    (at_b,) = net.pipes_between(b, a)
    assert net.pipes["a", at_a] == ("b", at_b)
    assert (a.links, b.links) == ({b.key}, {a.key})
    assert dials == (1, 1) == (len(a.dials), len(b.dials))


def test_a_new_peer_is_asked_and_introduced():
    """It is asked for its servers, and the others are told its address."""
    net = Net()
    node = net.node()
    first = net.peer(node, X)
    second = net.connect(node, Y).answer()
    second.greet(Role.NODE, address="ws://y.example").prove()

    assert first.told() == [AddServer("ws://y.example")]
    assert second.told() == [RequestServers(), Limits(8_388_608)]
    assert first.say(RequestServers()).told() == [Servers((ServerEntry(Y.public, "ws://y.example"),))]


# What is told of dials


def seen_by(node):
    """Return whom a node saw in its dials, and how they came out."""
    return [(fact.relay, fact.probe, fact.outcome) for fact in node.facts_of(RelayObserved)]


def test_a_dial_is_told_of_a_node_that_proved_itself():
    """It stands, and when it is gone and does not answer, each dial of it has failed; the other side dialled nobody."""
    net = Net()
    other, dialler = net.mesh("a", "b")
    net.kill(other)
    net.unreachable |= {dial.url for dial in dialler.dials}
    net.pass_ms(5_000)
    told = seen_by(dialler)

    assert told[0] == (other.key, "connect", "ok")
    assert len(told) > 1
    assert set(told[1:]) == {(other.key, "connect", "failed")}
    assert seen_by(other) == []


def test_nothing_is_told_of_a_node_that_proved_nothing():
    """Whoever names a key beside a dead address says nothing about the key, and an operator's address has none yet."""
    outbox = Outbox(1, in_force())
    known = Mesh(MerkSettings(peers=["ws://mine"]), NODE.public, MemoryStore(), random.Random(1), in_force(), outbox)
    learn(known, PUBLIC, X)
    known.confirmed("ws://mine", Y.public, START)
    for url in (PUBLIC, "ws://mine", "ws://gone"):
        known.unreachable(url, START)

    assert outbox.take() == []


def test_a_node_that_proved_itself_in_the_last_life_is_known():
    """What is on the disk was proved; the key that was proved last counts."""
    store, outbox = MemoryStore(), Outbox(1, in_force())
    store.commit((Record(TABLE, PUBLIC.encode(), X.public),))
    known = Mesh(MerkSettings(), NODE.public, store, random.Random(1), in_force(), outbox)
    known.unreachable(PUBLIC, START)
    known.stands(link(Y, url=PUBLIC), START)
    known.unreachable(PUBLIC, START)

    told = [(fact.relay, fact.outcome) for fact in outbox.take()]
    assert told == [(X.public, "failed"), (Y.public, "ok"), (Y.public, "failed")]
