"""Each invariant of requests, answers and memory: a history that breaks it, and its nearest that does not."""

import pytest

from tests.sim.bhumi.build import began, sized
from waystation.core.facts import Outcome
from waystation.core.instant import Instant
from waystation.journal import events
from waystation.sim.bhumi import observations as seen
from waystation.sim.bhumi.invariants import (
    AnswersSurvive,
    AsksOnce,
    Bounded,
    CommitFirst,
    DeliveredOnce,
    Faithful,
    Liveness,
    OneResult,
    SenderHidden,
    bhumi_invariants,
)
from waystation.sim.invariants import ViolationError, Watch
from waystation.sim.observations import Sized, Unfulfilled

DEVICE = b"D" * 32
PREIMAGE = b"P" * 32
KEY = (DEVICE, PREIMAGE)
REFERENCE, SENDER_REFERENCE = b"r" * 16, b"s" * 16
PARTICIPANTS = seen.Participants(frozenset({REFERENCE}), (DEVICE, SENDER_REFERENCE), ("10.2.0.1",))
LOGIN = seen.Journalled(events.PeerIdentified(1, "bhumi", b"c" * 8, REFERENCE))
OFFERED, DELIVERED = seen.Offered(1, DEVICE, (PREIMAGE,)), seen.Delivered(1, *KEY, b"q")
ASKED, ASKED_NEXT = seen.Asked(9, 1, *KEY, b"q"), seen.Asked(9, 2, *KEY, b"q")
ARRIVED, ARRIVED_NEXT = seen.AskArrived(9, 1, taken=True), seen.AskArrived(9, 2, taken=True)
FAILED, FAILED_NEXT = seen.Concluded(9, 1, 2, b"", b"a"), seen.Concluded(9, 2, 2, b"", b"a")
CONNECTED, ANSWERED = seen.Connected(9, 0), seen.AnswerArrived(0, *KEY)
HANDLED = seen.Handled(*KEY)


def broken_by(invariant, *history, at=None):
    """Show a history and return what a violation by its last observation tells; the ones before must be fine."""
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


def ended(reason, *, faulted=False):
    """Return that the sender's connection ended."""
    return seen.ConnectionEnded(9, reason, faulted)


def delivery(attempt=b"a" * 16, peer=REFERENCE):
    """Return that a relay journalled a delivery."""
    return seen.Journalled(events.DeliveryFinished(1, "bhumi", attempt, peer, Outcome.OK, 5, 7))


def survives():
    """Return the law of answers, for a relay that keeps them for ten seconds."""
    return AnswersSurvive(10_000)


@pytest.mark.parametrize(
    ("law", "detail", "history"),
    [
        (DeliveredOnce, "delivered 2 times", [OFFERED, DELIVERED, DELIVERED]),
        (CommitFirst, "not offered", [OFFERED, DELIVERED._replace(connection=2)]),
        (CommitFirst, "never issued", [OFFERED, DELIVERED._replace(preimage=None)]),
        (Faithful, "no sender sent", [ASKED, DELIVERED._replace(payload=b"")]),
        (Faithful, "no sender sent", [ASKED, DELIVERED._replace(recipient=b"E" * 32)]),
        (OneResult, "another one's", [ASKED, seen.Concluded(9, 1, 0, b"yours", b"mine")]),
        (OneResult, "failure with", [ASKED, seen.Concluded(9, 1, 3, b"mine", b"mine")]),
        (OneResult, "out of order", [ASKED, ASKED_NEXT, FAILED_NEXT]),
        (OneResult, "out of order", [ASKED, ASKED_NEXT, FAILED, FAILED]),
        (OneResult, "instead of a result", [ASKED, ARRIVED, ended("peer")]),
        (OneResult, "idle_timeout", [ASKED, ended("idle_timeout")]),
        (survives, "was answered", [CONNECTED, ANSWERED, ASKED, ARRIVED, FAILED]),
        (survives, "was answered", [CONNECTED, ANSWERED, began(1), ASKED, ARRIVED, FAILED]),
        (SenderHidden, "sender", [PARTICIPANTS, delivery(peer=SENDER_REFERENCE)]),
        (SenderHidden, "identity", [PARTICIPANTS, delivery(peer=DEVICE[:16])]),
        (SenderHidden, "identity", [PARTICIPANTS, delivery(peer=PREIMAGE)]),
        (SenderHidden, "connection", [PARTICIPANTS, LOGIN, delivery(attempt=b"bootboot" + b"c" * 8)]),
        (AsksOnce, "again", [HANDLED, HANDLED]),
        (Liveness, "no answer", [Unfulfilled("no answer")]),
    ],
)
def test_history_breaks_its_law(law, detail, history):
    """Each of these histories breaks the law that it stands beside, with its last observation, and says how."""
    assert detail in broken_by(law(), *history)


