"""What a life of a node still has to do belongs to that life alone."""

from waystation.core.records import Record
from waystation.sim.outbox import Outbox


def test_fresh_outbox_owes_nothing():
    """A node that has just started has nothing under way and no timer."""
    outbox = Outbox()

    assert not (outbox.behind or outbox.uncommitted or outbox.commits or outbox.outgoing or outbox.closing)
    assert (outbox.appended, outbox.committed) == (0, 0)
    assert outbox.turn_number is outbox.timer_number is outbox.progress_number is None


def test_lives_share_nothing():
    """What one life gathered is not in the next one."""
    first, second = Outbox(), Outbox()

    first.uncommitted.append(Record("t", b"k", b"v"))
    first.commits.append((1, "p", 1))

    assert (second.uncommitted, len(second.commits)) == ([], 0)
