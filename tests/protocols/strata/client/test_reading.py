"""Rows of specs/strata.md section 21 stand in the names of the tests that prove them."""

import pytest

from tests.protocols.strata.build import (
    NOW,
    post,
)
from tests.protocols.strata.build_client import Talk, event
from waystation.core.errors import LocalError
from waystation.protocols.strata.client import seen_packets
from waystation.protocols.strata.client.events import (
    CursorLost,
    HistoryEnded,
    Limited,
    PacketArrived,
    SubscriptionRefused,
)
from waystation.protocols.strata.client.subscriptions import SUBSCRIPTIONS_MAX
from waystation.protocols.strata.messages import Filters


def test_pages_are_turned_until_history_is_complete():
    """With follow each page's end asks for the next, from its cursor."""
    talk = Talk().subscribe(limit=1)
    talk.hear(event(post("1"), cursor="c1"), {"type": "EOSE", "subscription_id": "s", "cursor": "c1", "has_more": True})
    first = talk.take()
    turned = talk.sent
    talk.hear({"type": "EOSE", "subscription_id": "s", "cursor": "end", "has_more": False})

    assert [type(each) for each in first] == [PacketArrived]
    assert [message["filters"]["cursor"] for message in turned] == ["c1"]
    assert talk.take() == [HistoryEnded("s", "end", has_more=False)]


def test_one_page_is_all_without_follow():
    """The end of the page is told with what remains, and nothing more is asked for."""
    talk = Talk().subscribe(limit=1, follow=False)
    talk.hear(event(post("1"), cursor="c1"), {"type": "EOSE", "subscription_id": "s", "cursor": "c1", "has_more": True})
    told = talk.take()

    assert told[-1] == HistoryEnded("s", "c1", has_more=True)
    assert talk.sent == []


def test_foreign_relay_ends_history_by_being_quiet():
    """Without EOSE two seconds of quiet behind a page that is not full end it."""
    talk = Talk().subscribe(limit=5)
    talk.hear(event(post("1"), cursor="c1")).wait(1.5).hear(event(post("2"), cursor="c2")).wait(1.9)
    early = [each for each in talk.take() if isinstance(each, HistoryEnded)]
    talk.wait(0.2)

    assert early == []
    assert talk.take() == [HistoryEnded("s", "c2", has_more=False)]


def test_foreign_relay_is_asked_again_behind_a_full_page():
    """As many packets as asked for mean that there may be more."""
    talk = Talk().subscribe(limit=2)
    talk.hear(event(post("1"), cursor="c1"), event(post("2"), cursor="c2")).wait(2.1)
    talk.take()

    assert [message["filters"]["cursor"] for message in talk.sent] == ["c2"]


def test_relay_that_turns_in_circles_is_left_alone(monkeypatch):
    """A page without a packet and without a step is the last one, whatever the relay claims."""
    talk = Talk().subscribe()
    endless = {"type": "EOSE", "subscription_id": "s", "cursor": "c", "has_more": True}
    talk.hear(event(post(), cursor="b"), endless, endless, endless)
    told = talk.take()

    assert HistoryEnded("s", "c", has_more=True) in told
    assert len(talk.sent) == 1


def test_reconnecting_resumes_where_it_stood():
    """The same subscription asks from its last cursor, and packets known already are left out."""
    talk = Talk().subscribe()
    talk.hear(event(post("1"), cursor="c1"), event(post("2"), cursor="c2")).take()
    talk.drop()
    talk.open()
    talk.take()
    asked = talk.sent
    talk.hear(event(post("2"), cursor="c2"), event(post("3"), cursor="c3"))

    assert [message["filters"]["cursor"] for message in asked] == ["c2"]
    assert [each.packet for each in talk.take()] == [post("3")]


def test_live_packets_do_not_skip_unread_history():
    """A live packet without a cursor moves nothing: what it stands in front of is still to come."""
    talk = Talk().subscribe()
    talk.hear(event(post("1"), cursor="c1"), event(post("live"), received_at=NOW + 100)).take()
    talk.drop()
    talk.open()
    talk.take()

    assert [message["filters"]["cursor"] for message in talk.sent] == ["c1"]


