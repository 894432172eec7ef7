"""Laws of protocols.merk.lookups: searches, their bounds, and what is remembered of them."""

import pytest

from tests.protocols.merk.net import START, WALL_MS, in_force, key_of
from waystation.core.effects import Peer
from waystation.core.instant import Instant, after_ms
from waystation.protocols.merk.messages import Presence, PresenceKind
from waystation.protocols.merk.relay.lookups import Absent, Lookups, Proof
from waystation.protocols.merk.session import Sending, Session, State

BOB, CAROL = key_of("bob").public, key_of("carol").public


def node(number=1):
    """Return a peer."""
    return Session(Peer(number), State.PEER, START)


def client(number=100):
    """Return a client."""
    return Session(Peer(number), State.CLIENT, START)


def shown(issued_ms=WALL_MS, kind=PresenceKind.CONNECTED):
    """Return what Bob has signed; where and for how long is not looked at here."""
    return Presence(kind, BOB, bytes(32), issued_ms, issued_ms + 1, bytes(64))


def frame(size=200, target=BOB):
    """Return a frame that wants its way."""
    return Sending(None, target, bytes(size), b"")


def target(number):
    """Return one of many keys."""
    return number.to_bytes(32, "big")


def later(duration_ms):
    """Return a moment after the start."""
    return after_ms(START, duration_ms)


def test_nothing_is_known_at_first():
    """No place, no search, no deadline."""
    found = Lookups(in_force())

    assert (found.place(BOB, START), found.running(BOB), found.deadline()) == (None, None, None)
    assert (len(found), found.places_count, found.queued_bytes) == (0, 0, 0)


def test_a_search_asks_every_node_once():
    """All nodes are open, and may answer for a minute without offence."""
    found, nodes, owner = Lookups(in_force()), [node(1), node(2)], client()
    lookup = found.begin(BOB, owner, nodes, START)

    assert list(lookup.open) == nodes
    assert found.running(BOB) is lookup
    assert (len(found), owner.searches, lookup.asked_count) == (1, 1, 2)
    assert found.deadline() == lookup.ends_at == later(5_000)
    assert [each.asked[BOB] for each in nodes] == [later(60_000)] * 2


def test_an_answer_counts_once_and_in_time_and_only_if_asked():
    """A second answer, a late one, and one about somebody else do not count."""
    found, one, other = Lookups(in_force()), node(1), node(2)
    found.begin(BOB, None, [one], START)
    found.begin(CAROL, None, [one], START)

    assert not found.was_asked(other, BOB, START)
    assert not found.was_asked(one, target(9), START)
    assert found.was_asked(one, BOB, START)
    assert not found.was_asked(one, BOB, START)
    assert not found.was_asked(one, CAROL, Instant(later(60_000) + 1))


def test_the_first_who_has_it_ends_the_search():
    """The place is remembered for 60 s and the owner may search again."""
    found, one, owner = Lookups(in_force()), node(), client()
    lookup = found.begin(BOB, owner, [one], START)
    found.queue(lookup, frame())

    assert found.found(BOB, one, START, shown()) is lookup
    assert (len(found), owner.searches, found.queued_bytes, lookup.found_count) == (0, 0, 0, 1)
    place = found.place(BOB, Instant(later(60_000) - 1))
    assert (place.node, place.until, place.proof) == (one, later(60_000), Proof.CONNECTED)
    assert found.place(BOB, later(60_000)) is None
    assert found.places_count == 0


def original(number=7):
    """Return an original relay, whose key nobody has proved."""
    return Session(Peer(number), State.DOWNSTREAM, START)


@pytest.mark.parametrize("doubtful", ["original", "distrusted"])
def test_a_doubtful_word_counts_when_nobody_better_is_to_answer(doubtful):
    """Not before; and then it ends the search."""
    found, good = Lookups(in_force()), node(2)
    weak = original() if doubtful == "original" else node(1)
    if doubtful == "distrusted":
        found.distrust(weak, BOB, START)
    lookup = found.begin(BOB, None, [weak, good], START)

    assert found.found(BOB, weak, START) is None
    assert found.absent(BOB, good, START) is lookup
    assert lookup.node is weak
    assert found.place(BOB, START).node is weak


def test_a_good_word_beats_a_doubtful_one_that_was_quicker():
    """The search ends with the node that has proved its key."""
    found, weak, good = Lookups(in_force()), original(), node(2)
    lookup = found.begin(BOB, None, [weak, good], START)
    found.found(BOB, weak, START)

    assert found.found(BOB, good, START, shown()) is lookup
    assert lookup.node is good
    assert lookup.found_count == 2


def test_a_doubtful_word_that_came_late_replaces_no_good_one():
    """A good one replaces any."""
    found, weak, good = Lookups(in_force()), original(), node(2)
    found.found(BOB, weak, START)
    first = found.place(BOB, START).node
    found.found(BOB, good, START)
    found.found(BOB, weak, START)

    assert (first, found.place(BOB, START).node) == (weak, good)


