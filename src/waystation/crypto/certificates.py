"""Creates X.509 certificates, a local certificate authority and ECDSA P-256 leaves that it signs, and reads others.

``server.home`` makes the certificates of a new home with it, ``server.certificates`` renews them, BSP devices show
theirs. PEM text goes in and out. The authority is good for ten years and its leaves for one: ``sign_leaf`` makes the
next one, which clients of the authority accept as they are. P-256 is used because MicroPython's mbedTLS has neither
Ed25519 certificates nor Curve25519 (docs/micropython.md).
"""

import contextlib
import datetime
import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = [
    "OTHER_FAULTS",
    "CertificateFacts",
    "LocalCertificates",
    "der_of",
    "is_authority",
    "is_signed_by",
    "make_local_certificates",
    "read_certificate",
    "sign_leaf",
]

_CA_DAYS: Final = 3650
_LEAF_DAYS: Final = 365
OTHER_FAULTS: Final = (
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""What the library raises beside ValueError for a certificate or a key that it cannot read."""
_BACKDATE: Final = datetime.timedelta(hours=24)  # boards wake up with clocks that lag


@dataclass(frozen=True, slots=True)
class LocalCertificates:
    """PEM texts of a fresh authority and the leaf it signed; the keys are PKCS #8, not encrypted."""

    ca_pem: bytes
    ca_key_pem: bytes = field(repr=False)
    cert_pem: bytes
    key_pem: bytes = field(repr=False)


class CertificateFacts(NamedTuple):
    """What a certificate says of itself."""

    begins: datetime.datetime
    """Aware UTC, as ``ends``."""
    ends: datetime.datetime
    names: tuple[str, ...]
    """DNS names and IP addresses of its subject alternative name, in its order."""


def make_local_certificates(names: Sequence[str], now: datetime.datetime) -> LocalCertificates:
    """Make a certificate authority and a leaf for ``names``.

    Args:
        names: DNS names and IP addresses the leaf is good for; the first becomes its common name.
        now: Aware UTC time; validity starts a day before it.
    """
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "waystation local CA")])
    authority = (
        _builder(ca_name, ca_name, ca_key.public_key(), now, now + datetime.timedelta(days=_CA_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    leaf_key = ec.generate_private_key(ec.SECP256R1())
    leaf = _leaf(authority, ca_key, leaf_key.public_key(), names, now)
    return LocalCertificates(
        ca_pem=authority.public_bytes(serialization.Encoding.PEM),
        ca_key_pem=_private_pem(ca_key),
        cert_pem=leaf.public_bytes(serialization.Encoding.PEM),
        key_pem=_private_pem(leaf_key),
    )


def sign_leaf(ca_pem: bytes, ca_key_pem: bytes, cert_pem: bytes, names: Sequence[str], now: datetime.datetime) -> bytes:
    """Return a fresh leaf in PEM for the key of an old one, signed by the same authority.

    Args:
        ca_pem: The authority.
        ca_key_pem: Its key.
        cert_pem: The old leaf, whose key stays: one file changes, so no reader meets half a pair.
        names: As for ``make_local_certificates``.
        now: Aware UTC time; validity starts a day before it, and ends no later than that of the authority.

    Raises:
        ValueError: A text cannot be read, or key and authority do not fit together.
    """
    with _only_value_errors():
        authority, leaf_key = (
            x509.load_pem_x509_certificate(ca_pem),
            x509.load_pem_x509_certificate(cert_pem).public_key(),
        )
        ca_key = serialization.load_pem_private_key(ca_key_pem, password=None)
    if not isinstance(ca_key, ec.EllipticCurvePrivateKey) or ca_key.public_key() != authority.public_key():
        raise ValueError("the authority and its key do not belong together")
    if not isinstance(leaf_key, ec.EllipticCurvePublicKey):
        raise ValueError("the certificate is none that the authority makes")  # noqa: TRY004 - of the text, not a type
    return _leaf(authority, ca_key, leaf_key, names, now).public_bytes(serialization.Encoding.PEM)


def read_certificate(cert_pem: bytes) -> CertificateFacts:
    """Return what the first certificate of a PEM text says.

    Raises:
        ValueError: The text holds no certificate that can be read.
    """
    names: tuple[str, ...] = ()
    with _only_value_errors():
        certificate = x509.load_pem_x509_certificate(cert_pem)
        with contextlib.suppress(x509.ExtensionNotFound):
            held = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            addresses = held.get_values_for_type(x509.IPAddress)
            texts = [*map(str, addresses)]
            hosts = [name for name in held.get_values_for_type(x509.DNSName) if name not in texts]
            names = (*hosts, *texts)
        return CertificateFacts(certificate.not_valid_before_utc, certificate.not_valid_after_utc, names)


def der_of(cert_pem: bytes) -> bytes:
    """Return the first certificate of a PEM text in DER.

    Raises:
        ValueError: The text holds no certificate that can be read.
    """
    with _only_value_errors():
        return x509.load_pem_x509_certificate(cert_pem).public_bytes(serialization.Encoding.DER)


def is_authority(der: bytes) -> bool:
    """Return whether these bytes are one certificate, and that of somebody who may sign others."""
    try:
        certificate = x509.load_der_x509_certificate(der)
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (ValueError, x509.ExtensionNotFound, *OTHER_FAULTS):
        return False


def is_signed_by(cert_pem: bytes, ca_pem: bytes) -> bool:
    """Return whether the authority ``ca_pem`` signed the first certificate of a PEM text.

    Raises:
        ValueError: One of the texts holds no certificate that can be read.
    """
    with _only_value_errors():
        certificate, authority = x509.load_pem_x509_certificate(cert_pem), x509.load_pem_x509_certificate(ca_pem)
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, InvalidSignature, *OTHER_FAULTS):  # another issuer or key, or no such key
        return False
    return True


@contextlib.contextmanager
def _only_value_errors() -> Iterator[None]:
    """Turn what else a text can raise, such as an encrypted key or an unknown curve, into a ValueError."""
    try:
        yield
    except OTHER_FAULTS as error:
        raise ValueError(str(error)) from error


def _leaf(
    authority: x509.Certificate,
    ca_key: ec.EllipticCurvePrivateKey,
    leaf_key: ec.EllipticCurvePublicKey,
    names: Sequence[str],
    now: datetime.datetime,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    ends = min(now + datetime.timedelta(days=_LEAF_DAYS), authority.not_valid_after_utc)
    return (
        _builder(subject, authority.subject, leaf_key, now, ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([each for name in names for each in _general_names(name)]), critical=False
        )
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    now: datetime.datetime,
    ends: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(ends)
    )


def _general_names(name: str) -> list[x509.GeneralName]:
    """Return the entries for a name: two for an address of IPv4, because Mbed TLS before 3.5 looks at names alone."""
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return [x509.DNSName(name)]
    return [x509.IPAddress(address), *([x509.DNSName(str(address))] if address.version == 4 else [])]


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
