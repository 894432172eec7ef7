"""Rows of specs/strata.md section 21 stand in the names of the tests that prove them."""

from tests.protocols.strata.build import (
    post,
)
from tests.protocols.strata.build_client import Talk, ok
from waystation.protocols.strata.client.events import (
    Limited,
    Published,
    PublishQueued,
    PublishRefused,
    PublishUnknown,
    RelayError,
)


def test_ok_is_the_only_success():
    """OK with our packet's id and ACCEPTED ends the wait."""
    talk = Talk()
    msg_id = talk.client.publish(post(), talk.now)
    talk.take()
    talk.wait(0.25).hear(ok(talk, post(), duplicate=True, duplicate_of="0x" + "11" * 32))

    assert talk.take() == [Published(msg_id, post().packet_id, True, b"\x11" * 32, None, 250_000)]
    assert talk.client.unanswered == 0
    assert talk.client.deadline() is None


def test_publish_carries_the_canonical_bytes():
    """What is published is what was signed, unknown members included."""
    odd = post("x", unknown={"a": [1.5, None]})
    talk = Talk()
    talk.client.publish(odd, talk.now)
    talk.take()

    assert talk.sent[0]["packet"] == odd.body


def test_silence_is_unknown_after_ten_seconds():
    """Neither success nor refusal is claimed; publishing again is a request of its own."""
    talk = Talk()
    msg_id = talk.client.publish(post(), talk.now)
    talk.take()
    talk.wait(9.9)
    early = talk.take()
    talk.wait(0.2)

    assert early == []
    assert talk.take() == [PublishUnknown(msg_id, post().packet_id)]
    assert talk.client.publish(post(), talk.now) != msg_id


def test_queued_is_not_final():
    """It buys a minute, and then the outcome is unknown like any other."""
    talk = Talk()
    msg_id = talk.client.publish(post(), talk.now)
    talk.take()
    answer = ok(talk, post(), status="QUEUED")
    talk.hear(answer).wait(30)
    queued = talk.take()
    talk.wait(31)

    assert queued == [PublishQueued(msg_id)]
    assert talk.take() == [PublishUnknown(msg_id, post().packet_id)]


def test_ok_for_another_packet_is_no_answer():
    """A relay cannot acknowledge what we did not send."""
    talk = Talk()
    talk.client.publish(post(), talk.now)
    talk.take()
    talk.hear(ok(talk, post("other")), {"type": "OK"}, {"type": "OK", "packet_id": 3, "client_msg_id": ["x"]})

    assert talk.take() == []
    assert talk.client.unanswered == 1


def test_refusal_tells_code_and_numbers():
    """The codes need not be known here."""
    talk = Talk()
    msg_id = talk.client.publish(post(), talk.now)
    talk.take()
    error = {"type": "ERROR", "code": "packet_too_large", "reason": "no", "detail": "d", "max_bytes": 1024}
    talk.hear(error | {"client_msg_id": msg_id})

    assert talk.take() == [PublishRefused(msg_id, post().packet_id, "packet_too_large", "d", "no", None, 1024)]


def test_relay_that_echoes_nothing_is_understood():
    """OK names the packet; an ERROR without any reference belongs to the only packet on its way."""
    talk = Talk()
    first = talk.client.publish(post("1"), talk.now)
    second = talk.client.publish(post("2"), talk.now)
    talk.take()
    talk.hear({"type": "OK", "packet_id": post("1").body["packet_id"], "status": "ACCEPTED"})
    talk.hear({"type": "ERROR", "code": "blocked_author", "reason": "no"})

    assert [(type(each), each.msg_id) for each in talk.take()] == [(Published, first), (PublishRefused, second)]


def test_error_of_nothing_we_know_is_only_told():
    """It changes no request."""
    talk = Talk()
    talk.hear({"type": "ERROR", "code": "internal_error", "client_msg_id": "nobody"})

    assert talk.take() == [RelayError("internal_error", "")]


def test_limited_publish_is_sent_again_and_refused_in_the_end():
    """Each try waits as told; a relay that never stops limiting is as good as a refusal."""
    talk = Talk()
    msg_id = talk.client.publish(post(), talk.now)
    talk.take()
    limits, sent_count = [], 0
    for _ in range(9):
        talk.hear({"type": "ERROR", "code": "rate_limited", "client_msg_id": msg_id, "retry_after": 2})
        limits += talk.take()
        talk.wait(2.6).take()
        sent_count += len(talk.sent)

    assert limits[:8] == [Limited(2, msg_id, None)] * 8
    assert limits[8] == PublishRefused(msg_id, post().packet_id, "rate_limited", "", "", 2, None)
    assert sent_count == 8


def test_lost_connection_leaves_the_outcome_unknown():
    """What was sent may be stored; what was not sent goes out on the next connection."""
    talk = Talk()
    sent = talk.client.publish(post("1"), talk.now)
    talk.drop()
    kept = talk.client.publish(post("2"), talk.now)
    told = talk.take()
    talk.open()
    talk.take()

    assert told == [PublishUnknown(sent, post("1").packet_id)]
    assert [message["client_msg_id"] for message in talk.sent] == [kept]
