"""Laws of mailboxes: what is kept, for how long, and who is refused at which limit (MERK-MAIL)."""

import pytest

from tests.protocols.merk.build_mail import (
    ALICE,
    AWAY,
    BOB,
    CAROL,
    HOME,
    MONTH_MS,
    NODE,
    Post,
    frame_to,
    presence_of,
    sending_to,
)
from tests.protocols.merk.net import key_of
from waystation.core.records import Record
from waystation.protocols.merk import wire
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.relay.mail import Closed, Kept, NotKept, NotOpened, Opened
from waystation.protocols.merk.relay.mail_rows import BOXES, MAIL, mail_key
from waystation.protocols.merk.relay.mailboxes import DAY_MS

EMPTY = (0, 0, 0, 0)
SIZE = len(frame_to(BOB))


# Opening and closing


def test_a_mailbox_is_open_once_it_is_on_disk():
    """Before, it takes nothing and nobody hears of it."""
    post = Post()

    assert post.open(BOB) is None
    assert post.boxes.presence_of(BOB.public, post.wall_ms) is None
    assert post.boxes.take_answers() == []
    assert post.settle() == [Opened(BOB.public)]
    assert post.boxes.presence_of(BOB.public, post.wall_ms) == presence_of(BOB)
    assert post.restart().boxes.presence_of(BOB.public, post.wall_ms) == presence_of(BOB)


def test_a_mailbox_that_the_store_refuses_is_not_open():
    """Its place is free again, also for its network."""
    post = Post(mailboxes_per_network=1)
    post.store.refuses = True
    post.open(BOB)
    post.commit()

    assert post.boxes.take_answers() == [NotOpened(BOB.public)]
    assert post.sizes() == EMPTY
    assert post.boxes.of(BOB.public) is None
    assert post.open(CAROL) is None


def test_a_renewal_that_the_store_refuses_leaves_the_old_word():
    """The mailbox and its mail stay."""
    post = Post().opened(BOB)
    post.keep(BOB, 1)
    post.settle()
    post.store.refuses = True
    post.open(BOB, issued_ms=post.wall_ms + 5)
    post.commit()

    assert post.boxes.take_answers() == [NotOpened(BOB.public)]
    assert post.boxes.presence_of(BOB.public, post.wall_ms) == presence_of(BOB)
    assert post.kept(BOB) == [1]


def test_closing_removes_everything_and_is_said_when_it_is_off_the_disk():
    """A refusal of the store delays it; in memory the mailbox is gone at once."""
    post = Post().opened(BOB)
    post.keep(BOB, 1)
    post.settle()
    post.store.refuses = True
    post.boxes.close(BOB.public)
    post.commit()

    assert post.boxes.take_answers() == []
    assert post.boxes.presence_of(BOB.public, post.wall_ms) is None
    post.store.refuses = False
    assert post.settle() == [Closed(BOB.public)]
    assert post.restart().sizes() == EMPTY
    assert list(post.store.scan(BOXES)) == list(post.store.scan(MAIL)) == []


def test_closing_what_is_not_open_is_answered_at_once():
    """It costs no commit."""
    post = Post()
    post.boxes.close(BOB.public)

    assert not post.boxes.has_changes
    assert post.boxes.take_answers() == [Closed(BOB.public)]


@pytest.mark.parametrize("refuses", [False, True])
def test_closing_a_mailbox_that_is_being_opened_wins(refuses):
    """Whatever the store says of the first commit."""
    post = Post()
    post.open(BOB)
    changes = post.boxes.changes()
    post.boxes.close(BOB.public)
    if refuses:
        post.boxes.not_committed()
    else:
        post.store.commit(changes)
        post.boxes.committed()

    assert post.settle() == [Closed(BOB.public)]
    assert post.sizes() == EMPTY
    assert list(post.store.scan(BOXES)) == []


def test_a_mailbox_that_is_opened_again_at_once_is_empty_and_open():
    """What was in it is gone."""
    post = Post().opened(BOB)
    post.keep(BOB, 1)
    post.settle()
    post.boxes.close(BOB.public)
    post.open(BOB)

    assert post.settle() == [Opened(BOB.public)]
    assert post.kept(BOB) == []
    assert post.restart().sizes() == (1, 0, 0, 0)


def test_mailboxes_are_bounded_and_so_is_one_network():
    """Who has one may always renew it, from anywhere."""
    post = Post(mailboxes=2, mailboxes_per_network=1).opened(BOB)

    assert post.open(CAROL) is Refusal.MAILBOXES_FULL
    assert post.open(CAROL, network=AWAY) is None
    assert post.open(ALICE, network="net:192.0.2.0/24") is Refusal.MAILBOXES_FULL
    assert post.open(BOB, network=AWAY) is None
    assert len(post.boxes) == 2


