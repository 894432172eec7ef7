"""Laws of crypto.aead_gcm."""

import pytest

from waystation.crypto.aead_gcm import GCM_TAG_BYTES, open_gcm, seal_gcm

# The GCM specification of McGrew and Viega, appendix B: test cases 13, 14 and 15 (256-bit keys, no associated data).
CASES = [
    (bytes(32), bytes(12), b"", "530f8afbc74536b9a963b4f1c4cb738b"),
    (bytes(32), bytes(12), bytes(16), "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"),
    (
        bytes.fromhex("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308"),
        bytes.fromhex("cafebabefacedbaddecaf888"),
        bytes.fromhex(
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
            "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255"
        ),
        (
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
            "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662898015ad"
            "b094dac5d93471bdec1a502270e3cc6c"
        ),
    ),
]
KEY, NONCE, PLAINTEXT, _ = CASES[2]


@pytest.mark.parametrize(("key", "nonce", "plaintext", "sealed"), CASES)
def test_case_of_the_specification(key, nonce, plaintext, sealed):
    """The published cases come out byte for byte, the tag last, and open again."""
    assert seal_gcm(key, nonce, plaintext).hex() == sealed
    assert open_gcm(key, nonce, bytes.fromhex(sealed)) == plaintext


@pytest.mark.parametrize("at", [0, 63, 64, -1])
def test_changed_byte_does_not_open(at):
    """Neither the ciphertext nor the tag may change."""
    sealed = bytearray(seal_gcm(KEY, NONCE, PLAINTEXT))
    sealed[at] ^= 1

    assert open_gcm(KEY, NONCE, bytes(sealed)) is None


def test_other_key_or_nonce_does_not_open():
    """Key and nonce belong to the message."""
    sealed = seal_gcm(KEY, NONCE, PLAINTEXT)

    assert open_gcm(bytes(32), NONCE, sealed) is None
    assert open_gcm(KEY, bytes(12), sealed) is None


def test_truncated_anywhere_does_not_open():
    """A message cut anywhere, even inside its tag, is refused without an error."""
    sealed = seal_gcm(KEY, NONCE, PLAINTEXT)

    assert len(sealed) == len(PLAINTEXT) + GCM_TAG_BYTES
    assert {open_gcm(KEY, NONCE, sealed[:count]) for count in range(len(sealed))} == {None}
