"""Laws of protocols.strata.clients."""

import pytest

from tests.protocols.strata.build import BOB, CLIENT, NOW, claim, client_attested, did, packet, photo, signed, unsigned
from tests.protocols.strata.drive import Drive
from waystation.protocols.strata.limits import StrataLimits
from waystation.protocols.strata.relay.directory import StaticKey

NAMED = "did:strata:camera_app"


def manifest(*entries, pair=CLIENT, client_id=None, **fields):
    """Return a CLIENT_MANIFEST."""
    content = {"type": "CLIENT_MANIFEST", "client_id": client_id or did(pair), "public_keys": list(entries)}
    return packet(content, pair, **fields)


def entry(pair=CLIENT, valid_from=NOW - 100, valid_until=None, **fields):
    """Return a key of a manifest."""
    public = "0x" + pair.public.hex()
    return {"key_id": "k", "public_key": public, "valid_from": valid_from, "valid_until": valid_until} | fields


def reason_of(drive, pair=CLIENT, **fields):
    """Return why a picture attested with a key is downgraded, None when it is not."""
    body = signed(client_attested(photo(claim("SOFTWARE"), nonce=f"{len(drive.facts)}"), pair, **fields))
    answer = drive.publish(drive.connect(), body)
    assert answer["type"] == "OK"
    return answer.get("provenance_downgrade", {}).get("reason")


def test_a_clients_own_key_counts_without_a_manifest():
    """D14: who has published no manifest speaks by the key that it is."""
    assert reason_of(Drive()) is None


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([entry()], None),
        ([entry(valid_from=NOW + 300)], None),
        ([entry(valid_until=NOW - 300)], None),
        ([entry(valid_until=0)], None),
        ([entry(BOB), entry()], None),
        ([entry(valid_from=NOW + 301)], "unknown_client"),
        ([entry(valid_until=NOW - 301)], "unknown_client"),
        ([entry(BOB)], "invalid_client_attestation"),
        ([], "unknown_client"),
        ([entry(valid_from="1")], "unknown_client"),
        ([entry(valid_until="x")], "unknown_client"),
        ([entry(public_key="0x12")], "unknown_client"),
        ([entry(public_key="zz" * 32)], "unknown_client"),
        ([entry(public_key=7)], "unknown_client"),
        ([7, None, [], entry()], None),
    ],
)
def test_a_manifest_says_which_keys_count(entries, reason):
    """Only its keys whose window holds now, give or take the skew; broken entries are passed over."""
    drive = Drive()
    drive.publish(drive.connect(), manifest(*entries))

    assert reason_of(drive) == reason


def test_a_manifest_without_a_list_has_no_keys():
    """It may hold anything, and then it vouches for nothing."""
    drive = Drive()
    drive.publish(
        drive.connect(), packet({"type": "CLIENT_MANIFEST", "client_id": did(CLIENT), "public_keys": 7}, CLIENT)
    )

    assert reason_of(drive) == "unknown_client"


def test_the_newest_manifest_counts():
    """It replaces the one before as soon as it is stored."""
    drive = Drive()
    peer = drive.connect()
    drive.publish(peer, manifest(entry(BOB)))
    before = reason_of(drive, BOB)
    drive.publish(peer, manifest(entry(CLIENT)))

    assert (before, reason_of(drive, BOB), reason_of(drive)) == (None, "invalid_client_attestation", None)


def test_a_manifest_of_another_is_refused():
    """Only a client itself says which keys it has (D8)."""
    drive = Drive()
    content = {"type": "CLIENT_MANIFEST", "client_id": did(CLIENT), "public_keys": [entry(BOB)]}
    answer = drive.publish(drive.connect(), signed(unsigned(content, BOB), BOB))

    assert (answer["code"], answer["detail"]) == ("invalid_schema", "binding")


def test_a_pinned_client_counts_by_its_pinned_key():
    """A client whose DID is a name speaks by the operator's key; without one it is unknown."""
    pinned = Drive(static_dids={NAMED: [StaticKey(CLIENT.public)]})

    assert reason_of(pinned, client_id=NAMED) is None
    assert reason_of(Drive(), client_id=NAMED) == "unknown_client"


@pytest.mark.parametrize(
    "static",
    [
        StaticKey(CLIENT.public, NOW + 301),
        StaticKey(CLIENT.public, 0, NOW - 301),
        StaticKey(CLIENT.public, 0, revoked_at=NOW - 301),
        StaticKey(CLIENT.public, recovery=True),
    ],
)
def test_a_pinned_key_outside_its_window_vouches_for_nothing(static):
    """Not begun, over, revoked, or kept for recovery: the client has no key."""
    drive = Drive(static_dids={NAMED: [static]})

    assert reason_of(drive, client_id=NAMED) == "unknown_client"


def test_a_revoked_key_of_a_client_vouches_for_nothing():
    """The key inside its DID is good until the client itself revokes it."""
    drive = Drive()
    key_id = f"{did(CLIENT)}#keys-1"
    revoke = packet({"type": "KEY_EVENT", "event": "REVOKE", "key_id": key_id, "revoked_at": NOW - 400}, CLIENT)
    before = reason_of(drive)
    drive.publish(drive.connect(), revoke)

    assert (before, reason_of(drive)) == (None, "unknown_client")


def test_a_replica_is_judged_as_of_its_witness():
    """A picture that was attested in time stays believed on every relay that gets it later."""
    drive = Drive()
    drive.publish(drive.connect(), manifest(entry(valid_until=NOW + 10)))
    drive.pass_time(1_000)
    body = signed(client_attested(photo(claim("SOFTWARE"))))
    drive.replicate(body, NOW)
    late = reason_of(drive)

    assert [row.downgrade for row in drive.rows() if row.source] == [b""]
    assert late == "unknown_client"


def test_clients_remembered_are_bounded():
    """Those forgotten are looked up again, with the same answer."""
    drive = Drive(limits=StrataLimits(client_manifests=2))
    drive.publish(drive.connect(), manifest(entry(BOB)))
    first = reason_of(drive, BOB)
    for number in range(5):
        reason_of(drive, client_id=f"did:strata:app_{number}")

    assert (first, reason_of(drive, BOB)) == (None, None)
    assert len(drive.relay._intake._clients._manifests) == 2
