"""Laws of protocols.strata.keyring."""

import pytest

from tests.protocols.strata.build import refused
from tests.protocols.strata.build_keys import NAMED, OWN, SKEW, T0, change, key, packet_id, ring_with_recovery
from waystation.core.dids import encode_key_multibase
from waystation.protocols.strata.keys.keyring import (
    CANDIDATES_MAX,
    KEY_EVENTS_MAX,
    KEY_EVENTS_RESERVED,
    EventStatus,
    Keyring,
    Method,
    PendingEvent,
    RecoveryPolicy,
    candidates,
    check_signer,
    has_room,
    hidden_after,
    implicit_ring,
    is_hidden,
    next_change,
    read_key_event,
    whole_seconds,
)
from waystation.protocols.strata.refusals import Code, RefusedError


def ring_of(*methods, **fields):
    """Return a ring of methods given as (name, valid_from, valid_until, revoked_at, recovery)."""
    return Keyring(
        OWN, tuple(Method(f"{OWN}#{count}", key(each[0]), *each[1:]) for count, each in enumerate(methods)), **fields
    )


def verdict(ring, signer="a", received_at=T0, content_type="POST", skew=SKEW):
    """Return code and detail of a refusal, or None."""
    refusal = check_signer(ring, None if signer is None else key(signer), content_type, received_at, skew)
    return None if refusal is None else (refusal.code.value, refusal.detail)


NOT_YET, EXPIRED, REVOKED = ("key_not_yet_valid", ""), ("key_expired", ""), ("key_revoked", "")


def test_implicit_ring_is_open_for_ever():
    """A self-certifying DID signs from 0 on, without end."""
    ring = implicit_ring(OWN, key("own"))

    assert verdict(ring, "own", 0) is None
    assert verdict(ring, "own", 2**50) is None


@pytest.mark.parametrize(
    ("method", "received_at", "expected"),
    [
        (("a", 1000), 699, NOT_YET),
        (("a", 1000), 700, None),
        (("a", 0, 2000), 2300, None),
        (("a", 0, 2000), 2301, EXPIRED),
        (("a", 0, None, 2000), 2300, None),
        (("a", 0, None, 2000), 2301, REVOKED),
        (("a", 0, 1500, 2000), 1801, EXPIRED),
        (("a", 0, 3000, 2000), 2301, REVOKED),
    ],
)
def test_window_is_receive_time_with_skew_at_both_ends(method, received_at, expected):
    """A signature counts in [valid_from - skew, min(valid_until, revoked_at) + skew], to the second."""
    assert verdict(ring_of(method), received_at=received_at) == expected


def test_window_follows_the_configured_skew():
    """With 60 s of skew the 61st second is too late."""
    assert verdict(ring_of(("a", 0, 1000)), received_at=1060, skew=60) is None
    assert verdict(ring_of(("a", 0, 1000)), received_at=1061, skew=60) == EXPIRED


@pytest.mark.parametrize(
    ("method", "received_at", "expected"),
    [
        (("a", 1000), 999, NOT_YET),
        (("a", 1000), 1000, None),
        (("a", 0, None, 2000), 1999, None),
        (("a", 0, None, 2000), 2000, REVOKED),
        (("a", 0, 2000), 2300, None),
    ],
)
def test_key_event_needs_a_key_already_valid_and_not_revoked_at_receive_time(method, received_at, expected):
    """For a KEY_EVENT the beginning and a revocation have no tolerance."""
    assert verdict(ring_of(method), received_at=received_at, content_type="KEY_EVENT") == expected


def test_unverified_signature_is_bad():
    """No candidate verified, or a key that is not in the ring."""
    assert verdict(ring_of(("a", 0)), None) == ("invalid_signature", "bad_signature")
    assert verdict(ring_of(("a", 0)), "stranger") == ("invalid_signature", "bad_signature")


def test_ring_without_keys_is_unresolved():
    """No key found: unresolved_author."""
    assert verdict(Keyring(OWN, ())) == ("invalid_signature", "unresolved_author")


def test_two_heads_are_a_conflict_whoever_signs():
    """In conflict even a known key is refused."""
    assert verdict(ring_of(("a", 0), conflict=True)) == ("invalid_signature", "did_conflict")


@pytest.mark.parametrize("content_type", ["POST", "AUTH", "CLIENT_MANIFEST", "", "key_event"])
def test_recovery_keys_sign_only_key_events_and_approvals(content_type):
    """Anything else by a recovery key is refused by that name, in or out of its window."""
    ring = ring_of(("a", 0, None, None, True), ("b", T0 * 2, None, None, True))

    assert verdict(ring, content_type=content_type) == ("invalid_signature", "recovery_key_not_allowed")
    assert verdict(ring, "b", content_type=content_type) == ("invalid_signature", "recovery_key_not_allowed")
    assert verdict(ring, content_type="KEY_EVENT") is None
    assert verdict(ring, content_type="RECOVERY_APPROVAL") is None


