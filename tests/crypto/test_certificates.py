"""Laws of crypto.certificates."""

import datetime
import ipaddress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store

from waystation.crypto.certificates import expires_at, make_local_certificates

NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
MADE = make_local_certificates(["localhost", "127.0.0.1", "::1", "node.example"], NOW)
AUTHORITY = x509.load_pem_x509_certificate(MADE.ca_pem)
LEAF = x509.load_pem_x509_certificate(MADE.cert_pem)


@pytest.mark.parametrize(
    "subject",
    [
        x509.DNSName("localhost"),
        x509.DNSName("node.example"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        x509.IPAddress(ipaddress.ip_address("::1")),
    ],
    ids=lambda subject: str(subject.value),
)
def test_a_strict_verifier_accepts_the_chain_for_every_name(subject):
    """A client that trusts the authority accepts the leaf under each of its names."""
    verifier = PolicyBuilder().store(Store([AUTHORITY])).time(NOW).build_server_verifier(subject)

    assert verifier.verify(LEAF, []) == [LEAF, AUTHORITY]


def test_leaf_is_p256_and_no_authority():
    """MicroPython can use the key, and nobody can sign further certificates with it."""
    key = serialization.load_pem_private_key(MADE.key_pem, password=None)

    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert isinstance(key.curve, ec.SECP256R1)
    assert key.public_key() == LEAF.public_key()
    assert LEAF.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    assert list(LEAF.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [
        ExtendedKeyUsageOID.SERVER_AUTH
    ]


def test_authority_is_one_and_signs_leaves_only():
    """CA:TRUE with no room for intermediates."""
    constraints = AUTHORITY.extensions.get_extension_for_class(x509.BasicConstraints)

    assert constraints.critical
    assert (constraints.value.ca, constraints.value.path_length) == (True, 0)
    LEAF.verify_directly_issued_by(AUTHORITY)


def test_validity_begins_a_day_early_and_ends_when_told():
    """Boards with lagging clocks accept a fresh certificate, and its end can be read back."""
    assert LEAF.not_valid_before_utc == NOW - datetime.timedelta(days=1)
    assert expires_at(MADE.cert_pem) == NOW + datetime.timedelta(days=825)


def test_text_without_certificate_is_a_value_error():
    """Junk is told apart from a certificate."""
    with pytest.raises(ValueError, match=r"PEM"):
        expires_at(b"junk")


def test_repr_hides_the_key():
    """The private key never reaches a log."""
    assert "PRIVATE" not in repr(MADE)