def test_when_time_is_up_a_doubtful_word_is_better_than_none():
    """A silent peer does not keep an original's clients out of reach."""
    found, weak, silent = Lookups(in_force()), original(), node(2)
    lookup = found.begin(BOB, None, [weak, silent], START)
    found.found(BOB, weak, START)

    assert found.expired(later(5_000)) == [lookup]
    assert lookup.node is weak
    assert found.place(BOB, later(5_000)).node is weak


def test_the_first_of_two_doubtful_words_counts():
    """And not when its node is lost meanwhile."""
    found, one, two, silent = Lookups(in_force()), original(1), original(2), node(3)
    lookup = found.begin(BOB, None, [one, two, silent], START)
    found.found(BOB, one, START)
    found.found(BOB, two, START)
    found.lost(one, START)

    assert found.lost(silent, START) == [lookup]
    assert lookup.node is None


def test_distrust_ends():
    """After a minute the node's word counts again."""
    found, liar, silent = Lookups(in_force()), node(1), node(2)
    found.distrust(liar, BOB, START)
    lookup = found.begin(BOB, None, [liar, silent], later(60_000))

    assert found.found(BOB, liar, later(60_000), shown()) is lookup


def test_the_newest_place_counts():
    """A second node that has it takes the place over; no search ends."""
    found, one, other = Lookups(in_force()), node(1), node(2)
    found.found(BOB, one, START)

    assert found.found(BOB, other, START) is None
    assert found.place(BOB, START).node is other


def test_absent_only_when_all_have_said_no():
    """One no of two ends nothing; a node that was not asked is not counted."""
    found, one, other = Lookups(in_force()), node(1), node(2)
    lookup = found.begin(BOB, None, [one, other], START)

    assert found.absent(BOB, node(3), START) is None
    assert found.absent(BOB, one, START) is None
    assert found.absent(BOB, one, START) is None
    assert found.absent(BOB, other, START) is lookup
    assert found.absent(CAROL, one, START) is None


def test_absence_is_remembered_for_two_seconds():
    """Nobody is asked again so soon."""
    found = Lookups(in_force())
    lookup = found.begin(BOB, None, [node()], START)
    found.end_absent(lookup, START)

    assert found.place(BOB, Instant(later(2_000) - 1)) == Absent(later(2_000))
    assert found.place(BOB, later(2_000)) is None
    assert found.running(BOB) is None


def test_sixty_four_frames_wait_for_a_search():
    """One more does not."""
    found = Lookups(in_force())
    lookup = found.begin(BOB, None, [node()], START)

    assert [found.queue(lookup, frame()) for _ in range(65)] == [True] * 64 + [False]
    assert lookup.queue_bytes == found.queued_bytes == 64 * 200


def test_a_quarter_megabyte_waits_for_a_search():
    """Exactly as much fits, and not a byte more."""
    found = Lookups(in_force())
    lookup = found.begin(BOB, None, [node()], START)

    assert found.queue(lookup, frame(200_000))
    assert not found.queue(lookup, frame(62_145))
    assert found.queue(lookup, frame(62_144))
    assert not found.queue(lookup, frame(120))


def test_one_larger_frame_waits_alone():
    """The first frame may be of any size, and nothing waits behind it."""
    found = Lookups(in_force())
    lookup = found.begin(BOB, None, [node()], START)

    assert found.queue(lookup, frame(8 << 20))
    assert not found.queue(lookup, frame(120))


def test_all_queues_together_are_bounded():
    """64 MiB wait for all searches; the end of one makes room."""
    found, nodes = Lookups(in_force()), [node()]
    started = [found.begin(target(number), None, nodes, START) for number in range(9)]
    taken = [found.queue(lookup, frame(8 << 20)) for lookup in started]
    found.end_absent(started[0], START)

    assert taken == [True] * 8 + [False]
    assert found.queue(started[8], frame(8 << 20))


def test_searches_of_one_client_are_bounded():
    """64 at once; another client still gets its own."""
    found, owner, nodes = Lookups(in_force()), client(), [node()]
    begun = [found.begin(target(number), owner, nodes, START) is not None for number in range(65)]

    assert begun == [True] * 64 + [False]
    assert owner.searches == 64
    assert found.begin(target(99), client(101), nodes, START) is not None


def test_all_searches_are_bounded():
    """Beyond that nobody gets one, and nobody is asked."""
    found, one = Lookups(in_force(lookups=3)), node()
    begun = [found.begin(target(number), None, [one], START) is not None for number in range(5)]

    assert begun == [True] * 3 + [False] * 2
    assert len(one.asked) == 3


