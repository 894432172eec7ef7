"""Laws of crypto.issuers."""

import datetime
import random

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from waystation.crypto.issuers import is_issuer_key, read_certificate, verify_with_key

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
ED = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
P256 = ec.derive_private_key(7, ec.SECP256R1())
P384 = ec.derive_private_key(9, ec.SECP384R1())
UNCOMPRESSED = (Encoding.X962, PublicFormat.UncompressedPoint)


def raw(key):
    """Return the public key as the chain writes it."""
    public = key.public_key()
    return (
        public.public_bytes_raw() if isinstance(key, ed25519.Ed25519PrivateKey) else public.public_bytes(*UNCOMPRESSED)
    )


def issue(subject, issuer, key, issuer_key, *, digest=None, uri=None, authority=None):
    """Return a DER certificate."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + datetime.timedelta(days=1))
    )
    if uri is not None:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)]), critical=False
        )
    if authority is not None:
        builder = builder.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    chosen = None if isinstance(issuer_key, ed25519.Ed25519PrivateKey) else digest or hashes.SHA256()
    return builder.sign(issuer_key, chosen).public_bytes(Encoding.DER)


@pytest.mark.parametrize("key", [ED, P256, P384])
def test_facts_of_a_certificate(key):
    """Names, window, key and authority are read."""
    certificate = read_certificate(issue("device", "maker", key, P256, uri="did:device:1", authority=True))

    assert certificate.subjects == {"device", "CN=device", "did:device:1"}
    assert certificate.issuers == {"maker", "CN=maker"}
    assert certificate.public_key == raw(key)
    assert (certificate.valid_from, certificate.valid_until) == (1_767_225_600, 1_767_312_000)
    assert certificate.is_authority


@pytest.mark.parametrize("authority", [None, False])
def test_no_authority_by_default(authority):
    """Only basic constraints that say so make an authority."""
    assert not read_certificate(issue("device", "maker", ED, ED, authority=authority)).is_authority


@pytest.mark.parametrize(
    ("issuer_key", "digest"), [(ED, None), (P256, hashes.SHA256()), (P384, hashes.SHA384()), (P256, hashes.SHA512())]
)
def test_signature_of_the_issuer_counts(issuer_key, digest):
    """A certificate is signed by its issuer's key and by no other."""
    certificate = read_certificate(issue("device", "maker", P256, issuer_key, digest=digest))
    strangers = [ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32)), ec.derive_private_key(5, ec.SECP256R1())]

    assert certificate.signed_by(raw(issuer_key))
    assert not any(certificate.signed_by(raw(stranger)) for stranger in strangers)
    assert not certificate.signed_by(b"")
    assert not certificate.signed_by(b"\x04" + bytes(64))


@pytest.mark.parametrize("der", [b"", b"0", b"\x30\x82\xff\xff", b"{}", bytes(100)])
def test_other_bytes_are_no_certificate(der):
    """What does not parse is None."""
    assert read_certificate(der) is None


def test_every_beginning_of_a_certificate_is_none():
    """A truncated certificate is none, and raises nothing."""
    der = issue("device", "maker", ED, ED, uri="did:device:1")

    assert [end for end in range(len(der)) if read_certificate(der[:end]) is not None] == []


@pytest.mark.parametrize(
    ("right", "wrong"), [(b"\x02\x01\x01", b"\x02\x01\xff"), (b"\x0c\x06device", b"\x03\x06device")]
)
def test_what_the_library_only_warns_about_is_none(right, wrong):
    """A negative serial number or a name that is no text makes it no certificate."""
    der = issue("device", "maker", ED, ED)

    assert right in der
    assert read_certificate(der.replace(right, wrong)) is None


def test_bent_certificates_raise_nothing():
    """Any bytes are a certificate or None, and asking for a signature answers."""
    rng = random.Random(1)
    der = issue("device", "maker", P256, P384, uri="did:device:1", authority=True)
    for _ in range(300):
        bent = bytearray(der)
        bent[rng.randrange(len(bent))] = rng.randrange(256)
        certificate = read_certificate(bytes(bent))

        assert certificate is None or certificate.signed_by(raw(ED)) is False


@pytest.mark.parametrize("key", [rsa.generate_private_key(65_537, 2_048), ec.derive_private_key(3, ec.SECP521R1())])
def test_other_keys_are_refused(key):
    """RSA and other curves have no place in a chain."""
    assert read_certificate(issue("device", "maker", key, ED)) is None


def test_ed25519_signatures_of_a_leaf():
    """32-byte keys verify Ed25519 over the message itself."""
    signature = ED.sign(b"message")

    assert verify_with_key(raw(ED), b"message", signature)
    assert not verify_with_key(raw(ED), b"other", signature)


def test_p256_signatures_of_a_leaf():
    """65-byte keys verify ECDSA with SHA-256, written as r and s."""
    r, s = decode_dss_signature(P256.sign(b"message", ec.ECDSA(hashes.SHA256())))
    signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")

    assert verify_with_key(raw(P256), b"message", signature)
    assert not verify_with_key(raw(P256), b"other", signature)
    assert not verify_with_key(raw(P256), b"message", bytes(64))
    assert not verify_with_key(raw(P256), b"message", signature[:-1])
    assert not verify_with_key(b"\x04" + bytes(64), b"message", signature)


def test_issuer_keys():
    """An operator may name 32 bytes, or a point that lies on P-256 or P-384."""
    assert all(is_issuer_key(raw(key)) for key in (ED, P256, P384))
    assert not any(is_issuer_key(key) for key in (b"", bytes(31), b"\x04" + bytes(64), bytes(97)))


def test_name_of_an_unknown_kind_is_no_certificate():
    """A peer sends chains: a kind of name that the library does not read must not raise."""
    der = issue("device", "maker", ED, P256, uri="did:device:1")
    party = der.replace(b"\x86\x0cdid:device:1", b"\xa5\x0c\xa1\x0a\x0c\x08device:1")

    assert party != der
    assert read_certificate(party) is None
