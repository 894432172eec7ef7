"""Each law, shown a history that breaks it and its nearest history that does not."""

import pytest

from waystation.core.facts import Outcome
from waystation.core.instant import Instant
from waystation.journal import events
from waystation.sim import observations as seen
from waystation.sim.invariants import (
    AnswersSurvive,
    BoundedMemory,
    CommitFirst,
    DeliveredOnce,
    Faithful,
    Liveness,
    OneResult,
    SenderHidden,
    ViolationError,
    Watch,
    bhumi_invariants,
)

DEVICE = b"D" * 32
PREIMAGE = b"P" * 32
KEY = (DEVICE, PREIMAGE)
SIZES = {
    "bhumi": dict.fromkeys(
        (
            "connections",
            "identities",
            "commits",
            "exchanges",
            "late_acks",
            "cached_responses",
            "cached_bytes",
            "alarms",
        ),
        0,
    ),
    "node": {"connections": 0, "bans": 0},
}
REFERENCE, SENDER_REFERENCE = b"r" * 16, b"s" * 16
EVERYBODY = seen.Everybody(frozenset({REFERENCE}), (DEVICE, SENDER_REFERENCE), ("10.2.0.1",))


def broken_by(invariant, *history, at=None):
    """Show a history and return what is said about its last observation; the ones before must be fine."""
    watch = Watch([invariant])
    instants = at or range(len(history))
    *before, last = zip(history, instants, strict=True)
    for observation, now in before:
        watch.observe(observation, Instant(now))
    try:
        watch.observe(last[0], Instant(last[1]))
    except ViolationError as error:
        return error.detail if error.invariant == invariant.name else None
    return None


def sized(settled=False, node=None, **relay):
    return seen.Sized({"bhumi": {**SIZES["bhumi"], **relay}, "node": {**SIZES["node"], **(node or {})}}, settled)


def test_second_delivery_of_one_offer_is_seen():
    """One offer allows one delivery in one life."""
    history = [seen.Offered(1, DEVICE, (PREIMAGE,)), seen.Delivered(1, *KEY, b"x"), seen.Delivered(1, *KEY, b"x")]

    assert "delivered 2 times" in broken_by(DeliveredOnce(), *history)
    assert broken_by(DeliveredOnce(), seen.Offered(2, DEVICE, (PREIMAGE,)), *history) is None
    assert broken_by(DeliveredOnce(), *history[:2], seen.LifeBegan(2), history[2]) is None


def test_delivery_without_offer_on_its_connection_is_seen():
    """A commit counts on the connection that carried it, and nowhere else."""
    offered = seen.Offered(1, DEVICE, (PREIMAGE,))

    assert broken_by(CommitFirst(), offered, seen.Delivered(1, *KEY, b"x")) is None
    assert "not offered" in broken_by(CommitFirst(), offered, seen.Delivered(2, *KEY, b"x"))
    assert "never issued" in broken_by(CommitFirst(), offered, seen.Delivered(1, DEVICE, None, b"x"))


def test_payload_that_nobody_sent_is_seen():
    """A device gets what was asked with this preimage of this device."""
    asked = seen.Asked(9, 1, *KEY, b"question")

    assert broken_by(Faithful(), asked, seen.Delivered(1, *KEY, b"question")) is None
    assert "nobody sent" in broken_by(Faithful(), asked, seen.Delivered(1, *KEY, b"questio"))
    assert "nobody sent" in broken_by(Faithful(), asked, seen.Delivered(1, b"E" * 32, PREIMAGE, b"question"))


def test_foreign_answer_is_seen():
    """A result carries the answer of its own request."""
    asked = seen.Asked(9, 1, *KEY, b"q")

    assert broken_by(OneResult(), asked, seen.Concluded(9, 1, 0, b"mine", b"mine")) is None
    assert "another one's" in broken_by(OneResult(), asked, seen.Concluded(9, 1, 0, b"yours", b"mine"))
    assert "failure with" in broken_by(OneResult(), asked, seen.Concluded(9, 1, 3, b"mine", b"mine"))


def test_result_out_of_order_or_twice_is_seen():
    """Results come in the order of requests, each once."""
    asked = [seen.Asked(9, 1, *KEY, b"q"), seen.Asked(9, 2, *KEY, b"q")]
    first = seen.Concluded(9, 1, 2, b"", b"a")

    assert "out of order" in broken_by(OneResult(), *asked, seen.Concluded(9, 2, 2, b"", b"a"))
    assert "out of order" in broken_by(OneResult(), *asked, first, first)


