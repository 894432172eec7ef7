"""Laws of protocols.merk.client.sent_frames."""

from waystation.core.instant import Instant, after_ms
from waystation.protocols.merk.client.sent_frames import NOTICE_MS, SentFrames

NOW = Instant(1_000_000)


def frames(*names):
    """Return the memory of some frames that were sent in this order."""
    sent = SentFrames()
    for name in names:
        sent.add(name)
    return sent


def test_outcome_settles_the_oldest_frame_of_its_bytes():
    """Equal frames have an outcome each; one that nobody sent has none."""
    sent = frames(b"a", b"b", b"a")

    assert [sent.settle(name) for name in (b"a", b"a", b"a", b"c")] == [True, True, False, False]
    assert len(sent) == 1


def test_time_begins_once_a_frame_has_left():
    """While a frame may wait in our own buffers it is not overdue, however long that takes."""
    sent = frames(b"a")
    before = sent.deadline(), sent.overdue(after_ms(NOW, 10 * NOTICE_MS))
    sent.left(NOW)
    sent.add(b"b")

    assert before == (None, [])
    assert sent.deadline() == after_ms(NOW, NOTICE_MS)
    assert sent.overdue(after_ms(NOW, NOTICE_MS)) == [b"a"]
    assert (sent.clear(), len(sent)) == ([b"b"], 0)


def test_second_departure_does_not_lengthen_the_first():
    """Each frame has its own time."""
    sent = frames(b"a")
    sent.left(NOW)
    sent.add(b"b")
    sent.left(after_ms(NOW, 5))

    assert sent.overdue(after_ms(NOW, NOTICE_MS)) == [b"a"]
    assert sent.overdue(after_ms(NOW, NOTICE_MS + 5)) == [b"b"]
