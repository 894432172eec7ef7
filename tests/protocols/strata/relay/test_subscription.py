"""Laws of protocols.strata.subscription; test_history_model plays them all together."""

import pytest

from tests.protocols.strata.build import BOB, NOW, post
from tests.protocols.strata.drive import Drive
from waystation.protocols.strata.cursor import decode_cursor, filter_hash
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.relay.subscription import PAGE_ROWS_MAX
from waystation.store.memory import MemoryStore

NOTHING = filter_hash(Filters())


def place(text):
    """Return the place that a cursor of an unfiltered subscription names."""
    return decode_cursor(text, bytes(8), NOTHING, descending=False)


def texts(events):
    """Return the texts of the posts in EVENTs."""
    return [event["packet"]["content"]["text"] for event in events if event["type"] == "EVENT"]


def test_history_ends_with_a_signal_before_what_is_new():
    """EOSE stands behind the last packet of history, says that there is no more, and live packets follow."""
    drive = Drive()
    drive.fill(2)
    reader = drive.connect()
    got = drive.subscribe(reader)
    drive.fill(1, BOB)

    assert [each["type"] for each in got] == ["EVENT", "EVENT", "EOSE"]
    assert got[-1]["has_more"] is False
    assert drive.got[reader][-1]["type"] == "EVENT"


def test_the_signal_is_opt_in():
    """Who does not ask for EOSE never sees it."""
    drive = Drive()
    peer = drive.connect()

    assert drive.send(peer, {"type": "SUBSCRIBE", "subscription_id": "s"}) == []


@pytest.mark.parametrize(("count", "limit", "more"), [(3, 2, True), (3, 3, False), (3, 4, False), (0, 5, False)])
def test_has_more_is_exact(count, limit, more):
    """It is true when, and only when, history goes on behind the limit."""
    drive = Drive()
    drive.fill(count)
    end = drive.subscribe(drive.connect(), limit=limit)[-1]

    assert (end["type"], end["has_more"]) == ("EOSE", more)


def test_limit_zero_is_live_only():
    """No history, no more of it, and a cursor that stands at the newest packet (clarification 5)."""
    drive = Drive()
    drive.fill(3)
    reader = drive.connect()
    got = drive.subscribe(reader, limit=0)
    drive.fill(1, BOB)

    assert [each["type"] for each in got] == ["EOSE"]
    assert (got[0]["has_more"], place(got[0]["cursor"]).s) == (False, 3)
    assert len(drive.events(reader)) == 1


def test_limit_zero_skips_nothing_that_is_owed():
    """A page of limit 0 on a subscription that is behind does not name a place beyond what was delivered."""
    drive = Drive()
    reader = drive.connect()
    first = drive.subscribe(reader)
    drive.stall(reader)
    drive.fill(3)
    delivered = drive.events(reader)[0]["cursor"]
    ended = drive.subscribe(reader, limit=0, cursor=first[-1]["cursor"])
    drive.drain(reader)

    assert ended == []
    end = next(got for got in drive.got[reader][2:] if got["type"] == "EOSE")
    assert place(end["cursor"]).s == place(delivered).s == 1
    assert len(drive.events(reader)) == 3


def test_a_page_turned_on_the_same_connection_repeats_nothing():
    """What came live while history was cut short is not in the next page."""
    drive = Drive()
    drive.fill(4)
    reader = drive.connect()
    page = drive.subscribe(reader, limit=2)
    drive.fill(2, BOB)
    drive.subscribe(reader, limit=9, cursor=page[-1]["cursor"])

    seqs = texts(drive.events(reader))
    assert seqs == ["0", "1", "0", "1", "2", "3"]
    assert ["cursor" in event for event in drive.events(reader)] == [True, True, False, False, True, True]


def test_a_cut_history_is_resumed_elsewhere_with_what_came_live():
    """On another connection the uncursored live packets come again: one place cannot stand for two (13.1)."""
    drive = Drive()
    drive.fill(4)
    reader = drive.connect()
    page = drive.subscribe(reader, limit=2)
    drive.fill(1, BOB)
    drive.drop(reader)
    again = drive.connect()
    drive.subscribe(again, cursor=page[-1]["cursor"])

    assert texts(drive.events(again)) == ["2", "3", "0"]


