"""Laws of protocols.strata.intake; the order of checks is that of specs/strata.md 6."""

import pytest

from tests.protocols.strata.build import ALICE, BOB, NOW, did, packet, photo, post, signed, unsigned
from tests.protocols.strata.drive import Drive
from waystation.core.effects import Commit, Send, Verify
from waystation.core.facts import PacketJudged, PacketStored
from waystation.protocols.strata.refusals import NOT_STORED
from waystation.protocols.strata.relay.directory import StaticKey
from waystation.protocols.strata.relay.intake import CHECKS_PER_VERIFY_MAX, CHECKS_UNDER_WAY_MAX, Candidate, Verdict
from waystation.protocols.strata.relay.policy import Policy

PINNED = {"did:strata:revoked": [StaticKey(ALICE.public, revoked_at=NOW - 400)]}


def attestation(number, attestation_id="a", target="0x" + "1" * 64, pair=ALICE):
    """Return an attestation packet; ``number`` makes packets of one attestation differ."""
    content = {"type": "ATTESTATION", "target_packet": target, "attestation": {"attestation_id": attestation_id}}
    return packet(content, pair, nonce=f"{number}")


def sent(drive, peer, body):
    """Hand in a PUBLISH without letting anything happen, and return the effects."""
    drive.relay.receive(peer, b'{"type":"PUBLISH","packet":%b}' % body.canonical, drive.now)
    return drive.relay.take()


FAULTS = [
    ("too_large", {"pad": "x" * 262_144}),
    ("version", {"version": 2}),
    ("blocked", {"author_id": did(BOB)}),
    ("id", {}),
    ("time", {"timestamp": NOW + 301}),
    ("author", {"author_id": "did:strata:zero_cool"}),
    ("signature", {"signature": "0x" + "00" * 64}),
]
ANSWERS = {
    "too_large": ("packet_too_large", "canonical_size"),
    "version": ("invalid_schema", "version"),
    "blocked": ("blocked_author", None),
    "id": ("invalid_signature", "packet_id_mismatch"),
    "time": ("invalid_timestamp", "future"),
    "author": ("invalid_signature", "unresolved_author"),
    "signature": ("invalid_signature", "bad_signature"),
}


@pytest.mark.parametrize("first", range(len(FAULTS)))
def test_the_first_failure_answers(first):
    """A packet with every fault from some step on is refused for the one that comes first."""
    wanted = {}
    for name, fields in reversed(FAULTS[first:]):
        if name not in {"id", "signature"}:
            wanted |= fields
    body = signed(unsigned(**wanted))
    names = [name for name, _ in FAULTS[first:]]
    if "id" in names:
        body["packet_id"] = "0x" + "0" * 64
    body["signature"] = FAULTS[-1][1]["signature"]
    drive = Drive()
    drive.relay.use_policy(Policy([did(BOB)]))
    answer = drive.publish(drive.connect(), body)

    assert (answer["code"], answer.get("detail")) == ANSWERS[names[0]]


def test_nothing_is_told_before_the_disk_has_spoken():
    """Between the check and the commit there is no OK and no EVENT; then the publisher hears first."""
    drive = Drive()
    publisher, reader = drive.connect(), drive.connect()
    drive.subscribe(reader, limit=0)
    drive.hold_commits = True
    silence = drive.send(publisher, {"type": "PUBLISH", "packet": post().body})
    assert silence == drive.events(reader) == []
    assert not drive.relay.settled()
    commit = drive.commits.pop()
    drive.store.commit(commit.changes)
    drive.relay.committed(commit.ticket, drive.now)
    order = [effect.peer for effect in drive.relay.take() if isinstance(effect, Send)]

    assert order == [publisher, reader]
    assert drive.relay.settled()


def test_signatures_gather_while_checks_are_under_way():
    """Two checks at most are out; what comes meanwhile goes together in the next one."""
    drive = Drive(rate_limits=False)
    peer = drive.connect()
    posts = [post(f"{number}") for number in range(CHECKS_PER_VERIFY_MAX + 10)]
    asked = [effect for each in posts for effect in sent(drive, peer, each) if isinstance(effect, Verify)]
    assert [len(each.checks) for each in asked] == [1] * CHECKS_UNDER_WAY_MAX
    drive.relay.verified(asked[0].ticket, [0], drive.now)
    drive.relay.verified(asked[1].ticket, [0], drive.now)
    effects = drive.relay.take()

    asked = [effect for effect in effects if isinstance(effect, Verify)]
    assert [len(each.checks) for each in asked] == [CHECKS_PER_VERIFY_MAX, 8]
    commits = [effect for effect in effects if isinstance(effect, Commit)]
    assert [len(commit.changes) for commit in commits] == [2]


