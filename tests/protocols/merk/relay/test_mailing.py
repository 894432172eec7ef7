"""Laws of a relay with mailboxes: who may open one, what its senders hear, and what its owner gets (MERK-MAIL)."""

import pytest

from tests.protocols.merk.build_mail import frame_to
from tests.protocols.merk.build_relay import ALICE, BOB, CAROL, X
from tests.protocols.merk.net import ALL_FEATURES, START, Net, assert_nothing_left, key_of
from tests.protocols.refusing import RefusingStore
from waystation.core.facts import DeliveryFinished, LeaseChanged, Outcome
from waystation.core.instant import Instant
from waystation.protocols.merk import wire
from waystation.protocols.merk.limits import MerkLimits
from waystation.protocols.merk.messages import (
    DeliveryCode,
    Feature,
    Hello,
    KeyQuery,
    MailboxState,
    MailClose,
    MailFetch,
    MailOpen,
    MailState,
    MailTaken,
    MessageType,
    Presence,
    PresenceKind,
    Role,
)
from waystation.protocols.merk.refusals import Refusal

DAY_MS = 86_400_000
MAILED = ALL_FEATURES | Feature.MAILBOX
STORED, UNKNOWN, FULL = DeliveryCode.STORED, DeliveryCode.UNKNOWN_TARGET, DeliveryCode.QUEUE_FULL
CLOSED_STATE = MailState(MailboxState.CLOSED, 0, 0, 0)
REFUSED_STATE = MailState(MailboxState.REFUSED, 0, 0, 0)


def word(line, **changes):
    """Return what a client signs to have its mail kept by the relay of its connection."""
    given = {"kind": PresenceKind.MAILBOX, "lasts_ms": 30 * DAY_MS, "node": line.node.key, **changes}
    return line.presence(changes.pop("client", line.key), **{k: v for k, v in given.items() if k != "client"})


def states(line):
    """Return what a client has heard about its mailbox."""
    return [info for info in line.told() if isinstance(info, MailState)]


def opened(net, node, key=BOB):
    """Let a client open a mailbox, and leave."""
    owner = net.client(node, key)
    owner.say(MailOpen(word(owner)))
    assert [state.state for state in states(owner)] == [MailboxState.OPEN]
    owner.hang_up()


def away(**settings):
    """Return a net, a node at which Bob has a mailbox and is away, and Alice."""
    net = Net()
    node = net.node(**settings)
    opened(net, node)
    return net, node, net.client(node, ALICE)


def write(line, number=1, target=BOB, size=64):
    """Send an encrypted frame; return it."""
    frame = frame_to(target, number, line.key, size)
    line.send(frame)
    return frame


# Opening


def test_a_client_that_proved_itself_opens_a_mailbox():
    """It hears so, with the time of its own word, and the journal of the lease."""
    net = Net()
    node = net.node()
    bob = net.client(node, BOB)
    bob.say(MailOpen(word(bob)))

    assert states(bob) == [MailState(MailboxState.OPEN, 0, 0, net.wall_ms + 30 * DAY_MS)]
    assert node.sizes["mailboxes"] == 1
    assert node.facts_of(LeaseChanged) == [LeaseChanged("merk", BOB.public, "granted", 0)]


@pytest.mark.parametrize("say", [lambda line: MailOpen(word(line)), lambda _: MailClose(), lambda _: MailFetch()])
def test_who_did_not_prove_itself_has_no_mailbox(say):
    """The seed's handshake may have been passed on by somebody: MAIL of it is an offence."""
    net = Net()
    node = net.node()
    original = net.client(node, BOB, hello=False)
    original.say(say(original))

    assert node.refused(Refusal.INFO_NOT_ALLOWED) == 1
    assert node.sizes["mailboxes"] == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"client": ALICE},
        {"node": X.public},
        {"issued_ms": 60_001},
        {"issued_ms": -2 * DAY_MS, "lasts_ms": DAY_MS},
        {"lasts_ms": 30 * DAY_MS + 1},
    ],
)
def test_a_word_that_does_not_hold_opens_nothing(changes):
    """Another client's, for another node, of the future, of the past, or for too long."""
    net = Net()
    node = net.node()
    bob = net.client(node, BOB)
    bob.say(MailOpen(word(bob, **changes)))

    assert states(bob) == [REFUSED_STATE]
    assert node.refused(Refusal.BAD_PRESENCE) == 1
    assert node.sizes["mailboxes"] == 0