def test_any_method_that_permits_wins():
    """A key that stands twice is good while one window holds; else the newest names the reason."""
    twice = ring_of(("a", 0, 1000), ("a", 5000))

    assert verdict(twice, received_at=900) is None
    assert verdict(twice, received_at=5000) is None
    assert verdict(twice, received_at=3000) == EXPIRED
    assert verdict(ring_of(("a", 5000), ("a", 0, 1000)), received_at=3000) == NOT_YET


@pytest.mark.parametrize(
    ("count", "threshold", "key_ids", "refused"),
    [
        (2, 2, (), False),
        (2, 3, (), True),
        (3, 2, ("r1",), True),
        (3, 2, ("r1", "r3"), False),
        (3, 2, ("r1", "x"), True),
    ],
)
def test_threshold_above_the_number_of_eligible_keys_is_refused(count, threshold, key_ids, refused):
    """Eligible are key_ids, or all recovery keys when there are none."""
    ring = ring_with_recovery(count, threshold, key_ids)

    expected = ("invalid_signature", "recovery_threshold") if refused else None
    assert verdict(ring, "r1", content_type="KEY_EVENT") == expected
    assert verdict(ring, "own", content_type="KEY_EVENT") is None


def test_revoked_recovery_key_is_not_eligible():
    """A revocation can leave fewer keys than the threshold."""
    ring = ring_of(("a", 0, None, None, True), ("b", 0, None, 9, True), policy=RecoveryPolicy(2))

    assert verdict(ring, content_type="KEY_EVENT") == ("invalid_signature", "recovery_threshold")


def test_candidates_are_newest_first_without_repeats():
    """Each key is tried once, revoked ones last."""
    ring = ring_of(("c", 0, None, 5), ("b", 0), ("a", 0), ("b", 0))

    assert candidates(ring) == (key("b"), key("a"), key("c"))
    assert candidates(ring_of(("a", 0, None, 1))) == (key("a"),)


def test_candidates_are_bounded_and_keep_room_for_recovery():
    """Sixteen at most; keys added by a thief do not push the older recovery keys out."""
    ring = ring_of(
        *((f"k{count}", 0) for count in range(40)), *((f"r{count}", 0, None, None, True) for count in range(3))
    )

    tried = candidates(ring)

    assert len(tried) == CANDIDATES_MAX == 16
    assert tried[:13] == tuple(key(f"k{count}") for count in range(13))
    assert tried[13:] == tuple(key(f"r{count}") for count in range(3))


def test_many_recovery_keys_leave_room_for_signing_keys():
    """Recovery keys take half of the room at most."""
    ring = ring_of(("a", 0), *((f"r{count}", 0, None, None, True) for count in range(30)))

    assert candidates(ring)[0] == key("a")
    assert len(candidates(ring)) == 9


def test_key_events_are_bounded_with_room_for_recovery():
    """An ordinary key fills the chain only so far; recovery keys fill it up."""
    ring = ring_with_recovery()
    full = KEY_EVENTS_MAX - KEY_EVENTS_RESERVED

    assert has_room(ring, key("own"), full - 1)
    assert not has_room(ring, key("own"), full)
    assert has_room(ring, key("r1"), KEY_EVENTS_MAX - 1)
    assert not has_room(ring, key("r1"), KEY_EVENTS_MAX)


def test_next_change_is_the_first_due_time_ahead():
    """Events without enough approvals and times gone by do not count."""
    pending = tuple(PendingEvent(packet_id(count), 0, 1, 1, due_at) for count, due_at in enumerate((None, 50, 40, 90)))

    assert next_change(ring_of(pending=pending), 40) == 50
    assert next_change(ring_of(pending=pending), 90) is None
    assert next_change(ring_of(), 0) is None


def test_revoked_keys_hide_what_came_after():
    """Packets received after revoked_at + skew are hidden; of a key revoked twice the later time counts."""
    ring = ring_of(("a", 0, None, 1000), ("b", 0), ("c", 0, None, 7), ("c", 0, None, 9), ("d", 0, None, 5), ("d", 0))

    assert hidden_after(ring) == ((key("a"), 1000), (key("c"), 9))
    assert not is_hidden(ring, packet_id(1), key("a"), 1300, SKEW)
    assert is_hidden(ring, packet_id(1), key("a"), 1301, SKEW)
    assert not is_hidden(ring, packet_id(1), key("b"), 1301, SKEW)