def test_a_copy_of_what_is_on_its_way_waits_for_the_same_disk():
    """Its OK says duplicate, and comes not before the first one's."""
    drive = Drive()
    first, second = drive.connect(), drive.connect()
    drive.hold_commits = True
    drive.send(first, {"type": "PUBLISH", "packet": post().body})
    drive.send(second, {"type": "PUBLISH", "packet": post().body})
    assert len(drive.got[first]) == len(drive.got[second]) == 1
    drive.commit_held()

    assert "duplicate" not in drive.got[first][-1]
    assert drive.got[second][-1]["duplicate"] is True
    assert len(drive.rows()) == 1


def test_a_copy_with_a_broken_signature_is_no_copy():
    """The id does not bind the signature, so a known packet with another one is checked (steps 7 and 10)."""
    drive = Drive()
    peer = drive.connect()
    drive.publish(peer, post())
    broken = post().body | {"signature": "0x" + "00" * 64}

    assert drive.publish(peer, broken)["detail"] == "bad_signature"


def test_signatures_in_upper_case_are_the_same():
    """They are accepted, and stored and served in lower case (D4)."""
    drive = Drive()
    peer = drive.connect()
    body = post().body
    shouted = body | {"signature": "0x" + body["signature"][2:].upper()}
    first, second = drive.publish(peer, shouted), drive.publish(peer, body)
    drive.subscribe(peer)

    assert (first["type"], second["duplicate"]) == ("OK", True)
    assert drive.events(peer)[0]["packet"] == body


@pytest.mark.parametrize(("fields", "seconds"), [({"expires_at": NOW + 5}, 6), ({}, 100_000)])
def test_a_duplicate_is_one_however_old(fields, seconds):
    """A stored packet that would be too old or expired by now is a duplicate, not an error."""
    drive = Drive()
    peer = drive.connect()
    drive.publish(peer, post(**fields))
    drive.pass_time(seconds)

    assert drive.publish(peer, post(**fields))["duplicate"] is True


def test_attestations_count_once():
    """The same attestation in another packet is a duplicate of the first, until author, id or target differ."""
    drive = Drive()
    peer = drive.connect()
    first = attestation(1)
    drive.publish(peer, first)
    again = drive.publish(peer, attestation(2))

    assert (again["duplicate"], again["duplicate_of"]) == (True, first.body["packet_id"])
    for other in (attestation(3, "b"), attestation(4, target="0x" + "2" * 64), attestation(5, pair=BOB)):
        assert "duplicate" not in drive.publish(peer, other)
    assert len(drive.rows()) == 4


def test_attestations_on_their_way_count_once_too():
    """The answer to the second waits for the first's commit, since it promises that the attestation is kept."""
    drive = Drive()
    peer = drive.connect()
    drive.hold_commits = True
    drive.send(peer, {"type": "PUBLISH", "packet": attestation(1).body})
    early = drive.send(peer, {"type": "PUBLISH", "packet": attestation(2).body})
    drive.commit_held()

    assert early == []
    assert [got.get("duplicate_of") for got in drive.got[peer][1:]] == [None, attestation(1).body["packet_id"]]
    assert len(drive.rows()) == 1


def test_consensus_metrics_count_once():
    """An observation of one author about one packet at one time is told once."""
    drive = Drive()
    peer = drive.connect()
    content = {"type": "CONSENSUS_METRIC", "target_packet": "0x" + "1" * 64, "observed_at": NOW}
    answers = [drive.publish(peer, packet(content, nonce=f"{n}")) for n in range(2)]
    other = drive.publish(peer, packet(content | {"observed_at": NOW + 1}))

    assert ["duplicate_of" in answer for answer in (*answers, other)] == [False, True, False]


def test_replicas_may_be_older():
    """What another relay delivers may be as old as the backfill window, not older."""
    drive = Drive()
    old, too_old = post("old", timestamp=NOW - 604_800), post("too old", timestamp=NOW - 604_801)

    assert drive.replicate(old, NOW - 604_800) is None
    assert drive.replicate(too_old, NOW - 604_801).refusal.detail == "too_old"
    assert [(row.received_at, row.stored_at, row.source) for row in drive.rows()] == [(NOW - 604_800, NOW, did(BOB))]


