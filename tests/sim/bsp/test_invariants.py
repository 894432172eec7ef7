"""Each law of a BSP network sees what it must see, in a handful of observations."""

import pytest

from tests.sim.build import broken_by_last
from waystation.core.instant import Instant
from waystation.sim.bsp import invariants as laws
from waystation.sim.bsp import observations as seen
from waystation.sim.bsp.records import (
    ACK,
    OFFER,
    REQUEST,
    deps_body,
    ids_record,
    message_id_of,
    message_record,
    read_records,
)
from waystation.sim.observations import Sized

GROUP = b"g" * 32
BODY = deps_body([], b"root")
ROOT = message_id_of(GROUP, 1, BODY)
CHILD_BODY = deps_body([ROOT], b"child")
CHILD = message_id_of(GROUP, 2, CHILD_BODY)
MADE = [seen.Made(GROUP, ROOT, BODY, True), seen.Made(GROUP, CHILD, CHILD_BODY, True)]
SHARED = seen.Shared("a", "b", GROUP, True)
DELIVERED, PENDING = seen.State(2, 1, True), seen.State(1, 0, True)


def record(kind, *ids):
    """Return a record that lists identifiers."""
    return read_records(ids_record(kind, *ids))[0]


MESSAGE = read_records(message_record(GROUP, 1, BODY))[0]


def sent(what, mode="auto", peer="b", unstored=()):
    """Return that a sent something."""
    return seen.Sent("a", peer, what, mode, unstored)


def received(what, peer="b"):
    """Return that a received something."""
    return seen.Received("a", peer, what)


def told(message_id, order, body=None):
    """Return that the application of a was told of a delivery."""
    return seen.Reported("a", GROUP, message_id, order, body)


def see(law, *observations, step_us=1):
    """Show all observations; return the law that the last one breaks, or None. No other one may break any."""
    return broken_by_last([law()], observations, [Instant(number * step_us) for number in range(len(observations))])


def test_nothing_is_said_before_it_is_on_disk():
    """Whatever the record, what it names of the device's own messages stands in its store."""
    for what in (record(ACK, ROOT), MESSAGE, record(OFFER, ROOT)):
        assert see(laws.OnDiskFirst, sent(what)) is None
        assert see(laws.OnDiskFirst, sent(what, unstored=(ROOT,))) == "on-disk-first"


@pytest.mark.parametrize("what", [record(ACK, ROOT), MESSAGE, record(OFFER, ROOT)])
def test_only_members_are_told(what):
    """A message is named to those with whom its group is shared, while it is."""
    gone = seen.Shared("a", "b", GROUP, False)

    assert see(laws.SharedOnly, *MADE, SHARED, sent(what)) is None
    assert see(laws.SharedOnly, *MADE, sent(what)) == "shared-only"
    assert see(laws.SharedOnly, *MADE, SHARED, sent(what, peer="c")) == "shared-only"
    assert see(laws.SharedOnly, *MADE, SHARED, gone, sent(what)) == "shared-only"
    assert see(laws.SharedOnly, SHARED, sent(what)) == "shared-only"
    assert see(laws.SharedOnly, sent(record(REQUEST, ROOT))) is None


def test_requests_answer_offers():
    """What this peer has offered may be requested, once per offer, and not after a restart."""
    offer, request = received(record(OFFER, ROOT)), sent(record(REQUEST, ROOT))

    assert see(laws.AskedFor, offer, request) is None
    assert see(laws.AskedFor, request) == "asked-for"
    assert see(laws.AskedFor, received(record(OFFER, ROOT), "c"), request) == "asked-for"
    assert see(laws.AskedFor, offer, request, request) == "asked-for"
    assert see(laws.AskedFor, offer, request, offer, request) is None
    assert see(laws.AskedFor, offer, seen.Started("a", {}), request) == "asked-for"


def test_acknowledgements_have_a_cause():
    """Each ACK answers an OFFER or a MESSAGE; after a restart the last one may come again."""
    ack = sent(record(ACK, ROOT))

    for cause in (received(record(OFFER, ROOT, ROOT)), received(MESSAGE)):
        assert see(laws.AskedFor, cause, ack) is None
        assert see(laws.AskedFor, cause, ack, ack) == "asked-for"
        assert see(laws.AskedFor, cause, cause, ack, ack) is None
        assert see(laws.AskedFor, cause, ack, seen.Started("a", {}), ack) is None
        assert see(laws.AskedFor, cause, ack, seen.Started("a", {}), ack, ack) == "asked-for"
    assert see(laws.AskedFor, ack) == "asked-for"


def test_modes_are_kept():
    """Batch mode offers nothing, interactive mode sends what was asked for since the last copy; auto is free."""
    offer, asked = record(OFFER, ROOT), received(record(REQUEST, ROOT))

    assert see(laws.ModeKept, sent(offer, "batch")) == "mode-kept"
    assert see(laws.ModeKept, sent(offer, "interactive")) is None
    assert see(laws.ModeKept, sent(MESSAGE, "interactive")) == "mode-kept"
    assert see(laws.ModeKept, asked, sent(MESSAGE, "interactive")) is None
    assert see(laws.ModeKept, asked, sent(MESSAGE, "interactive"), sent(MESSAGE, "interactive")) == "mode-kept"
    assert see(laws.ModeKept, asked, sent(offer, "interactive"), sent(MESSAGE, "interactive")) == "mode-kept"
    for mode in ("auto", "batch"):
        assert see(laws.ModeKept, sent(MESSAGE, mode)) is None


