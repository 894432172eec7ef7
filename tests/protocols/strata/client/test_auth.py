"""Rows of specs/strata.md section 21 stand in the names of the tests that prove them."""

import pytest

from tests.protocols.strata.build import (
    ALICE,
    BOB,
    RELAY,
    did,
    post,
    vector,
    vectors,
)
from tests.protocols.strata.build_client import CHALLENGE, Talk, authenticating, challenge
from waystation.crypto.signing import verify
from waystation.protocols.strata.client.events import (
    Authenticated,
    AuthFailed,
    ChallengeRefused,
    ClientEnd,
    ServerNamed,
)
from waystation.protocols.strata.messages import Filters


def test_challenge_is_answered_with_a_signature_over_both_texts():
    """The signed bytes are the challenge as sent and the server's DID, one behind the other."""
    talk = authenticating()

    [auth] = talk.sent
    assert talk.told == [ServerNamed(did(RELAY))]
    assert (auth["type"], auth["author_id"], auth["challenge"]) == ("AUTH", did(ALICE), CHALLENGE)
    signature = bytes.fromhex(auth["signature"][2:])
    assert verify(ALICE.public, (CHALLENGE + did(RELAY)).encode(), signature)


def test_auth_ok_authenticates_with_what_was_granted():
    """Capabilities are the relay's word, not our wish."""
    talk = authenticating().hear({"type": "AUTH_OK", "author_id": did(ALICE), "capabilities": ["subscribe"]})

    assert talk.take() == [Authenticated(("subscribe",), 0)]
    assert talk.client.authenticated
    assert talk.client.capabilities == ("subscribe",)


def test_row_20_client_does_not_assume_success():
    """Five seconds of silence are a failure, and only a new challenge is answered, after a random wait."""
    talk = authenticating().wait(5)

    assert talk.take() == [AuthFailed("timeout", "")]
    assert not talk.client.authenticated
    talk.wait(60).take()
    assert talk.sent == []
    talk.hear(challenge(text="r" * 44)).take()
    assert [message["challenge"] for message in talk.sent] == ["r" * 44]


def test_auth_is_tried_again_after_a_wait_that_doubles():
    """The first wait is 0.5 to 3 s, the next ones longer, and a challenge that comes at once waits as well."""
    talk, waits = authenticating(), []
    for number in range(3):
        refusal = {"type": "ERROR", "code": "invalid_signature", "client_msg_id": f"a{number + 1}"}
        talk.hear(refusal, challenge(text=f"{number}" * 44))
        assert talk.take()[-1] == AuthFailed("invalid_signature", "")
        assert talk.sent == []
        began = talk.s
        while not talk.sent:
            talk.wait(0.1).take()
        waits.append(talk.s - began)

    assert 0.5 <= waits[0] <= 3.2
    assert 1.0 <= waits[1] <= 6.2
    assert 2.0 <= waits[2] <= 12.2


def test_auth_ok_for_somebody_else_is_no_success():
    """An AUTH_OK that names another author, or comes unasked, changes nothing."""
    talk = authenticating().hear({"type": "AUTH_OK", "author_id": did(BOB), "capabilities": ["publish"]})
    anonymous = Talk().hear({"type": "AUTH_OK", "author_id": did(ALICE), "capabilities": ["publish"]})

    assert talk.take() == []
    assert not talk.client.authenticated
    assert not anonymous.client.authenticated


def test_row_46_hostile_challenge_is_never_signed():
    """A challenge that is the preimage of a packet, or anything else than base64, gets no signature."""
    evil = vector("auth-evil-challenge")
    texts = [
        evil["challenge_message"]["challenge"],
        "short",
        "x" * 173,
        "spaces in it " * 3,
        '{"a":1}' * 5,
        "",
        None,
        7,
    ]
    for text in texts:
        talk = Talk(key_pair=ALICE).hear(challenge() | {"challenge": text})
        told = talk.take()

        assert ChallengeRefused("challenge_form") in told
        assert not [message for message in talk.sent if message["type"] == "AUTH"]


@pytest.mark.parametrize("server_id", ["", "relay", "did:", "did:strata:a b", None, 7, "did:strata:" + "x" * 300])
def test_challenge_of_no_did_is_never_signed(server_id):
    """The name is half of what is signed, so it must be a name."""
    talk = Talk(key_pair=ALICE).hear(challenge() | {"server_id": server_id})
    told = talk.take()

    assert told[0] == ChallengeRefused("server_id_form")
    assert talk.sent == []


def test_challenge_of_another_relay_is_refused_and_ends():
    """What relay B passes on from relay A is not signed for B: the name was pinned."""
    talk = Talk(key_pair=ALICE, server_id=did(RELAY)).hear(challenge(server=BOB))
    told = talk.take()

    assert told == [ChallengeRefused("server_id_changed")]
    assert [close.reason for close in talk.closes] == [ClientEnd.SERVER_ID_CHANGED]
    assert talk.sent == []


def test_first_name_is_pinned_for_later_connections():
    """Whoever answers at the address later must have the same name."""
    talk = authenticating()
    talk.drop()
    talk.open()
    talk.hear(challenge(server=BOB))

    assert ChallengeRefused("server_id_changed") in talk.take()


@pytest.mark.parametrize("name", vectors("auth"))
def test_client_signs_what_the_vectors_sign(name):
    """Our AUTH is byte for byte the one of the vector that is right, and none of the wrong ones."""
    entry = vector(name)
    talk = Talk(key_pair=ALICE).hear(entry["challenge_message"])
    talk.take()

    if name == "auth-ok":
        assert [message["signature"] for message in talk.sent] == [entry["auth_message"]["signature"]]
    else:
        assert entry["auth_message"]["signature"] not in [message.get("signature") for message in talk.sent]


def test_requests_wait_for_auth():
    """With a key nothing is asked for as nobody, unless AUTH fails."""
    talk = Talk(key_pair=ALICE)
    talk.client.subscribe("s", Filters(), talk.now)
    talk.client.publish(post(), talk.now)
    talk.take()
    before = talk.sent
    talk.hear(challenge(), {"type": "AUTH_OK", "author_id": did(ALICE), "capabilities": []}).take()

    assert before == []
    assert [message["type"] for message in talk.sent] == ["AUTH", "PUBLISH", "SUBSCRIBE"]


def test_requests_go_out_anonymously_when_no_challenge_comes():
    """A relay need not ask who we are."""
    talk = Talk(key_pair=ALICE)
    talk.client.publish(post(), talk.now)
    talk.wait(3.1).take()

    assert [message["type"] for message in talk.sent] == ["PUBLISH"]


def test_required_auth_holds_requests_back():
    """A replica does not begin as nobody, whatever goes wrong."""
    talk = authenticating(require_auth=True)
    talk.client.subscribe("s", Filters(), talk.now)
    talk.wait(30).take()

    assert talk.sent == []