def test_replicas_go_through_the_whole_pipeline():
    """A tampered packet of a relay is refused like a client's, and nothing is stored."""
    drive = Drive()
    drive.replicate(signed(unsigned(), BOB), NOW)
    broken = drive.replicate(post().body | {"nonce": "x"}, NOW)
    bare = drive.replicate(signed(photo(None)), NOW)

    assert (broken.refusal.detail, bare.refusal.detail) == ("packet_id_mismatch", "provenance_header_required")
    assert [fact.detail for fact in drive.facts if isinstance(fact, PacketJudged)] == ["bad_signature"]
    assert drive.rows() == []


def test_key_windows_go_by_the_credible_receive_time():
    """A replica counts by when it was first seen: before its key was revoked it was good."""
    drive = Drive(static_dids=PINNED)
    body = signed(unsigned(author_id="did:strata:revoked", timestamp=NOW - 500))
    drive.replicate(body, NOW - 200)
    fresh = drive.publish(drive.connect(), body)

    assert fresh.get("duplicate") is True
    assert drive.publish(drive.connect(), signed(unsigned(author_id="did:strata:revoked")))["code"] == "key_revoked"


def test_earlier_witness_has_its_verdict_after_its_commit():
    """A replica that only lowers a receipt time waits for the disk, too: one that refuses gets it offered again."""
    drive = Drive()
    drive.publish(drive.connect(), post())
    drive.hold_commits = True
    verdicts = []
    intake, witness = drive.relay._intake, Candidate(post().body, verdicts.append, drive.now, 1_000, witness=NOW - 100)
    at_once = intake.offer(witness, drive.wall_s)
    drive.settle()
    (refused,) = drive.commits
    drive.relay.not_committed(refused.ticket, drive.now)
    drive.commits.clear()

    assert at_once is None
    assert verdicts == [Verdict(NOT_STORED)]
    assert drive.rows()[0].received_at == NOW


def test_copy_of_a_packet_whose_commit_hangs_waits_for_it():
    """NODE-HUNG: a copy is not refused while nobody knows whether its packet is kept; another packet is."""
    drive = Drive()
    drive.hold_commits = True
    verdicts = []

    def offer(body):
        drive.relay._intake.offer(Candidate(body, verdicts.append, drive.now, 1_000), drive.wall_s)
        drive.settle()

    offer(post().body)
    offer(post().body)
    offer(post(text="another").body)
    overtaken = drive.commits[1:]
    del drive.commits[1:]
    for commit in overtaken:
        drive.relay.not_committed(commit.ticket, drive.now)
    refused = list(verdicts)
    drive.settle()
    drive.commit_held()

    assert refused == [Verdict(NOT_STORED)]
    assert [verdict.duplicate for verdict in verdicts[1:]] == [False, True]
    assert len(drive.rows()) == 1


def test_sequence_numbers_rise_with_the_order_of_acceptance():
    """Each stored packet has the next number, after a restart too, and refused ones take none."""
    drive = Drive()
    drive.fill(2)
    drive.publish(drive.connect(), signed(unsigned(), BOB))
    again = drive.restarted()
    again.fill(2, BOB)

    assert [row.seq for row in again.rows()] == [1, 2, 3, 4]


def test_facts_tell_each_verdict_once():
    """One fact per judged packet, and one for the archive per stored one, with the key that signed it."""
    drive = Drive()
    peer = drive.connect()
    for body in (post().body, post().body, signed(unsigned(), BOB), {"version": 1}):
        drive.publish(peer, body)

    judged = [fact.verdict for fact in drive.facts if isinstance(fact, PacketJudged)]
    stored = [(fact.packet_id, fact.signer) for fact in drive.facts if isinstance(fact, PacketStored)]
    assert judged == ["accepted", "duplicate", "invalid_signature"]
    assert stored == [(post().packet_id, ALICE.public)]


def test_nothing_is_remembered_of_what_has_been_decided():
    """After the commit nothing of a packet is held in memory, whatever became of it."""
    drive = Drive(rate_limits=False)
    peer = drive.connect()
    for number in range(20):
        drive.publish(peer, attestation(number, f"{number % 10}"))
        drive.publish(peer, signed(unsigned(n=number), BOB))

    intake = drive.relay._intake
    assert len(intake) == 0
    assert not intake._pending_ids
    assert not intake._pending_marks
    assert not intake._committing
    assert not drive.relay.authorizer._authors._pending