def test_a_forged_word_opens_nothing():
    """The signature is the client's own."""
    net = Net()
    node = net.node()
    bob = net.client(node, BOB)
    forged = word(bob)
    forged = Presence(forged.kind, forged.client, forged.node, forged.issued_ms, forged.until_ms - 1, forged.signature)
    bob.say(MailOpen(forged))

    assert states(bob) == [REFUSED_STATE]
    assert node.refused(Refusal.BAD_PRESENCE) == 1


def test_a_node_without_mailboxes_names_no_such_feature_and_refuses():
    """``merk.mailbox = false``; what was kept before is given out anyway."""
    net, node, alice = away()
    write(alice)
    net.kill(node)
    node = net.node(store=node.store, mailbox=False)
    bob = net.connect(node, BOB).answer().greet(features=MAILED)
    (hello,) = [info for info in bob.told() if isinstance(info, Hello)]
    bob.say(bob.proof(hello, Role.CLIENT), MailOpen(word(bob)), MailFetch())
    heard = bob.hear()
    alice = net.client(node, ALICE)
    bob.hang_up()
    write(alice, 2)

    assert not hello.features & Feature.MAILBOX
    assert wire.decode_info_frame(heard[1]) == REFUSED_STATE
    assert heard[-1] == frame_to(BOB, 1, ALICE)
    assert node.refused(Refusal.MAILBOX_OFF) == 1
    assert alice.codes() == [UNKNOWN]


def test_at_the_limit_of_mailboxes_one_is_refused():
    """With state 2."""
    net = Net()
    node = net.node(limits=MerkLimits(mailboxes=1))
    opened(net, node)
    carol = net.client(node, CAROL)
    carol.say(MailOpen(word(carol)))

    assert states(carol) == [REFUSED_STATE]
    assert node.refused(Refusal.MAILBOXES_FULL) == 1


def test_a_disk_that_refuses_is_a_refusal():
    """A mailbox with state 2, a frame with code 2; nothing of it is kept."""
    net = Net()
    store = RefusingStore()
    node = net.node(store=store)
    store.refuses = True
    bob = net.client(node, BOB)
    bob.say(MailOpen(word(bob)))
    refused = states(bob)
    store.refuses = False
    net.pass_ms(1_000)
    bob.say(MailOpen(word(bob)))
    bob.hang_up()
    alice = net.client(node, ALICE)
    store.refuses = True
    write(alice)

    assert refused == [REFUSED_STATE]
    assert alice.codes() == [FULL]
    assert node.refused(Refusal.MAIL_NOT_KEPT) == 2
    assert node.sizes["mail_messages"] == 0


def test_a_client_that_knows_mailboxes_hears_of_its_own_when_it_comes():
    """How much there is; others hear nothing that they would not understand."""
    net, node, alice = away()
    frame = write(alice)
    bob = net.connect(node, BOB).answer().greet(features=MAILED).is_here()
    carol = net.connect(node, CAROL).answer().greet(features=MAILED).is_here()
    plain = net.client(node, key_of("plain"))

    assert [(state.state, state.messages_count, state.kept_bytes) for state in states(bob)] == [
        (MailboxState.OPEN, 1, len(frame))
    ]
    assert states(carol) == [CLOSED_STATE]
    assert states(plain) == []


# Senders


def test_a_sender_hears_stored_once_the_frame_is_on_disk():
    """Not before, and a crash right after changes nothing."""
    net, node, alice = away()
    frame = frame_to(BOB, 1, ALICE)
    node.relay.receive(alice.peer, frame, net.now)
    before = alice.hear()
    net.settle()
    after = alice.notices()
    net.kill(node)
    node = net.node(store=node.store)
    bob = net.client(node, BOB)
    bob.say(MailFetch())

    assert before == []
    assert after == [(STORED, wire.frame_hash(frame))]
    assert bob.content() == [frame]


@pytest.mark.parametrize("is_first", [True, False])
def test_who_is_away_can_be_written_to_after_a_restart(is_first):
    """Its agreement key is with its mailbox; and whoever passes a challenge on does not get its key (MERK-PROVED)."""
    net, advert = Net(), wire.make_advert(BOB, b"a" * 32, 5)
    node = net.node()
    bob = net.client(node, BOB)
    bob.say(*([advert, MailOpen(word(bob))] if is_first else [MailOpen(word(bob)), advert]))
    net.kill(node)
    node = net.node(store=node.store)
    alice = net.client(node, ALICE)
    alice.say(KeyQuery(BOB.public))
    answers = alice.told()
    thief = net.client(node, BOB, hello=False)
    frame = write(alice)

    assert answers == [advert]
    assert (alice.codes(), thief.content()) == ([STORED], [])
    owner = net.client(node, BOB)
    owner.say(MailFetch())
    assert owner.content() == [frame]


