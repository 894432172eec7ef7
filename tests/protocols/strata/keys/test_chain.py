"""Laws of protocols.strata.chain."""

import pytest

from tests.protocols.strata.build_keys import (
    DAY,
    OWN,
    SKEW,
    T0,
    approval,
    change,
    event,
    key,
    packet_id,
    ring_with_recovery,
)
from waystation.protocols.strata.keys.chain import replay
from waystation.protocols.strata.keys.keyring import (
    EventStatus,
    Keyring,
    Method,
    candidates,
    check_signer,
    hidden_after,
    implicit_ring,
    is_hidden,
    next_change,
)

GENESIS = implicit_ring(OWN, key("own"))
IN_FORCE, PENDING, OVERRIDDEN = EventStatus.IN_FORCE, EventStatus.PENDING, EventStatus.OVERRIDDEN
UNDONE, NO_EFFECT = EventStatus.UNDONE, EventStatus.NO_EFFECT


def run(*events, genesis=GENESIS, now=T0 + 30 * DAY):
    """Return the ring after some events."""
    return replay(genesis, events, SKEW, now)


def statuses(ring):
    """Return what became of each event, in order."""
    return [standing for _, standing in ring.statuses]


def method(ring, fragment):
    """Return a method by its fragment, or None."""
    return next((each for each in ring.methods if each.key_id == f"{OWN}#{fragment}"), None)


def revoke(fragment, revoked_at):
    """Return the content of a REVOKE."""
    return change("REVOKE", fragment, revoked_at=revoked_at)


def test_add_brings_a_new_method():
    """The new key stands before the old one and has its own window."""
    ring = run(event(1, T0, "own", change("ADD", "two", valid_until=T0 + 9)))

    assert ring.methods == (Method(f"{OWN}#two", key("two"), T0, T0 + 9), GENESIS.methods[0])
    assert candidates(ring) == (key("two"), key("own"))


@pytest.mark.parametrize(("old_until", "expected"), [(0, T0 + 50), (T0 + 10, T0 + 10), (T0 + 99, T0 + 50)])
def test_rotate_ends_the_old_key_at_the_new_valid_from(old_until, expected):
    """D6: valid_until = min(old, new valid_from)."""
    ring = run(
        event(1, T0, "own", change("ADD", "two", valid_until=old_until)),
        event(2, T0 + 1, "own", change("ROTATE", "three", replaces="two", valid_from=T0 + 50)),
    )

    assert method(ring, "two").valid_until == expected
    assert method(ring, "three").valid_from == T0 + 50


def test_rotate_of_a_key_that_is_not_there_only_adds():
    """There is nothing to end."""
    ring = run(event(1, T0, "own", change("ROTATE", "two", replaces="ghost")))

    assert [each.key_id for each in ring.methods] == [f"{OWN}#two", f"{OWN}#keys-1"]
    assert method(ring, "keys-1").valid_until is None


def test_revoke_sets_revoked_at_and_only_moves_it_back():
    """The earliest revocation holds."""
    ring = run(
        event(1, T0, "own", change("ADD", "two")),
        event(2, T0 + 10, "own", revoke("two", T0 + 10)),
        event(3, T0 + 20, "own", revoke("two", T0 + 20)),
        event(4, T0 + 30, "own", revoke("two", T0 + 5)),
    )

    assert method(ring, "two").revoked_at == T0 + 5
    assert statuses(ring) == [IN_FORCE, IN_FORCE, NO_EFFECT, IN_FORCE]


def test_revoke_may_be_signed_by_the_key_it_revokes():
    """It holds, is served, and nothing of that key follows."""
    ring = run(
        event(1, T0 + 5000, "own", revoke("keys-1", T0)),
        event(2, T0 + 5001, "own", change("ADD", "two")),
    )

    assert statuses(ring) == [IN_FORCE, NO_EFFECT]
    assert method(ring, "keys-1").revoked_at == T0
    assert not is_hidden(ring, packet_id(1), key("own"), T0 + 5000, SKEW)
    assert is_hidden(ring, packet_id(9), key("own"), T0 + 5000, SKEW)


def test_stranger_has_no_say():
    """An event by a key that is not in the ring changes nothing."""
    ring = run(event(1, T0, "thief", change("ADD", "two")))

    assert ring.methods == GENESIS.methods
    assert statuses(ring) == [NO_EFFECT]


