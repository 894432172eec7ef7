"""Laws of protocols.strata.authors; rows 30 and 31 of the requirements and test_upkeep try more of them."""

from tests.protocols.strata.build import ALICE, ALICE_KEY_2, BOB, NOW, did, key, post, signed, unsigned
from tests.protocols.strata.drive import Drive
from waystation.core.dids import encode_key_multibase
from waystation.protocols.strata.keys import keyring
from waystation.protocols.strata.relay.directory import StaticKey
from waystation.protocols.strata.relay.intake import Candidate

CONFLICTED = "did:strata:two_heads"


def add(fragment, pair, by=ALICE, **fields):
    """Return a KEY_EVENT that adds a key to Alice's."""
    content = {"type": "KEY_EVENT", "event": "ADD", "key_id": f"{did(ALICE)}#{fragment}", "valid_from": NOW - 100}
    return signed(unsigned(content | {"public_key_multibase": encode_key_multibase(pair.public)} | fields), by)


def document(name, pair):
    """Return a genesis document."""
    method = {
        "id": f"{CONFLICTED}#{name}",
        "type": "Ed25519VerificationKey2020",
        "controller": CONFLICTED,
        "public_key_hex": pair.public.hex(),
        "valid_from": 0,
    }
    return {"id": CONFLICTED, "verification_method": [method], "created_at": NOW, "prev_did_doc_hash": None}


def test_two_heads_fail_closed():
    """Two genesis documents of one DID make every packet and every AUTH of it invalid."""
    drive = Drive(documents=[document("a", ALICE), document("b", BOB)])
    peer = drive.connect()
    for pair in (ALICE, BOB):
        answer = drive.publish(peer, signed(unsigned(author_id=CONFLICTED), pair))
        assert (answer["code"], answer["detail"]) == ("invalid_signature", "did_conflict")

    assert drive.auth(peer, author_id=CONFLICTED)[0]["detail"] == "did_conflict"


def test_a_key_event_that_changes_the_keys_during_a_check():
    """A packet whose check is out when a REVOKE is accepted is judged by the keys after it."""
    drive = Drive()
    peer = drive.connect()
    drive.publish(peer, add("two", ALICE_KEY_2))
    revoke = {"type": "KEY_EVENT", "event": "REVOKE", "key_id": f"{did(ALICE)}#two", "revoked_at": NOW - 400}
    drive.relay._intake.offer(candidate_of(drive, signed(unsigned(revoke))), NOW)
    drive.relay._intake.offer(candidate_of(drive, signed(post().body, ALICE_KEY_2)), NOW)
    drive.settle()

    assert [fact.verdict for fact in drive.facts if type(fact).__name__ == "PacketJudged"][-2:] == [
        "key_revoked",
        "accepted",
    ]
    assert [row.content_type for row in drive.rows()] == ["KEY_EVENT", "KEY_EVENT"]


def test_a_key_that_comes_during_a_check():
    """A packet whose signature was checked before its key was added counts all the same: it came behind the event."""
    drive = Drive()
    for body in (add("two", ALICE_KEY_2), signed(post().body, ALICE_KEY_2)):
        drive.relay._intake.offer(candidate_of(drive, body), NOW)
    drive.settle()

    assert [row.content_type for row in drive.rows()] == ["KEY_EVENT", "POST"]


def candidate_of(drive, body):
    """Return a candidate of nobody's."""
    return Candidate(body, None, drive.now, 1)


def test_key_events_are_bounded(monkeypatch):
    """An author has so many; beyond them the next is refused, and nothing of it stays."""
    monkeypatch.setattr(keyring, "KEY_EVENTS_MAX", 5)
    monkeypatch.setattr(keyring, "KEY_EVENTS_RESERVED", 2)
    drive = Drive()
    peer = drive.connect()
    answers = [drive.publish(peer, add(f"k{number}", key(number))) for number in range(4)]

    assert [answer["type"] for answer in answers] == ["OK", "OK", "OK", "ERROR"]
    assert answers[-1]["detail"] == "key_events_max"
    assert len(drive.rows()) == 3
    assert drive.publish(peer, post())["type"] == "OK"


def test_signers_of_one_author_are_not_those_of_another():
    """A DID that begins like another one has its own key events."""
    drive = Drive(static_dids={did(ALICE) + "x": [StaticKey(BOB.public)]})
    peer = drive.connect()
    drive.publish(peer, add("two", ALICE_KEY_2))
    longer = did(ALICE) + "x"
    content = {"type": "KEY_EVENT", "event": "ADD", "key_id": f"{longer}#two", "valid_from": NOW - 100}
    content |= {"public_key_multibase": encode_key_multibase(key(5).public)}
    assert drive.publish(peer, signed(unsigned(content, author_id=longer), BOB))["type"] == "OK"
    again = drive.restarted(static_dids={longer: [StaticKey(BOB.public)]})

    assert len(again.relay._intake._authors.events(did(ALICE))) == 1
    assert len(again.relay._intake._authors.events(longer)) == 1
