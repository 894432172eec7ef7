"""What nodes and clients that nobody knows can and cannot do to others (issue 21, findings 2, 4, 5, 8 and 13)."""

import pytest

from tests.protocols.merk.build_relay import (
    ALICE,
    BOB,
    CAROL,
    DELIVERED,
    FULL,
    ID,
    RATE,
    UNKNOWN,
    X,
    Y,
    claimed_at,
    found_at,
    world,
)
from tests.protocols.merk.net import WALL_MS, Net, assert_closed, data_to
from waystation.crypto.signing import sign
from waystation.protocols.merk import wire
from waystation.protocols.merk.messages import (
    KeyQuery,
    KeyUnknown,
    MessageType,
    QueryClient,
    RequestServers,
    Servers,
)
from waystation.protocols.merk.refusals import Refusal


def relayed(net, node, key):
    """Return a session of whoever has the victim answer the node's challenge: AUTH cannot be had that way."""
    return net.client(node, key, hello=False)


def advert(key=BOB):
    """Return a valid advert, which everybody can copy."""
    return wire.make_advert(key, b"a" * 32, WALL_MS)


# A login that somebody passes on (finding 2)


def test_a_relayed_login_never_replaces_a_proved_session():
    """The victim stays connected and gets its mail; the thief gets nothing and is closed."""
    net, _, alice = world(peers=0)
    bob = net.client(alice.node, BOB)
    thief = relayed(net, alice.node, BOB)
    frame = alice.write(BOB)
    before = thief.content()
    net.pass_ms(5_000)

    assert (bob.content(), before) == ([frame], [])
    assert bob.closed is None
    assert_closed(thief, Refusal.UNPROVED)
    assert thief.close.status == 4401


def test_a_relayed_login_of_a_key_that_is_able_gets_no_mail():
    """Also while its owner is away: an advert says that the owner can prove itself."""
    net, _, alice = world(peers=0)
    net.client(alice.node, BOB).say(advert()).hang_up()
    thief = relayed(net, alice.node, BOB)
    alice.write(BOB)

    assert thief.content() == []
    assert alice.codes() == [UNKNOWN]


def test_a_relayed_login_that_came_first_loses_its_mail_when_the_key_turns_out_to_be_able():
    """By the thief's own copy of the advert, too; what waited for it is refused."""
    net, _, alice = world(peers=0)
    thief = relayed(net, alice.node, BOB).stall()
    alice.write(BOB, b"1")
    thief.say(advert())
    alice.write(BOB, b"2")
    thief.drain()

    assert thief.content() == []
    assert alice.codes() == [FULL, UNKNOWN]
    net.pass_ms(5_000)
    assert_closed(thief, Refusal.UNPROVED)


def test_a_key_that_another_node_shows_to_be_able_needs_proof_here():
    """An answer to a question for the key is enough."""
    net, node, alice, x = world()
    thief = relayed(net, node, BOB)
    alice.say(KeyQuery(BOB.public))
    x.say(advert())
    alice.hear()
    alice.write(BOB)
    x.deny()

    assert thief.content() == []


def test_a_thief_sends_nothing_in_the_name_of_a_key_that_needs_proof():
    """Neither one frame nor many at once; it may ask, and may still prove itself."""
    net, node, alice = world(peers=0)
    net.client(node, BOB).say(advert()).hang_up()
    thief = relayed(net, node, BOB).greet()
    hello = thief.told()[0]
    frames = [data_to(ALICE, BOB, b"%d" % number) for number in range(3)]
    thief.send(frames[0])
    node.relay.receive_many(thief.peer, frames, net.now)
    net.settle()
    told = thief.codes()
    thief.say(KeyQuery(CAROL.public), RequestServers())

    assert alice.content() == []
    assert told == [FULL] * 4
    assert node.refused(Refusal.UNPROVED) == 4
    assert thief.told() == [KeyUnknown(CAROL.public), Servers(())]
    thief.say(thief.proof(hello, 0))
    thief.send(frames[0])
    assert alice.content() == [frames[0]]


