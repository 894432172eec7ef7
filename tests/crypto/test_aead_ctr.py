"""Laws of crypto.aead_ctr."""

import hashlib
import hmac

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from waystation.crypto.aead_ctr import CTR_TAG_BYTES, open_ctr, seal_ctr

KEY = bytes(range(64))
NONCE = bytes(range(0xA0, 0xAC))
HEADER = b"header"


def test_key_stream_by_single_blocks():
    """The stream is AES of nonce and counter, block by block, the counter from 0."""
    blocks = Cipher(algorithms.AES(KEY[:32]), modes.ECB()).encryptor()
    stream = b"".join(blocks.update(NONCE + number.to_bytes(4, "big")) for number in range(3))

    assert seal_ctr(KEY, NONCE, bytes(40), HEADER)[CTR_TAG_BYTES:] == stream[:40]


def test_aes_of_the_standard():
    """FIPS 197 C.3: the block cipher under it is AES-256."""
    blocks = Cipher(algorithms.AES(bytes(range(32))), modes.ECB()).encryptor()

    assert blocks.update(bytes.fromhex("00112233445566778899aabbccddeeff")).hex() == "8ea2b7ca516745bfeafc49904b496089"


def test_tag_covers_everything():
    """The tag is half an HMAC over associated data, nonce and ciphertext, under the key's second half."""
    sealed = seal_ctr(KEY, NONCE, b"hello", HEADER)

    assert sealed[:16] == hmac.new(KEY[32:], HEADER + NONCE + sealed[16:], hashlib.sha256).digest()[:16]


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 4_097])
def test_round_trip(size):
    """What was sealed opens, at every size around a block."""
    plaintext = bytes(number & 0xFF for number in range(size))
    sealed = seal_ctr(KEY, NONCE, plaintext, HEADER)

    assert len(sealed) == size + CTR_TAG_BYTES
    assert open_ctr(KEY, NONCE, sealed, HEADER) == plaintext


def test_every_flipped_bit_is_noticed():
    """Neither tag nor ciphertext may change."""
    sealed = seal_ctr(KEY, NONCE, b"hello", HEADER)
    for at in range(len(sealed)):
        for bit in range(8):
            changed = sealed[:at] + bytes([sealed[at] ^ 1 << bit]) + sealed[at + 1 :]
            assert open_ctr(KEY, NONCE, changed, HEADER) is None


def test_truncated_does_not_open():
    """Cut anywhere, even inside the tag, it opens to nothing and raises nothing."""
    sealed = seal_ctr(KEY, NONCE, b"hello", HEADER)

    assert not [length for length in range(len(sealed)) if open_ctr(KEY, NONCE, sealed[:length], HEADER) is not None]


def test_other_key_nonce_or_associated_data_does_not_open():
    """All three belong to the message, either half of the key included."""
    sealed = seal_ctr(KEY, NONCE, b"hello", HEADER)

    assert open_ctr(KEY[:32] + bytes(32), NONCE, sealed, HEADER) is None
    assert open_ctr(bytes(32) + KEY[32:], NONCE, sealed, HEADER) != b"hello"
    assert open_ctr(KEY, bytes(12), sealed, HEADER) is None
    assert open_ctr(KEY, NONCE, sealed, b"") is None
