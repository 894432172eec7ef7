"""Laws of crypto.aead."""

import pytest

from waystation.crypto.aead import TAG_BYTES, open_sealed, seal

# draft-irtf-cfrg-xchacha-03 appendix A.3.1; its tag also covers associated data, which this layout does not have.
KEY = bytes(range(0x80, 0xA0))
NONCE = bytes(range(0x40, 0x58))
PLAINTEXT = (
    b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, "
    b"sunscreen would be it."
)
CIPHERTEXT = (
    "bd6d179d3e83d43b9576579493c0e939572a1700252bfaccbed2902c21396cbb731c7f1b0b4aa6440bf3a82f4eda7e39ae64c6708c54c216"
    "cb96b72e1213b4522f8c9ba40db5d945b11b69b982c1bb9e3f3fac2bc369488f76b2383565d3fff921f9664c97637da9768812f615c68b13"
    "b52e"
)


def test_ciphertext_of_the_draft_stands_behind_the_tag():
    """The tag comes first, then exactly the draft's ciphertext."""
    assert seal(KEY, NONCE, PLAINTEXT)[TAG_BYTES:].hex() == CIPHERTEXT


@pytest.mark.parametrize("plaintext", [b"", b"x", PLAINTEXT])
def test_round_trip(plaintext):
    """What was sealed opens to itself, and grew by the tag."""
    sealed = seal(KEY, NONCE, plaintext)

    assert len(sealed) == len(plaintext) + TAG_BYTES
    assert open_sealed(KEY, NONCE, sealed) == plaintext


@pytest.mark.parametrize("at", [0, 15, 16, -1])
def test_changed_byte_does_not_open(at):
    """Neither the tag nor the ciphertext may change."""
    sealed = bytearray(seal(KEY, NONCE, PLAINTEXT))
    sealed[at] ^= 1

    assert open_sealed(KEY, NONCE, bytes(sealed)) is None


def test_other_key_or_nonce_does_not_open():
    """Key and nonce belong to the message."""
    sealed = seal(KEY, NONCE, PLAINTEXT)

    assert open_sealed(bytes(32), NONCE, sealed) is None
    assert open_sealed(KEY, bytes(24), sealed) is None


@pytest.mark.parametrize("count", [0, 1, 15, 16, 40])
def test_truncated_does_not_open(count):
    """A message cut anywhere, even inside its tag, is refused without an error."""
    assert open_sealed(KEY, NONCE, seal(KEY, NONCE, PLAINTEXT)[:count]) is None
