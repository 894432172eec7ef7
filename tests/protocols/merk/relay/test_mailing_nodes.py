"""Laws of mailboxes between nodes: who is shown whose word, where a frame is kept, and who is not believed."""

from tests.protocols.merk.build_mail import frame_to
from tests.protocols.merk.build_relay import ALICE, BOB, CAROL, X, found_at
from tests.protocols.merk.net import Net, data_to, key_of
from tests.protocols.merk.relay.test_mailing import DAY_MS, FULL, STORED, UNKNOWN, away, opened, write
from waystation.crypto.signing import sign
from waystation.protocols.merk import wire
from waystation.protocols.merk.limits import MerkLimits
from waystation.protocols.merk.messages import (
    ClientAbsent,
    Delivery,
    Forward,
    MailFetch,
    MessageType,
    Presence,
    PresenceKind,
)
from waystation.protocols.merk.refusals import Refusal


def test_another_node_is_shown_the_word_and_its_frame_is_kept():
    """The asker learns who keeps the mail by what the owner signed, and STORED follows the commit."""
    net, node, _ = away()
    peer = net.peer(node, X)
    peer.say(wire.decode_info(bytes((5,)) + BOB.public))
    (shown,) = [info for info in peer.told() if isinstance(info, Presence)]
    frame = frame_to(BOB, 1, ALICE)
    peer.forward(frame, b"i" * 16)

    assert (shown.kind, shown.client, shown.node) == (PresenceKind.MAILBOX, BOB.public, node.key)
    assert wire.is_presence_valid(shown)
    assert peer.notices() == [(STORED, wire.frame_hash(frame))]
    assert node.sizes["mail_messages"] == 1


def test_frames_that_one_node_brings_have_a_share():
    """However many senders it names."""
    net = Net()
    node = net.node(limits=MerkLimits(mail_messages_per_source=2))
    opened(net, node)
    peer = net.peer(node, X)
    for number in range(4):
        peer.forward(frame_to(BOB, number, key_of(f"invented {number}")), bytes((number,)) * 16)
    codes = peer.codes()
    alice = net.client(node, ALICE)
    write(alice)
    peer.deny()

    assert codes == [STORED, STORED, FULL, FULL]
    assert alice.codes() == [STORED]


def test_a_strangers_invented_sender_is_not_kept():
    """A node that nobody has named brings signed frames only."""
    net, node, _ = away()
    stranger = net.stranger(node, X)
    stranger.hear()
    payload = BOB.public + b"e" * 93
    signed = wire.encode_frame(MessageType.ENCRYPTED_DATA, payload, sender=ALICE.public, signature=sign(ALICE, payload))
    stranger.forward(frame_to(BOB, 1, ALICE), b"1" * 16)
    stranger.forward(signed, b"2" * 16)

    assert stranger.codes() == [FULL, STORED]
    assert node.refused(Refusal.UNSIGNED) == 1


def test_a_banned_senders_frame_is_not_kept():
    """Whoever brings it."""
    net = Net()
    node = net.node(admits=lambda key: key != CAROL.public)
    opened(net, node)
    peer = net.peer(node, X)
    peer.forward(frame_to(BOB, 1, CAROL), b"1" * 16)

    assert peer.codes() == [UNKNOWN]
    assert node.sizes["mail_messages"] == 0


def test_a_connected_place_comes_before_the_mailbox():
    """The frame goes to where the client is, also when its mail would be kept here."""
    net, node, alice = away()
    peer = net.peer(node, X)
    frame = write(alice)
    asked = peer.questions()
    found_at(peer)

    assert asked == [BOB.public]
    assert peer.forwarded() == [frame]
    assert node.sizes["mail_messages"] == 0


def test_mail_is_kept_when_no_node_has_its_recipient():
    """Also when one of them says nothing within five seconds."""
    net, node, alice = away()
    peer = net.peer(node, X)
    write(alice)
    waiting = alice.codes()
    net.pass_ms(5_000)

    assert waiting == []
    assert alice.codes() == [STORED]
    peer.say(ClientAbsent(BOB.public))
    assert node.sizes["mail_messages"] == 1


def test_a_frame_goes_to_the_node_that_keeps_the_mail():
    """Two nodes: Alice at one, Bob's mailbox at the other; he comes and gets it."""
    net = Net()
    a, b = net.mesh("a", "b")
    opened(net, b)
    alice = net.client(a, ALICE)
    frame = write(alice)
    codes = alice.codes()
    bob = net.client(b, BOB)
    bob.say(MailFetch())

    assert codes == [STORED]
    assert bob.content() == [frame]
    assert a.sizes["mail_messages"] == 0


def test_a_node_that_claims_a_mailbox_without_the_owners_word_gets_nothing():
    """Another node's word, one that is over, or one of its own making."""
    net = Net()
    node = net.node()
    alice = net.client(node, ALICE)
    hostile = net.peer(node, X)
    kept = {"kind": PresenceKind.MAILBOX, "lasts_ms": DAY_MS}
    claims = [
        hostile.presence(BOB, node=node.key, **kept),
        hostile.presence(BOB, issued_ms=-2 * DAY_MS, **kept),
        wire.make_presence(X, PresenceKind.MAILBOX, X.public, net.wall_ms, net.wall_ms + DAY_MS),
        Presence(PresenceKind.MAILBOX, BOB.public, X.public, net.wall_ms, net.wall_ms + DAY_MS, bytes(64)),
    ]
    for number, claim in enumerate(claims):
        write(alice, number)
        hostile.questions()
        hostile.say(claim)
        net.pass_ms(7_500)

    assert hostile.forwarded() == []
    assert STORED not in alice.codes()


def test_a_node_that_says_stored_is_believed_only_about_what_it_was_sent():
    """A notice about a frame that went elsewhere changes nothing."""
    net = Net()
    node = net.node()
    alice = net.client(node, ALICE)
    peer = net.peer(node, X)
    frame = write(alice)
    peer.say(Delivery(STORED, BOB.public, wire.frame_hash(frame)))
    peer.deny()

    assert alice.codes() == [UNKNOWN]


def test_stored_of_another_node_reaches_the_sender():
    """After the frame went to the node that showed the owner's word."""
    net = Net()
    node = net.node()
    alice = net.client(node, ALICE)
    peer = net.peer(node, X)
    frame = write(alice)
    peer.questions()
    peer.say(peer.presence(BOB, PresenceKind.MAILBOX, lasts_ms=DAY_MS))
    forwarded = [info.frame for info in peer.told() if isinstance(info, Forward)]
    peer.say(Delivery(STORED, BOB.public, wire.frame_hash(frame)))

    assert forwarded == [frame]
    assert alice.notices() == [(STORED, wire.frame_hash(frame))]


def test_data_in_clear_for_a_mailbox_elsewhere_is_refused_there():
    """The node that keeps mail says that its owner is not there."""
    net = Net()
    a, b = net.mesh("a", "b")
    opened(net, b)
    alice = net.client(a, ALICE)
    alice.send(data_to(BOB, ALICE))
    net.pass_ms(6_000)

    assert alice.codes() == [UNKNOWN]