@pytest.mark.parametrize("kind", [MessageType.DATA, MessageType.SIGNED_DATA])
def test_what_is_written_in_clear_is_not_kept(kind):
    """A disk keeps only what its owner alone can read."""
    _, node, alice = away()
    alice.send(wire.encode_frame(kind, BOB.public + b"x" * 80, sender=ALICE.public))

    assert alice.codes() == [UNKNOWN]
    assert node.sizes["mail_messages"] == 0


def test_without_a_mailbox_nothing_is_kept():
    """As ever: code 1."""
    _, node, alice = away()
    write(alice, target=CAROL)

    assert alice.codes() == [UNKNOWN]
    assert node.sizes["mail_messages"] == 0


@pytest.mark.parametrize(
    ("limits", "refusal", "code"),
    [
        ({"mail_frame_bytes": 100}, Refusal.MAIL_TOO_LARGE, DeliveryCode.TOO_LARGE),
        ({"mail_bytes_per_mailbox": 100}, Refusal.MAILBOX_FULL, FULL),
        ({"mail_bytes_per_sender": 100}, Refusal.MAIL_SHARE, FULL),
        ({"mail_bytes": 100}, Refusal.MAIL_FULL, FULL),
    ],
)
def test_each_limit_has_one_code(limits, refusal, code):
    """And is counted under its own name, once, without the sender."""
    _, node, alice = away(limits=MerkLimits(**limits))
    write(alice)

    assert alice.codes() == [code]
    assert node.refused(refusal) == 1
    assert node.refused(Refusal.QUEUE_FULL) == 0


def test_a_hostile_sender_fills_its_share_and_others_are_stored():
    """It has as many keys as it likes, in one network."""
    net = Net()
    node = net.node(limits=MerkLimits(mail_messages_per_source=5, mail_messages_per_sender=3))
    opened(net, node)
    codes = []
    for number in range(6):
        thief = net.connect(node, key_of(f"thief {number}"), f"203.0.113.{number}").answer().greet()
        thief.is_here().hear()
        write(thief, 1)
        write(thief, 2)
        codes += thief.codes()
    friend = net.connect(node, ALICE, "198.51.100.7").answer().greet().is_here()
    friend.hear()
    write(friend)

    assert codes.count(STORED) == 5
    assert codes.count(FULL) == 7
    assert friend.codes() == [STORED]


def test_a_sender_that_wants_no_notices_has_a_share_too():
    """An original client: nothing is said to it, and its network counts."""
    net = Net()
    node = net.node(limits=MerkLimits(mail_messages_per_source=2))
    opened(net, node)
    for number in range(4):
        line = net.connect(node, key_of(f"original {number}"), "203.0.113.9").answer()
        line.hear()
        write(line)
        assert line.hear() == []

    assert node.sizes["mail_messages"] == 2
    assert node.refused(Refusal.MAIL_SHARE) == 2


def test_a_frame_that_waited_for_a_connection_that_ended_is_kept():
    """It had not reached the reader, and need not be lost."""
    net = Net()
    node = net.node()
    bob, alice = net.client(node, BOB), net.client(node, ALICE)
    bob.say(MailOpen(word(bob)))
    bob.stall()
    frame = write(alice)
    waiting = alice.codes()
    bob.hang_up()

    assert waiting == []
    assert alice.codes() == [STORED]
    bob = net.client(node, BOB)
    bob.say(MailFetch())
    assert bob.content() == [frame]


# Owners


def test_an_owner_gets_everything_once_the_oldest_first():
    """When it asks; each stays until it is taken."""
    net, node, alice = away()
    frames = [write(alice, number) for number in (3, 1, 2)]
    bob = net.client(node, BOB)
    before = bob.content()
    bob.say(MailFetch())
    first = bob.content()
    bob.say(MailTaken((wire.frame_hash(first[1]), bytes(16))))
    bob.hang_up()
    bob = net.client(node, BOB)
    bob.say(MailFetch())

    assert before == []
    assert first == frames
    assert bob.content() == [frames[0], frames[2]]


def test_taken_is_counted_by_the_journal_without_senders():
    """One row for one TAKEN."""
    net, node, alice = away()
    frames = [write(alice, number) for number in (1, 2)]
    bob = net.client(node, BOB)
    bob.say(MailTaken(tuple(map(wire.frame_hash, frames))))

    (fact,) = [fact for fact in node.facts_of(DeliveryFinished) if fact.tries == 2]
    assert (fact.recipient, fact.outcome, fact.carried_bytes) == (BOB.public, Outcome.OK, 2 * len(frames[0]))


