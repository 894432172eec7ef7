"""Laws of protocols.merk.client.awaited_reads."""

from waystation.protocols.merk.client.awaited_reads import AwaitedReads
from waystation.protocols.merk.client.events import ReceiptArrived

BOB, CAROL = b"b" * 32, b"c" * 32
ONE, TWO, THREE = (bytes([number]) * 16 for number in range(3))


class Kept:
    """A store in memory."""

    def __init__(self):
        self.rows = {}

    def await_read(self, recipient, message_id, time_ms):
        self.rows[recipient, message_id] = time_ms

    def was_read(self, recipient, message_id):
        return self.rows.pop((recipient, message_id), None) is not None


def read(reads, sender, *ids):
    """Return what a receipt shows to be read."""
    reads.receipt(ReceiptArrived(sender, ids))
    return reads.take()


def test_receipt_counts_for_messages_to_its_sender():
    """What it names beside them, sent to others or to nobody, is not read."""
    reads = AwaitedReads()
    reads.sent(BOB, ONE)
    reads.sent(CAROL, TWO)

    assert read(reads, BOB, TWO, THREE, ONE) == [(BOB, ONE)]
    assert read(reads, CAROL, ONE, TWO) == [(CAROL, TWO)]


def test_message_is_read_once():
    """Neither the same receipt again nor one that names a message twice reports it again."""
    reads = AwaitedReads()
    reads.sent(BOB, ONE)

    assert read(reads, BOB, ONE, ONE) == [(BOB, ONE)]
    assert read(reads, BOB, ONE) == []


def test_oldest_message_gives_way():
    """Beyond the limit the oldest message is awaited no more, and that is said."""
    reads = AwaitedReads(count_max=2)

    assert [reads.sent(BOB, each) for each in (ONE, TWO, THREE)] == [None, None, (BOB, ONE)]
    assert read(reads, BOB, ONE, TWO, THREE) == [(BOB, TWO), (BOB, THREE)]


def test_stored_message_is_awaited_by_the_next_program():
    """Of what the program before has sent, only what a mailbox keeps can be read."""
    store = Kept()
    before = AwaitedReads(store)
    before.sent(BOB, ONE)
    before.sent(BOB, TWO)
    before.stored(BOB, TWO, 7)
    after = AwaitedReads(store)

    assert read(after, CAROL, TWO) == []
    assert read(after, BOB, ONE, TWO) == [(BOB, TWO)]
    assert read(after, BOB, TWO) == []


def test_message_that_is_awaited_twice_is_read_once():
    """Memory and store have the same message, and it is one."""
    reads = AwaitedReads(Kept())
    reads.sent(BOB, ONE)
    reads.stored(BOB, ONE, 7)

    assert read(reads, BOB, ONE) == [(BOB, ONE)]
    assert read(reads, BOB, ONE) == []


def test_nothing_is_awaited_after_clear():
    """A client that is closed reports nothing as read."""
    reads = AwaitedReads()
    reads.sent(BOB, ONE)
    reads.clear()

    assert read(reads, BOB, ONE) == []
