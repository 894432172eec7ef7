"""Laws of core.base58."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.core.base58 import decode_base58, encode_base58
from waystation.core.errors import LocalError


@pytest.mark.parametrize(
    ("data_hex", "text"),
    [
        ("", ""),
        ("00", "1"),
        ("0000287fb4cd", "11233QC4"),
        ("48656c6c6f20576f726c6421", "2NEpo7TZRRrLZSi2U"),
        (
            "54686520717569636b2062726f776e20666f78206a756d7073206f76657220746865206c617a7920646f672e",
            "USm3fpXnKG5EUBx2ndxBDMPVciP5hGey2Jh4NDv6gmeo1LkMeiKrLJUUBk6Z",
        ),
    ],
)
def test_published_vectors(data_hex, text):
    """The vectors of the base58 internet draft hold in both directions."""
    assert encode_base58(bytes.fromhex(data_hex)) == text
    assert decode_base58(text).hex() == data_hex


@given(st.binary(max_size=80))
def test_bytes_round_trip(data):
    """Every byte string comes back from its text, leading zeros included."""
    assert decode_base58(encode_base58(data)) == data


@given(st.text("123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz", max_size=128))
def test_text_round_trip(text):
    """A text of the alphabet names one byte string, which has no other text."""
    assert encode_base58(decode_base58(text)) == text


@pytest.mark.parametrize("stranger", ["0", "O", "I", "l", "_", " ", "\n", "é", "\u0661"])
def test_foreign_character_is_refused(stranger):
    """What looks alike is not in the alphabet, and nothing is trimmed."""
    with pytest.raises(LocalError, match="outside the alphabet"):
        decode_base58("z6Mk" + stranger)


def test_overlong_text_is_refused():
    """128 characters are decoded, 129 are refused before any work is done."""
    assert len(decode_base58("1" * 128)) == 128
    with pytest.raises(LocalError, match="at most 128"):
        decode_base58("1" * 129)
