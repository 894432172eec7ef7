"""Laws of protocols.bhumi.cache."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocols.bhumi.build import ALICE, BOB, limits_of, preimage
from waystation.core.instant import Instant
from waystation.protocols.bhumi.limits import DEFAULT_LIMITS
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.relay.cache import ResponseCache

HERE, THERE = bytes(ALICE.public), bytes(BOB.public)
TTL_MS = 300_000
TTL = TTL_MS * 1_000
T0 = Instant(1_000)


def cache(*, bind_recipient=True, **limits):
    """Return an empty cache with the default lifetime."""
    return ResponseCache(TTL_MS, limits_of(**limits), bind_recipient=bind_recipient)


def test_answer_is_found_until_its_time_is_over():
    """An entry answers for its whole lifetime and not a microsecond longer."""
    kept = cache()

    assert kept.keep_acked(HERE, preimage(1), b"reply", T0)
    assert kept.find(HERE, preimage(1), Instant(T0 + TTL - 1)).response == b"reply"
    assert kept.find(HERE, preimage(1), Instant(T0 + TTL)) is None


def test_other_recipient_finds_nothing():
    """The recipient is part of the key (BHUMI-C1)."""
    kept = cache()
    kept.keep_acked(HERE, preimage(1), b"reply", T0)

    assert kept.find(THERE, preimage(1), T0) is None


def test_letter_of_the_seed_ignores_the_recipient():
    """Unbound, the preimage alone is the key, for both kinds of entries."""
    kept = cache(bind_recipient=False)
    kept.keep_acked(HERE, preimage(1), b"acked", T0)
    kept.keep_carried(HERE, preimage(2), b"carried", T0)

    assert kept.find(THERE, preimage(1), T0).response == b"acked"
    assert kept.find(THERE, preimage(2), T0).response == b"carried"


@pytest.mark.parametrize("first", ["acked", "carried"])
@pytest.mark.parametrize("second", ["acked", "carried"])
def test_standing_entry_is_never_overwritten(first, second):
    """Whoever came first stays, whichever way the second came (BHUMI-L)."""
    kept = cache()
    keep = {"acked": kept.keep_acked, "carried": kept.keep_carried}
    keep[first](HERE, preimage(1), b"first", T0)
    refused = keep[second](HERE, preimage(1), b"second", T0)

    assert refused is (False if second == "acked" else Refusal.CARRIED_DUPLICATE)
    assert kept.find(HERE, preimage(1), T0).response == b"first"
    assert (len(kept), kept.total_bytes) == (1, 5)


@pytest.mark.parametrize("kind", ["acked", "carried"])
def test_expired_entry_makes_room_for_a_new_one(kind):
    """What has expired does not stand, even before it was swept."""
    kept = cache()
    keep = {"acked": kept.keep_acked, "carried": kept.keep_carried}[kind]
    keep(HERE, preimage(1), b"old", T0)
    later = Instant(T0 + TTL)
    keep(HERE, preimage(1), b"newer", later)

    assert kept.find(HERE, preimage(1), later).response == b"newer"
    assert (len(kept), kept.total_bytes) == (1, 5)


def test_answer_over_the_entry_limit_is_not_kept():
    """256 KiB are kept, one byte more is not (BHUMI-L)."""
    kept, largest = cache(), bytes(DEFAULT_LIMITS.cached_response_bytes)

    assert kept.keep_acked(HERE, preimage(1), largest, T0)
    assert not kept.keep_acked(HERE, preimage(2), largest + b"x", T0)
    assert kept.keep_carried(HERE, preimage(3), largest + b"x", T0) is Refusal.CARRIED_OVER_QUOTA


def test_carrier_has_a_quota_of_live_bytes():
    """4 MiB per identity; another identity has its own, and what expires or leaves gives room again."""
    kept, block = cache(), bytes(DEFAULT_LIMITS.cached_response_bytes)
    for number in range(16):
        assert kept.keep_carried(HERE, preimage(number), block, T0) is None
    over = kept.keep_carried(HERE, preimage(16), b"x", T0)
    other = kept.keep_carried(THERE, preimage(16), b"x", T0)
    kept.evict(kept.find(HERE, preimage(0), T0))

    assert (over, other) == (Refusal.CARRIED_OVER_QUOTA, None)
    assert kept.keep_carried(HERE, preimage(17), block, T0) is None


def test_carried_entries_leave_before_acked_ones():
    """Under pressure an upload never pushes out what a relay saw itself (BHUMI-L)."""
    kept = cache(cached_bytes=100)
    kept.keep_acked(HERE, preimage(1), bytes(40), T0)
    kept.keep_carried(THERE, preimage(2), bytes(40), T0)
    kept.keep_acked(HERE, preimage(3), bytes(40), T0)

    assert [kept.find(key, preimage(n), T0) is not None for key, n in ((HERE, 1), (THERE, 2), (HERE, 3))] == [
        True,
        False,
        True,
    ]
    assert kept.total_bytes == 80


def test_one_device_cannot_push_out_what_another_has_brought():
    """Who brings most loses its own: 66,048 empty answers of one connection cost its neighbours nothing (BHUMI-A2)."""
    kept = cache(cached_responses=1_000, carried_responses_per_identity=2_000)
    kept.keep_carried(THERE, preimage(0), b"an answer that somebody waits for", T0)
    for number in range(1, 3_000):
        kept.keep_carried(HERE, number.to_bytes(32, "big"), b"", T0)

    assert kept.find(THERE, preimage(0), T0) is not None
    assert len(kept) == 1_000


def test_number_of_carried_answers_of_one_device_is_bounded():
    """Empty answers count as well; what leaves gives room again."""
    kept = cache(carried_responses_per_identity=2)
    kept_or_not = [kept.keep_carried(HERE, preimage(number), b"", T0) for number in range(3)]
    kept.evict(kept.find(HERE, preimage(0), T0))

    assert kept_or_not == [None, None, Refusal.CARRIED_OVER_QUOTA]
    assert kept.keep_carried(HERE, preimage(3), b"", T0) is None


def test_oldest_acked_entry_leaves_when_only_acked_ones_are_left():
    """The entry count is a bound of its own; the one that would expire first goes."""
    kept = cache(cached_responses=2)
    for number in range(3):
        kept.keep_acked(HERE, preimage(number), b"x", Instant(T0 + number))

    assert len(kept) == 2
    assert kept.find(HERE, preimage(0), T0) is None


def test_evict_spares_a_newer_entry_of_the_same_key():
    """A receipt that comes late takes away only what it was for."""
    kept = cache()
    kept.keep_acked(HERE, preimage(1), b"old", T0)
    old = kept.find(HERE, preimage(1), T0)
    kept.evict(old)
    kept.keep_acked(HERE, preimage(1), b"new", T0)
    kept.evict(old)

    assert kept.find(HERE, preimage(1), T0).response == b"new"
    assert kept.total_bytes == 3


def test_empty_carried_answers_leave_without_a_trace():
    """An empty answer counts no bytes, and its end must not stumble over that."""
    kept = cache()
    for number in range(3):
        assert kept.keep_carried(HERE, preimage(number), b"", T0) is None
    assert kept.keep_carried(HERE, preimage(3), b"x", T0) is None
    kept.sweep(Instant(T0 + TTL))

    assert (len(kept), kept.total_bytes, kept._carried._shares, kept._carried._levels) == (0, 0, {}, {})


def test_next_expiry_is_the_oldest_of_both_kinds():
    """The sweeper is due with whichever entry expires first."""
    kept = cache()
    assert kept.next_expiry() is None
    kept.keep_acked(HERE, preimage(1), b"x", Instant(T0 + 5))
    kept.keep_carried(HERE, preimage(2), b"x", T0)

    assert kept.next_expiry() == T0 + TTL


_steps = st.lists(
    st.tuples(
        st.sampled_from(["ack", "carry", "evict", "sweep", "pass"]),
        st.sampled_from([HERE, THERE]),
        st.integers(0, 4),
        st.integers(0, 60),
    ),
    max_size=60,
)


@given(_steps)
def test_cache_equals_a_plain_dictionary(steps):
    """Under any script the cache finds what a dictionary with instants finds, and its counts add up."""
    kept, model, now = cache(), {}, T0
    for what, who, number, size in steps:
        key = (who, preimage(number))
        live = key in model and model[key][1] > now
        if what in {"ack", "carry"}:
            keep = kept.keep_acked if what == "ack" else kept.keep_carried
            keep(*key, bytes(size), now)
            if not live:
                model[key] = (bytes(size), now + TTL)
        elif what == "evict" and live:
            kept.evict(kept.find(*key, now))
            del model[key]
        elif what == "sweep":
            kept.sweep(now)
        else:
            now = Instant(now + size * TTL // 100)
        for (recipient, secret), (response, until) in model.items():
            found = kept.find(recipient, secret, now)
            assert (found.response if found else None) == (response if until > now else None)
    kept.sweep(Instant(now + TTL))

    assert (len(kept), kept.total_bytes, kept._carried._shares, kept._carried._levels) == (0, 0, {}, {})