def test_orphans_hide_everything():
    """What was signed by a key whose ADD was undone is hidden from its beginning."""
    ring = ring_of(("b", 0), orphans=(key("x"),))

    assert hidden_after(ring) == ((key("x"), 0),)
    assert is_hidden(ring, packet_id(1), key("x"), T0, SKEW)


def test_event_in_force_stays_served():
    """A self-signed, back-dated REVOKE is served although its key was revoked before."""
    ring = ring_of(
        ("a", 0, None, 1000), statuses=((packet_id(1), EventStatus.IN_FORCE), (packet_id(2), EventStatus.UNDONE))
    )

    assert not is_hidden(ring, packet_id(1), key("a"), 9000, SKEW)
    assert is_hidden(ring, packet_id(2), key("a"), 9000, SKEW)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (0, 0),
        (7, 7),
        (1.7e9, 1_700_000_000),
        (2**53 - 1, 2**53 - 1),
        (2**53, None),
        (-1, None),
        (0.5, None),
        (float("inf"), None),
        (float("nan"), None),
        (True, None),
        ("1", None),
        (None, None),
    ],
)
def test_whole_seconds_go_by_value(value, seconds):
    """Whole numbers that are not negative, however they are spelled."""
    assert whole_seconds(value) == seconds


@pytest.mark.parametrize("name", ["ADD", "ROTATE", "REVOKE"])
def test_key_event_with_null_and_absent_options_is_read(name):
    """Optional members may be null; valid_until and revoked_at may be 0."""
    fields = {"replaces": "keys-1"} if name == "ROTATE" else {}
    content = change(name, "two", **fields, **({"revoked_at": 0} if name == "REVOKE" else {}))

    read_key_event(content | {"valid_until": 0, "reason": None}, OWN)
    read_key_event(content | {"valid_until": None, "reason": "lost"}, OWN)


def test_unknown_event_word_is_refused():
    """It would have no effect, and be kept for ever (STRATA-EVENTS)."""
    with refused(Code.INVALID_SCHEMA, "event"):
        read_key_event({"type": "KEY_EVENT", "event": "SUSPEND", "key_id": f"{OWN}#x"}, OWN)


ADD = {
    "type": "KEY_EVENT",
    "event": "ADD",
    "key_id": f"{OWN}#two",
    "public_key_multibase": encode_key_multibase(key("two")),
}
ADD |= {"valid_from": T0}
APPROVAL = {"type": "RECOVERY_APPROVAL", "target_event": "0x" + "ab" * 32}


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        (ADD | {"event": None}, "event"),
        (ADD | {"event": ""}, "event"),
        (ADD | {"key_id": None}, "key_id"),
        (ADD | {"key_id": OWN}, "key_id"),
        (ADD | {"key_id": OWN + "#"}, "key_id"),
        (ADD | {"key_id": OWN + "#" + "x" * 400}, "key_id"),
        (ADD | {"key_id": f"{NAMED}#two"}, "binding"),
        (ADD | {"replaces": f"{NAMED}#two"}, "binding"),
        (ADD | {"replaces": 4}, "replaces"),
        (ADD | {"event": "ROTATE"}, "replaces"),
        (ADD | {"valid_from": None}, "valid_from"),
        (ADD | {"valid_from": -1}, "valid_from"),
        (ADD | {"valid_until": "x"}, "valid_until"),
        (ADD | {"valid_until": T0 - 1}, "valid_until"),
        (ADD | {"revoked_at": "x"}, "revoked_at"),
        (ADD | {"event": "REVOKE"}, "revoked_at"),
        (ADD | {"public_key_multibase": None}, "public_key_multibase"),
        (ADD | {"public_key_multibase": 3}, "public_key_multibase"),
        (ADD | {"public_key_multibase": "0x" + "ab" * 32}, "public_key_multibase"),
        (ADD | {"reason": 3}, "reason"),
        (APPROVAL | {"target_event": None}, "target_event"),
        (APPROVAL | {"target_event": "ab" * 32}, "target_event"),
        (APPROVAL | {"target_event": "0x" + "AB" * 32}, "target_event"),
        (APPROVAL | {"target_event": "0x" + "ab" * 31}, "target_event"),
        (APPROVAL | {"target_event": "0x0x" + "ab" * 31}, "target_event"),
        (APPROVAL | {"key_id": f"{NAMED}#r1"}, "binding"),
        (APPROVAL | {"approved_at": "x"}, "approved_at"),
        (APPROVAL | {"note": 3}, "note"),
    ],
)
def test_malformed_key_event_is_refused(content, detail):
    """The refusal names the field, or the binding."""
    with pytest.raises(RefusedError) as caught:
        read_key_event(content, OWN)

    assert (caught.value.refusal.code, caught.value.refusal.detail) == (Code.INVALID_SCHEMA, detail)