def test_first_event_chains_to_a_genesis_method_that_has_begun():
    """One second before valid_from is too early, without skew."""
    late = Keyring(OWN, (Method(f"{OWN}#keys-1", key("own"), T0),))

    assert statuses(run(event(1, T0 - 1, "own", change("ADD", "two")), genesis=late)) == [NO_EFFECT]
    assert statuses(run(event(1, T0, "own", change("ADD", "two")), genesis=late)) == [IN_FORCE]


def test_added_key_signs_key_events_when_it_has_begun():
    """An event by a key announced for later has no say before that time."""
    add = event(1, T0, "own", change("ADD", "two", valid_from=T0 + 100))

    assert statuses(run(add, event(2, T0 + 99, "two", change("ADD", "three"))))[1] == NO_EFFECT
    assert statuses(run(add, event(2, T0 + 100, "two", change("ADD", "three"))))[1] == IN_FORCE


def test_ties_are_broken_by_seq():
    """In one second the first committed comes first."""
    ring = run(event(2, T0, "own", change("ADD", "x", key="b")), event(1, T0, "own", change("ADD", "x", key="a")))

    assert method(ring, "x").public == key("a")
    assert ring.orphans == (key("b"),)


def test_revoked_or_recovery_key_does_not_come_back_under_another_id():
    """ADD of such a key has no effect; renewal of an ordinary one has."""
    ring = run(
        event(1, T0, "own", change("ADD", "two")),
        event(2, T0 + 1, "own", revoke("two", T0 + 1)),
        event(3, T0 + 2, "own", change("ADD", "again", key="two")),
        event(4, T0 + 3, "own", change("ADD", "sly", key="r1")),
        event(5, T0 + 4, "own", change("ADD", "renewed", key="own")),
        genesis=ring_with_recovery(),
    )

    assert statuses(ring) == [IN_FORCE, IN_FORCE, NO_EFFECT, NO_EFFECT, IN_FORCE]


def test_unknown_event_word_has_no_effect():
    """It neither changes keys nor overrides a recovery."""
    later = {"type": "KEY_EVENT", "event": "SUSPEND", "key_id": f"{OWN}#keys-1"}
    ring = run(
        event(1, T0, "r1", change("ADD", "two")), event(2, T0 + 1, "own", later), genesis=ring_with_recovery(), now=T0
    )

    assert statuses(ring) == [PENDING, NO_EFFECT]


def test_back_dated_revoke_undoes_key_events_and_recomputes_the_chain():
    """What the stolen key added after revoked_at + skew is gone, and so is what those keys did."""
    ring = run(
        event(1, T0, "own", change("ADD", "phone")),
        event(2, T0 + 1000, "phone", change("ADD", "evil")),
        event(3, T0 + 1001, "evil", revoke("keys-1", T0 + 1001)),
        event(4, T0 + 1002, "phone", revoke("phone", T0 + 10)),
    )

    assert statuses(ring) == [IN_FORCE, UNDONE, NO_EFFECT, IN_FORCE]
    assert method(ring, "keys-1").revoked_at is None
    assert method(ring, "evil") is None
    assert set(hidden_after(ring)) == {(key("phone"), T0 + 10), (key("evil"), 0)}


@pytest.mark.parametrize(("after", "expected"), [(SKEW, IN_FORCE), (SKEW + 1, UNDONE)])
def test_undoing_begins_after_revoked_at_plus_skew(after, expected):
    """To the second."""
    ring = run(
        event(1, T0, "own", change("ADD", "phone")),
        event(2, T0 + after, "phone", change("ADD", "three")),
        event(3, T0 + 5000, "own", revoke("phone", T0)),
    )

    assert statuses(ring)[1] == expected


def test_new_key_may_revoke_the_one_it_replaced_as_of_before():
    """The ROTATE that gave the signer its key is spared, other events of the old key are not."""
    ring = run(
        event(1, T0 + 1000, "own", change("ADD", "evil")),
        event(2, T0 + 1001, "own", change("ROTATE", "two", replaces="keys-1")),
        event(3, T0 + 2000, "two", revoke("keys-1", T0)),
    )

    assert statuses(ring) == [UNDONE, IN_FORCE, IN_FORCE]
    assert check_signer(ring, key("two"), "POST", T0 + 2000, SKEW) is None
    assert not is_hidden(ring, packet_id(2), key("own"), T0 + 1001, SKEW)