def test_questions_to_a_silent_node_are_bounded():
    """Who owes too many answers is asked no more."""
    found, silent, other = Lookups(in_force(questions_per_node=2)), node(1), node(2)
    for number in range(3):
        found.begin(target(number), None, [silent], START)
    lookup = found.begin(BOB, None, [silent, other], START)

    assert len(silent.asked) == 2
    assert list(lookup.open) == [other]


def test_places_are_bounded_and_the_oldest_goes():
    """The newest are kept, told anew counts as new."""
    found, one = Lookups(in_force(places=2)), node()
    for number in (1, 2, 1, 3):
        found.found(target(number), one, START)

    assert found.places_count == 2
    assert found.place(target(2), START) is None
    assert found.place(target(1), START) and found.place(target(3), START)


def test_searches_end_by_time_in_their_order():
    """Those that are due and no others."""
    found, nodes = Lookups(in_force()), [node()]
    first = found.begin(BOB, None, nodes, START)
    found.begin(CAROL, None, nodes, later(1))

    assert found.expired(Instant(later(5_000) - 1)) == []
    assert found.expired(later(5_000)) == [first]
    assert found.deadline() == later(5_001)
    assert found.place(BOB, later(5_000)) is None


def test_who_comes_here_ends_the_search_and_the_place():
    """What was known of it elsewhere is forgotten."""
    found, nodes = Lookups(in_force()), [node()]
    lookup = found.begin(BOB, None, nodes, START)
    found.found(CAROL, nodes[0], START)

    assert found.here(BOB) is lookup
    assert found.here(CAROL) is None
    assert found.place(CAROL, START) is None
    assert len(found) == 0


def test_only_the_node_that_has_it_can_say_that_it_is_gone():
    """Another node's word changes nothing, nor does it end an absence."""
    found, one, other = Lookups(in_force()), node(1), node(2)
    found.found(BOB, one, START)
    found.moved(BOB, other)
    kept = found.place(BOB, START)
    found.moved(BOB, one)
    found.end_absent(found.begin(CAROL, None, [one], START), START)
    found.moved(CAROL, one)

    assert kept.node is one
    assert found.place(BOB, START) is None
    assert found.place(CAROL, START) == Absent(later(2_000))


def test_a_closed_node_has_nobody():
    """Its places are worth nothing from the moment its link is over."""
    found, one = Lookups(in_force()), node()
    found.found(BOB, one, START)
    one.state = State.CLOSED

    assert found.place(BOB, START) is None
    assert found.places_count == 0


def test_a_lost_node_has_said_no():
    """A search ends when it waited for that node alone."""
    found, one, other = Lookups(in_force()), node(1), node(2)
    alone = found.begin(BOB, None, [one], START)
    found.begin(CAROL, None, [one, other], START)
    found.begin(target(1), None, [other], START)

    assert found.lost(one, START) == [alone]
    assert list(found.running(CAROL).open) == [other]


def test_distrust_is_bounded():
    """The oldest is forgotten first."""
    found, liar = Lookups(in_force(distrusted_per_node=2)), node()
    for number in range(3):
        found.distrust(liar, target(number), START)

    assert list(liar.distrusted) == [target(1), target(2)]


def test_distrust_forgets_the_place_that_the_node_claimed():
    """The next frame looks for the client anew."""
    found, liar = Lookups(in_force()), node()
    found.found(BOB, liar, START)
    found.distrust(liar, BOB, START)

    assert found.place(BOB, START) is None


@pytest.mark.parametrize("passed_ms", [1_999, 2_000, 59_999, 60_000, 70_000])
def test_sweeping_forgets_exactly_what_is_out_of_date(passed_ms):
    """Absences after 2 s, places after 60 s; what still holds stays."""
    found, one = Lookups(in_force()), node()
    found.found(BOB, one, START)
    found.end_absent(found.begin(CAROL, None, [one], START), START)
    found.sweep([one], later(passed_ms))

    assert found.places_count == (passed_ms < 60_000) + (passed_ms < 2_000)


def test_sweeping_forgets_questions_and_distrust():
    """Nothing that a node was asked or claimed stays for ever."""
    found, one = Lookups(in_force()), node()
    found.begin(BOB, None, [one], START)
    found.distrust(one, CAROL, START)
    found.sweep([one], START)
    before = (len(one.asked), len(one.distrusted))
    found.sweep([one], later(300_000))

    assert before == (1, 1)
    assert (len(one.asked), len(one.distrusted)) == (0, 0)


# Presences (MERK-PRESENCE)


def test_a_bare_word_waits_for_every_node():
    """It ends the search when nobody is left who could show the client's presence (finding 3)."""
    found, one, other = Lookups(in_force()), node(1), node(2)
    lookup = found.begin(BOB, None, [one, other], START)

    assert found.found(BOB, one, START) is None
    assert found.absent(BOB, other, START) is lookup
    assert lookup.node is one