def test_an_owner_learns_that_nothing_is_left():
    """STATE follows the TAKEN of the last frame, and no other."""
    net, node, alice = away()
    frames = [write(alice, number) for number in (1, 2)]
    bob = net.client(node, BOB)
    before = len(states(bob))
    bob.say(MailTaken((wire.frame_hash(frames[0]),)))
    bob.say(MailTaken((bytes(16),)))
    between = len(states(bob))
    bob.say(MailTaken((wire.frame_hash(frames[1]),)))

    assert between == before
    assert [(said.messages_count, said.kept_bytes) for said in states(bob)[before:]] == [(0, 0)]


def test_nobody_takes_what_is_kept_for_another():
    """Hashes are no secret."""
    _, node, alice = away()
    frame = write(alice)
    alice.say(MailTaken((wire.frame_hash(frame),)), MailFetch())

    assert alice.content() == []
    assert node.sizes["mail_messages"] == 1


def test_who_asks_again_at_once_gets_it_once():
    """After ten seconds from the beginning."""
    net, node, alice = away()
    frame = write(alice)
    bob = net.client(node, BOB)
    bob.say(MailFetch(), MailFetch())
    first = bob.content()
    net.pass_ms(10_000)
    bob.say(MailFetch())

    assert first == [frame]
    assert bob.content() == [frame]


def test_a_slow_owner_is_given_its_mail_as_it_reads():
    """Nothing is handed over while bytes wait for it."""
    net = Net()
    node = net.node(max_frame_bytes=4_096, limits=MerkLimits(bytes_burst=1 << 20))
    opened(net, node)
    alice = net.client(node, ALICE)
    frames = [write(alice, number, size=3_000) for number in range(8)]
    bob = net.client(node, BOB).stall()
    bob.say(MailFetch())
    assert bob.content() == []
    bob.drain()

    assert bob.content() == frames


def test_what_is_stored_while_the_owner_comes_follows():
    """The frame was on its way to the disk when the owner asked."""
    net, node, alice = away()
    frame = frame_to(BOB, 1, ALICE)
    node.relay.receive(alice.peer, frame, net.now)
    bob = net.connect(node, BOB).answer().greet()
    bob.is_here().say(MailFetch())

    assert bob.content() == [frame]


def test_a_connected_owner_gets_frames_as_ever():
    """Its mailbox is for when it is away: code 0, and nothing is written to the disk."""
    net, node, alice = away()
    bob = net.client(node, BOB)
    frame = write(alice)

    assert alice.codes() == [DeliveryCode.DELIVERED]
    assert bob.content() == [frame]
    assert node.sizes["mail_messages"] == 0


def test_a_frame_whose_row_is_lost_is_left_out():
    """The others are given."""
    net, node, alice = away()
    frames = [write(alice, number) for number in (1, 2)]
    (key, _), _ = node.store.scan("merk_mail")
    node.store._tables["merk_mail"].pop(key)
    node.store._sorted_keys.clear()
    bob = net.client(node, BOB)
    bob.say(MailFetch())

    assert bob.content() == frames[1:]


def test_closing_ends_it_with_its_mail():
    """And is said once it is off the disk."""
    net, node, alice = away()
    write(alice)
    alice.hear()
    bob = net.client(node, BOB)
    bob.say(MailClose())
    bob.hang_up()
    write(alice, 2)

    assert alice.codes() == [UNKNOWN]
    assert node.sizes["mailboxes"] == node.sizes["mail_messages"] == 0
    assert list(node.store.scan("merk_mail")) == []


def test_mail_expires():
    """After seven days; the mailbox after thirty, and then nothing is left."""
    net, node, alice = away()
    write(alice)
    alice.hang_up()
    net.pass_ms(1)
    for day in range(31):
        net.now = Instant(START + day * DAY_MS * 1_000)
        net.settle()
        assert (node.sizes["mail_messages"] == 1) is (day < 7)
    net.now = Instant(START + 32 * DAY_MS * 1_000)
    net.settle()

    gone = [fact for fact in node.facts_of(DeliveryFinished) if fact.outcome is Outcome.GONE]
    assert [(fact.recipient, fact.tries) for fact in gone] == [(BOB.public, 1)]
    assert_nothing_left(node)


def test_only_a_node_says_how_a_mailbox_stands():
    """A client that does breaks a rule."""
    _, node, alice = away()
    alice.say(CLOSED_STATE)

    assert node.refused(Refusal.INFO_NOT_ALLOWED) == 1
