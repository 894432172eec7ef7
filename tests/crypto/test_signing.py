"""Laws of crypto.signing: RFC 8032 vectors, and every borderline signature refused."""

import hashlib

import pytest

from waystation.crypto.signing import KeyPair, sign, verify

ORDER = 2**252 + 27742317777372353535851937790883648493
"""Order of the main subgroup, RFC 8032 section 5.1."""

RFC_8032 = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
]

# The eight points of small order and the non-canonical spellings of some, as in libsodium's own blacklist.
SMALL_ORDER = [
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
]
NON_CANONICAL = [
    "0100000000000000000000000000000000000000000000000000000000000080",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
]
IDENTITY = bytes.fromhex(SMALL_ORDER[2])
PAIR = KeyPair.from_seed(bytes(range(32)))


def _sign_with_small_order_r(message: bytes) -> bytes:
    """Return R = identity and the S that satisfies the verification equation."""
    digest = bytearray(hashlib.sha512(PAIR.seed).digest()[:32])
    digest[0] &= 248
    digest[31] = (digest[31] & 127) | 64
    challenge = int.from_bytes(hashlib.sha512(IDENTITY + PAIR.public + message).digest(), "little")
    return IDENTITY + (challenge * int.from_bytes(digest, "little") % ORDER).to_bytes(32, "little")


@pytest.mark.parametrize(("seed", "public", "message", "signature"), RFC_8032)
def test_rfc_8032_vectors(seed, public, message, signature):
    """Keys, signatures and verification agree with RFC 8032 section 7.1."""
    pair = KeyPair.from_seed(bytes.fromhex(seed))

    assert pair.public.hex() == public
    assert sign(pair, bytes.fromhex(message)).hex() == signature
    assert verify(pair.public, bytes.fromhex(message), bytes.fromhex(signature))


@pytest.mark.parametrize("bit", [0, 7, 255, 256, 511])
def test_flipped_bit_is_refused(bit):
    """No bit of a signature is free."""
    signature = int.from_bytes(sign(PAIR, b"m"), "little") ^ (1 << bit)

    assert not verify(PAIR.public, b"m", signature.to_bytes(64, "little"))


def test_other_message_and_other_key_are_refused():
    """A signature holds for one message under one key."""
    signature = sign(PAIR, b"m")

    assert verify(PAIR.public, b"m", signature)
    assert not verify(PAIR.public, b"n", signature)
    assert not verify(KeyPair.from_seed(b"\x07" * 32).public, b"m", signature)


def test_s_plus_order_is_refused():
    """The second spelling of S satisfies the equation and is still refused."""
    signature = sign(PAIR, b"m")
    s = int.from_bytes(signature[32:], "little") + ORDER

    assert not verify(PAIR.public, b"m", signature[:32] + s.to_bytes(32, "little"))


@pytest.mark.parametrize("public", SMALL_ORDER + NON_CANONICAL)
def test_small_order_and_non_canonical_keys_are_refused(public):
    """R = identity with S = 0 satisfies the equation for small-order keys and some message; none may pass."""
    forged = IDENTITY + bytes(32)

    assert not any(verify(bytes.fromhex(public), bytes([n]), forged) for n in range(16))


def test_identity_key_with_its_universal_signature_is_refused():
    """Under the identity key this signature would fit every message."""
    assert not verify(IDENTITY, b"anything", IDENTITY + bytes(32))


def test_small_order_r_is_refused():
    """A signature whose R is the identity satisfies the equation and is still refused."""
    assert not verify(PAIR.public, b"m", _sign_with_small_order_r(b"m"))


@pytest.mark.parametrize(("key_bytes", "signature_bytes"), [(31, 64), (33, 64), (32, 63), (32, 65), (0, 0)])
def test_wrong_lengths_are_false_not_errors(key_bytes, signature_bytes):
    """Lengths that come from a peer never raise."""
    assert not verify(b"\x01" * key_bytes, b"m", b"\x01" * signature_bytes)


def test_repr_hides_the_secret():
    """A key pair that reaches a log or a traceback shows its public half only."""
    shown = repr(PAIR)

    assert repr(PAIR.seed) not in shown
    assert repr(PAIR.secret) not in shown