# Keeping


def test_a_frame_is_kept_once_it_is_on_disk():
    """And survives a crash right after."""
    post = Post().opened(BOB)

    assert post.keep(BOB, 1) is None
    assert post.boxes.take_answers() == []
    assert post.kept(BOB) == []
    (answer,) = post.settle()
    assert isinstance(answer, Kept)
    assert answer.sending.frame == frame_to(BOB, 1)
    assert post.restart().kept(BOB) == [1]


def test_a_frame_that_the_store_refuses_is_not_kept():
    """It takes no place, and the next one is taken when the disk has room again."""
    post = Post().opened(BOB)
    post.store.refuses = True
    post.keep(BOB, 1)
    post.commit()

    (answer,) = post.boxes.take_answers()
    assert isinstance(answer, NotKept)
    assert post.sizes() == (1, 0, 0, 0)
    post.store.refuses = False
    post.keep(BOB, 2)
    post.settle()
    assert post.kept(BOB) == post.restart().kept(BOB) == [2]


def test_frames_are_given_in_the_order_in_which_they_came():
    """Also after a restart."""
    post = Post().opened(BOB)
    for number in (5, 3, 9):
        post.keep(BOB, number)
        post.settle()

    assert post.kept(BOB) == post.restart().kept(BOB) == [5, 3, 9]
    second = next(iter(post.boxes.mail_of(BOB.public, 0))).number
    assert len(list(post.boxes.mail_of(BOB.public, second))) == 2


def test_the_same_frame_takes_one_place():
    """Everybody who brings it hears that it is kept, while it waits and afterwards."""
    post = Post().opened(BOB)
    post.keep(BOB, 1)
    post.keep(BOB, 1)
    during = post.boxes.changes()
    post.keep(BOB, 1)
    post.store.commit(during)
    post.boxes.committed()
    post.keep(BOB, 1)

    assert [type(answer) for answer in post.settle()] == [Kept] * 4
    assert post.sizes() == (1, 1, SIZE, 0)
    assert post.kept(BOB) == [1]


def test_a_frame_whose_mailbox_is_closed_before_the_disk_answers_is_not_kept():
    """Its row goes with the next commit."""
    post = Post().opened(BOB)
    post.keep(BOB, 1)
    changes = post.boxes.changes()
    post.keep(BOB, 2)
    post.boxes.close(BOB.public)
    post.store.commit(changes)
    post.boxes.committed()

    assert [type(answer) for answer in post.settle()] == [NotKept, NotKept, Closed]
    assert post.sizes() == EMPTY
    assert list(post.store.scan(MAIL)) == []


@pytest.mark.parametrize(
    ("limits", "refusal"),
    [
        ({"mail_messages_per_mailbox": 2}, Refusal.MAILBOX_FULL),
        ({"mail_bytes_per_mailbox": 3 * SIZE - 1}, Refusal.MAILBOX_FULL),
        ({"mail_messages_per_sender": 2}, Refusal.MAIL_SHARE),
        ({"mail_bytes_per_sender": 3 * SIZE - 1}, Refusal.MAIL_SHARE),
        ({"mail_messages_per_source": 2}, Refusal.MAIL_SHARE),
        ({"mail_bytes_per_source": 3 * SIZE - 1}, Refusal.MAIL_SHARE),
        ({"mail_messages": 2, "mail_network_part": 1}, Refusal.MAIL_FULL),
        ({"mail_messages": 16}, Refusal.MAIL_FULL),
        ({"mail_bytes": 3 * SIZE - 1, "mail_network_part": 1}, Refusal.MAIL_FULL),
        ({"mail_bytes": 8 * (3 * SIZE - 1)}, Refusal.MAIL_FULL),
        ({"mail_waiting_bytes": 3 * SIZE - 1}, Refusal.MAIL_FULL),
        ({"mail_frame_bytes": SIZE - 1}, Refusal.MAIL_TOO_LARGE),
    ],
)
def test_at_each_limit_the_next_frame_is_refused(limits, refusal):
    """What is kept stays, waiting or on disk, and after a restart it counts the same."""
    post = Post(**limits).opened(BOB)
    fits = 0 if "mail_frame_bytes" in limits else 2
    for number in range(fits):
        assert post.keep(BOB, number) is None

    assert post.keep(BOB, 7) is refusal
    post.settle()
    assert post.kept(BOB) == list(range(fits))
    if "mail_waiting_bytes" not in limits:
        assert post.keep(BOB, 7) is post.restart().keep(BOB, 7) is refusal


