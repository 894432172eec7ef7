"""Laws of the key directory: adverts it holds, and questions under way."""

from tests.protocols.merk.build_mail import NODE, Post
from tests.protocols.merk.net import START, WALL_MS, in_force, key_of
from waystation.core.effects import Peer
from waystation.core.instant import Instant, after_ms
from waystation.protocols.merk.relay.key_directory import KeyDirectory
from waystation.protocols.merk.relay.mailboxes import Mailboxes
from waystation.protocols.merk.session import Session, State
from waystation.protocols.merk.wire import make_advert

ALICE, BOB, CAROL, X, Y = (key_of(name) for name in ("alice", "bob", "carol", "x", "y"))


def session(number):
    """Return a connection."""
    return Session(Peer(number), State.PEER, START)


def advert(time_ms=WALL_MS, key=BOB, agreement=b"a" * 32):
    """Return a signed advert."""
    return make_advert(key, agreement, time_ms)


# Adverts


def test_the_newest_advert_is_held():
    """An older one changes nothing, a newer one replaces."""
    keys = KeyDirectory(in_force())
    for time_ms in (5, 9, 7):
        assert keys.keep(advert(time_ms), WALL_MS)

    assert keys.held(BOB.public) == advert(9)
    assert keys.held(ALICE.public) is None
    assert len(keys) == 1


def test_an_advert_from_the_future_is_refused():
    """Five minutes of a wrong clock are allowed: what is further ahead could never be replaced."""
    keys = KeyDirectory(in_force())

    assert not keys.keep(advert(WALL_MS + 300_001), WALL_MS)
    assert len(keys) == 0
    assert keys.keep(advert(WALL_MS + 300_000), WALL_MS)


def test_adverts_are_bounded_and_the_longest_unspoken_goes():
    """Saying it again counts as new."""
    keys = KeyDirectory(in_force(adverts=2))
    for key in (ALICE, BOB, ALICE, CAROL):
        keys.keep(advert(5, key), WALL_MS)

    assert len(keys) == 2
    assert keys.held(BOB.public) is None


# With a mailbox


def told(post):
    """Return the times of the adverts that Bob's mailbox has now, and has after a crash."""
    found = []
    for boxes in (post.boxes, Mailboxes(post.store, NODE.public, post.limits)):
        keys = KeyDirectory(in_force(), boxes.advert_of)
        held = keys.held(BOB.public)
        assert keys.is_able(BOB.public) == (held is not None)
        found.append(held and held.time_ms)
    return found


def test_the_advert_of_a_mailboxs_owner_is_on_disk():
    """Said before the mailbox is open, while it is being written, and later: the newest is what a restart finds."""
    post = Post()
    post.boxes.advertised(advert(1))  # nobody's mailbox
    assert told(post) == [None, None]
    post.open(BOB)
    post.boxes.advertised(advert(2))
    post.boxes.changes()
    post.boxes.advertised(advert(3))
    assert told(post) == [3, None]
    post.boxes.not_committed()
    assert told(post) == [None, None]
    post.open(BOB)
    post.boxes.advertised(advert(4))
    changes = post.boxes.changes()
    post.boxes.advertised(advert(5))
    post.store.commit(changes)
    post.boxes.committed()
    assert told(post) == [5, 4]
    post.settle()
    assert told(post) == [5, 5]
    for time_ms in (4, 5):
        post.boxes.advertised(advert(time_ms))
    assert not post.boxes.has_changes
    post.boxes.advertised(advert(6))
    assert (post.settle(), told(post)) == ([], [6, 6])


def test_an_advert_that_the_store_refuses_is_written_later():
    """The mailbox and its mail are as they were, and its owner hears nothing."""
    post = Post().opened(BOB)
    post.keep(BOB, 1)
    post.settle()
    post.boxes.advertised(advert(5))
    post.store.refuses = True
    assert not post.commit()
    assert (post.boxes.take_answers(), told(post)) == ([], [5, None])
    post.store.refuses = False
    assert post.settle() == []

    assert told(post) == [5, 5]
    assert post.restart().kept(BOB) == [1]


def test_an_advert_stays_when_a_mailbox_is_renewed_and_ends_with_it():
    """Closed with the rest: nobody is asked to write to who keeps nothing here."""
    post = Post().opened(BOB)
    post.boxes.advertised(advert(5))
    post.settle()
    post.restart().open(BOB, issued_ms=WALL_MS + 1)
    post.settle()
    assert told(post) == [5, 5]
    post.boxes.advertised(advert(6))
    post.boxes.close(BOB.public)
    post.settle()

    assert told(post) == [None, None]