def test_row_38_invalid_cursor_falls_back_to_time():
    """A cursor that the relay has lost is replaced by a day's margin, and nothing is delivered twice."""
    talk = Talk().subscribe(Filters(types=("POST",)))
    talk.hear(event(post("1"), received_at=NOW, cursor="c1")).take()
    talk.drop()
    talk.open()
    talk.hear({"type": "ERROR", "code": "invalid_cursor", "subscription_id": "s", "reason": "?"})
    told = talk.take()
    fallback = talk.sent[-1]["filters"]
    talk.hear(event(post("1")), event(post("2")))

    assert told == [CursorLost("s")]
    assert fallback == {"limit": 100, "order": "asc", "types": ["POST"], "since": NOW - 86_400 - 300}
    assert [each.packet for each in talk.take()] == [post("2")]


def test_time_from_the_future_is_not_resumed_from():
    """A relay that lies about received_at cannot make a gap."""
    talk = Talk().subscribe()
    talk.hear(event(post("1"), received_at=NOW + 10**9, cursor="c1")).take()
    talk.hear({"type": "ERROR", "code": "invalid_cursor", "subscription_id": "s"})
    talk.take()

    assert talk.sent[-1]["filters"]["since"] == NOW - 86_400 - 300


def test_relay_that_loses_every_cursor_is_refused_in_the_end():
    """Falling back is bounded, so that two machines do not answer each other for ever."""
    talk = Talk().subscribe()
    for number in range(20):
        talk.hear(event(post(f"{number}"), cursor=f"c{number}"))
        talk.hear({"type": "ERROR", "code": "invalid_cursor", "subscription_id": "s"})
    told = talk.take()

    assert len([each for each in told if isinstance(each, CursorLost)]) == 8
    assert SubscriptionRefused("s", "invalid_cursor", "", None) in told


def test_limited_subscribe_is_sent_again_after_the_wait():
    """At least as long as told, at most a quarter longer."""
    talk = Talk().subscribe()
    talk.hear({"type": "ERROR", "code": "rate_limited", "subscription_id": "s", "retry_after": 8})
    told = talk.take()
    talk.wait(7.9).take()
    early = talk.sent
    talk.wait(2.2).take()

    assert told == [Limited(8, None, "s")]
    assert early == []
    assert [message["type"] for message in talk.sent] == ["SUBSCRIBE"]


def test_refused_subscription_is_told_and_forgotten():
    """A relay that echoes only client_msg_id is understood, too."""
    talk = Talk()
    talk.client.subscribe("s", Filters(), talk.now)
    talk.take()
    msg_id = talk.sent[0]["client_msg_id"]
    talk.hear({"type": "ERROR", "code": "unauthenticated", "client_msg_id": msg_id, "detail": "no"})

    assert talk.take() == [SubscriptionRefused("s", "unauthenticated", "no", None)]
    talk.drop()
    talk.open()
    talk.take()
    assert talk.sent == []


def test_subscriptions_are_bounded():
    """One more than a relay allows is the caller's mistake."""
    talk = Talk()
    for number in range(SUBSCRIPTIONS_MAX):
        talk.client.subscribe(f"{number}", Filters(), talk.now)

    with pytest.raises(LocalError):
        talk.client.subscribe("more", Filters(), talk.now)
    with pytest.raises(LocalError):
        talk.client.subscribe("", Filters(), talk.now)


def test_memory_of_seen_packets_is_bounded(monkeypatch):
    """The oldest id is forgotten first."""
    monkeypatch.setattr(seen_packets, "SEEN_MAX", 2)
    talk = Talk().subscribe()
    talk.hear(*(event(post(text)) for text in ("1", "2", "3", "3", "1")))

    assert [each.packet for each in talk.take()] == [post("1"), post("2"), post("3"), post("1")]