def test_a_stranger_with_many_keys_leaves_room_for_others():
    """Its network has a share, so a friend elsewhere still writes."""
    post = Post().opened(BOB)
    refused = [post.keep(BOB, number, key_of(f"stranger {number % 40}")) for number in range(2_000)]
    post.settle()

    assert refused.count(None) == 250
    assert set(refused) == {None, Refusal.MAIL_SHARE}
    assert post.keep(BOB, 1, CAROL, source="net:192.0.2.0/24") is None


def test_mailboxes_of_one_network_leave_room_for_others():
    """Whoever opens many there and fills them gets an eighth of all."""
    owners = [key_of(f"owner {number}") for number in range(9)]
    post = Post(mail_messages=80).opened(*owners)
    taken = [post.keep(owner, number, source=f"net:{number}") for number in range(20) for owner in owners]
    other = key_of("elsewhere")
    post.open(other, network=AWAY)
    post.settle()

    assert taken.count(None) == 10
    assert post.keep(other, 1, source="net:1") is None


def test_a_frame_with_its_twins_has_a_bound_too():
    """Whoever sends one frame again and again while the disk is slow fills no memory."""
    post = Post(mail_messages_per_sender=3).opened(BOB)

    assert [post.keep(BOB, 1) for _ in range(4)] == [None, None, None, Refusal.MAIL_SHARE]


# Taking, expiry, ends


def test_a_frame_stays_until_it_is_taken():
    """Taken frames are gone at once, unknown ones and those of others are ignored."""
    post = Post().opened(BOB, CAROL)
    for owner in (BOB, CAROL):
        for number in (1, 2):
            post.keep(owner, number)
    post.settle()

    assert post.take(BOB, 1, 1, 9) == 1
    assert post.take(ALICE, 1) == 0
    assert post.kept(BOB) == [2]
    post.settle()
    assert (post.restart().kept(BOB), post.kept(CAROL)) == ([2], [1, 2])


def test_what_was_taken_comes_again_only_if_the_node_dies_before_the_disk_has_it():
    """The removal is asked for until the store takes it."""
    post = Post().opened(BOB)
    post.keep(BOB, 1)
    post.settle()
    post.store.refuses = True
    post.take(BOB, 1)
    post.commit()

    assert post.kept(BOB) == []
    assert post.boxes.has_changes
    assert Post(post.store).kept(BOB) == [1]
    post.store.refuses = False
    post.settle()
    assert post.restart().kept(BOB) == []


@pytest.mark.parametrize("days", [1, 7, 14])
def test_a_frame_expires(days):
    """After as many days as were in force when it came; a millisecond before, it is there."""
    post = Post(mail_days=days, mailbox_days=30)
    post.open(BOB, until_ms=post.wall_ms + 2 * MONTH_MS)
    post.settle()
    post.keep(BOB, 1)
    post.settle()
    last = post.wall_ms + days * DAY_MS - 1
    post.boxes.came(BOB.public, last)
    post.settle()

    assert post.boxes.sweep(last).count == 0
    assert list(post.boxes.sweep(last + 1).items()) == [(BOB.public, 1, SIZE)]
    post.settle()
    assert post.kept(BOB) == post.restart().kept(BOB) == []
    assert post.sizes() == (1, 0, 0, 0)


@pytest.mark.parametrize(("until_ms", "ends_ms"), [(5 * DAY_MS, 5 * DAY_MS), (40 * DAY_MS, MONTH_MS)])
def test_a_mailbox_ends_with_its_owners_word_or_after_a_month_alone(until_ms, ends_ms):
    """With everything in it."""
    post = Post(mail_days=30)
    post.open(BOB, until_ms=post.wall_ms + until_ms)
    post.settle()
    post.keep(BOB, 1)
    post.settle()

    post.boxes.sweep(post.wall_ms + ends_ms - 1)
    assert len(post.boxes) == 1
    post.boxes.sweep(post.wall_ms + ends_ms)
    post.settle()
    assert post.restart().sizes() == EMPTY


def test_an_owner_that_comes_keeps_its_mailbox():
    """Once a day that is written; nobody is told."""
    post = Post()
    post.open(BOB, until_ms=post.wall_ms + 3 * MONTH_MS)
    post.settle()
    post.boxes.came(BOB.public, post.wall_ms + DAY_MS - 1)
    assert not post.boxes.has_changes
    post.boxes.came(BOB.public, post.wall_ms + 20 * DAY_MS)

    assert post.settle() == []
    post.restart().boxes.sweep(post.wall_ms + 49 * DAY_MS)
    assert len(post.boxes) == 1
    post.boxes.sweep(post.wall_ms + 50 * DAY_MS)
    assert len(post.boxes) == 0


def test_a_mailbox_that_is_just_being_renewed_does_not_end():
    """The disk is slower than the clock."""
    post = Post()
    post.open(BOB, until_ms=post.wall_ms + 5)
    post.settle()
    post.open(BOB, issued_ms=post.wall_ms + 4)
    post.boxes.sweep(post.wall_ms + 10)
    post.settle()

    assert post.boxes.presence_of(BOB.public, post.wall_ms + 10) is not None