def test_the_owner_replaces_a_relayed_login():
    """With AUTH it has its key at once, and the thief is closed."""
    net, _, alice = world(peers=0)
    thief = relayed(net, alice.node, BOB)
    bob = net.client(alice.node, BOB)
    frame = alice.write(BOB)

    assert_closed(thief, Refusal.REPLACED)
    assert bob.content() == [frame]


def test_the_proof_of_another_relay_is_none():
    """AUTH covers this node's key and nonce, so what a hostile relay is given opens nothing here."""
    net, _, alice = world(peers=0)
    thief = relayed(net, alice.node, BOB).greet()
    hello = thief.told()[0]
    elsewhere = wire.auth_message(BOB.public, X.public, thief.nonce, hello.nonce, 0, 1)
    thief.say(type(thief.proof(hello))(sign(BOB, elsewhere)))

    assert_closed(thief, Refusal.BAD_PEER_AUTH)


def test_an_original_client_keeps_working():
    """A key that nobody knows as able is whoever signs the challenge, and the newest connection has it."""
    net, node, alice = world(peers=0)
    first, second = net.client(node, BOB, hello=False), net.client(node, BOB, hello=False)
    frame = alice.write(BOB)

    assert_closed(first, Refusal.REPLACED)
    assert second.content() == [frame]


# A stranger among the nodes (findings 3 and 13)


def test_a_strangers_claim_draws_no_mail():
    """Whatever it says, in time or late, without the client's presence it is a no (finding 3)."""
    net, node, alice = world(peers=0)
    stranger = net.stranger(node, X)
    alice.write(BOB)
    claimed_at(stranger)

    assert stranger.forwarded() == []
    assert alice.codes() == [UNKNOWN]


def test_a_strangers_client_gets_its_mail():
    """With its presence a node that nobody has named is as good as any."""
    net, node, alice = world(peers=0)
    stranger = net.stranger(node, X)
    frame = alice.write(BOB)
    found_at(stranger)

    assert stranger.forwarded() == [frame]


def test_a_stranger_has_the_rates_of_a_client():
    """A thousand frames at once, and not forty times that (finding 13)."""
    net = Net()
    node = net.node()
    net.client(node, BOB)
    stranger = net.stranger(node, X)
    frame = data_to(BOB, ALICE)
    for number in range(1_100):
        node.relay.receive(stranger.peer, forward(frame, number), net.now)
    net.settle()

    assert stranger.codes().count(RATE) >= 100


def test_a_strangers_questions_count():
    """Who is present is asked no faster than a client writes."""
    net = Net()
    node = net.node()
    stranger = net.stranger(node, X)
    stranger.say(*[QueryClient(BOB.public)] * 1_100)

    assert node.refused(Refusal.RATE) >= 100
    assert len(stranger.told()) <= 1_000


def forward(frame, number, key=X):
    """Return a frame of ``key`` as a node forwards one."""
    return wire.encode_info_frame(messages_forward(frame, number, key), key.public)


def messages_forward(frame, number, key):
    """Return a FORWARD with a number of its own."""
    return wire.decode_info(b"\x83\x01" + number.to_bytes(16, "big") + key.public + frame)


def unsigned(kind, sender=ALICE, content=b"hello"):
    """Return a frame whose header bears no signature."""
    return wire.encode_frame(kind, BOB.public + content, sender=sender.public)


def encrypted(sender=ALICE, signer=None, *, legacy=False):
    """Return a frame in the shape of an encrypted one, signed as ours or as an original does."""
    payload = BOB.public + bytes(92)
    signature = sign(signer or sender, payload[32:] if legacy else payload)
    return wire.encode_frame(MessageType.ENCRYPTED_DATA, payload, sender=sender.public, signature=signature)


