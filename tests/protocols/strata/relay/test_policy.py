"""Laws of protocols.strata.policy."""

import pytest

from tests.protocols.strata.build import ALICE, BOB, MEDIA_HASH, claim, did, packet_of, photo, post, signed
from tests.protocols.strata.drive import Drive
from waystation.core.dids import identity_of
from waystation.core.instant import Instant
from waystation.protocols.strata.refusals import Code, Refusal
from waystation.protocols.strata.relay.policy import Policy, Throttle, never_waits, reason_of

POST = post()
PHOTO = packet_of(signed(photo(claim("UNKNOWN", None))))


@pytest.mark.parametrize(
    ("policy", "packet", "code"),
    [
        (Policy(), POST, None),
        (Policy([did(ALICE)]), POST, Code.BLOCKED_AUTHOR),
        (Policy([did(BOB)]), POST, None),
        (Policy((), [POST.body["packet_id"]]), POST, Code.BLOCKED_CONTENT),
        (Policy((), [POST.body["packet_id"]]), PHOTO, None),
        (Policy((), (), [MEDIA_HASH]), PHOTO, Code.BLOCKED_CONTENT),
        (Policy((), (), [MEDIA_HASH]), POST, None),
        (Policy((), ["0x12", "nonsense"], ["nonsense"]), PHOTO, None),
    ],
)
def test_what_is_refused(policy, packet, code):
    """Authors, packets and media on a list are refused, and nothing else."""
    refusal = policy.refuses(packet)

    assert (refusal.code if refusal is not None else None) is code


@pytest.mark.parametrize(
    "policy", [Policy([did(ALICE)]), Policy((), [PHOTO.body["packet_id"]]), Policy((), (), [MEDIA_HASH])]
)
def test_what_is_stored_already_is_no_longer_served(policy):
    """A list holds from now on: not in history, not live to one who was behind, not by id; taken back, all is there."""
    drive = Drive()
    behind, later = drive.connect(), drive.connect()
    drive.subscribe(behind)
    drive.stall(behind)
    drive.publish(drive.connect(), post("first", BOB))
    drive.publish(drive.connect(), PHOTO)
    path = f"/strata/packets/{PHOTO.body['packet_id']}"
    drive.relay.use_policy(policy)
    drive.drain(behind)
    drive.subscribe(later)
    declined = drive.get(path)[0]
    drive.relay.use_policy(Policy())

    assert len(drive.events(behind)) == len(drive.events(later)) == 1
    assert (declined, drive.get(path)[0]) == (404, 200)


def test_a_blocked_author_is_refused_by_configuration():
    """The lists of the settings hold from the start, for other relays' packets too."""
    drive = Drive(blocked_authors=[did(ALICE)])

    assert drive.publish(drive.connect(), POST)["code"] == "blocked_author"
    assert drive.replicate(POST, 0).refusal.code is Code.BLOCKED_AUTHOR


def test_a_list_changed_while_a_packet_is_on_its_way():
    """Its publisher gets the OK that the disk made true, and no subscriber gets the packet."""
    drive = Drive()
    publisher, reader = drive.connect(), drive.connect()
    drive.subscribe(reader)
    drive.hold_commits = True
    drive.send(publisher, {"type": "PUBLISH", "packet": POST.body})
    drive.relay.use_policy(Policy([did(ALICE)]))
    drive.commit_held()

    assert drive.got[publisher][-1]["type"] == "OK"
    assert drive.events(reader) == []


def test_who_has_to_wait_is_told_how_long():
    """With the code of every other rate; whoever has no name, or need not wait, goes on."""
    throttle = Throttle(lambda identity, _now: 7 if identity == ALICE.public else 0)
    refusal = throttle.refuses(did(ALICE), Instant(0))

    assert (refusal.code, refusal.detail, refusal.extra) == (Code.RATE_LIMITED, "policy", (("retry_after", 7),))
    assert throttle.refuses(did(BOB), Instant(0)) is throttle.refuses(None, Instant(0)) is None
    assert Throttle(never_waits).refuses(did(ALICE), Instant(0)) is None
    assert identity_of("did:web:example.org") == b"did:web:example.org"


def test_publisher_and_author_who_wait_are_refused():
    """A client that authenticated waits whatever it publishes, an author whoever publishes it; others go on."""
    asked = []

    def waits(identity, _now):
        asked.append(identity)
        return 9 if identity == ALICE.public else 0

    drive = Drive(waits=waits)
    named, anonymous = drive.connect(), drive.connect()
    drive.auth(named)
    answers = [drive.publish(named, post("a", BOB)), drive.publish(anonymous, POST)]
    fine = drive.publish(anonymous, post("b", BOB))

    assert {(answer["code"], answer["retry_after"]) for answer in answers} == {("rate_limited", 9)}
    assert fine["type"] == "OK"
    assert asked == [ALICE.public, ALICE.public, BOB.public]
    drive.replicate(POST, 0)
    assert drive.store.packets.known(POST.packet_id)


def test_one_packet_counts_once():
    """Who publishes its own packet is asked about once, and a forged packet costs its author nothing."""
    asked = []
    drive = Drive(waits=lambda identity, _now: bool(asked.append(identity)))
    drive.auth(peer := drive.connect())
    drive.publish(peer, POST)
    forged = post("forged", BOB).body | {"signature": POST.body["signature"]}
    drive.publish(drive.connect(), forged)

    assert asked == [ALICE.public]


def test_refusals_of_rules_are_told_apart():
    """The journal names a published rule's refusals by a word of their own, and others by their code."""
    assert reason_of(Refusal(Code.RATE_LIMITED, "policy")) == "policy_rate"
    assert reason_of(Refusal(Code.RATE_LIMITED, "publish")) == "rate_limited"
