from tests.protocols.strata.build import ALICE, NOW, did, post
from waystation.protocols.strata.client.inspection import CLOCK_SKEW_S, Fault, Inspected, inspect_packet, own_key
from waystation.protocols.strata.messages import Filters


def inspect(packet, filters=None, wall_s=NOW, keys_of=own_key):
    """Return the judgement of a packet as an EVENT brings it."""
    return inspect_packet({"packet": packet.body}, filters, NOW, wall_s, keys_of)


def test_expiry_is_blamed_only_beyond_the_skew_of_clocks():
    """Up to five minutes may be our clock's fault."""
    mortal = post(expires_at=NOW)

    assert not isinstance(inspect(mortal), Fault)
    assert inspect(mortal, wall_s=NOW + CLOCK_SKEW_S) == Fault("expired", "300 s ago", mortal.packet_id, blame=False)
    assert inspect(mortal, wall_s=NOW + CLOCK_SKEW_S + 1).blame


def test_filter_is_judged_on_signed_fields():
    """Author, type and time each count."""
    good = post()

    for filters in (Filters(("did:strata:x",)), Filters((), ("PROFILE",)), Filters(since=NOW), Filters(until=NOW - 11)):
        assert inspect(good, filters).reason == "outside_filter"
    assert inspect(good, Filters((did(ALICE),), ("POST",), NOW - 10, NOW - 10)).verified


def test_no_keys_at_all_verify_nothing():
    """An author whose key list is empty cannot have signed."""
    assert inspect(post(), keys_of=lambda _did, _at: ()).reason == "signature"
    assert not inspect(post(), keys_of=lambda _did, _at: None).verified


def test_packet_of_another_id_is_dropped_without_blame():
    """A relay that does not know the filter ``ids`` rightly sends everything else that matches (STRATA-IDS)."""
    one, other = post("one"), post("other")
    filters = Filters(types=("POST",), ids=(one.packet_id,))
    fault = inspect(other, filters)

    assert isinstance(inspect(one, filters), Inspected)
    assert (fault.reason, fault.blame) == ("outside_filter", False)
    assert inspect(other, Filters(types=("X",), ids=(one.packet_id,))).blame