def test_three_copies_in_a_second_are_too_many():
    """Two copies within the base interval, more only on a new connection or when shared anew."""
    copy = sent(MESSAGE)

    assert see(laws.Paced, copy, copy) is None
    assert see(laws.Paced, copy, copy, copy) == "paced"
    assert see(laws.Paced, copy, copy, copy, step_us=500_000) is None
    assert see(laws.Paced, copy, sent(MESSAGE, peer="c"), copy) is None
    for begin in (seen.LineUp("a", "b"), SHARED):
        assert see(laws.Paced, copy, copy, begin, copy) is None
    assert see(laws.Paced, *[sent(record(OFFER, ROOT))] * 9) is None


def test_bodies_are_those_of_their_authors():
    """What applications get, and what is sent on, is what somebody made."""
    assert see(laws.Faithful, *MADE, told(ROOT, 1, BODY)) is None
    assert see(laws.Faithful, *MADE, told(ROOT, 1, None)) is None
    assert see(laws.Faithful, *MADE, told(ROOT, 1, CHILD_BODY)) == "faithful"
    assert see(laws.Faithful, *MADE, sent(MESSAGE)) is None
    assert see(laws.Faithful, sent(MESSAGE)) == "faithful"


class TestCausalOrder:
    """Applications are told once, dependencies first."""

    def test_dependencies_come_first(self):
        """A child behind its parent, and never before or without it."""
        assert see(laws.CausalOrder, *MADE, told(ROOT, 1), told(CHILD, 2)) is None
        assert see(laws.CausalOrder, *MADE, told(CHILD, 1)) == "causal-order"

    def test_once_and_in_ascending_order(self):
        """No message twice, no number that goes back."""
        assert see(laws.CausalOrder, *MADE, told(ROOT, 1), told(ROOT, 2)) == "causal-order"
        assert see(laws.CausalOrder, *MADE, told(ROOT, 5), told(CHILD, 4)) == "causal-order"

    def test_what_no_client_takes_is_not_delivered(self):
        """A body that is none of its format, or of a message that nobody made."""
        bad = seen.Made(GROUP, CHILD, b"\x02", True)

        assert see(laws.CausalOrder, bad, told(CHILD, 1)) == "causal-order"
        assert see(laws.CausalOrder, told(CHILD, 1)) == "causal-order"
        assert see(laws.CausalOrder, bad._replace(has_dependencies=False), told(CHILD, 1)) is None

    def test_restart_forgets_nothing_that_was_told(self):
        """What the application was told is still delivered, with the same number."""
        for states, law in (({ROOT: DELIVERED}, None), ({}, "causal-order"), ({ROOT: PENDING}, "causal-order")):
            assert see(laws.CausalOrder, *MADE, told(ROOT, 1), seen.Started("a", states)) == law
        moved = seen.State(2, 2, True)
        assert see(laws.CausalOrder, *MADE, told(ROOT, 1), seen.Started("a", {ROOT: moved})) == "causal-order"
        assert see(laws.CausalOrder, *MADE, told(ROOT, 1), seen.Started("b", {})) is None

    def test_restart_may_swallow_the_news(self):
        """A crash between disk and application leaves a parent untold; its child may come all the same."""
        assert see(laws.CausalOrder, *MADE, seen.Started("a", {ROOT: DELIVERED}), told(CHILD, 2)) is None
        assert see(laws.CausalOrder, *MADE, seen.Started("a", {ROOT: PENDING}), told(CHILD, 2)) == "causal-order"
        assert see(laws.CausalOrder, *MADE, seen.Started("a", {ROOT: DELIVERED}), told(CHILD, 1)) == "causal-order"


def test_offers_are_remembered_up_to_a_bound():
    """At most a thousand requests follow what was received in one breath."""
    ids = [bytes([number % 256, number // 256]) * 16 for number in range(1_001)]

    assert see(laws.Bounded, sent(record(REQUEST, *ids[:1_000]))) is None
    assert see(laws.Bounded, sent(record(REQUEST, *ids))) == "bounded"
    assert see(laws.Bounded, sent(record(REQUEST, *ids[:600])), sent(record(REQUEST, *ids[600:]))) == "bounded"
    between = received(record(OFFER, ROOT))
    assert see(laws.Bounded, sent(record(REQUEST, *ids[:600])), between, sent(record(REQUEST, *ids[600:]))) is None


@pytest.mark.parametrize(("offered", "law"), [(2_000, None), (2_001, "bounded")])
def test_sizes_are_bounded(offered, law):
    """A thousand offers per peer are remembered."""
    sizes = {"offered": offered, "peers": 2, "pending": 0, "messages": 0}

    assert see(laws.Bounded, Sized("a", sizes)) == law


def test_members_agree_on_what_is_delivered():
    """Everybody has the same deliveries; what is pending or invalid may be anybody's own."""
    both = {ROOT: DELIVERED, CHILD: seen.State(2, 2, False)}

    assert see(laws.Agreed, seen.Compared(GROUP, {"a": both, "b": dict(reversed(both.items()))})) is None
    assert see(laws.Agreed, seen.Compared(GROUP, {"a": both, "b": {ROOT: DELIVERED}})) == "agreed"
    assert see(laws.Agreed, seen.Compared(GROUP, {"a": both, "b": {**both, CHILD: PENDING}})) == "agreed"
    assert (
        see(laws.Agreed, seen.Compared(GROUP, {"a": {ROOT: DELIVERED}, "b": {ROOT: DELIVERED, CHILD: PENDING}})) is None
    )


def test_village_has_one_checker_of_each_law():
    """All of them look on, each under a name of its own."""
    names = [law.name for law in laws.bsp_invariants()]

    assert len(names) == len(set(names)) == 10