@pytest.mark.parametrize(
    "frame",
    [
        unsigned(MessageType.DATA),
        unsigned(MessageType.SIGNED_DATA),
        unsigned(MessageType.ENCRYPTED_DATA, content=bytes(92)),
        encrypted(signer=CAROL),
        data_to(BOB, ALICE)[:24] + CAROL.public + data_to(BOB, ALICE)[56:],
    ],
    ids=["data", "signed", "encrypted", "signed by another", "in another name"],
)
def test_a_stranger_brings_no_invented_sender(frame):
    """Without its sender's signature a frame is turned down with a notice; from a named node it is taken."""
    net = Net()
    node = net.node()
    bob, stranger, named = net.client(node, BOB), net.stranger(node, X), net.peer(node, Y)
    stranger.forward(frame, ID)
    refused = (bob.content(), stranger.codes(), node.refused(Refusal.UNSIGNED))
    named.forward(frame, ID)

    assert refused == ([], [FULL], 1)
    assert bob.content() == [frame]
    assert stranger.closed is None


def test_an_unsigned_frame_that_is_refused_ends_no_way_for_others():
    """Between two nodes of which one is a stranger to the other: the next, signed, goes where the refused one went."""
    net = Net()
    a, b = net.mesh("a", "b")
    bob, alice, original = net.client(a, BOB), net.client(b, ALICE), net.client(b, CAROL, hello=False)
    original.send(unsigned(MessageType.DATA, CAROL))
    frame = alice.write(BOB)

    assert bob.content() == [frame]
    assert alice.codes() == [DELIVERED]


@pytest.mark.parametrize("frame", [data_to(BOB, ALICE), encrypted(), encrypted(legacy=True)])
@pytest.mark.parametrize("together", [True, False])
def test_a_stranger_brings_what_its_clients_have_signed(frame, together):
    """Header signature, or that of an encrypted frame, ours or an original's."""
    net = Net()
    node = net.node()
    bob, stranger = net.client(node, BOB), net.stranger(node, X)
    data = forward(frame, 1)
    if together:
        node.relay.receive_many(stranger.peer, [data], net.now)
        net.settle()
    else:
        stranger.send(data)

    assert bob.content() == [frame]
    assert stranger.codes() == [DELIVERED]


def test_clients_get_no_address_that_only_a_stranger_says():
    """Nodes get it, and dial under guard; clients get it once our own dial has proved it (finding 2)."""
    net, node, alice = world(peers=0)
    net.stranger(node, X, address="ws://8.8.8.8/evil")
    named = net.peer(node, Y, address="ws://8.8.8.9/")
    (for_client,) = alice.say(RequestServers()).told()
    (for_node,) = named.say(RequestServers()).told()

    assert [entry.key for entry in for_client.entries] == [Y.public]
    assert [entry.key for entry in for_node.entries] == [X.public, Y.public]


def test_clients_get_the_address_that_a_stranger_has_proved():
    """Two nodes of which only one names the other: its clients learn where the newcomer is, after a dial."""
    net = Net()
    a = net.node("a", allow_private_peers=True)
    net.node("b", peers=["ws://a"], public_url="ws://b", allow_private_peers=True)
    net.pass_ms(1_000)
    (told,) = net.client(a, ALICE).say(RequestServers()).told()

    assert [dial.url for dial in a.dials] == ["ws://b"]
    assert [entry.address for entry in told.entries] == ["ws://b"]


# What a client hears at its start (finding 8)


def test_a_client_learns_what_a_frame_may_have():
    """Behind the node's HELLO and AUTH; an original client hears nothing of it."""
    net = Net()
    node = net.node(max_frame_bytes=65_536)
    bob = net.client(node, BOB, hello=False)
    original = bob.told()
    told = bob.greet().told()

    assert original == []
    assert [type(info).__name__ for info in told] == ["Hello", "Auth", "Limits"]
    assert told[2].frame_bytes_max == 65_536


# Frames of originals that are larger than ours take (interop M3)


def test_a_large_frame_of_an_original_costs_it_nothing_but_the_frame():
    """It is dropped and counted, and the link stands."""
    net = Net()
    node = net.node(max_frame_bytes=1_024)
    bob, original = net.client(node, BOB), net.original(node, X)
    original.send(data_to(BOB, ALICE, bytes(1_024)))
    frame = data_to(BOB, ALICE)
    original.send(frame)

    assert bob.content() == [frame]
    assert node.refused(Refusal.TOO_BIG) == 1
    assert original.closed is None
