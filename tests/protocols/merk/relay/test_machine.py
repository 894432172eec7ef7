"""Laws of protocols.merk.relay: the machine's contract, its tables, and whole nets against a dumb model."""

import random

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.protocols.merk.build_relay import ALICE, BOB, CAROL, X, Y
from tests.protocols.merk.net import Net, assert_closed, assert_nothing_left, data_to, key_of
from waystation.core.effects import Peer
from waystation.core.facts import DeliveryFinished, MeshLinkEnded, Outcome, PeerLeft
from waystation.protocols.merk import wire
from waystation.protocols.merk.messages import (
    AddServer,
    ClientAbsent,
    ClientFound,
    Delivery,
    DeliveryCode,
    Gone,
    KeyQuery,
    MessageType,
    QueryClient,
    RequestServers,
    Role,
    Servers,
)
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.relay import authentication

# The contract


def test_what_nobody_sent_changes_nothing():
    """Inputs of a connection that is not there have no effect."""
    net = Net()
    relay = net.node().relay
    for act in (relay.disconnect, relay.congested, relay.drained):
        act(Peer(99), net.now)
    relay.receive(Peer(99), b"x", net.now)
    relay.upstream_failed("ws://nobody", net.now)

    assert relay.take() == []


def test_an_answer_to_no_question_is_a_bug_of_the_server():
    """This machine asks for no signatures."""
    net = Net()
    relay = net.node().relay

    with pytest.raises(AssertionError, match="nothing was asked"):
        relay.verified(1, [0], net.now)


def test_a_new_relay_waits_for_nothing():
    """No deadline until somebody comes, and none when everybody has left and been forgotten."""
    net = Net()
    node = net.node()
    before = node.relay.deadline()
    net.client(node, ALICE).hang_up()
    net.pass_ms(60_000)

    assert before is None
    assert node.relay.deadline() is None


def test_a_refused_dial_is_tried_again():
    """upstream_failed is the answer of the dialler."""
    net = Net()
    net.unreachable.add("ws://b")
    node = net.node("a", peers=["ws://b"])
    net.pass_ms(499)
    early = len(node.dials)
    net.unreachable.clear()
    net.node("b")
    net.pass_ms(2_000)

    assert early in (1, 2)
    assert len(node.links) == 1


def test_a_lost_link_comes_back():
    """The side that dialled dials again, and frames go their way as before."""
    net = Net()
    a, b = net.mesh("a", "b")
    alice, bob = net.client(a, ALICE), net.client(b, BOB)
    net.cut(a, b)
    lost = (a.links, b.links)
    net.pass_ms(1_000)
    frame = alice.write(BOB)

    assert lost == (set(), set())
    assert bob.content() == [frame]
    assert [fact.dialled for fact in a.link_ends()] == [False]
    assert [fact.dialled for fact in b.link_ends()] == [True]


def test_a_killed_node_is_replaced_by_its_next_life():
    """Whoever dialled it finds it again, whoever moved meanwhile is found where it is."""
    net = Net()
    a, b, c = net.mesh("a", "b", "c")
    alice, bob = net.client(a, ALICE), net.client(b, BOB)
    alice.write(BOB)
    net.kill(b)
    moved = net.client(c, BOB)
    frame = alice.write(BOB)
    again = net.node("b", peers=["ws://a"])
    net.pass_ms(40_000)

    assert len(bob.content()) == 1
    assert moved.content() == [frame]
    assert again.links == {a.key, c.key}


def test_a_link_that_ends_tells_what_it_carried():
    """Frames and bytes of clients, both ways, and how long it stood."""
    net = Net()
    a, b = net.mesh("a", "b")
    alice, bob = net.client(a, ALICE), net.client(b, BOB)
    net.pass_ms(5_000)
    frames = [alice.write(BOB), alice.write(BOB, b"x"), bob.write(ALICE)]
    net.cut(a, b)
    sizes = [len(frame) for frame in frames]

    out_bytes = sizes[0] + sizes[1]
    assert a.link_ends() == [MeshLinkEnded("merk", b.key, b.key, 0, 5_000_000, 2, 1, out_bytes, sizes[2])]
    assert b.link_ends() == [MeshLinkEnded("merk", a.key, a.key, 1, 5_000_000, 1, 2, sizes[2], out_bytes)]


def test_deliveries_are_told_at_the_recipients_node():
    """Once: the sender's node leaves it to the one that handed the frame over."""
    net = Net()
    a, b = net.mesh("a", "b")
    net.client(b, BOB)
    net.client(a, ALICE).write(BOB)
    net.pass_ms(1_000)

    assert a.facts_of(DeliveryFinished) == []
    assert [(fact.outcome, fact.tries) for fact in b.facts_of(DeliveryFinished)] == [(Outcome.OK, 1)]


