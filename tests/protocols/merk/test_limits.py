"""Laws of protocols.merk.limits: the defaults are the wire reference's, and what an operator sets is what holds."""

import dataclasses

from tests.protocols.merk.build_relay import ALICE, BOB, CAROL, X, world, world_of_two
from tests.protocols.merk.net import Net, data_to, key_of
from waystation.core.facts import Refused
from waystation.protocols.merk.limits import DEFAULT_LIMITS, MerkLimits
from waystation.protocols.merk.messages import AddServer, DeliveryCode, KeyQuery, Role
from waystation.protocols.merk.refusals import Refusal

MIB = 1_048_576


def refused_by(node, refusal):
    """Return whom a relay has named in its refusals of one kind."""
    return [fact.identity for fact in node.facts_of(Refused) if fact.reason == refusal.value]


def written(client, count):
    """Have a client write so many frames to nobody, and return the codes that it gets."""
    for _ in range(count):
        client.write(BOB)
    return client.codes()


def test_defaults_are_those_of_the_wire_reference():
    """What specs/merk.md 5, 6 and 8 promise holds where the operator sets nothing."""
    promised = MerkLimits(
        connects_per_second=10,
        connects_burst=64,
        frames_per_second=500,
        frames_burst=1_000,
        bytes_per_second=16 * MIB,
        bytes_burst=64 * MIB,
        strikes=16,
        nodes=64,
        original_relays=64,
        learnt_addresses=64,
        dials_per_minute=8,
        lookups=4_096,
        lookups_per_client=64,
        lookup_frames=64,
        lookup_bytes=262_144,
        lookup_bytes_all=64 * MIB,
        places=65_536,
        forwards=65_536,
        forward_bytes=128 * MIB,
        waiting_bytes_per_node=16 * MIB,
        seen_forwards=65_536,
        buffered_bytes=256 * MIB,
        buffered_network_part=8,
        adverts=65_536,
        key_questions=1_024,
        key_questions_per_client=16,
    )

    assert promised == DEFAULT_LIMITS


def test_connects_that_an_operator_allows_are_those_that_are_taken():
    """A limit of the configuration is the relay's, and a new one holds for the next connection."""
    net = Net()
    node = net.node(limits=MerkLimits(connects_per_second=1, connects_burst=2))
    first = [net.connect(node, address="192.0.2.1").closed for _ in range(3)]
    node.relay.use_limits(MerkLimits(connects_burst=1))
    second = [net.connect(node, address="192.0.2.2").closed for _ in range(2)]

    assert first == [None, None, Refusal.CONNECT_RATE]
    assert second == [None, Refusal.CONNECT_RATE]


def test_frames_that_an_operator_allows_are_those_that_pass():
    """The rest is refused with code 5 and named."""
    _, node, alice, _ = world_of_two(limits=MerkLimits(frames_per_second=1, frames_burst=3))
    for _ in range(4):
        alice.write(BOB)

    assert alice.codes()[-2:] == [DeliveryCode.RATE] * 2
    assert node.refused(Refusal.RATE)


def test_connection_that_stands_gets_the_new_rates():
    """A client, and an address whose connections are counted, refill at a raised rate up to the new burst."""
    net = Net()
    node = net.node(limits=MerkLimits(frames_per_second=1, frames_burst=4, connects_per_second=1, connects_burst=2))
    alice = net.connect(node, ALICE, address="192.0.2.1").answer().greet()
    alice.hear()
    frames_before = written(alice, 5)
    connects_before = [net.connect(node, address="192.0.2.1").closed for _ in range(2)]
    limits = MerkLimits(frames_per_second=8, frames_burst=6, connects_per_second=100, connects_burst=3)
    node.relay.use_limits(limits)
    net.pass_ms(1_000)
    frames_after = written(alice, 8)
    connects_after = [net.connect(node, address="192.0.2.1").closed for _ in range(4)]

    assert frames_before.count(DeliveryCode.RATE) == 2  # HELLO was the first of four
    assert frames_after.count(DeliveryCode.RATE) == 2
    assert connects_before == [None, Refusal.CONNECT_RATE]
    assert connects_after == [None] * 3 + [Refusal.CONNECT_RATE]


