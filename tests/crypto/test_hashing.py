"""Laws of crypto.hashing."""

from waystation.crypto.hashing import (
    REFERENCE_BYTES,
    blake2b_256,
    blake2b_256_begun,
    blake2s_256,
    blake2s_256_begun,
    hkdf_expand_sha256,
    hkdf_sha256,
    keyed_reference,
    sha256,
)


def test_sha256_of_abc():
    """The vector of FIPS 180-4."""
    assert sha256(b"abc").hex() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_hkdf_rfc_5869_case_1():
    """The first 32 bytes of RFC 5869 appendix A.1."""
    derived = hkdf_sha256(b"\x0b" * 22, salt=bytes(range(13)), info=bytes(range(0xF0, 0xFA)))

    assert derived.hex() == "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"


def test_hkdf_rfc_5869_case_3():
    """Empty salt and info, RFC 5869 appendix A.3."""
    derived = hkdf_sha256(b"\x0b" * 22, salt=b"", info=b"")

    assert derived.hex() == "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"


def test_hkdf_rfc_5869_whole_outputs():
    """Outputs of more than one block: all 42 bytes of appendix A.1, all 82 of A.2."""
    first = hkdf_sha256(b"\x0b" * 22, salt=bytes(range(13)), info=bytes(range(0xF0, 0xFA)), output_bytes=42)
    second = hkdf_sha256(
        bytes(range(80)), salt=bytes(range(0x60, 0xB0)), info=bytes(range(0xB0, 0x100)), output_bytes=82
    )

    assert first.hex() == ("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865")
    assert second.hex() == (
        "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09"
        "da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87"
    )


def test_hkdf_longer_begins_with_shorter():
    """64 bytes begin with the 32 that come unasked; the longest possible is 255 blocks."""
    whole = hkdf_sha256(b"s", salt=b"", info=b"i", output_bytes=255 * 32)

    assert len(whole) == 255 * 32
    assert [whole[:count] for count in (1, 32, 64)] == [
        hkdf_sha256(b"s", salt=b"", info=b"i", output_bytes=count) for count in (1, 32, 64)
    ]
    assert whole[:32] == hkdf_sha256(b"s", salt=b"", info=b"i")


def test_hkdf_expand_rfc_5869_case_1():
    """The pseudorandom key of RFC 5869 appendix A.1 expands to its output."""
    root = bytes.fromhex("077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5")

    expanded = hkdf_expand_sha256(root, bytes(range(0xF0, 0xFA)), 42)

    assert expanded.hex() == "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"


def test_reference_joins_only_under_one_key():
    """The same subject has one reference per key, and other subjects have others."""
    reference = keyed_reference(b"k" * 32, b"subject")

    assert len(reference) == REFERENCE_BYTES
    assert keyed_reference(b"k" * 32, b"subject") == reference
    assert keyed_reference(b"l" * 32, b"subject") != reference
    assert keyed_reference(b"k" * 32, b"subjecu") != reference


def test_blake2b_of_nothing_and_of_abc():
    """Made for 32 bytes, not cut from 64; as b2sum -l 256 of GNU coreutils prints it."""
    assert blake2b_256(b"").hex() == "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8"
    assert blake2b_256(b"abc").hex() == "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319"


def test_begun_hash_is_gone_on_with_in_copies():
    """A copy that hashes more leaves the state where it was, so one beginning serves many texts."""
    begun = blake2b_256_begun(b"begin" * 50)
    copy = begun.copy()
    copy.update(b"end")

    assert copy.digest() == blake2b_256(b"begin" * 50 + b"end")
    assert begun.digest() == blake2b_256(b"begin" * 50)


def test_blake2s_of_nothing_and_of_abc():
    """The second is the vector of RFC 7693 appendix B."""
    assert blake2s_256(b"").hex() == "69217a3079908094e11121d042354a7c1f55b6482ca1a51e1b250dfd1ed0eef9"
    assert blake2s_256(b"abc").hex() == "508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982"


def test_begun_blake2s_is_gone_on_with_in_copies():
    """As with its larger sister, a copy leaves the state where it was."""
    begun = blake2s_256_begun(b"begin" * 50)
    copy = begun.copy()
    copy.update(b"end")

    assert copy.digest() == blake2s_256(b"begin" * 50 + b"end")
    assert begun.digest() == blake2s_256(b"begin" * 50)