def test_a_retiring_relay_begins_nothing():
    """It searches for nobody and dials nobody; frames for clients that are here still arrive."""
    net = Net()
    net.unreachable.add("ws://b")
    node = net.node(peers=["ws://b"])
    alice, bob, peer = net.client(node, ALICE), net.client(node, BOB), net.peer(node, X)
    peer.hear()
    node.relay.retire()
    dials = len(node.dials)
    frame = alice.write(BOB)
    alice.write(CAROL)
    net.pass_ms(60_000)

    assert bob.content() == [frame]
    assert alice.codes() == [DeliveryCode.DELIVERED, DeliveryCode.UNKNOWN_TARGET]
    assert QueryClient(CAROL.public) not in peer.told()
    assert len(node.dials) == dials


@pytest.mark.parametrize("what", ["search", "forward", "slow reader"])
def test_a_relay_is_settled_when_every_frame_has_its_outcome(what):
    """What is under way when it retires may end well."""
    net = Net()
    node = net.node()
    alice, bob, peer = net.client(node, ALICE), net.client(node, BOB), net.peer(node, X)
    settled = [node.relay.settled()]
    if what == "slow reader":
        bob.stall()
        frame = alice.write(BOB)
    else:
        frame = alice.write(CAROL)
    if what == "forward":
        peer.say(ClientFound(CAROL.public, X.public))
    node.relay.retire()
    settled.append(node.relay.settled())
    if what == "slow reader":
        bob.drain()
    elif what == "forward":
        peer.say(Delivery(0, CAROL.public, wire.frame_hash(frame)))
    else:
        peer.say(ClientAbsent(CAROL.public))
    settled.append(node.relay.settled())

    assert settled == [True, False, True]
    assert len(alice.codes()) == 1


def test_a_relay_that_shuts_closes_everybody():
    """With 1001, clients and nodes; what was counted is told, and no refusal is."""
    net = Net()
    node = net.node()
    lines = [net.client(node, ALICE), net.peer(node, X), net.original(node, Y), net.connect(node)]
    lines[0].write(ALICE)
    node.relay.shut(net.now)
    net.settle()

    assert [(line.closed, line.close.status) for line in lines] == [(Refusal.SHUTDOWN, 1001)] * 4
    assert_nothing_left(node)
    assert node.refused(Refusal.SHUTDOWN) == 0
    assert [fact.tries for fact in node.facts_of(DeliveryFinished)] == [1]


def test_an_expelled_key_is_closed_everywhere():
    """Each connection of it, and no other."""
    net = Net()
    node = net.node()
    alice, bob = net.client(node, ALICE), net.client(node, BOB)
    node.relay.expel(ALICE.public, net.now)
    net.settle()

    assert_closed(alice, Refusal.IDENTITY_BANNED)
    assert bob.closed is None


def test_the_mesh_is_what_everybody_may_know():
    """This node, its neighbours with trust and time, links by name, and how many clients there are, not who."""
    net = Net()
    node = net.node(public_url="ws://me.example")
    net.client(node, ALICE)
    peer, original = net.peer(node, X, address="ws://x.example"), net.original(node, Y)
    net.pass_ms(3_000)

    entry = {"key": X.public.hex(), "address": "ws://x.example", "trust": "mutual", "up_s": 3, "dialled": False}
    assert peer.closed is original.closed is None
    assert node.relay.mesh(net.now) == {
        "node": node.key.hex(),
        "address": "ws://me.example",
        "nodes": [entry, {"key": Y.public.hex(), "address": "", "trust": "legacy", "up_s": 3, "dialled": False}],
        "links": [sorted((node.key.hex(), X.public.hex()))],
        "clients": 1,
    }


def test_a_dialled_node_without_an_address_is_shown_where_it_was_dialled():
    """An original that we dialled, too."""
    net = Net()
    net.node("b")
    a = net.node("a", peers=["ws://b"])

    (shown,) = a.relay.mesh(net.now)["nodes"]
    assert (shown["address"], shown["dialled"], shown["trust"]) == ("ws://b", True, "mutual")


def test_clients_get_the_list_of_servers():
    """Nodes whose address is known."""
    net = Net()
    node = net.node()
    net.peer(node, X, address="ws://x.example"), net.peer(node, Y)
    (told,) = net.client(node, ALICE).say(RequestServers()).told()

    assert [(entry.key, entry.address) for entry in told.entries] == [(X.public, "ws://x.example")]


def test_peers_are_asked_for_their_servers_every_two_minutes():
    """So that a mesh heals."""
    net = Net()
    peer = net.peer(net.node(), X)
    net.pass_ms(119_999)
    before = peer.told()
    net.pass_ms(1)

    assert (before, peer.told()) == ([], [RequestServers()])


