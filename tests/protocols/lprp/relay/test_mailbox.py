"""The queue of one tenant: order, bounds, and whose letters count as strangers'."""

import random
from collections import Counter

import pytest

from tests.protocols.lprp.build import SENDER, TENANT, VISITOR, sealed
from waystation.protocols.lprp.limits import DEFAULT_LIMITS as LIMITS
from waystation.protocols.lprp.messages import WINDOW_PACKETS, Command
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.relay.mailbox import Mailbox, QueuedPacket


def letter_of(number, *, sender=SENDER.public, from_unlisted=False):
    """Return a letter with a signature and a sender of one's choice; a mailbox does not look at more."""
    data = number.to_bytes(64, "big") + bytes(8) + bytes(sender) + TENANT.public + bytes(8)
    return QueuedPacket(data, data[:64], from_unlisted=from_unlisted, accepted_ms=number, attempt=number)


def filled(count, **options):
    """Return a mailbox of so many letters."""
    mailbox = Mailbox()
    for number in range(count):
        mailbox.add(letter_of(number, **options))
    return mailbox


def test_letter_reads_its_packet():
    """A letter names its packet by signature, sender and recipient, which it takes from the bytes alone."""
    packet = sealed(SENDER, TENANT, Command.RELAY, b"content")
    letter = QueuedPacket(packet.data, packet.signature, from_unlisted=True, accepted_ms=5, attempt=7)

    assert (letter.signature, letter.sender, letter.recipient) == (packet.signature, SENDER.public, TENANT.public)
    assert (letter.sent_at, letter.bundle, letter.gone) == (None, None, False)
    assert (letter.accepted_ms, letter.attempt, letter.from_unlisted) == (5, 7, True)


def test_letters_stand_in_their_order():
    """Letters are yielded oldest first; taking one out leaves the order of the rest."""
    mailbox = filled(5)
    taken = mailbox.remove(letter_of(2).signature)

    assert taken.accepted_ms == 2
    assert [letter.accepted_ms for letter in mailbox] == [0, 1, 3, 4]
    assert len(mailbox) == 4 and letter_of(2).signature not in mailbox and letter_of(3).signature in mailbox


def test_taking_out_what_is_not_there():
    """An unknown signature takes nothing out."""
    mailbox = filled(2)

    assert mailbox.remove(bytes([255] * 64)) is None and len(mailbox) == 2


def test_same_letter_twice_is_a_bug():
    """The host looks before it adds, so a second copy of a letter is a bug."""
    mailbox = filled(1)

    with pytest.raises(AssertionError):
        mailbox.add(letter_of(0))


@pytest.mark.parametrize("count", [0, 15, 16, 17, 40])
def test_window_is_the_first_sixteen(count):
    """At most 16 letters are under way together: the oldest."""
    numbers = [letter.accepted_ms for letter in filled(count).window()]

    assert numbers == list(range(min(count, WINDOW_PACKETS)))


@pytest.mark.parametrize(
    ("count", "refusal"), [(LIMITS.queue_packets - 1, None), (LIMITS.queue_packets, Refusal.QUEUE_FULL)]
)
@pytest.mark.parametrize("from_unlisted", [False, True])
def test_room_in_the_queue(count, refusal, from_unlisted):
    """There is room for 256 letters, whoever sends them."""
    assert filled(count).refuses(VISITOR.public, LIMITS, from_unlisted=from_unlisted) is refusal


@pytest.mark.parametrize(
    ("count", "refusal"),
    [
        (LIMITS.unlisted_packets_per_sender - 1, None),
        (LIMITS.unlisted_packets_per_sender, Refusal.STRANGERS_FULL),
    ],
)
def test_room_for_one_stranger(count, refusal):
    """A stranger has room for 16 letters; that says nothing about others, nor about the same key once it is known."""
    mailbox = filled(count, from_unlisted=True)

    assert mailbox.refuses(SENDER.public, LIMITS, from_unlisted=True) is refusal
    assert mailbox.refuses(VISITOR.public, LIMITS, from_unlisted=True) is None
    assert mailbox.refuses(SENDER.public, LIMITS, from_unlisted=False) is None


@pytest.mark.parametrize(
    ("count", "refusal"),
    [(LIMITS.unlisted_packets - 1, None), (LIMITS.unlisted_packets, Refusal.STRANGERS_FULL)],
)
def test_room_for_all_strangers(count, refusal):
    """All strangers together have room for 64 letters."""
    mailbox = Mailbox()
    for number in range(count):
        mailbox.add(letter_of(number, sender=bytes([number]) * 32, from_unlisted=True))

    assert mailbox.refuses(VISITOR.public, LIMITS, from_unlisted=True) is refusal
    assert mailbox.refuses(VISITOR.public, LIMITS, from_unlisted=False) is None
    assert mailbox.unlisted_share(LIMITS) == count / LIMITS.unlisted_packets


@pytest.mark.parametrize("seed", range(10))
def test_counts_of_strangers_match_a_recount(seed):
    """After any row of additions and removals the counts are what one would count."""
    rng = random.Random(seed)
    mailbox, there = Mailbox(), {}
    for number in range(300):
        if there and rng.random() < 0.45:
            signature = rng.choice(list(there))
            del there[signature]
            mailbox.remove(signature)
        else:
            letter = letter_of(number, sender=bytes([rng.randrange(4)]) * 32, from_unlisted=rng.random() < 0.6)
            there[letter.signature] = letter
            mailbox.add(letter)

    strangers = Counter(letter.sender for letter in there.values() if letter.from_unlisted)
    assert mailbox.unlisted_count == strangers.total() and mailbox._per_unlisted == strangers
    assert [letter.signature for letter in mailbox] == list(there)
