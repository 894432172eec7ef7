"""Laws of crypto.certificates."""

import datetime
import ipaddress
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from waystation.crypto.certificates import is_signed_by, make_local_certificates, read_certificate, sign_leaf

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
    assert read_certificate(MADE.cert_pem) == (
        NOW - datetime.timedelta(days=1),
        NOW + datetime.timedelta(days=365),
        ("localhost", "node.example", "127.0.0.1", "::1"),
    )
    assert read_certificate(MADE.ca_pem).ends == NOW + datetime.timedelta(days=3650)


def test_text_without_certificate_is_a_value_error():
    """Junk is told apart from a certificate."""
    with pytest.raises(ValueError, match=r"PEM"):
        read_certificate(b"junk")


def test_repr_hides_the_key():
    """The private key never reaches a log."""
    assert "PRIVATE" not in repr(MADE)


def _verified(leaf_pem, at, name="added.example"):
    """Return whether a client that has the authority takes a leaf at a time."""
    builder = PolicyBuilder().store(Store([AUTHORITY])).time(at)
    try:
        verify = builder.build_server_verifier(x509.DNSName(name)).verify
        return verify(x509.load_pem_x509_certificate(leaf_pem), [])[-1] == AUTHORITY
    except VerificationError:
        return False


def test_next_leaf_is_taken_by_those_who_have_the_authority():
    """The key stays, the names are those given, and its year begins anew."""
    later = NOW + datetime.timedelta(days=340)
    leaf_pem = sign_leaf(MADE.ca_pem, MADE.ca_key_pem, MADE.cert_pem, ["localhost", "added.example"], later)
    leaf = x509.load_pem_x509_certificate(leaf_pem)

    assert leaf.public_key() == LEAF.public_key()
    assert leaf.serial_number != LEAF.serial_number
    assert read_certificate(leaf_pem).ends == later + datetime.timedelta(days=365)
    assert [_verified(pem, later + datetime.timedelta(days=100)) for pem in (leaf_pem, MADE.cert_pem)] == [True, False]


def test_leaf_ends_with_its_authority_at_the_latest():
    """A leaf beyond its authority would promise what no client takes."""
    late = NOW + datetime.timedelta(days=3500)
    leaf_pem = sign_leaf(MADE.ca_pem, MADE.ca_key_pem, MADE.cert_pem, ["localhost"], late)

    assert read_certificate(leaf_pem).ends == AUTHORITY.not_valid_after_utc


def _encrypted(key_pem):
    key = serialization.load_pem_private_key(key_pem, password=None)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(*form, serialization.BestAvailableEncryption(b"secret"))


@pytest.mark.parametrize(
    "broken", ["other key", "encrypted key", "junk for a key", "junk for an authority", "junk for a leaf"]
)
def test_what_does_not_fit_together_signs_nothing(broken):
    """Each is a ValueError, whatever is wrong."""
    parts = [MADE.ca_pem, MADE.ca_key_pem, MADE.cert_pem]
    other = make_local_certificates(["localhost"], NOW)
    place, bad = {
        "other key": (1, other.ca_key_pem),
        "encrypted key": (1, _encrypted(MADE.ca_key_pem)),
        "junk for a key": (1, b"junk"),
        "junk for an authority": (0, b"junk"),
        "junk for a leaf": (2, b"junk"),
    }[broken]
    parts[place] = bad

    with pytest.raises(ValueError, match=r"."):
        sign_leaf(*parts, ["localhost"], NOW)


def test_signer_is_told_by_its_key_not_its_name():
    """Every local authority has the same name; a leaf of another one, or of a public one, is not ours."""
    other = make_local_certificates(["localhost"], NOW)

    assert is_signed_by(MADE.cert_pem, MADE.ca_pem)
    assert not is_signed_by(MADE.cert_pem, other.ca_pem)
    assert not is_signed_by(other.cert_pem, MADE.ca_pem)


def test_address_is_a_name_too():
    """Older TLS libraries of boards compare an address with the names of a certificate alone; it is told once."""
    made = make_local_certificates(["192.168.1.7"], NOW)
    leaf = x509.load_pem_x509_certificate(made.cert_pem)
    held = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)

    assert held.value.get_values_for_type(x509.DNSName) == ["192.168.1.7"]
    assert held.value.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("192.168.1.7")]
    assert read_certificate(made.cert_pem).names == ("192.168.1.7",)


def test_certificate_without_names_has_none():
    """The authority names no host."""
    assert read_certificate(MADE.ca_pem).names == ()


def _self_signed(*extensions):
    """Return a certificate in DER that its own key signed, with these extensions."""
    key, name = ec.generate_private_key(ec.SECP256R1()), AUTHORITY.subject
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(NOW).not_valid_after(NOW + datetime.timedelta(days=1))
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def test_name_of_an_unknown_kind_is_a_value_error():
    """An EDI party name as the subject alternative name is one that the library does not read."""
    party = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, bytes.fromhex("3007a505a1030c0178"))
    der = _self_signed(party)

    with pytest.raises(ValueError, match="not supported"):
        read_certificate(ssl.DER_cert_to_PEM_cert(der).encode())


def test_unknown_version_is_a_value_error():
    """Version 5 does not exist; whoever reads it gets the one error that is promised."""
    third, fifth = bytes.fromhex("a003020102"), bytes.fromhex("a003020104")
    der = AUTHORITY.public_bytes(serialization.Encoding.DER).replace(third, fifth, 1)
    pem = ssl.DER_cert_to_PEM_cert(der).encode()

    with pytest.raises(ValueError, match="version"):
        read_certificate(pem)
    with pytest.raises(ValueError, match="version"):
        is_signed_by(pem, MADE.ca_pem)
    with pytest.raises(ValueError, match="version"):
        is_signed_by(MADE.cert_pem, pem)
    with pytest.raises(ValueError, match="version"):
        sign_leaf(MADE.ca_pem, MADE.ca_key_pem, pem, ["localhost"], NOW)
