"""Laws of core.ids."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.core.errors import LocalError
from waystation.core.ids import PublicKey, decode_id52, decode_key_hex, encode_did, encode_id52, node_id_of

FACTS = json.loads((Path(__file__).parent.parent / "vectors" / "bhumi.json").read_text())["facts"]
KEY_A = bytes.fromhex("bc7cbcb5636375fa1d82434d466724d92377f53b980695dd49d26d0ce12205a5")


def test_upstream_key_has_the_upstream_text():
    """id52 is byte-exact with the upstream protocol crate."""
    assert encode_id52(KEY_A) == FACTS["id52 A"]
    assert decode_id52(FACTS["id52 A"]) == KEY_A


def test_upper_case_is_taken():
    """Upstream reads upper case, so do we."""
    assert decode_id52(FACTS["id52 A"].upper()) == KEY_A


def test_trailing_bits_are_refused():
    """Upstream refuses a last character with bits that name nothing: one key has one text."""
    with pytest.raises(LocalError, match="must be zero"):
        decode_id52(FACTS["id52 A"][:-1] + "h")


@pytest.mark.parametrize("text", ["", "n" * 51, "n" * 53, FACTS["id52 A"] + "====", FACTS["id52 A"][:-1] + "="])
def test_wrong_length_or_padding_is_refused(text):
    """52 characters and no padding, nothing else."""
    with pytest.raises(LocalError):
        decode_id52(text)


@pytest.mark.parametrize("stranger", ["w", "z", "-", " ", "ñ"])
def test_foreign_character_is_refused(stranger):
    """The alphabet ends at v."""
    with pytest.raises(LocalError, match="0-9 and a-v"):
        decode_id52(stranger + FACTS["id52 A"][1:])


@given(st.binary(min_size=32, max_size=32))
def test_id52_round_trip(key):
    """Every key comes back from its text."""
    assert decode_id52(encode_id52(key)) == key


@given(st.text(max_size=60))
def test_any_text_is_a_key_or_a_local_error(text):
    """A text typed by a person gives a key whose text it is, or one kind of error."""
    try:
        key = decode_id52(text)
    except LocalError:
        return
    assert encode_id52(key) == text.lower()


def test_hex_key_round_trip():
    """64 digits, in any case."""
    assert decode_key_hex(KEY_A.hex()) == decode_key_hex(KEY_A.hex().upper()) == KEY_A


@pytest.mark.parametrize(
    "text", ["", KEY_A.hex()[:-2], KEY_A.hex() + "00", "zz" * 32, " " + KEY_A.hex(), KEY_A.hex()[1:]]
)
def test_hex_that_is_no_key_is_refused(text):
    """Spaces, other digits and other lengths are refused."""
    with pytest.raises(LocalError):
        decode_key_hex(text)


def test_node_is_called_by_the_beginning_of_its_key():
    """Sixteen hexadecimal digits name a node among others."""
    assert node_id_of(KEY_A) == "bc7cbcb5636375fa"


@pytest.mark.parametrize("spell", [bytes, bytes.hex, encode_id52, encode_did, lambda key: f" {key.hex().upper()}\n"])
def test_key_is_read_in_every_spelling(spell):
    """Bytes, hexadecimal digits, id52 and did:strata name the same key, with white space around."""
    parsed = PublicKey.parse(spell(KEY_A))

    assert parsed == KEY_A
    assert isinstance(parsed, PublicKey)


def test_key_gives_its_texts_back():
    """A key knows its id52 and its DID, and both lead back to it."""
    key = PublicKey(KEY_A)

    assert PublicKey.parse(key.id52) == PublicKey.parse(key.did) == key
    assert hash(key) == hash(KEY_A)


@pytest.mark.parametrize(
    "text", ["", "x", "01" * 31, "01" * 33, "z" * 52, "v" * 52, "zz" * 32, "did:strata:zero_cool", b"short"]
)
def test_text_that_is_no_key_is_refused(text):
    """Neither length nor digits of another, nor a DID that needs a resolver."""
    with pytest.raises(LocalError, match="a key has"):
        PublicKey.parse(text)