def test_the_newest_of_a_mailbox_and_of_the_directory_is_held():
    """An older one that comes again after a restart replaces nothing."""
    post = Post().opened(BOB)
    post.boxes.advertised(advert(5))
    post.settle()
    keys = KeyDirectory(in_force(), post.restart().boxes.advert_of)
    keys.keep(advert(4), WALL_MS)
    assert keys.held(BOB.public) == advert(5)
    keys.keep(advert(6), WALL_MS)

    assert keys.held(BOB.public) == advert(6)


# Questions


def test_a_question_ends_with_its_last_answer():
    """The newest advert of all, ours included, is its result."""
    keys, asker, one, other = KeyDirectory(in_force()), session(1), session(2), session(3)
    keys.keep(advert(5), WALL_MS)
    _, question = keys.ask(BOB.public, asker, [one, other], START)
    first = keys.answered(BOB.public, one, advert(9))
    second = keys.answered(BOB.public, other, advert(7))

    assert (first, second) == (None, question)
    assert (question.best, list(question.askers)) == (advert(9), [asker])
    assert keys.questions_count == 0


def test_only_who_was_asked_may_answer_once():
    """A second answer and a stranger's are not expected."""
    keys, one, other = KeyDirectory(in_force()), session(2), session(3)
    keys.ask(BOB.public, session(1), [one, other], START)
    before = keys.expects(BOB.public, one)
    keys.answered(BOB.public, one, None)

    assert before
    assert not keys.expects(BOB.public, one)
    assert not keys.expects(ALICE.public, other)
    assert not keys.expects(BOB.public, session(4))


def test_a_question_under_way_is_joined():
    """Nobody is asked twice for one key."""
    keys, one, other = KeyDirectory(in_force()), session(1), session(2)
    _, question = keys.ask(BOB.public, one, [session(9)], START)

    assert keys.ask(BOB.public, other, [session(9)], START) == (True, None)
    assert keys.ask(BOB.public, one, [session(9)], START) == (True, None)
    assert list(question.askers) == [one, other]


def test_questions_of_one_client_are_bounded():
    """16 at once, joined ones too; an answer makes room."""
    keys, asker, other, node = KeyDirectory(in_force()), session(1), session(2), session(9)
    keys.ask(BOB.public, other, [node], START)
    joined = [keys.ask(bytes([number]) * 32, asker, [node], START)[0] for number in range(17)]
    late = keys.ask(BOB.public, asker, [node], START)
    keys.answered(bytes(32), node, None)

    assert joined == [True] * 16 + [False]
    assert late == (False, None)
    assert keys.ask(BOB.public, asker, [node], START) == (True, None)


def test_askers_of_one_key_are_bounded():
    """64 wait for one question; who comes later is told what is known."""
    keys = KeyDirectory(in_force())
    joined = [keys.ask(BOB.public, session(number), [session(99)], START)[0] for number in range(65)]

    assert joined == [True] * 64 + [False]


def test_questions_are_bounded():
    """Beyond that nobody is asked."""
    keys = KeyDirectory(in_force(key_questions=1))
    keys.ask(BOB.public, session(1), [session(9)], START)

    assert keys.ask(CAROL.public, session(2), [session(9)], START) == (False, None)
    assert keys.questions_count == 1


def test_a_question_ends_by_time():
    """After five seconds with what has come."""
    keys = KeyDirectory(in_force())
    _, question = keys.ask(BOB.public, session(1), [session(9)], START)
    keys.ask(CAROL.public, session(1), [session(9)], Instant(START + 1))

    assert keys.deadline() == after_ms(START, 5_000)
    assert keys.expired(Instant(after_ms(START, 5_000) - 1)) == []
    assert keys.expired(after_ms(START, 5_000)) == [question]
    assert keys.questions_count == 1


def test_no_question_no_deadline():
    """Nothing is due at first."""
    assert KeyDirectory(in_force()).deadline() is None


def test_a_lost_connection_neither_asks_nor_answers():
    """A question waits for nobody who has gone, and answers nobody who has gone."""
    keys, asker, gone, stays = KeyDirectory(in_force()), session(1), session(2), session(3)
    _, question = keys.ask(BOB.public, asker, [gone, stays], START)
    _, alone = keys.ask(CAROL.public, asker, [gone], START)

    assert keys.lost(asker) == []
    assert list(question.askers) == []
    assert keys.lost(gone) == [alone]
    assert keys.lost(stays) == [question]
    assert keys.questions_count == 0


# At a relay
