"""Laws of protocols.strata.policy."""

import pytest

from tests.protocols.strata.build import ALICE, BOB, MEDIA_HASH, claim, did, packet_of, photo, post, signed
from tests.protocols.strata.drive import Drive
from waystation.protocols.strata.policy import Policy
from waystation.protocols.strata.refusals import Code

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
