"""Laws of protocols.strata.judged."""

import pytest

from tests.protocols.strata.build import ALICE, BOB, MEDIA_HASH, NOW, claim, did, photo, post, signed, unsigned
from tests.protocols.strata.drive import Drive
from waystation.core.facts import PacketJudged, PacketStored


def facts_of(body, kind=PacketJudged, **fields):
    """Return the facts of one kind that a published body leads to."""
    drive = Drive(**fields)
    drive.publish(drive.connect(), body)
    return [fact for fact in drive.facts if isinstance(fact, kind)]


def test_an_accepted_packet():
    """Everything the pipeline counts by, and nothing of the content."""
    sent = post(expires_at=NOW + 9)

    assert facts_of(sent.body) == [
        PacketJudged(
            "strata",
            "accepted",
            None,
            did(ALICE).encode(),
            None,
            "client",
            len(sent.canonical),
            packet_id=sent.packet_id,
            content_type="POST",
            packet_ts=NOW - 10,
            received_at=NOW,
            expires_at=NOW + 9,
            store_seq=1,
            latency_us=0,
        )
    ]


def test_a_refused_packet():
    """Code and detail of the refusal, and no place in the store."""
    fact = facts_of(signed(unsigned(), BOB))[0]

    assert (fact.verdict, fact.detail, fact.store_seq, fact.received_at) == (
        "invalid_signature",
        "bad_signature",
        None,
        NOW,
    )


def test_a_packet_without_author_is_no_fact():
    """What has no shape has no author to count it under."""
    assert facts_of({"version": 1}) == []


@pytest.mark.parametrize(
    ("origin", "told", "reason"),
    [
        ("UNKNOWN", "UNKNOWN", None),
        ("SOFTWARE", "SOFTWARE", "missing_client_attestation"),
        ("a stranger's word", "OTHER", "unknown_origin_type"),
    ],
)
def test_origins(origin, told, reason):
    """The claim in words of ours, and why it is not believed."""
    fact = facts_of(signed(photo(claim(origin, None if origin == "UNKNOWN" else MEDIA_HASH))))[0]

    assert (fact.origin, fact.downgrade) == (told, reason)


def test_latency_counts_until_the_disk():
    """From the frame to the verdict, the wait for the disk included."""
    drive = Drive()
    drive.hold_commits = True
    drive.send(drive.connect(), {"type": "PUBLISH", "packet": post().body})
    drive.wall_s += 2
    drive.commit_held()

    fact = next(fact for fact in drive.facts if isinstance(fact, PacketJudged))
    assert (fact.latency_us, fact.received_at) == (2_000_000, NOW)


def test_the_relay_that_delivered_it_is_named():
    """A replica's fact and row say from whom it came."""
    drive = Drive()
    drive.replicate(post(), NOW, source=did(BOB))

    fact = next(fact for fact in drive.facts if isinstance(fact, PacketJudged))
    assert (fact.relay, fact.source, drive.rows()[0].source) == (did(BOB).encode(), "peer", did(BOB))


def test_the_archive_gets_the_signed_bytes():
    """Canonical packet, its times, and the key that verified it."""
    sent = post(expires_at=NOW + 9)

    assert facts_of(sent.body, PacketStored) == [
        PacketStored(
            "strata",
            sent.packet_id,
            NOW,
            did(ALICE),
            "POST",
            NOW - 10,
            NOW + 9,
            ALICE.public,
            sent.canonical,
        )
    ]
