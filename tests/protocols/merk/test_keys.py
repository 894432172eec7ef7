"""Laws of protocols.merk.keys."""

import base64
import json
import random

import pytest

from tests.protocols.merk.build import ALICE, BOB, VECTORS
from waystation.core.errors import LocalError
from waystation.protocols.merk.keys import Keys


def exported(**changes):
    """Return Alice's key file with some members changed; None takes one away."""
    members = json.loads(ALICE.export_json()) | changes
    return json.dumps({name: text for name, text in members.items() if text is not None})


def b64(data):
    """Return bytes as a key file writes them."""
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(("name", "keys"), [("alice", ALICE), ("bob", BOB)])
def test_public_keys_are_those_of_the_vectors(name, keys):
    """A seed and a secret lead to the public keys that the original computes."""
    assert keys.signing.public.hex() == VECTORS["clients"][name]["ed_pub"]
    assert keys.agreement_public.hex() == VECTORS["clients"][name]["x_pub"]


def test_file_has_the_four_members_of_the_original():
    """Names, order of halves and encoding are what specs/merk.md 3 prints."""
    client = {name: bytes.fromhex(text) for name, text in VECTORS["clients"]["alice"].items()}

    assert json.loads(ALICE.export_json()) == {
        "publicKey": b64(client["ed_pub"]),
        "privateKey": b64(client["ed_seed"] + client["ed_pub"]),
        "encryptionPublicKey": b64(client["x_pub"]),
        "encryptionPrivateKey": b64(client["x_priv"]),
    }


def test_file_survives():
    """Who exports and imports is the same, whatever else stands in the file."""
    assert Keys.import_json(ALICE.export_json()) == ALICE
    assert Keys.import_json(exported(note="mine")) == ALICE


def test_generated_keys_follow_their_entropy():
    """One source of chance makes one identity, and the next another; its halves are independent."""
    first, second = Keys.generate(random.Random(1)), Keys.generate(random.Random(2))

    assert first == Keys.generate(random.Random(1)) != second
    assert first.signing.seed != first.agreement_secret
    assert Keys.import_json(first.export_json()) == first


@pytest.mark.parametrize("text", ["", "no json", "[]", "1", "null", "[" * 100_000, '"publicKey"'])
def test_file_that_is_no_object_is_refused(text):
    """Only a JSON object is a key file."""
    with pytest.raises(LocalError, match="key file: no JSON"):
        Keys.import_json(text)


@pytest.mark.parametrize("name", json.loads(ALICE.export_json()))
@pytest.mark.parametrize("value", [None, 1, [], "", "####", "AAAA", b64(bytes(31)), b64(bytes(33)), "\u00e9" * 44])
def test_bad_member_is_refused_by_its_name(name, value):
    """Each of the four must be there, be base64, and have its size; the refusal says which is wrong."""
    with pytest.raises(LocalError, match=f"{name} (is|has)"):
        Keys.import_json(exported(**{name: value}))


@pytest.mark.parametrize("junk", ["!", "\n", "=", "-", " "])
def test_junk_inside_base64_is_refused(junk):
    """A key that was damaged while it was copied is refused, also when enough of it is left."""
    text = b64(ALICE.signing.public)

    with pytest.raises(LocalError, match="publicKey is no base64"):
        Keys.import_json(exported(publicKey=text[:8] + junk + text[8:]))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("publicKey", b64(BOB.signing.public), "privateKey and publicKey"),
        ("privateKey", b64(BOB.signing.seed + BOB.signing.public), "privateKey and publicKey"),
        ("privateKey", b64(ALICE.signing.seed + BOB.signing.public), "privateKey and publicKey"),
        ("privateKey", b64(BOB.signing.seed + ALICE.signing.public), "privateKey and publicKey"),
        ("encryptionPublicKey", b64(BOB.agreement_public), "encryptionPrivateKey and encryptionPublicKey"),
        ("encryptionPrivateKey", b64(BOB.agreement_secret), "encryptionPrivateKey and encryptionPublicKey"),
    ],
)
def test_halves_of_different_keys_are_refused(name, value, said):
    """A file whose halves do not belong together would sign for one and be known as another."""
    with pytest.raises(LocalError, match=said):
        Keys.import_json(exported(**{name: value}))


def test_secrets_are_not_shown():
    """What ends in a log or a traceback holds no secret."""
    shown = repr(ALICE)

    assert repr(ALICE.agreement_secret) not in shown
    assert repr(ALICE.signing.seed) not in shown
    assert repr(ALICE.agreement_public) in shown