def test_missing_result_is_seen_at_the_end_of_the_connection():
    """The node may not close instead of answering, and a sender on a good link never waits in vain."""
    asked, arrived = seen.Asked(9, 1, *KEY, b"q"), seen.AskArrived(9, 1, taken=True)

    assert "instead of a result" in broken_by(OneResult(), asked, arrived, seen.ConnectionEnded(9, "peer", False))
    assert "idle_timeout" in broken_by(OneResult(), asked, seen.ConnectionEnded(9, "idle_timeout", False))
    assert broken_by(OneResult(), asked, arrived, seen.ConnectionEnded(9, "peer", True)) is None
    assert broken_by(OneResult(), asked, arrived, seen.ConnectionEnded(9, "self", False)) is None
    assert broken_by(OneResult(), asked, seen.ConnectionEnded(9, "peer", False)) is None


def test_lost_answer_is_seen():
    """The first request after an answer arrived must be given it."""
    history = [
        seen.AnswerArrived(*KEY),
        seen.Asked(9, 1, *KEY, b"q"),
        seen.AskArrived(9, 1, taken=True),
        seen.Concluded(9, 1, 2, b"", b"a"),
    ]

    assert "was answered" in broken_by(AnswersSurvive(10_000), *history)
    assert broken_by(AnswersSurvive(10_000), history[0], seen.LifeBegan(2), *history[1:]) is None
    assert broken_by(AnswersSurvive(10_000), *history, at=[0, 1, 10_000_000, 10_000_001]) is None


def test_second_request_after_an_answer_may_fail():
    """Once taken, an answer is evicted."""
    asked = [seen.Asked(9, 1, *KEY, b"q"), seen.Asked(9, 2, *KEY, b"q")]
    arrived = [seen.AskArrived(9, 1, taken=True), seen.AskArrived(9, 2, taken=True)]

    said = broken_by(
        AnswersSurvive(10_000), seen.AnswerArrived(*KEY), *asked, *arrived, seen.Concluded(9, 2, 2, b"", b"a")
    )

    assert said is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("connections", 1),
        ("identities", 1),
        ("commits", 1),
        ("exchanges", 1),
        ("late_acks", 65_537),
        ("cached_responses", 65_537),
        ("cached_bytes", 64 * 1_048_576 + 1),
        ("alarms", 1),
    ],
)
def test_every_size_above_its_limit_is_seen(name, value):
    """Without any connection the limits that depend on connections are 0; the others are what the relay names."""
    assert name in broken_by(BoundedMemory(), sized(**{name: value}))
    assert broken_by(BoundedMemory(), sized()) is None


def test_leftovers_are_seen():
    """An empty town leaves nothing but bans."""
    assert "late_acks" in broken_by(BoundedMemory(), sized(settled=True, late_acks=1))
    assert "connections" in broken_by(BoundedMemory(), sized(settled=True, node={"connections": 1}))
    assert broken_by(BoundedMemory(), sized(settled=True, node={"bans": 3})) is None
    assert broken_by(BoundedMemory(), sized(late_acks=1)) is None


def delivery(attempt=b"a" * 16, peer=REFERENCE):
    return seen.Journalled(events.DeliveryFinished(1, "bhumi", attempt, peer, Outcome.OK, 5, 7))


def test_sender_in_the_journal_is_seen():
    """Neither a reference nor an address of a sender is in any event, and no delivery names a connection."""
    login = seen.Journalled(events.PeerIdentified(1, "bhumi", b"c" * 8, REFERENCE))

    assert broken_by(SenderHidden(), EVERYBODY, login, delivery()) is None
    assert "sender" in broken_by(SenderHidden(), EVERYBODY, delivery(peer=SENDER_REFERENCE))
    assert "identity" in broken_by(SenderHidden(), EVERYBODY, delivery(peer=DEVICE[:16]))
    assert "identity" in broken_by(SenderHidden(), EVERYBODY, delivery(peer=PREIMAGE))
    assert "connection" in broken_by(SenderHidden(), EVERYBODY, login, delivery(attempt=b"bootboot" + b"c" * 8))


def test_address_or_stranger_in_the_journal_is_seen():
    """No text shows a sender's address, and only those who log in are identified."""
    left = events.PeerLeft(1, "bhumi", b"c" * 8, REFERENCE, "from 10.2.0.1", 1, 1)
    stranger = events.PeerIdentified(1, "bhumi", b"c" * 8, b"x" * 16)

    assert "address" in broken_by(SenderHidden(), EVERYBODY, seen.Journalled(left))
    assert "never logs in" in broken_by(SenderHidden(), EVERYBODY, seen.Journalled(stranger))


@pytest.mark.parametrize("status", [None, 1, 2, 3, 4])
def test_failed_last_request_is_seen(status):
    """After the faults everybody must get status 0."""
    assert broken_by(Liveness(), seen.Probed(3, status)) is not None
    assert broken_by(Liveness(), seen.Probed(3, 0)) is None


def test_every_law_is_watched_under_its_own_name():
    """The list for Bhumi has each law once."""
    names = [invariant.name for invariant in bhumi_invariants(300_000)]

    assert sorted(names) == sorted(set(names))
    assert len(names) == 8