def test_nothing_is_left_of_those_who_have_left():
    """All tables are empty a while after the last one has gone."""
    net = Net()
    node = net.node()
    lines = [net.client(node, ALICE), net.client(node, BOB), net.peer(node, X), net.original(node, Y)]
    lines[0].write(BOB)
    lines[0].write(CAROL)
    lines[0].say(KeyQuery(CAROL.public))
    lines[2].say(QueryClient(BOB.public), ClientFound(CAROL.public, X.public)).forward(data_to(BOB, CAROL), b"i" * 16)
    lines[1].stall()
    lines[0].write(BOB)
    for line in lines:
        line.hang_up()

    assert_nothing_left(node)
    net.pass_ms(400_000)
    assert {name: size for name, size in node.sizes.items() if size} == {}
    assert len(node.facts_of(PeerLeft)) == 4


def test_the_same_inputs_make_the_same_effects():
    """One seed, one trace."""
    traces = []
    for _ in range(2):
        net = Net(5)
        nodes = net.mesh("a", "b", "c")
        alice, bob = net.client(nodes[0], ALICE), net.client(nodes[2], BOB)
        alice.write(BOB)
        net.pass_ms(10_000)
        traces.append((alice.heard, bob.heard, [node.facts for node in nodes]))

    assert traces[0] == traces[1]


# A dumb model


def walk(seed, steps=60):
    """Let clients move about a small mesh and write to each other; check each frame against a dictionary."""
    rng = random.Random(seed)
    net = Net(seed)
    nodes = net.mesh(*"abcd"[: rng.randrange(1, 5)])
    keys = [key_of(f"client {number}") for number in range(5)]
    where = {}
    for step in range(steps):
        key = rng.choice(keys)
        line = where.get(key.public)
        if line is None or rng.random() < 0.25:
            if line is not None and rng.random() < 0.7:
                line.hang_up()
                del where[key.public]
                net.pass_ms(2_000)  # an absence may be remembered for so long
            if rng.random() < 0.8:
                where[key.public] = net.client(rng.choice(nodes), key)
                if line is not None:
                    line.hang_up()
                net.pass_ms(2_000)
            continue
        target = rng.choice(keys)
        frame = line.write(target, b"%d" % step)
        expected = DeliveryCode.DELIVERED if target.public in where else DeliveryCode.UNKNOWN_TARGET
        yield line, where, frame, target, expected


@pytest.mark.parametrize("seed", range(40))
def test_frames_go_where_a_dictionary_says(seed):
    """Each frame arrives at its recipient's connection once and nowhere else, and its sender has one true notice."""
    for sender, where, frame, target, expected in walk(seed):
        arrived = [key for key, line in where.items() for each in line.heard if each == frame]
        codes = sender.codes()
        for line in where.values():
            line.hear()

        assert arrived == ([target.public] if expected is DeliveryCode.DELIVERED else [])
        assert codes == [expected]


# Anything in any order

KEYS = [key_of(f"machine {number}") for number in range(4)]
TARGETS = st.sampled_from([*KEYS, X, Y])
INFOS = st.one_of(
    st.just(RequestServers()),
    st.just(Servers(())),
    st.builds(AddServer, st.sampled_from(["ws://10.0.0.1", "ws://8.8.8.8", "ws://test.example"])),
    st.builds(QueryClient, TARGETS.map(lambda key: key.public)),
    st.builds(ClientFound, TARGETS.map(lambda key: key.public), TARGETS.map(lambda key: key.public)),
    st.builds(ClientAbsent, TARGETS.map(lambda key: key.public)),
    st.builds(Delivery, st.integers(0, 6), TARGETS.map(lambda key: key.public), st.just(b"h" * 16)),
    st.builds(KeyQuery, TARGETS.map(lambda key: key.public)),
    st.builds(Gone, TARGETS.map(lambda key: key.public)),
)
LIMITS = {"nodes": 64, "original_relays": 64, "lookups": 4_096, "addresses": 64, "key_questions": 1_024}


