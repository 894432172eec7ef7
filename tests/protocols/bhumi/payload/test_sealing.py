import random

import pytest

from waystation.protocols.bhumi.payload.sealing import KEYS_BYTES, Cipher, open_body, seal_body

KEYS, HEADER = bytes(range(KEYS_BYTES)), b"hint and suite"
both_ciphers = pytest.mark.parametrize("cipher", Cipher)


@both_ciphers
@pytest.mark.parametrize("size", [0, 1, 300])
def test_round_trip(cipher, size):
    """What was sealed opens, 28 bytes longer than header and content, with the header in front."""
    plaintext = random.Random(size).randbytes(size)

    sealed = seal_body(cipher, KEYS, HEADER, plaintext, random.Random(1))

    assert open_body(cipher, KEYS, len(HEADER), sealed) == plaintext
    assert (sealed[: len(HEADER)], len(sealed)) == (HEADER, len(HEADER) + size + 28)


@both_ciphers
def test_header_keys_and_cipher_are_authenticated(cipher):
    """Another header, key or cipher opens nothing."""
    sealed = seal_body(cipher, KEYS, HEADER, b"hello", random.Random(1))
    other = next(each for each in Cipher if each is not cipher)

    assert open_body(cipher, KEYS, len(HEADER), b"H" + sealed[1:]) is None
    assert open_body(cipher, KEYS[::-1], len(HEADER), sealed) is None
    assert open_body(other, KEYS, len(HEADER), sealed) is None
