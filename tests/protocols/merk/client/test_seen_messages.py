"""Laws of merk.seen_messages."""

from waystation.core.instant import Instant, after_ms
from waystation.protocols.merk.client.seen_messages import SEEN_MS, SeenMessages

NOW = Instant(1_000_000)
ALICE, BOB = b"a" * 32, b"b" * 32
HELLO, BYE = b"1" * 32, b"2" * 32


def test_second_time_is_not_new():
    """The same payload of the same sender counts once."""
    seen = SeenMessages()

    assert [seen.is_new((ALICE, HELLO), NOW) for _ in range(3)] == [True, False, False]


def test_sender_and_payload_both_count():
    """Another sender, or another payload, is another message."""
    seen = SeenMessages()
    seen.is_new((ALICE, HELLO), NOW)

    assert seen.is_new((BOB, HELLO), NOW)
    assert seen.is_new((ALICE, BYE), NOW)


def test_remembered_for_ten_minutes_and_no_longer():
    """A message is known until its time is over, counted from its first arrival, and is new again then."""
    seen = SeenMessages()
    seen.is_new((ALICE, HELLO), NOW)
    last = Instant(after_ms(NOW, SEEN_MS) - 1)

    assert not seen.is_new((ALICE, HELLO), last)
    assert seen.is_new((ALICE, HELLO), after_ms(NOW, SEEN_MS))


def test_memory_is_bounded_and_forgets_the_oldest():
    """Beyond the limit the oldest makes room, whoever sent it."""
    seen = SeenMessages(count_max=3)
    for number in range(5):
        seen.is_new((ALICE, bytes([number]) * 32), NOW)

    assert len(seen) == 3
    assert not seen.is_new((ALICE, bytes([4]) * 32), NOW)
    assert seen.is_new((ALICE, bytes([1]) * 32), NOW)


def test_expired_ones_leave_the_memory():
    """What is over takes no room."""
    seen = SeenMessages()
    for number in range(5):
        seen.is_new((ALICE, bytes([number]) * 32), NOW)
    seen.is_new((BOB, HELLO), after_ms(NOW, SEEN_MS))

    assert len(seen) == 1
