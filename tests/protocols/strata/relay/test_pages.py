"""Laws of protocols.strata.pages; rows 6, 23, 27, 29 and 39 of the requirements try more of them."""

import pytest

from tests.protocols.strata.build import BOB, NOW, RELAY, did, packet, packet_of, post, vector
from tests.protocols.strata.drive import Drive
from waystation.protocols.strata.relay.pages import SNAPSHOTS_MAX
from waystation.protocols.strata.relay.policy import Policy

SNAPSHOT = "/.well-known/strata/bootstrap-snapshot"


def snapshot(number, pair=RELAY, **fields):
    """Return a BOOTSTRAP_SNAPSHOT packet."""
    content = {"type": "CONFIG", "scope": "BOOTSTRAP_SNAPSHOT", "source_id": did(pair), "number": number}
    return packet(content, pair, **fields)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/strata",
        "/strata/packets/",
        "/strata/packets/0x12",
        "/strata/packets/" + "0" * 66,
        "/strata/packets/0x" + "AB" * 32,
        "/strata/packets/0x" + "ab" * 32,
        "/strata/did-docs/zgWBtWFq5nhxD9wmG79hX3DFvyAdi317fos96KMCgpE24QZ",
        "/strata/did-docs/",
        "/strata/descriptor",
        SNAPSHOT,
        "/strata/packets/%00%ff%zz",
        "/" + "x" * 100_000,
        "?x=1",
    ],
)
def test_what_is_not_there(path):
    """404 with a reason in JSON, whatever the path is."""
    status, body = Drive().get(path)

    assert (status, list(body)) == (404, ["error"])


def test_queries_are_ignored():
    """What stands behind the question mark does not change which packet is meant."""
    drive = Drive()
    drive.publish(drive.connect(), post())

    assert drive.get(f"/strata/packets/{post().body['packet_id']}?x=1")[1]["packet"] == post().body


def test_documents_are_found_by_hash():
    """What the operator knows others may fetch, as it was read."""
    entry = vector("did-doc-hash")
    drive = Drive(documents=[entry["document"]])

    assert drive.get(f"/strata/did-docs/{entry['expect']['did_doc_hash']}") == (200, entry["document"])


def test_headers():
    """JSON that every page may read and nobody keeps."""
    answer = Drive().relay.answer("/.well-known/strata-relay.json", "a", Drive().now)

    assert dict(answer.headers) == {
        "Content-Type": "application/json",
        "Access-Control-Allow-Origin": "*",
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
    }


def test_the_manifest_says_what_is_configured():
    """A client can see limits before it meets them."""
    drive = Drive(max_packet_bytes=9_999, max_backfill_s=90_000, clock_skew_s=60, retention_days=30)
    status, manifest = drive.get("/.well-known/strata-relay.json")

    assert status == 200
    assert (manifest["relay_id"], manifest["ws_endpoint"], manifest["descriptor_packet_id"]) == (did(RELAY), None, None)
    assert manifest["clock_skew_seconds"] == 60
    assert manifest["limits"]["max_packet_bytes"] == 9_999
    assert manifest["limits"]["publish_per_minute"] == {"anonymous": 30, "authenticated": 600, "replicating": 6_000}
    assert manifest["policy"]["max_backfill_seconds"] == 90_000
    assert manifest["policy"]["default_retention_days"] == 30
    assert manifest["policy"]["protected_accounts"] == "none"
    assert manifest["replication"]["accepts_peer_subscriptions"] is False


def test_snapshots_are_newest_first():
    """One, or as many as asked for; expired ones and those of blocked authors are left out."""
    drive = Drive(rate_limits=False)
    peer = drive.connect()
    for number in range(5):
        drive.publish(peer, snapshot(number))
    drive.publish(peer, snapshot(9, BOB))
    drive.publish(peer, snapshot(8, expires_at=NOW + 1))
    drive.publish(peer, packet({"type": "CONFIG", "scope": "OTHER"}))
    drive.relay.use_policy(Policy([did(BOB)]))
    drive.pass_time(2)
    shown = drive.get(f"{SNAPSHOT}s?limit=3")[1]

    assert [each["packet"]["content"]["number"] for each in shown] == [4, 3, 2]
    assert {each["observed_at"] for each in shown} == {NOW}
    assert drive.get(SNAPSHOT)[1] == shown[0]
    assert packet_of(shown[0]["packet"]).id_matches


def test_other_configs_push_no_snapshot_out():
    """Snapshots are found by themselves, however many CONFIGs of other kinds are newer (STRATA-SNAPSHOTS)."""
    drive = Drive(rate_limits=False)
    peer = drive.connect()
    drive.publish(peer, snapshot(1))
    for number in range(201):
        drive.publish(peer, packet({"type": "CONFIG", "number": number}, BOB))

    assert drive.get(SNAPSHOT)[1]["packet"]["content"]["number"] == 1


def test_each_source_comes_before_a_second_one_of_any():
    """Whoever publishes many snapshots hides nobody else's."""
    drive = Drive(rate_limits=False)
    peer = drive.connect()
    drive.publish(peer, snapshot(1))
    for number in range(60):
        drive.publish(peer, snapshot(100 + number, BOB))
    shown = drive.get(f"{SNAPSHOT}s?limit=3")[1]

    assert [each["packet"]["content"]["number"] for each in shown] == [159, 1, 158]


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("", 50),
        ("?limit=1", 1),
        ("?limit=0", 1),
        ("?limit=999", 50),
        ("?limit=x", 50),
        ("?limit=-1", 50),
        ("?a=1&limit=2", 2),
    ],
)
def test_snapshots_are_bounded(query, count):
    """Never more than 50, and nonsense is the same as nothing."""
    drive = Drive(rate_limits=False)
    peer = drive.connect()
    for number in range(SNAPSHOTS_MAX + 5):
        drive.publish(peer, snapshot(number))

    assert len(drive.get(f"{SNAPSHOT}s{query}")[1]) == count


def test_http_is_limited_per_address():
    """The 601st GET of a minute is 429 and says when to come back; another address is not touched."""
    drive = Drive()
    answers = [drive.relay.answer("/", "a", drive.now).status for _ in range(601)]
    refused = drive.relay.answer("/", "a", drive.now)

    assert answers == [404] * 600 + [429]
    assert dict(refused.headers)["Retry-After"] == "1"
    assert drive.relay.answer("/", "b", drive.now).status == 404