def test_undoing_a_revocation_brings_back_what_it_undid():
    """A thief's back-dated REVOKE ends with the thief's key."""
    ring = run(
        event(1, T0, "own", change("ADD", "a")),
        event(2, T0 + 1, "own", change("ADD", "b")),
        event(3, T0 + 2000, "b", change("ADD", "c")),
        event(4, T0 + 3000, "a", revoke("b", T0 + 2)),
        event(5, T0 + 4000, "own", revoke("a", T0 + 2)),
    )

    assert statuses(ring) == [IN_FORCE, IN_FORCE, IN_FORCE, UNDONE, IN_FORCE]
    assert method(ring, "b").revoked_at is None
    assert method(ring, "c") is not None


def test_key_that_stands_twice_keeps_what_its_other_method_permits():
    """Revoking one id of a key does not undo what the other id allows."""
    ring = run(
        event(1, T0, "own", change("ADD", "again", key="own")),
        event(2, T0 + 2000, "own", change("ADD", "two")),
        event(3, T0 + 3000, "own", revoke("keys-1", T0 + 10)),
    )

    assert statuses(ring) == [IN_FORCE, IN_FORCE, IN_FORCE]


def test_recovery_spares_what_it_rests_on():
    """Approvals by a recovery key that the approved REVOKE takes away do not fall with it."""
    ring = run(
        event(1, T0 + 1000, "r1", revoke("r2", T0)),
        event(2, T0 + 1001, "r2", approval(1)),
        event(3, T0 + 1002, "r2", approval(9)),
        genesis=ring_with_recovery(2, 2),
    )

    assert statuses(ring) == [IN_FORCE, IN_FORCE, UNDONE]


def test_revoked_recovery_key_takes_its_consent_with_it():
    """What it signed waits on, one approval poorer, though its delay is over."""
    ring = run(
        event(1, T0, "r1", revoke("r2", T0 + DAY)),
        event(2, T0 + 1, "r2", change("ADD", "evil")),
        genesis=ring_with_recovery(2, 1),
    )

    assert statuses(ring) == [IN_FORCE, PENDING]
    assert ring.pending[0].approvals == 0


def test_clock_that_went_back_does_not_hold_up_what_is_due():
    """The newest event tells the time too."""
    ring = run(
        event(1, T0, "r1", change("ADD", "two")),
        event(2, T0 + 2 * DAY, "r2", approval(1)),
        genesis=ring_with_recovery(2, 2),
        now=T0,
    )

    assert statuses(ring) == [IN_FORCE, IN_FORCE]


def test_endless_undoing_fails_closed():
    """Past the bound of runs the ring is in conflict."""
    events, number, at = [], 0, T0
    for count in range(20):
        for content, signer in (
            (change("ADD", f"a{count}"), "own"),
            (change("ADD", f"b{count}", valid_from=T0), f"a{count}"),
            (revoke(f"a{count}", T0), "own"),
        ):
            number, at = number + 1, at + 1000
            events.append(event(number, at, signer, content))

    assert run(*events).conflict
    assert run(*events).methods == ()
    assert not run(*events[:30]).conflict


def test_recovery_signed_event_waits_for_the_delay():
    """Threshold 1: applied 24 h after it was received and not a second before."""
    recovery = event(1, T0, "r1", change("ADD", "two"))
    genesis = ring_with_recovery()

    before, after = (run(recovery, genesis=genesis, now=T0 + DAY - left) for left in (1, 0))

    assert statuses(before) == [PENDING]
    assert (before.pending[0].approvals, before.pending[0].threshold, before.pending[0].due_at) == (1, 1, T0 + DAY)
    assert next_change(before, T0) == T0 + DAY
    assert method(before, "two") is None
    assert statuses(after) == [IN_FORCE]
    assert after.pending == ()
    assert method(after, "two") is not None


def test_two_of_three_applies_after_two_and_the_delay():
    """Requirement 31: pending after one, applied after two and the delay; approvals never skip it."""
    genesis = ring_with_recovery(3, 2)
    recovery, second = event(1, T0, "r1", change("ADD", "two")), event(2, T0 + 60, "r2", approval(1))

    assert run(recovery, genesis=genesis).pending[0].due_at is None
    assert statuses(run(recovery, second, genesis=genesis, now=T0 + 60)) == [PENDING, IN_FORCE]
    assert statuses(run(recovery, second, genesis=genesis, now=T0 + DAY)) == [IN_FORCE, IN_FORCE]


