"""Reads X.509 certificates of an issuer chain: subject, issuer and key, and checks the signatures between them.

Strata relays check with it who issued the certificate of a DID's key (``protocols.strata.keys.certificate``): DER bytes
go in, ``IssuerCertificate`` or None comes out. Name constraints and revocation are not supported. A public key is 32
bytes of Ed25519 or the uncompressed point of a NIST curve (65 bytes for P-256, 97 for P-384). An operator can therefore
configure a root key as hexadecimal digits.
"""

import warnings
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from waystation.core.ids import KEY_BYTES
from waystation.crypto.certificates import OTHER_FAULTS
from waystation.crypto.signing import verify

__all__ = ["IssuerCertificate", "is_issuer_key", "read_certificate", "verify_with_key"]

_CURVES: Final[dict[int, ec.EllipticCurve]] = {65: ec.SECP256R1(), 97: ec.SECP384R1()}


@dataclass(frozen=True, slots=True)
class IssuerCertificate:
    """What a chain asks of one certificate."""

    subjects: frozenset[str]
    """Names it is for: the whole distinguished name (RFC 4514), its common names, and URIs among the alternatives."""
    issuers: frozenset[str]
    """Names of its issuer: the whole distinguished name and its common names."""
    public_key: bytes
    """32, 65 or 97 bytes."""
    valid_from: int
    """Unix seconds."""
    valid_until: int
    """Unix seconds."""
    is_authority: bool
    """Whether it may sign others (basic constraints)."""
    signed_bytes: bytes
    signature: bytes
    """64 bytes of Ed25519 or an ECDSA signature in DER."""
    digest: str
    """Hash of an ECDSA signature, sha256 and the like; empty for Ed25519."""

    def signed_by(self, issuer_key: bytes) -> bool:
        """Return whether the certificate's signature is valid under a key of 32, 65 or 97 bytes."""
        if len(issuer_key) == KEY_BYTES:
            return not self.digest and verify(issuer_key, self.signed_bytes, self.signature)
        algorithm = _DIGESTS.get(self.digest)
        return algorithm is not None and _verify_ecdsa(issuer_key, self.signed_bytes, self.signature, algorithm)


def read_certificate(der: bytes) -> IssuerCertificate | None:
    """Return the fields of a DER certificate, or None when it is malformed or has another kind of key."""
    with warnings.catch_warnings():
        # The library reads some malformed certificates with no more than a warning; a chain accepts none of them.
        warnings.simplefilter("error")
        try:
            return _read(x509.load_der_x509_certificate(der))
        except (ValueError, Warning, *OTHER_FAULTS):
            return None


def is_issuer_key(key: bytes) -> bool:
    """Return whether bytes are a key that signatures of a chain can be checked with."""
    if len(key) == KEY_BYTES:
        return True
    return _point(key) is not None


def verify_with_key(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Return whether a 64-byte signature is valid: Ed25519, or ECDSA on P-256 with SHA-256 as r and s of 32 bytes."""
    if len(public_key) == KEY_BYTES:
        return verify(public_key, message, signature)
    if len(signature) != _P256_SIGNATURE_BYTES:
        return False
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
    return _verify_ecdsa(public_key, message, encode_dss_signature(r, s), hashes.SHA256())


def _read(certificate: x509.Certificate) -> IssuerCertificate | None:
    public_key = _raw_key(certificate.public_key())
    if public_key is None:
        return None
    digest = certificate.signature_hash_algorithm
    return IssuerCertificate(
        subjects=_names(certificate.subject) | _uris(certificate),
        issuers=_names(certificate.issuer),
        public_key=public_key,
        valid_from=int(certificate.not_valid_before_utc.timestamp()),
        valid_until=int(certificate.not_valid_after_utc.timestamp()),
        is_authority=_is_authority(certificate),
        signed_bytes=certificate.tbs_certificate_bytes,
        signature=certificate.signature,
        digest=digest.name if digest is not None else "",
    )


def _verify_ecdsa(public_key: bytes, message: bytes, signature: bytes, algorithm: hashes.HashAlgorithm) -> bool:
    point = _point(public_key)
    if point is None:
        return False
    try:
        point.verify(signature, message, ec.ECDSA(algorithm))
    except InvalidSignature:
        return False
    return True


def _point(public_key: bytes) -> ec.EllipticCurvePublicKey | None:
    curve = _CURVES.get(len(public_key))
    if curve is None:
        return None
    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(curve, public_key)
    except ValueError:
        return None


def _raw_key(public_key: object) -> bytes | None:
    if isinstance(public_key, ed25519.Ed25519PublicKey):
        return public_key.public_bytes_raw()
    if isinstance(public_key, ec.EllipticCurvePublicKey) and isinstance(public_key.curve, ec.SECP256R1 | ec.SECP384R1):
        return public_key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    return None


def _names(name: x509.Name) -> frozenset[str]:
    common = (str(attribute.value) for attribute in name.get_attributes_for_oid(NameOID.COMMON_NAME))
    return frozenset({name.rfc4514_string(), *common})


def _uris(certificate: x509.Certificate) -> frozenset[str]:
    try:
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(alternatives.get_values_for_type(x509.UniformResourceIdentifier))


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


_P256_SIGNATURE_BYTES: Final = 64
_DIGESTS: Final[dict[str, hashes.HashAlgorithm]] = {
    "sha256": hashes.SHA256(),
    "sha384": hashes.SHA384(),
    "sha512": hashes.SHA512(),
}
