"""Laws of protocols.merk.client.seen_messages."""

import pytest

from tests.protocols.merk.build import ALICE, BOB
from waystation.protocols.merk.client.seen_messages import AHEAD_MS, SEEN_MS, SIGNED_MS, Seen, SeenMessages
from waystation.protocols.merk.payload.contents import Extended, FilePart, Receipt, Text
from waystation.protocols.merk.payload.sealing import Auth, Mode, Opened
from waystation.protocols.merk.refusals import Refusal

NOW_MS = 1_790_000_000_000
A, B = ALICE.signing.public, BOB.signing.public
HOUR_MS = 3_600_000


def name(number):
    """Return a message id."""
    return number.to_bytes(16, "big")


def bound(number=0, time_ms=NOW_MS, sender=A, content=Text("x")):  # noqa: B008 - immutable
    """Return a bound message."""
    inside = Extended(time_ms, name(number), content)
    return Opened(sender, Mode.ENCRYPTED, Auth.BOUND, inside, b"h" * 16, (sender, b"p" * 32), name(number))


def legacy(mode, number=0, sender=A):
    """Return a message of a client of the original."""
    return Opened(sender, mode, Auth.LEGACY, Text("x"), b"h" * 16, (sender, b"p" * 32), name(number))


class Shelf:
    """A store in memory."""

    def __init__(self):
        self.seen, self.floors = [], {}

    def load(self):
        return sorted(self.seen, key=lambda each: each.time_ms), dict(self.floors)

    def remember(self, seen):
        self.seen.append(seen)

    def raise_floor(self, sender, floor_ms):
        self.floors[sender] = floor_ms
        self.seen = [each for each in self.seen if each.time_ms > floor_ms or each.sender != sender]

    def forget(self, sender):
        self.floors.pop(sender, None)
        self.seen = [each for each in self.seen if each.sender != sender]

    def expire(self, until_ms):
        self.floors = {sender: floor for sender, floor in self.floors.items() if floor > until_ms}
        self.seen = [each for each in self.seen if each.time_ms > until_ms]


def test_bound_message_counts_once():
    """The same id of the same sender is taken once; another sender, or another id, is another message."""
    seen = SeenMessages()
    refusals = [seen.refusal_of(each, NOW_MS) for each in (bound(1), bound(1), bound(2), bound(1, sender=B))]

    assert refusals == [None, Refusal.DUPLICATE, None, None]


@pytest.mark.parametrize("age_ms", [SEEN_MS, -AHEAD_MS - 1, 10 * SEEN_MS])
def test_message_of_another_time_is_refused(age_ms):
    """Nothing bound is taken that is older than the memory, or more than a day ahead."""
    assert SeenMessages().refusal_of(bound(time_ms=NOW_MS - age_ms), NOW_MS) is Refusal.STALE


@pytest.mark.parametrize("age_ms", [0, SEEN_MS - 1, -AHEAD_MS])
def test_replay_at_any_later_time_is_refused(age_ms):
    """From its arrival on there is no moment at which a bound message is new again."""
    message = bound(time_ms=NOW_MS - age_ms)
    seen = SeenMessages()
    first = seen.refusal_of(message, NOW_MS)
    later = []
    for hours in range(0, 24 * 30, 12):
        seen.refusal_of(bound(1_000 + hours, NOW_MS + hours * HOUR_MS, sender=B), NOW_MS + hours * HOUR_MS)
        later.append(seen.refusal_of(message, NOW_MS + hours * HOUR_MS))

    assert first is None
    assert None not in later


def test_replay_after_a_restart_is_refused():
    """What the program has taken is remembered by whoever opens the same store."""
    shelf, message = Shelf(), bound(7)
    before = SeenMessages(shelf)
    before.refusal_of(message, NOW_MS)
    before.taken(A, name(7), NOW_MS)

    assert SeenMessages(shelf).refusal_of(message, NOW_MS + HOUR_MS) is Refusal.DUPLICATE


def test_message_that_was_lost_with_the_program_may_come_again():
    """What arrived and was not taken is not remembered across a restart: a mailbox sends it once more."""
    shelf, message = Shelf(), bound(7)
    SeenMessages(shelf).refusal_of(message, NOW_MS)

    assert SeenMessages(shelf).refusal_of(message, NOW_MS + HOUR_MS) is None


def test_message_without_room_may_come_again():
    """What could not be given to the program is new when it comes again."""
    seen, message = SeenMessages(), bound(7)
    seen.refusal_of(message, NOW_MS)
    seen.not_taken(A, name(7))

    assert seen.refusal_of(message, NOW_MS) is None
    assert len(seen) == 1


def test_signed_words_of_an_original_count_once_in_ten_minutes():
    """A client of the original says the same words twice as the same bytes, so they are not refused for ever."""
    seen, message = SeenMessages(), legacy(Mode.SIGNED)
    times = (NOW_MS, NOW_MS + SIGNED_MS - 1, NOW_MS + SIGNED_MS)

    assert [seen.refusal_of(message, each) for each in times] == [None, Refusal.DUPLICATE, None]


def test_encrypted_message_of_an_original_counts_once_in_fourteen_days():
    """Its key is fresh each time, so equal bytes are a replay."""
    seen, message = SeenMessages(), legacy(Mode.ENCRYPTED)
    times = (NOW_MS, NOW_MS + SEEN_MS - 1)

    assert [seen.refusal_of(message, each) for each in times] == [None, Refusal.DUPLICATE]


def test_plain_bytes_may_be_meant_twice():
    """DATA has nothing that makes two equal ones one."""
    seen, message = SeenMessages(), legacy(Mode.PLAIN)

    assert [seen.refusal_of(message, NOW_MS) for _ in range(2)] == [None, None]


