"""What key events may cost others: nothing that was promised leaves because of them, however many are published."""

import pytest

from tests.protocols.strata.build import ALICE, ALICE_RECOVERY, BOB, NOW, did, key, post, signed, unsigned
from tests.protocols.strata.drive import Drive
from tests.protocols.strata.relay.test_retention import key_event
from waystation.protocols.strata.limits import StrataLimits
from waystation.protocols.strata.relay.directory import StaticKey

MIB = 1_048_576
RECOVERING = {
    did(ALICE): [StaticKey(ALICE.public), StaticKey(ALICE_RECOVERY.public, recovery=True)],
}


def adds(pair, count):
    """Return key events in which an author adds so many keys."""
    return [key_event("ADD", f"k{number}", pair, key(1 + number), did(pair)) for number in range(count)]


def revokes(pair, count, padding="x" * 7_000):
    """Return key events in which an author revokes keys that it never had."""
    return [
        key_event("REVOKE", f"none{number}", pair, author=did(pair), revoked_at=NOW, reason=padding)
        for number in range(count)
    ]


def answers_to(drive, bodies, address="192.0.2.9"):
    """Return code and detail of each answer, "OK" where it is one."""
    peer = drive.connect(address)
    answers = [drive.publish(peer, body) for body in bodies]
    return ["OK" if each["type"] == "OK" else (each["code"], each.get("detail")) for each in answers]


def test_key_events_push_no_packet_out():
    """However much key events hold, packets have the whole of their own space."""
    drive = Drive(rate_limits=False, retention_mib=1)
    posts = [post(f"{number}") for number in range(5)]
    answers_to(drive, [each.body for each in posts])
    for number in range(20):
        answers_to(drive, revokes(key(900 + number), 8))
    assert drive.store.packets.bytes_kept() > MIB
    drive.pass_time(120)

    assert {each.packet_id for each in posts} <= {row.packet_id for row in drive.rows()}


def test_packets_beyond_their_space_go_although_key_events_have_room():
    """The space of packets is what the operator said, no more."""
    drive = Drive(rate_limits=False, retention_mib=1)
    answers_to(drive, [post("x" * 200_000 + f"{number}").body for number in range(7)])
    drive.pass_time(60)

    assert len(drive.rows()) == 5


def test_author_without_packets_has_few_key_events():
    """Eight are stored of a DID that has published nothing else; with its first packet it has room for the rest."""
    drive = Drive(rate_limits=False)
    events = adds(ALICE, 10)

    assert answers_to(drive, events[:9]) == ["OK"] * 8 + [("invalid_schema", "key_events_unpublished")]
    assert answers_to(drive, [post().body, events[9]]) == ["OK", "OK"]


def test_relay_that_the_operator_named_brings_them_all():
    """A replica or an import loses no rotation of an author whose packets have aged out."""
    drive = Drive(rate_limits=False)
    for body in adds(ALICE, 12):
        drive.replicate(body, NOW - 100)

    assert len(drive.rows()) == 12
    assert answers_to(drive, adds(ALICE, 13)[12:]) == [("invalid_schema", "key_events_unpublished")]


def test_recovery_keys_have_their_room_without_packets():
    """Whoever has an author's ordinary key cannot take the room of its recovery."""
    drive = Drive(rate_limits=False, static_dids=RECOVERING)
    answers_to(drive, adds(ALICE, 8))
    revoke = key_event("REVOKE", "k1", ALICE_RECOVERY, author=did(ALICE), revoked_at=NOW)

    assert answers_to(drive, [revoke]) == ["OK"]


def test_space_of_key_events_is_bounded():
    """Authors without packets get half of it, and those with packets go on in the other half, until it is full."""
    drive = Drive(rate_limits=False, key_events_mib=1)
    refused = ("rate_limited", "key_events_space")
    unpublished = [each for number in range(10) for each in revokes(key(900 + number), 8)]
    answers = answers_to(drive, unpublished)

    assert answers[-1] == refused
    assert drive.store.packets.bytes_held() <= MIB // 2
    assert answers_to(drive, [post().body, *revokes(ALICE, 1)]) == ["OK", "OK"]
    published = answers_to(drive, revokes(ALICE, 80)[1:])
    assert (published[0], published[-1]) == ("OK", refused)
    assert drive.store.packets.bytes_held() <= MIB


@pytest.mark.parametrize("authenticates", [False, True])
def test_key_events_have_an_allowance_of_their_own(authenticates):
    """It is small, and all identities of one address share it; packets are not counted in it."""
    limits = StrataLimits(key_events_per_minute=3, key_events_per_minute_anonymous=3)
    drive = Drive(limits=limits)
    answers = []
    for number in range(5):
        peer = drive.connect("192.0.2.7")
        if authenticates:
            drive.auth(peer, key(800 + number))
        answers.append(drive.publish(peer, adds(key(900 + number), 1)[0]))

    assert [each["type"] for each in answers] == ["OK", "OK", "OK", "ERROR", "ERROR"]
    assert (answers[-1]["code"], answers[-1]["detail"], answers[-1]["limit"]) == ("rate_limited", "key_events", 3)
    assert drive.publish(peer, post())["type"] == "OK"
    drive.pass_time(60)
    assert drive.publish(peer, adds(key(950), 1)[0])["type"] == "OK"


def test_event_of_an_unknown_word_is_refused():
    """What no version of the chain applies is not kept for ever."""
    odd = key_event("NOTHING", "keys-1", ALICE)

    assert answers_to(Drive(), [odd]) == [("invalid_schema", "event")]


def test_approval_of_an_ordinary_key_is_refused():
    """Only a recovery key approves a recovery."""
    target = {"target_event": post().body["packet_id"]}
    by_ordinary = signed(unsigned({"type": "RECOVERY_APPROVAL"} | target), ALICE)
    by_recovery = signed(unsigned({"type": "RECOVERY_APPROVAL"} | target), ALICE_RECOVERY)
    drive = Drive(static_dids=RECOVERING)

    assert answers_to(drive, [by_ordinary, by_recovery]) == [("invalid_signature", "recovery_key_demanded"), "OK"]
    assert answers_to(drive, [signed(unsigned({"type": "RECOVERY_APPROVAL"} | target, BOB), BOB)]) == [
        ("invalid_signature", "recovery_key_demanded")
    ]


def test_refused_key_event_leaves_nothing():
    """An author whose next key event is refused goes on with the keys it has."""
    drive = Drive(rate_limits=False)
    answers_to(drive, adds(ALICE, 9))
    by_ninth = signed(post().body, key(9))

    assert answers_to(drive, [by_ninth, post().body]) == [("invalid_signature", "bad_signature"), "OK"]
    assert len(drive.relay._intake._authors.events(did(ALICE))) == 8
