"""Laws of core.dids."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.core.base58 import encode_base58
from waystation.core.dids import decode_key_multibase, encode_did, encode_key_multibase, is_did, key_of_did

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "strata.json").read_text())
FORM = next(entry for entry in VECTORS["vectors"] if entry["kind"] == "did")
KEY = bytes.fromhex(FORM["public_key_hex"])


def test_the_prefixed_spelling_is_emitted():
    """A DID carries ed01 and the key."""
    assert encode_did(KEY) == FORM["expect"]["did"]


@pytest.mark.parametrize("spelling", ["did", "also_accepted_for_same_key"])
def test_both_spellings_name_the_key(spelling):
    """The ed01 prefix may be absent."""
    assert key_of_did(FORM["expect"][spelling]) == KEY


@pytest.mark.parametrize("person", VECTORS["keys_test_only"].values(), ids=VECTORS["keys_test_only"])
def test_every_test_identity(person):
    """Key and DID of each test identity lead to each other."""
    assert encode_did(bytes.fromhex(person["public_key_hex"])) == person["did"]
    assert key_of_did(person["did"]).hex() == person["public_key_hex"]


@given(st.binary(min_size=32, max_size=32))
def test_key_round_trip(key):
    """Every key comes back from its DID, and its text begins z6Mk."""
    assert key_of_did(encode_did(key)) == key
    assert encode_key_multibase(key).startswith("z6Mk")


@pytest.mark.parametrize(
    "name",
    [
        "did:strata:zero_cool",
        "did:strata:alice",
        "did:strata:zStrataXOfficial",
        "did:strata:relay_1",
        "did:strata:z",
        "did:strata:",
        "did:key:" + encode_key_multibase(KEY),
        encode_key_multibase(KEY),
        encode_did(KEY) + "\n",
        encode_did(KEY).replace("z6", "Z6"),
        "did:strata:" + encode_base58(b"\xed\x01" + KEY),
        "did:strata:z" + encode_base58(b"\xed\x01" + KEY[:31]),
        "did:strata:z" + encode_base58(b"\xed\x02" + KEY),
        "did:strata:z" + encode_base58(b"\xed\x01" + KEY + b"\0"),
        "did:strata:z" + "1" * 4_000,
    ],
)
def test_other_names_are_no_keys(name):
    """Only base58 of 34 bytes that begin ed01, or of 32 bytes, is a key."""
    assert key_of_did(name) is None


@given(st.text(max_size=80))
def test_no_text_raises(text):
    """Any text is a key or None."""
    assert key_of_did("did:strata:z" + text) is None or len(text) >= 32
    assert decode_key_multibase(text) is None or text.startswith("z")


@pytest.mark.parametrize(
    "did", ["did:strata:zero_cool", "did:ngo:x", "did:web:example.org:a%20b", "did:k3y:a.b-c", "did:a:" + "b" * 200]
)
def test_any_method_is_a_did(did):
    """Authors may use other methods."""
    assert is_did(did)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "did:strata:",
        "did::a",
        "did:Strata:a",
        "did:strata:a b",
        "did:a:é",
        "did:a:b\n",
        "x did:a:b",
        "did:a:b#k",
        "did:a:" + "b" * 201,
        "did:" + "a" * 300 + ":b",
    ],
)
def test_what_is_no_did(text):
    """The method is lower case, the identifier has 1 to 200 characters of its set, and nothing stands around."""
    assert not is_did(text)