def test_file_counts_once_whatever_its_parts():
    """Parts come as often as they are sent, until the file was taken; then none begins it anew."""
    part = FilePart(b"t" * 16, b"d" * 32, 0, 2, 2, "f", b"x")
    seen = SeenMessages()
    before = [seen.refusal_of(bound(number, content=part), NOW_MS) for number in (1, 1, 2)]
    seen.taken(A, part.transfer_id, NOW_MS)

    assert before == [None, None, None]
    assert seen.refusal_of(bound(3, content=part), NOW_MS) is Refusal.DUPLICATE


def test_receipt_takes_no_room():
    """The same receipt says the same again."""
    seen, receipt = SeenMessages(), bound(1, content=Receipt((name(9),)))

    assert [seen.refusal_of(receipt, NOW_MS) for _ in range(2)] == [None, None]
    assert len(seen) == 0


def test_flood_of_one_sender_costs_that_sender():
    """Room is made at the expense of who has the most, of whom nothing as old is taken; nobody else loses anything."""
    shelf = Shelf()
    seen = SeenMessages(shelf, count_max=64)
    friend = bound(1, NOW_MS - HOUR_MS, sender=B)
    seen.refusal_of(friend, NOW_MS)
    refusals = {seen.refusal_of(bound(number, NOW_MS + number), NOW_MS) for number in range(1_000)}

    assert refusals == {None}
    assert len(seen) <= 64
    assert seen.refusal_of(bound(0, NOW_MS), NOW_MS) is Refusal.STALE
    assert seen.refusal_of(bound(999, NOW_MS + 999), NOW_MS) is Refusal.DUPLICATE
    assert seen.refusal_of(friend, NOW_MS) is Refusal.DUPLICATE
    assert seen.refusal_of(bound(2, NOW_MS - 2 * HOUR_MS, sender=B), NOW_MS) is None
    assert SeenMessages(shelf, count_max=64).refusal_of(bound(0, NOW_MS), NOW_MS) is Refusal.STALE


def test_flood_of_many_senders_is_bounded_and_opens_nothing():
    """Who forgets a sender wholly accepts nothing as old of anybody who is not remembered."""
    seen = SeenMessages(count_max=64)
    messages = [bound(0, NOW_MS + number, sender=number.to_bytes(32, "big")) for number in range(1_000)]
    for message in messages:
        seen.refusal_of(message, NOW_MS)

    assert len(seen) <= 64
    assert all(seen.refusal_of(message, NOW_MS) is not None for message in messages)
    assert len(seen._floors) <= 64 + 1


@pytest.mark.parametrize("restarts", [False, True])
def test_new_keys_make_no_friend_too_old(restarts):
    """Keys cost nothing and clocks may be a day ahead: only who writes for the first time is refused meanwhile."""
    shelf = Shelf()
    seen = SeenMessages(shelf, count_max=64)
    for number in range(3):
        seen.refusal_of(bound(number, NOW_MS + number, sender=B), NOW_MS)
        seen.taken(B, name(number), NOW_MS + number)
    for number in range(1_000):
        sender = number.to_bytes(32, "big")
        if seen.refusal_of(bound(0, NOW_MS + AHEAD_MS, sender=sender), NOW_MS) is None:
            seen.taken(sender, name(0), NOW_MS + AHEAD_MS)
    if restarts:
        seen = SeenMessages(shelf, count_max=64)

    assert seen.refusal_of(bound(9, NOW_MS + 9, sender=B), NOW_MS) is None
    assert [seen.refusal_of(bound(number, NOW_MS + number, sender=B), NOW_MS) for number in range(3)] == (
        [Refusal.DUPLICATE] * 3
    )
    assert seen.refusal_of(bound(1, NOW_MS), NOW_MS) is Refusal.STALE
    assert len(shelf.seen) <= 64 and len(shelf.floors) <= 64 + 1


@pytest.mark.parametrize("restarts", [False, True])
def test_who_was_forgotten_and_writes_again_opens_no_replay(restarts):
    """The newcomers' floor becomes that of a sender which is remembered again."""
    shelf = Shelf()
    seen = SeenMessages(shelf, count_max=64)
    for number in range(64):
        seen.refusal_of(bound(0, NOW_MS, sender=number.to_bytes(32, "big")), NOW_MS)
    first = bound(1, NOW_MS)
    seen.refusal_of(first, NOW_MS)
    for number in range(64, 128):
        seen.refusal_of(bound(0, NOW_MS + number, sender=number.to_bytes(32, "big")), NOW_MS)
    again = seen.refusal_of(bound(2, NOW_MS + 500), NOW_MS)
    seen.taken(A, name(2), NOW_MS + 500)
    if restarts:
        seen = SeenMessages(shelf, count_max=64)

    assert again is None
    assert seen.refusal_of(first, NOW_MS) in {Refusal.STALE, Refusal.DUPLICATE}


def test_what_is_over_leaves_memory_and_store():
    """Entries that would be refused as too old take no room."""
    shelf = Shelf()
    seen = SeenMessages(shelf)
    for number in range(5):
        seen.refusal_of(bound(number), NOW_MS)
        seen.taken(A, name(number), NOW_MS)
    seen.refusal_of(bound(9, NOW_MS + SEEN_MS), NOW_MS + SEEN_MS)

    assert len(seen) == 1
    assert shelf.seen == []


def test_store_is_read_in_the_order_of_time():
    """What a store held counts as if it had just been taken."""
    shelf = Shelf()
    shelf.seen = [Seen(A, name(1), NOW_MS), Seen(B, name(1), NOW_MS + 1)]
    seen = SeenMessages(shelf)

    assert len(seen) == 2
    assert seen.refusal_of(bound(1), NOW_MS) is Refusal.DUPLICATE