def test_approval_after_the_delay_applies_at_once():
    """The delay counts from the event."""
    genesis = ring_with_recovery(3, 2)
    at = T0 + 2 * DAY
    ring = run(event(1, T0, "r1", change("ADD", "two")), event(2, at, "r3", approval(1)), genesis=genesis, now=at)

    assert statuses(ring) == [IN_FORCE, IN_FORCE]


def test_repeated_approvals_of_one_key_are_ignored():
    """The signer counts as one, however often it says so."""
    again = [event(count, T0 + count, "r1", approval(1)) for count in (2, 3)]
    ring = run(event(1, T0, "r1", change("ADD", "two")), *again, genesis=ring_with_recovery(3, 2))

    assert statuses(ring)[0] == PENDING
    assert ring.pending[0].approvals == 1


@pytest.mark.parametrize("approver", ["own", "stranger", "r3"])
def test_only_eligible_recovery_keys_approve(approver):
    """Neither an ordinary key, nor a stranger, nor a recovery key outside key_ids counts."""
    genesis = ring_with_recovery(3, 2, ("r1", "r2"))
    ring = run(event(1, T0, "r1", change("ADD", "two")), event(2, T0 + 1, approver, approval(1)), genesis=genesis)

    assert ring.pending[0].approvals == 1


def test_signer_outside_key_ids_does_not_count_as_one():
    """Its event needs the threshold from the others."""
    genesis = ring_with_recovery(3, 1, ("r1", "r2"))
    recovery = event(1, T0, "r3", change("ADD", "two"))

    assert statuses(run(recovery, genesis=genesis)) == [PENDING]
    assert statuses(run(recovery, event(2, T0 + 1, "r1", approval(1)), genesis=genesis)) == [IN_FORCE, IN_FORCE]


def test_approval_may_come_before_its_event():
    """Replication may bring them in either order."""
    ring = run(
        event(2, T0 - 5, "r2", approval(1)), event(1, T0, "r1", change("ADD", "two")), genesis=ring_with_recovery(2, 2)
    )

    assert statuses(ring) == [IN_FORCE, IN_FORCE]


def test_threshold_above_the_number_of_keys_never_applies():
    """Such a recovery event has no effect."""
    ring = run(event(1, T0, "r1", change("ADD", "two")), genesis=ring_with_recovery(2, 3))

    assert statuses(ring) == [NO_EFFECT]
    assert ring.pending == ()


@pytest.mark.parametrize(("after", "expected"), [(DAY - 1, OVERRIDDEN), (DAY, IN_FORCE)])
def test_ordinary_key_overrides_within_the_delay(after, expected):
    """Any key event of a non-recovery key stops what is pending; afterwards it is too late."""
    ring = run(
        event(1, T0, "r1", change("ADD", "evil")),
        event(2, T0 + after, "own", change("ADD", "two")),
        genesis=ring_with_recovery(),
    )

    assert statuses(ring) == [expected, IN_FORCE]


def test_revoking_the_pending_key_overrides():
    """The id is not in the ring yet; the word of the owner counts all the same."""
    ring = run(
        event(1, T0, "r1", change("ADD", "evil")),
        event(2, T0 + 9, "own", revoke("evil", T0 + 9)),
        genesis=ring_with_recovery(),
    )

    assert statuses(ring) == [OVERRIDDEN, NO_EFFECT]


def test_self_revocation_overrides_no_recovery():
    """Who revokes the lost key with itself still recovers."""
    ring = run(
        event(1, T0, "r1", change("ADD", "two")),
        event(2, T0 + 9, "own", revoke("keys-1", T0 + 9)),
        genesis=ring_with_recovery(),
    )

    assert statuses(ring) == [IN_FORCE, IN_FORCE]


def test_recovery_revokes_a_stolen_key_as_of_before():
    """Once applied, a recovery-signed REVOKE undoes what the thief did."""
    ring = run(
        event(1, T0 + 1000, "own", change("ADD", "evil")),
        event(2, T0 + 1001, "r1", revoke("keys-1", T0)),
        genesis=ring_with_recovery(),
    )

    assert statuses(ring) == [UNDONE, IN_FORCE]
    assert method(ring, "evil") is None