@pytest.mark.parametrize(
    ("law", "history"),
    [
        (DeliveredOnce, [OFFERED._replace(connection=2), OFFERED, DELIVERED, DELIVERED]),
        (DeliveredOnce, [OFFERED, DELIVERED, seen.LifeBegan(2), DELIVERED]),
        (CommitFirst, [OFFERED, DELIVERED]),
        (Faithful, [ASKED, DELIVERED]),
        (OneResult, [ASKED, seen.Concluded(9, 1, 0, b"mine", b"mine")]),
        (OneResult, [ASKED, ARRIVED, ended("peer", faulted=True)]),
        (OneResult, [ASKED, ARRIVED, ended("self")]),
        (OneResult, [ASKED, ended("peer")]),
        (survives, [CONNECTED, ANSWERED, began(0), ASKED, ARRIVED, FAILED]),
        (survives, [CONNECTED._replace(node=1), ANSWERED, ASKED, ARRIVED, FAILED]),
        (survives, [ANSWERED, CONNECTED, ASKED, ASKED_NEXT, ARRIVED, ARRIVED_NEXT, FAILED_NEXT]),
        (SenderHidden, [PARTICIPANTS, LOGIN, delivery()]),
        (AsksOnce, [HANDLED, HANDLED._replace(identity=b"E" * 32)]),
    ],
)
def test_nearest_history_breaks_nothing(law, history):
    """These differ from the broken ones in one thing."""
    assert broken_by(law(), *history) is None


def test_answer_may_be_forgotten_after_its_time():
    """A request that comes ten seconds after the answer need not find it."""
    history = [CONNECTED, ANSWERED, ASKED, ARRIVED, FAILED]

    assert broken_by(survives(), *history, at=[0, 0, 1, 10_000_000, 10_000_001]) is None


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("identities", 2),
        ("commits", 4_096),
        ("exchanges", 32),
        ("late_acks", 65_536),
        ("cached_responses", 65_536),
        ("cached_bytes", 64 * 1_048_576),
        ("alarms", 2),
        ("presences", 100_000),
        ("contacts", 74),
        ("addresses", 12),
    ],
)
def test_every_size_above_its_limit_is_seen(name, limit):
    """With two connections, one identity and two configured peers each size has its limit."""
    sizes = {"identities": 1, name: limit}

    assert broken_by(Bounded(), sized(**sizes)) is None
    assert name in broken_by(Bounded(), sized(**{**sizes, name: limit + 1}))


def test_leftovers_are_seen():
    """When every peer has left, only the configured addresses stay."""
    assert "late_acks" in broken_by(Bounded(), sized(settled=True, connections=0, late_acks=1))
    assert "addresses" in broken_by(Bounded(), sized(settled=True, connections=0, addresses=3))
    assert "connections" in broken_by(Bounded(), sized(settled=True))
    assert broken_by(Bounded(), sized(settled=True, connections=0, addresses=2)) is None
    assert broken_by(Bounded(), sized(late_acks=1)) is None


def test_connections_of_a_node_are_bounded():
    """A relay has no more connections than its node, that no more than its limit, and bans outlast them all."""
    assert broken_by(Bounded(), seen.NodeSized(0, {"connections": 10_000, "bans": 1}, 10_000, settled=False)) is None
    assert "connections" in broken_by(Bounded(), seen.NodeSized(0, {"connections": 10_001}, 0, settled=False))
    assert "its relay 2" in broken_by(Bounded(), seen.NodeSized(0, {"connections": 1}, 2, settled=False))
    assert "connections" in broken_by(Bounded(), seen.NodeSized(0, {"connections": 1}, 0, settled=True))
    assert broken_by(Bounded(), seen.NodeSized(0, {"connections": 0, "bans": 3}, 0, settled=True)) is None


def test_address_or_unknown_peer_in_the_journal_is_seen():
    """No text shows a sender's address, and only those who log in are identified."""
    left = events.PeerLeft(1, "bhumi", b"c" * 8, REFERENCE, "from 10.2.0.1", 1, 1)
    unknown = events.PeerIdentified(1, "bhumi", b"c" * 8, b"x" * 16)

    assert "address" in broken_by(SenderHidden(), PARTICIPANTS, seen.Journalled(left))
    assert "never logs in" in broken_by(SenderHidden(), PARTICIPANTS, seen.Journalled(unknown))


@pytest.mark.parametrize(
    ("due", "right", "is_faultless", "is_enough"),
    [(100, 95, True, True), (100, 94, True, False), (100, 50, False, True), (39, 0, True, True)],
)
def test_share_of_right_look_ups_counts_where_nothing_goes_wrong(due, right, is_faultless, is_enough):
    """At least 95 of 100, in a run that has that many."""
    assert (broken_by(Liveness(), seen.Tallied(due, right, is_faultless)) is None) is is_enough


def test_every_invariant_has_a_name_of_its_own():
    """Violations can be told apart."""
    names = [invariant.name for invariant in bhumi_invariants(300_000)]

    assert len(set(names)) == len(names) == 17


def test_every_observation_is_looked_at():
    """An observation without an invariant would only cost time; look-ups are for the readers of traces."""
    watched = {kind for invariant in bhumi_invariants(300_000) for kind in invariant.handlers()}
    observed = {getattr(seen, name) for name in seen.__all__} | {Sized, Unfulfilled}

    assert watched == observed - {seen.LookedUp}
