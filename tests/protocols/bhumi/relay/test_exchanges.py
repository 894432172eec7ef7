"""Laws of protocols.bhumi.exchanges."""

import pytest

from tests.protocols.bhumi.build import ALICE, BOB, commit, limits_of, preimage
from waystation.core.effects import Peer
from waystation.core.instant import Instant
from waystation.protocols.bhumi.limits import DEFAULT_LIMITS
from waystation.protocols.bhumi.relay.exchanges import Exchange, ExchangeTable

HERE, THERE = bytes(ALICE.public), bytes(BOB.public)


def exchange(number, recipient=HERE, at=0):
    """Return an exchange whose message number, preimage and attempt are all ``number``."""
    head = (recipient, preimage(number), commit(number), number, number, Peer(1))
    return Exchange(*head, Instant(at), Instant(at + 30), 0)


def test_pending_exchange_is_found_by_number_and_by_preimage():
    """Both ways lead to the same exchange, for its own recipient only."""
    table, one = ExchangeTable(limits_of()), exchange(1)
    table.add(one)

    assert table.find(HERE, preimage(1)) is one
    assert table.find(THERE, preimage(1)) is None
    assert table.take_pending(THERE, 1) is None
    assert len(table) == 1
    assert table.take_pending(HERE, 1) is one
    assert (len(table), table.find(HERE, preimage(1)), table.take_pending(HERE, 1)) == (0, None, None)


def test_removed_exchange_leaves_nothing():
    """After removal neither number nor preimage is known."""
    table, one = ExchangeTable(limits_of()), exchange(1)
    table.add(one)
    table.remove(one)

    assert not table.knows(HERE, 1)
    assert table.find(HERE, preimage(1)) is None
    assert len(table) == 0
    assert table.next_deadline() is None


def test_first_overdue_is_the_oldest_whose_time_has_come():
    """The deadline itself counts as come; a younger exchange waits."""
    table = ExchangeTable(limits_of())
    table.add(exchange(1, at=0))
    table.add(exchange(2, at=5))

    assert table.first_overdue(Instant(29)) is None
    assert table.first_overdue(Instant(30)).message_id == 1
    assert table.next_deadline() == 30


def test_late_exchange_keeps_its_number_in_use():
    """A number that may still be acknowledged must not be drawn again."""
    table, one = ExchangeTable(limits_of()), exchange(1)
    table.add(one)
    table.make_late(one, Instant(40), Instant(50))

    assert table.knows(HERE, 1)
    assert table.take_pending(HERE, 1) is None
    assert table.late_count == 1


def test_late_exchange_is_taken_once_and_by_its_recipient_only():
    """The second ACK finds nothing, and nobody else's ACK finds anything."""
    table, one = ExchangeTable(limits_of()), exchange(1)
    table.add(one)
    table.make_late(one, Instant(40), Instant(50))

    assert table.take_late(THERE, 1) is None
    assert table.take_late(HERE, 1).preimage == preimage(1)
    assert table.take_late(HERE, 1) is None
    assert table._late_counts == {}


def test_sweep_forgets_what_is_over_and_no_more():
    """Late exchanges leave at their instant, the younger ones stay."""
    table = ExchangeTable(limits_of())
    for number, swept_at in ((1, 50), (2, 60)):
        one = exchange(number)
        table.add(one)
        table.make_late(one, Instant(40), Instant(swept_at))
    table.sweep(Instant(50))

    assert not table.knows(HERE, 1)
    assert table.knows(HERE, 2)
    assert table.next_sweep() == 60


def test_one_recipient_cannot_fill_the_late_table():
    """Over its own bound a recipient's exchange is forgotten; others are not concerned."""
    table = ExchangeTable(limits_of(late_acks_per_recipient=2))
    kept = []
    for number, recipient in ((1, HERE), (2, HERE), (3, HERE), (4, THERE)):
        one = exchange(number, recipient)
        table.add(one)
        kept.append(table.make_late(one, Instant(40), Instant(50)))

    assert kept == [True, True, False, True]
    assert table.late_count == 3
    assert len(table) == 0


def test_full_late_table_forgets_its_oldest():
    """The bound of the whole table holds whoever fills it."""
    table = ExchangeTable(limits_of(late_acks=2))
    for number in range(4):
        one = exchange(number, bytes([number]) * 32)
        table.add(one)
        assert table.make_late(one, Instant(40), Instant(50))

    assert [table.knows(bytes([number]) * 32, number) for number in range(4)] == [False, False, True, True]
    assert len(table._late_counts) == 2


def test_pending_of_keeps_the_order_asked_for():
    """What is not pending any more is left out."""
    table = ExchangeTable(limits_of())
    for number in (1, 2, 3):
        table.add(exchange(number))
    table.take_pending(HERE, 2)

    assert [one.message_id for one in table.pending_of(HERE, [3, 2, 1, 9])] == [3, 1]


@pytest.mark.parametrize("bound", [DEFAULT_LIMITS.late_acks_per_recipient, DEFAULT_LIMITS.late_acks])
def test_bounds_are_bounds(bound):
    """A late entry costs some hundred bytes, so that all of them stay in the tens of megabytes."""
    assert 0 < bound <= 65_536


def test_sent_numbers_belong_to_the_recipient_not_to_its_connection():
    """Who comes back finds what was sent to it before, and nobody else's."""
    table = ExchangeTable(limits_of())
    table.sent_to(HERE).note(7, 128)

    assert 7 in table.sent_to(HERE)
    assert 7 not in table.sent_to(THERE)


def test_recipients_remembered_are_bounded():
    """The one that was away longest is forgotten first."""
    table = ExchangeTable(limits_of(remembered_recipients=2))
    for recipient in (HERE, THERE, HERE, bytes(32)):
        table.sent_to(recipient).note(1, 128)

    assert 1 in table.sent_to(HERE)
    assert 1 not in table.sent_to(THERE)