def test_node_that_stands_gets_its_multiple_of_the_new_rates():
    """A proven node is held to the new rates times the new factor; a byte has an allowance of its own."""
    net = Net()
    node = net.node()
    peer = net.peer(node, X)
    node.relay.use_limits(MerkLimits(frames_burst=2, bytes_burst=3, node_factor=5))
    session = node.relay._sessions.by_peer[peer.peer]
    session.affords(0, net.now)

    assert session.frames_allowance.left == 9
    assert not session.bytes_allowance.take(net.now, 16)
    assert session.bytes_allowance.take(net.now, 15)


def test_strikes_that_an_operator_allows_are_those_that_close():
    """A connection that stands is held to a new limit, too."""
    _, node, alice = world(peers=0)
    for _ in range(3):
        alice.send(data_to(BOB, CAROL))
    before = alice.closed
    node.relay.use_limits(MerkLimits(strikes=4))
    alice.send(data_to(BOB, CAROL))

    assert (before, alice.closed) == (None, Refusal.STRIKES)


def test_nodes_that_an_operator_allows_are_those_that_link():
    """The next one is refused; with a higher limit it links."""
    net = Net()
    node = net.node(limits=MerkLimits(nodes=2))
    net.stranger(node, X)
    second = net.connect(node, key_of("y")).answer().greet(Role.NODE)
    node.relay.use_limits(MerkLimits(nodes=4))
    net.stranger(node, key_of("z"))

    assert second.closed is Refusal.PEERS_FULL
    assert node.sizes["nodes"] == 2


def test_addresses_that_an_operator_allows_are_those_that_are_learnt():
    """One node fills no table."""
    _, node, _, x = world(limits=MerkLimits(unproved_addresses_per_node=3))
    x.say(*(AddServer(f"ws://192.0.2.{number}.example.org") for number in range(5)))

    assert node.sizes["learnt_addresses"] == 3


def test_dials_of_a_minute_follow_a_new_limit():
    """A raised limit has the addresses dialled that waited; a lowered one lets none pass too soon."""
    net, node, _, x = world(limits=MerkLimits(dials_per_minute=1))
    x.say(*(AddServer(f"ws://{name}.example.org") for name in "abcd"))
    first = node.relay.deadline()
    node.relay.use_limits(MerkLimits(dials_per_minute=3))
    raised = node.relay.deadline()
    net.pass_ms(1)
    node.relay.use_limits(MerkLimits(dials_per_minute=1))

    assert raised is not None and first is not None and raised <= first
    assert node.relay.deadline() is not None and node.relay.deadline() > raised


def test_searches_beyond_the_limit_are_refused_and_counted():
    """The sender gets code 2 and is not named: that would say who wrote to whom."""
    _, node, alice, _ = world(limits=MerkLimits(lookups=1))
    alice.write(BOB)
    alice.write(CAROL)
    codes = alice.codes()
    node.relay.use_limits(MerkLimits(lookup_frames=1))
    alice.write(BOB)

    assert (codes, alice.codes()) == ([DeliveryCode.QUEUE_FULL], [DeliveryCode.QUEUE_FULL])
    assert refused_by(node, Refusal.QUEUE_FULL) == [None, None]


def test_questions_for_keys_beyond_the_limit_are_counted():
    """The client is answered with what is known here, and is named."""
    _, node, alice, _ = world(limits=MerkLimits(key_questions_per_client=1))
    alice.say(KeyQuery(BOB.public), KeyQuery(CAROL.public))

    assert refused_by(node, Refusal.KEY_QUESTIONS) == [ALICE.public]


def test_every_use_is_a_size_of_the_relay():
    """What is listed beside a limit is counted."""
    sizes = Net().node("a").sizes

    assert {field.metadata["use"] for field in dataclasses.fields(MerkLimits)} - {""} <= sizes.keys()
