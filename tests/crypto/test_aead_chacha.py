"""Laws of crypto.aead_chacha."""

import pytest
from nacl import bindings

from waystation.crypto.aead_chacha import CHACHA_TAG_BYTES, open_chacha, seal_chacha

# RFC 8439 2.8.2.
KEY = bytes(range(0x80, 0xA0))
NONCE = bytes.fromhex("070000004041424344454647")
ASSOCIATED = bytes.fromhex("50515253c0c1c2c3c4c5c6c7")
PLAINTEXT = (
    b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, "
    b"sunscreen would be it."
)
SEALED = (
    "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282fafb69da92728b1a71de0a9e060b29"
    "05d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc3ff4def08e4b7a9de576d26586cec64b"
    "6116"
    "1ae10b594f09e26a7e902ecbd0600691"
)


def test_case_of_the_rfc():
    """The published case comes out byte for byte, the tag last, and opens again."""
    assert seal_chacha(KEY, NONCE, PLAINTEXT, ASSOCIATED).hex() == SEALED
    assert open_chacha(KEY, NONCE, bytes.fromhex(SEALED), ASSOCIATED) == PLAINTEXT


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 16_384])
def test_another_implementation_seals_alike(size):
    """Libsodium's bytes are ours at every size around a block."""
    plaintext = bytes(number & 0xFF for number in range(size))

    sealed = seal_chacha(KEY, NONCE, plaintext)

    assert sealed == bindings.crypto_aead_chacha20poly1305_ietf_encrypt(plaintext, b"", NONCE, KEY)
    assert len(sealed) == size + CHACHA_TAG_BYTES
    assert open_chacha(KEY, NONCE, sealed) == plaintext


@pytest.mark.parametrize("at", [0, 113, 114, -1])
def test_changed_byte_does_not_open(at):
    """Neither the ciphertext nor the tag may change."""
    sealed = bytearray(seal_chacha(KEY, NONCE, PLAINTEXT))
    sealed[at] ^= 1

    assert open_chacha(KEY, NONCE, bytes(sealed)) is None


def test_other_key_nonce_or_associated_data_does_not_open():
    """All three belong to the message."""
    sealed = seal_chacha(KEY, NONCE, PLAINTEXT, ASSOCIATED)

    assert open_chacha(bytes(32), NONCE, sealed, ASSOCIATED) is None
    assert open_chacha(KEY, bytes(12), sealed, ASSOCIATED) is None
    assert open_chacha(KEY, NONCE, sealed) is None


@pytest.mark.parametrize("count", [0, 1, 15, 16, 113, 129])
def test_truncated_does_not_open(count):
    """A message cut anywhere, even inside its tag, is refused without an error."""
    assert open_chacha(KEY, NONCE, seal_chacha(KEY, NONCE, PLAINTEXT)[:count]) is None