def test_a_presence_ends_the_search_whatever_was_claimed_before():
    """The node that shows it has the client."""
    found, liar, honest = Lookups(in_force()), node(1), node(2)
    lookup = found.begin(BOB, None, [liar, honest], START)
    found.found(BOB, liar, START)

    assert found.found(BOB, honest, START, shown()) is lookup
    assert lookup.node is honest


@pytest.mark.parametrize("why", ["able", "stranger"])
def test_a_bare_word_counts_as_no_where_a_presence_could_be_had(why):
    """Of a client that signs its presence, and of a node that nobody has named."""
    found, one = Lookups(in_force(), lambda _key: why == "able"), node(1)
    one.is_unnamed = why == "stranger"
    lookup = found.begin(BOB, None, [one], START)

    assert found.found(BOB, one, START) is lookup
    assert lookup.node is None
    assert isinstance(found.place(BOB, START), Absent)


@pytest.mark.parametrize("known", ["proved", "delivers"])
def test_a_late_bare_word_displaces_no_place_that_is_proved_or_delivers(known):
    """Two hundred milliseconds late is not newer (finding 3)."""
    found, honest, liar = Lookups(in_force()), node(1), node(2)
    found.found(BOB, honest, START, shown() if known == "proved" else None)
    if known == "delivers":
        found.delivers(honest, BOB)
    found.found(BOB, liar, later(200))

    assert found.place(BOB, later(200)).node is honest


def test_of_two_presences_the_newest_counts():
    """An older one that comes later, replayed, moves nobody; a newer one moves the client."""
    found, one, other = Lookups(in_force()), node(1), node(2)
    found.found(BOB, one, START, shown(WALL_MS))
    found.found(BOB, other, START, shown(WALL_MS - 1))
    before = found.place(BOB, START).node
    found.found(BOB, other, START, shown(WALL_MS + 1))

    assert before is one
    assert found.place(BOB, START).node is other


def test_where_the_mail_is_kept_counts_after_where_the_client_is():
    """A mailbox waits for all nodes, counts for 2 s, and never displaces a connection; a connection displaces it."""
    found, mailbox, home = Lookups(in_force()), node(1), node(2)
    lookup = found.begin(BOB, None, [mailbox, home], START)
    waits = found.found(BOB, mailbox, START, shown(WALL_MS + 9, PresenceKind.MAILBOX))
    ended = found.absent(BOB, home, START)
    at_first = found.place(BOB, START)
    found.found(BOB, home, START, shown())
    found.found(BOB, mailbox, START, shown(WALL_MS + 9, PresenceKind.MAILBOX))

    assert (waits, ended) == (None, lookup)
    assert (at_first.node, at_first.proof, at_first.until) == (mailbox, Proof.MAILBOX, later(2_000))
    assert found.place(BOB, START).node is home


# Places that are asked for again (MERK-RENEW)


def renewing(*, proved=True, delivers=False):
    """Return look-ups that search for Bob though his place counts, the search, his node, and another."""
    found, home, other = Lookups(in_force()), node(1), node(2)
    found.found(BOB, home, START, shown() if proved else None)
    if delivers:
        found.delivers(home, BOB)
    return found, found.begin(BOB, None, [home, other], later(50_000)), home, other


def test_a_place_is_renewed_for_a_minute_from_the_answer():
    """What its node has delivered goes on to speak for it."""
    found, lookup, home, _ = renewing(delivers=True)

    assert found.found(BOB, home, later(51_000), shown()) is lookup
    place = found.place(BOB, later(60_000))
    assert (place.node, place.until, place.delivers) == (home, later(111_000), True)


@pytest.mark.parametrize("known", ["proved", "delivers"])
def test_the_bare_word_of_another_node_ends_no_place_that_counts(known):
    """Its own node is slow: the search ends with the word, and the place stays until its end."""
    found, lookup, home, liar = renewing(proved=known == "proved", delivers=known == "delivers")
    found.found(BOB, liar, later(51_000))

    assert found.expired(later(55_000)) == [lookup]
    assert found.place(BOB, later(55_000)).node is home
    assert found.place(BOB, later(60_000)) is None


def test_a_place_is_to_be_renewed_in_its_last_ten_seconds():
    """Once, and never the place of a mailbox."""
    found, home = Lookups(in_force()), node()
    found.found(BOB, home, START, shown())
    found.found(CAROL, home, START, shown(kind=PresenceKind.MAILBOX))
    place = found.place(BOB, START)
    moments = [found.is_to_be_renewed(BOB, place, later(at)) for at in (49_999, 50_000)]
    place.is_asked_again = True

    assert moments == [False, True]
    assert not found.is_to_be_renewed(BOB, place, later(55_000))
    assert not found.is_to_be_renewed(CAROL, found.place(CAROL, START), START)
