"""Laws of crypto.agreement."""

import pytest

from waystation.crypto.agreement import (
    WeakKeyError,
    agree,
    agreement_public_of,
    agreement_secret_of,
    public_of_secret,
)
from waystation.crypto.signing import KeyPair

# RFC 7748 section 6.1
ALICE = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
ALICE_PUBLIC = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
BOB = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
BOB_PUBLIC = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
SHARED = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"


def test_rfc_7748_public_keys():
    """The public keys of RFC 7748 section 6.1."""
    assert [public_of_secret(ALICE).hex(), public_of_secret(BOB).hex()] == [ALICE_PUBLIC, BOB_PUBLIC]


def test_rfc_7748_shared_secret_from_both_sides():
    """Both sides of RFC 7748 section 6.1 reach the same secret."""
    assert agree(ALICE, bytes.fromhex(BOB_PUBLIC)).hex() == SHARED
    assert agree(BOB, bytes.fromhex(ALICE_PUBLIC)).hex() == SHARED


def test_ed25519_pair_maps_to_one_x25519_pair():
    """The vector of libsodium's ed25519_convert test; public and secret halves stay a pair."""
    pair = KeyPair.from_seed(bytes.fromhex("421151a459faeade3d247115f94aedae42318124095afabe4d1451a559faedee"))

    assert agreement_secret_of(pair).hex() == "8052030376d47112be7f73ed7a019293dd12ad910b654455798b4667d73de166"
    assert agreement_public_of(pair.public).hex() == "f1814f0e8ff1043d8a44d25babff3cedcae6c22c3edaa48f857ae70de2baae50"
    assert public_of_secret(agreement_secret_of(pair)) == agreement_public_of(pair.public)


@pytest.mark.parametrize(
    "public",
    [
        "00" * 32,
        "01" + "00" * 31,
        "ec" + "ff" * 30 + "7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    ],
)
def test_weak_identity_is_refused(public):
    """Identities of small order, or in a non-canonical spelling, have no X25519 key."""
    with pytest.raises(WeakKeyError):
        agreement_public_of(bytes.fromhex(public))


@pytest.mark.parametrize("public", ["00" * 32, "01" + "00" * 31, "ec" + "ff" * 30 + "7f"])
def test_all_zero_secret_is_refused(public):
    """A small-order X25519 key would force the secret to zero."""
    with pytest.raises(WeakKeyError):
        agree(ALICE, bytes.fromhex(public))