def test_late_replicas_are_not_missed():
    """A packet that arrives after the cursor was given, with a time before it, comes in the second part."""
    drive = Drive()
    drive.fill(2)
    reader = drive.connect()
    cursor = drive.subscribe(reader)[-1]["cursor"]
    drive.drop(reader)
    drive.replicate(post("late"), NOW - 100)
    again = drive.connect()
    drive.subscribe(again, cursor=cursor)

    assert texts(drive.events(again)) == ["late"]


def test_descending_reads_backwards_only():
    """Pages go back in time, each packet once, and live packets bear no cursor."""
    drive = Drive()
    drive.fill(5)
    reader = drive.connect()
    first = drive.subscribe(reader, limit=2, order="desc")
    drive.fill(1, BOB)
    second = drive.subscribe(reader, limit=9, order="desc", cursor=first[-1]["cursor"])

    assert texts(first) + texts(second) == ["4", "3", "2", "1", "0"]
    assert second[-1]["has_more"] is False
    assert "cursor" not in drive.events(reader)[2]


def test_live_cursors_lead_on():
    """The cursor of a live packet resumes right behind it, on another relay process too."""
    drive = Drive()
    reader = drive.connect()
    drive.subscribe(reader)
    drive.fill(3)
    cursors = [event["cursor"] for event in drive.events(reader)]
    again = drive.restarted()

    for count, cursor in enumerate(cursors, 1):
        peer = again.connect()
        again.subscribe(peer, cursor=cursor)
        assert texts(again.events(peer)) == ["0", "1", "2"][count:]


@pytest.mark.parametrize(
    ("filters", "epoch", "detail"),
    [
        ({"types": ["POST"]}, bytes(8), "other_filter"),
        ({}, b"restored", "other_store"),
        ({"order": "desc"}, bytes(8), "other_filter"),
    ],
)
def test_cursors_of_elsewhere_are_refused(filters, epoch, detail):
    """And the subscription that stood under that id goes on as it was (clarification 6)."""
    drive = Drive()
    reader = drive.connect()
    cursor = drive.subscribe(reader)[-1]["cursor"]
    other = Drive(MemoryStore(epoch)) if epoch != bytes(8) else drive
    peer = reader if other is drive else other.connect()
    answer = other.subscribe(peer, cursor=cursor, **filters)[0]
    drive.fill(1)

    assert (answer["code"], answer["detail"], answer["subscription_id"]) == ("invalid_cursor", detail, "s")
    assert len(drive.events(reader)) == 1


def test_the_limit_may_change_with_the_page():
    """A cursor names a filter without its limit (clarification 4), and lists are sets."""
    drive = Drive()
    drive.fill(5)
    reader = drive.connect()
    first = drive.subscribe(reader, limit=1, types=["POST", "X"], authors=None)
    second = drive.subscribe(reader, limit=3, types=["X", "POST", "X"], authors=[], cursor=first[-1]["cursor"])

    assert texts(second) == ["1", "2", "3"]


def test_catching_up_takes_as_many_pages_as_it_needs():
    """A reader that fell behind by more than a page gets all of it in order, and is live again."""
    drive = Drive(rate_limits=False)
    reader = drive.connect()
    drive.subscribe(reader)
    drive.stall(reader)
    drive.fill(2 * PAGE_ROWS_MAX + 10)
    drive.drain(reader)
    drive.fill(1, BOB)

    assert texts(drive.events(reader)) == [f"{number}" for number in range(2 * PAGE_ROWS_MAX + 10)] + ["0"]
    ended = drive.send(reader, {"type": "UNSUBSCRIBE", "subscription_id": "s"})
    assert ended == []
    assert drive.facts[-1].lags == 1


def test_another_filter_under_the_same_id_continues_nothing():
    """What the old filter delivered says nothing about the new one: its history goes up to now."""
    drive = Drive()
    drive.fill(1)
    other, reader = drive.connect(), drive.connect()
    cursor = drive.subscribe(other, types=["POST"])[-1]["cursor"]
    drive.subscribe(reader, types=["PROFILE"])
    drive.fill(2, BOB)
    drive.subscribe(reader, types=["POST"], cursor=cursor)

    assert texts(drive.events(reader)) == ["0", "1"]