def test_times_of_taken_frames_do_not_gather():
    """However many come and go."""
    post = Post().opened(BOB)
    for number in range(3_000):
        post.keep(BOB, number)
        post.settle()
        post.take(BOB, number)
        if number % 500 == 0:
            post.boxes.sweep(post.wall_ms)
    post.boxes.sweep(post.wall_ms)

    assert len(post.boxes._expiries) <= 1_024


# Damage


def damaged(post, table, key, *, key_is_good=True):
    """Let a row rot, and begin another life."""
    post.store.commit([Record(table, key, None)])
    post.store.damage.note(table, key, key_is_good=key_is_good)
    return post.restart()


def test_a_damaged_frame_costs_itself_only():
    """The others of its mailbox are given, and its number is not used again."""
    post = Post().opened(BOB)
    for number in (1, 2, 3):
        post.keep(BOB, number)
    post.settle()
    last = list(post.boxes.mail_of(BOB.public, 0))[-1]
    damaged(post, MAIL, mail_key(BOB.public, last.number))

    assert post.kept(BOB) == [1, 2]
    post.keep(BOB, 4)
    post.settle()
    assert list(post.boxes.mail_of(BOB.public, 0))[-1].number > last.number


def test_a_frame_that_rots_while_the_node_runs_is_left_out():
    """Reading finds it; the rest is given, and it counts no more."""
    post = Post().opened(BOB)
    for number in (1, 2):
        post.keep(BOB, number)
    post.settle()
    first = next(iter(post.boxes.mail_of(BOB.public, 0)))
    post.store.commit([Record(MAIL, mail_key(BOB.public, first.number), None)])

    assert post.kept(BOB) == [2]
    assert post.sizes() == (1, 1, SIZE, 0)


@pytest.mark.parametrize("key_is_good", [True, False])
def test_a_damaged_mailbox_keeps_its_mail_and_takes_none(key_is_good):
    """Until its owner opens it again; other mailboxes are as they were."""
    post = Post().opened(BOB, CAROL)
    post.keep(BOB, 1)
    post.settle()
    damaged(post, BOXES, BOB.public, key_is_good=key_is_good)

    assert post.kept(BOB) == [1]
    assert post.boxes.presence_of(BOB.public, post.wall_ms) is None
    assert post.boxes.presence_of(CAROL.public, post.wall_ms) is not None
    post.boxes.sweep(post.wall_ms + 1)
    assert post.kept(BOB) == [1]
    post.opened(BOB)
    assert post.boxes.presence_of(BOB.public, post.wall_ms) is not None
    assert post.kept(BOB) == [1]


def test_a_damaged_mailbox_goes_when_nothing_is_left_in_it():
    """Taken or expired."""
    post = Post().opened(BOB)
    post.keep(BOB, 1)
    post.settle()
    damaged(post, BOXES, BOB.public)
    post.boxes.sweep(post.wall_ms + 7 * DAY_MS)
    assert Record(BOXES, BOB.public, None) in post.boxes.changes()
    post.boxes.committed()

    assert post.sizes() == EMPTY


def test_a_mailbox_of_a_home_with_another_key_takes_nothing():
    """Other nodes could not prove the owner's word; what is kept stays for its owner."""
    post = Post().opened(BOB)
    post.keep(BOB, 1)
    post.settle()
    foreign = wire.make_presence(BOB, 1, CAROL.public, post.wall_ms, post.wall_ms + MONTH_MS)
    post.boxes.open(foreign, HOME, post.wall_ms)
    post.settle()
    post.restart()

    assert NODE.public != CAROL.public
    assert post.boxes.presence_of(BOB.public, post.wall_ms) is None
    assert post.kept(BOB) == [1]


def test_a_lower_limit_takes_nothing_away():
    """What was accepted is kept; new frames are refused."""
    post = Post().opened(BOB)
    for number in range(5):
        post.keep(BOB, number)
    post.settle()
    post.limits.now = Post(mail_messages_per_mailbox=2).limits.now

    assert post.keep(BOB, 9) is Refusal.MAILBOX_FULL
    assert post.restart().kept(BOB) == list(range(5))


def test_a_frame_names_its_hash_when_its_bringer_did_not():
    """Nobody who wants no notice has one worked out."""
    post = Post().opened(BOB)
    sending = sending_to(BOB, 1)
    sending.frame_hash = wire.frame_hash(sending.frame)
    post.boxes.keep(sending, ALICE.public, AWAY, post.wall_ms)
    post.keep(BOB, 1)
    post.settle()

    assert post.kept(BOB) == [1]