class AnyOrder(RuleBasedStateMachine):
    """Connections of every kind that come, speak, stall, and leave a relay, as hypothesis wants it."""

    @initialize()
    def start(self):
        """Start a relay with small frames."""
        self.net = Net()
        self.node = self.net.node(max_frame_bytes=1_024, peers=["ws://test.peer"])
        self.lines = self.net.dialled()

    @property
    def standing(self):
        """Connections that nobody has closed."""
        return [line for line in self.lines if line.closed is None and line.session is not None]

    def pick(self, data):
        """Return one of them."""
        return data.draw(st.sampled_from(self.standing))

    @rule(key=st.sampled_from(KEYS), how=st.sampled_from(["client", "peer", "original", "raw", "door"]))
    def come(self, key, how):
        """Somebody connects and goes as far as it likes."""
        if how in ("raw", "door"):
            self.lines.append(self.net.connect(self.node, key, door="mesh" if how == "door" else ""))
        else:
            self.lines.append(getattr(self.net, how)(self.node, key))

    @precondition(lambda self: self.standing)
    @rule(data=st.data(), infos=st.lists(INFOS, min_size=1, max_size=4))
    def say(self, data, infos):
        """Somebody says something, fitting or not."""
        self.pick(data).say(*infos)

    @precondition(lambda self: self.standing)
    @rule(data=st.data(), to=TARGETS, size=st.integers(0, 900), times=st.integers(1, 4))
    def write(self, data, to, size, times):
        """Somebody sends frames."""
        line = self.pick(data)
        self.node.relay.receive_many(line.peer, [data_to(to, line.key, bytes(size))] * times, self.net.now)
        self.net.settle()

    @precondition(lambda self: self.standing)
    @rule(data=st.data(), to=TARGETS, hop=st.integers(0, 2), number=st.integers(0, 3))
    def forward(self, data, to, hop, number):
        """Somebody forwards a frame."""
        self.pick(data).forward(data_to(to, X), bytes([number]) * 16, hop)

    @precondition(lambda self: self.standing)
    @rule(data=st.data())
    def answer(self, data):
        """Somebody answers truly what it was asked and sent."""
        line = self.pick(data)
        for info in line.told():
            if isinstance(info, QueryClient):
                line.say(ClientFound(info.key, line.key.public))
            elif hasattr(info, "frame"):
                line.say(Delivery(info.hop % 2, info.frame[120:152], wire.frame_hash(info.frame)))

    @precondition(lambda self: self.standing)
    @rule(data=st.data(), noise=st.binary(max_size=200), kind=st.integers(0, 6))
    def shake(self, data, noise, kind):
        """Somebody sends noise in a frame, a challenge, or a confirmation."""
        line = self.pick(data)
        frames = [
            wire.encode_frame(kind, noise, sender=line.key.public),
            authentication.challenge_frame(b"\xff" * 32),
            authentication.confirm_frame(line.key.public),
        ]
        line.send(frames[len(noise) % 3])

    @precondition(lambda self: self.standing)
    @rule(data=st.data(), role=st.sampled_from(Role))
    def greet(self, data, role):
        """Somebody says HELLO."""
        self.pick(data).greet(role)

    @precondition(lambda self: self.standing)
    @rule(data=st.data(), what=st.sampled_from(["stall", "drain", "hang_up"]))
    def breathe(self, data, what):
        """Somebody stops reading, reads, or leaves."""
        getattr(self.pick(data), what)()

    @rule(duration_ms=st.sampled_from([1, 600, 2_000, 5_000, 61_000]))
    def wait(self, duration_ms):
        """Time goes by; whoever is dialled stays silent at first."""
        self.net.pass_ms(duration_ms)
        self.lines += self.net.dialled()

    @invariant()
    def stays_within_limits(self):
        """No table grows beyond its limit, and what is counted is never negative."""
        sizes = self.node.sizes if hasattr(self, "node") else {}
        assert all(size >= 0 for size in sizes.values())
        assert all(sizes[name] <= limit for name, limit in LIMITS.items() if name in sizes)
        assert sizes.get("connections", 0) <= len(getattr(self, "lines", []))

    def teardown(self):
        """When everybody has left nothing is left."""
        if hasattr(self, "node"):
            self.node.relay.retire()
            self.lines += self.net.dialled()
            for line in self.standing:
                line.hang_up()
            assert_nothing_left(self.node)
            assert self.node.relay.settled()


AnyOrder.TestCase.settings = hypothesis_settings(max_examples=12, stateful_step_count=20, deadline=None)
TestAnyOrder = AnyOrder.TestCase


@pytest.mark.parametrize("kind", [MessageType.DATA, MessageType.ENCRYPTED_DATA])
def test_a_round_trip_over_three_nodes_takes_no_second_way(kind):
    """A frame crosses one link: nodes that are not concerned carry nothing."""
    net = Net()
    a, b, c = net.mesh("a", "b", "c")
    alice, bob = net.client(a, ALICE), net.client(c, BOB)
    frame = wire.encode_frame(kind, BOB.public + b"x" * 100, sender=ALICE.public)
    alice.send(frame)
    for other in (a, c):
        net.cut(b, other)

    assert bob.content() == [frame]
    assert alice.codes() == [DeliveryCode.DELIVERED]
    assert [(fact.frames_in, fact.frames_out) for fact in b.link_ends()] == [(0, 0), (0, 0)]
