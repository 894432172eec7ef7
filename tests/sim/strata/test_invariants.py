"""Each law of a Strata world, with a history that breaks it and its nearest history that does not."""

import pytest

from tests.sim.strata.build import asked, caught_up, event, kept, made, published
from waystation.core.instant import Instant
from waystation.sim.invariants import ViolationError, Watch
from waystation.sim.observations import Sized, Unfulfilled
from waystation.sim.strata import observations as seen
from waystation.sim.strata.invariants import CREDIT_BYTES, strata_invariants

END = seen.PageEnded(0, 1, "end", has_more=False)
MORE = seen.PageEnded(0, 1, "more", has_more=True)


def broken(*history, upstreams=(None,), descending=(False,)):
    """Return the law that a history breaks, or None."""
    watch = Watch(strata_invariants(["did:strata:relay"], upstreams, descending))
    try:
        for observation in history:
            watch.observe(observation, Instant(0))
    except ViolationError as error:
        return error.invariant
    return None


def stored(*packets, relay=0, final=False):
    return seen.Stored(relay, packets, final)


def refused(code, detail="", *, rotated=False, wall_s=60):
    return seen.Refused(0, made(1).packet_id, code, detail, rotated, wall_s)


def sized(peak=0, *, settled=False, **sizes):
    return Sized(0, sizes, {"unsent_bytes_peak": peak}, settled)


@pytest.mark.parametrize(
    ("law", "history"),
    [
        ("promise-kept", [published(1, is_stored=False)]),
        ("promise-kept", [made(1), published(1), stored()]),
        ("only-signed", [stored(kept(1))]),
        ("only-signed", [asked(), event(1)._replace(is_signed=False)]),
        ("only-signed", [asked(), event(1)._replace(late_s=121)]),
        ("only-signed", [seen.Taken(0, made(1).packet_id, verified=False)]),
        ("only-signed", [seen.Blamed(0, "Violation", "expired")]),
        ("fair-verdict", [made(1, expires_at=61), refused("invalid_timestamp", "expired")]),
        ("fair-verdict", [made(1), refused("key_expired")]),
        ("fair-verdict", [made(1), refused("invalid_schema", rotated=True)]),
        ("no-gap", [made(1), published(1), caught_up(promised=1)]),
        ("no-gap", [made(1), stored(kept(1), final=True), caught_up(final=True)]),
        ("no-gap", [made(1, timestamp=9), stored(kept(1), final=True), caught_up(1, final=True)]),
        ("no-repeat", [asked(), event(1), event(1)]),
        ("no-repeat", [asked(), event(1, "a"), event(2, "b"), asked("a", line=2), event(1, "c", line=2)]),
        ("no-repeat", [asked(), event(1, "a"), MORE, asked("more", line=2), event(1, "c", line=2)]),
        ("history-order", [asked(), END, event(2), event(1)]),
        ("received-at", [made(1), asked(), event(1, told=99), stored(kept(1), final=True)]),
        ("credit", [sized(CREDIT_BYTES + 1)]),
        ("credit", [sized(settled=True, connections=1)]),
        ("liveness", [Unfulfilled("somebody")]),
    ],
)
def test_history_breaks_its_law(law, history):
    """Each of these histories breaks the law that it stands beside."""
    assert broken(*history) == law


@pytest.mark.parametrize(
    "history",
    [
        [made(1), published(1), stored(kept(1))],
        [stored(kept(1)._replace(author_id="did:strata:relay", content_type="RELAY_DESCRIPTOR"))],
        [asked(), event(1)._replace(late_s=120)],
        [made(1, expires_at=60), refused("invalid_timestamp", "expired")],
        [made(1), refused("key_expired", rotated=True)],
        [made(1), published(1), caught_up(promised=0)],
        [made(1), published(1), caught_up(1, promised=1)],
        [made(1, timestamp=9), published(1), caught_up(promised=1)],
        [made(1, expires_at=70), published(1), caught_up(promised=1)],
        [made(1), stored(kept(1), final=True), caught_up(floor=1, final=True)],
        [asked(), event(1), asked("lost", line=2), event(1, line=2)],
        [asked(), event(1, "a"), event(2), asked("a", line=2), event(2, "c", line=2)],
        [asked(), event(2, "a", order_at=100), event(3, "b", order_at=101), event(4, "c", order_at=99), END, event(5)],
        [asked(), event(9), MORE, asked("more"), event(3, "a")],
        [made(1), asked(), event(1), stored(kept(1), final=True)],
        [sized(CREDIT_BYTES, connections=7)],
        [sized(settled=True, scopes=3)],
    ],
)
def test_nearest_history_breaks_nothing(history):
    """These differ from the broken ones in one thing."""
    assert broken(*history) is None


def test_late_packets_come_by_number():
    """Behind the first part of history what came late is ordered by its number alone."""
    first = [asked(), event(5, "a", order_at=101)]

    assert broken(*first, event(2, "b", order_at=99), event(3, "c", order_at=98)) is None
    assert broken(*first, event(3, "b", order_at=99), event(2, "c", order_at=98)) == "history-order"


def test_reading_backwards_has_the_other_order():
    """Who asks for the newest first gets falling places."""
    down = [asked(), event(2, "a", order_at=101), event(1, "b")]

    assert broken(*down, descending=(True,)) is None
    assert broken(*down[:1], down[2], down[1], descending=(True,)) == "history-order"


def test_earlier_witness_must_be_believed_and_told():
    """A relay tells the time of its upstream when that is earlier, and nothing else."""
    packets = [made(1), stored(kept(1, order_at=90), final=True)]
    own, lowered = kept(1, order_at=100), kept(1, order_at=100, received_at=90)

    assert broken(*packets, stored(lowered, relay=1, final=True), upstreams=(None, 0)) is None
    assert broken(*packets, stored(own, relay=1, final=True), upstreams=(None, 0)) == "received-at"
    assert broken(*packets, stored(own, relay=1, final=True), upstreams=(None, None)) is None
    assert broken(made(1, expires_at=70), *packets[1:], stored(own, relay=1, final=True), upstreams=(None, 0)) is None


def test_relay_must_have_what_its_upstream_has():
    """What never expires is on both relays in the end; what does may be missing."""
    ends = [stored(kept(1), final=True), stored(relay=1, final=True)]

    assert broken(made(1), *ends, upstreams=(None, 0)) == "converged"
    assert broken(made(1), *ends, upstreams=(None, None)) is None
    assert broken(made(1, expires_at=70), *ends, upstreams=(None, 0)) is None
