"""X.509: a local certificate authority and an ECDSA P-256 leaf.

P-256 because MicroPython's mbedTLS has neither Ed25519 certificates nor Curve25519 (design.md, Identity and TLS).
"""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["LocalCertificates", "expires_at", "make_local_certificates"]

_CA_DAYS: Final = 3650
_LEAF_DAYS: Final = 825  # the longest validity that Apple's platforms accept for a privately issued leaf
_BACKDATE: Final = datetime.timedelta(hours=24)  # boards wake up with clocks that lag


@dataclass(frozen=True, slots=True)
class LocalCertificates:
    """PEM texts of a fresh authority and the leaf it signed."""

    ca_pem: bytes
    cert_pem: bytes
    key_pem: bytes = field(repr=False)
    """PKCS #8, not encrypted."""


def make_local_certificates(names: Sequence[str], now: datetime.datetime) -> LocalCertificates:
    """Make a certificate authority (its key is thrown away) and a leaf for ``names``.

    Args:
        names: DNS names and IP addresses the leaf is good for; the first becomes its common name.
        now: Aware UTC time; validity starts a day before it.
    """
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "waystation local CA")])
    authority = (
        _builder(ca_name, ca_name, ca_key.public_key(), now, _CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    leaf_key = ec.generate_private_key(ec.SECP256R1())
    leaf_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    leaf = (
        _builder(leaf_name, ca_name, leaf_key.public_key(), now, _LEAF_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    return LocalCertificates(
        ca_pem=authority.public_bytes(serialization.Encoding.PEM),
        cert_pem=leaf.public_bytes(serialization.Encoding.PEM),
        key_pem=leaf_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )


def expires_at(cert_pem: bytes) -> datetime.datetime:
    """Return when the first certificate of a PEM text ends, in aware UTC.

    Raises:
        ValueError: The text holds no certificate.
    """
    return x509.load_pem_x509_certificate(cert_pem).not_valid_after_utc


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    now: datetime.datetime,
    days: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


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
