"""Verifies issuer chains: from a device or a model, over its issuers, to a root that the operator trusts.

``provenance`` calls it with the chain of a media claim. An entry names ``subject`` and ``issuer`` and has a
``certificate`` in base64url: DER X.509, or the JSON form

    {format "strata-cert-v1", subject, issuer, subject_public_key, valid_from, valid_until, signature}

whose signature is Ed25519 over the canonical form of all other members. The leaf is first; the last entry's issuer is a
root.
Choice: a JSON certificate with ``"authority": false`` issues no other, like an X.509 one without the CA flag.
Spec: RFC-0002 10; specs/strata.md 9 (D10).
"""

import base64
import binascii
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple

from waystation.core.ids import KEY_BYTES
from waystation.crypto.issuers import IssuerCertificate, read_certificate
from waystation.protocols.strata.canonical import canonicalise, parse
from waystation.protocols.strata.packet import parse_signature
from waystation.protocols.strata.refusals import Code, Refusal, RefusedError

__all__ = ["CERTIFICATE_CHARS_MAX", "CHAIN_MAX", "FORMAT", "Leaf", "check_chain"]

CHAIN_MAX: Final = 8
CERTIFICATE_CHARS_MAX: Final = 16_384
FORMAT: Final = "strata-cert-v1"

_NAME_CHARS_MAX: Final = 512


class Leaf(NamedTuple):
    """The subject of a valid chain."""

    subject: str
    public_key: bytes
    """32 bytes of Ed25519, or an uncompressed point of 65 (P-256) or 97 (P-384)."""


class _Entry(NamedTuple):
    subject: str
    issuer: str
    certificate: str


def check_chain(chain: object, roots: Mapping[str, bytes], now: int, skew: int) -> Leaf:
    """Return the leaf of a chain that holds.

    Args:
        chain: ``issuer_chain`` as it stood in the header.
        roots: Public key of each trusted root by name.
        now: Unix seconds.
        skew: Seconds of tolerance around each certificate's validity.

    Raises:
        RefusedError: invalid_issuer_chain; the detail says which link fails how.
    """
    entries = _read_entries(chain)
    # Spec 9: leaf first, each issuer the next one's subject.
    if any(lower.issuer != upper.subject for lower, upper in pairwise(entries)):
        raise _broken("broken_link")
    # The root is looked up before any certificate is opened: a chain without a root of ours costs nothing.
    if (root_key := roots.get(entries[-1].issuer)) is None:
        raise _broken("unknown_root")
    certificates = [_read_certificate(entry) for entry in entries]
    # Spec 9: issuers need the CA flag; a signed "authority": false forbids it.
    if not all(certificate.is_authority for certificate in certificates[1:]):
        raise _broken("not_an_authority")
    issuer_keys = [certificate.public_key for certificate in certificates[1:]] + [root_key]
    for certificate, issuer_key in zip(certificates, issuer_keys, strict=True):
        # Spec 9: validity counts with the skew.
        if not certificate.valid_from - skew <= now <= certificate.valid_until + skew:
            raise _broken("certificate_not_valid")
        if not certificate.signed_by(issuer_key):
            raise _broken("bad_certificate_signature")
    return Leaf(entries[0].subject, certificates[0].public_key)


def _read_entries(chain: object) -> list[_Entry]:
    if not isinstance(chain, list) or not chain:
        raise _broken("malformed_chain")
    # Spec 9: 1 to 8 entries.
    if len(chain) > CHAIN_MAX:
        raise _broken("chain_too_long")
    return [_read_entry(entry) for entry in chain]


def _read_entry(entry: object) -> _Entry:
    if not isinstance(entry, dict):
        raise _broken("malformed_chain")
    names = [entry.get(name) for name in _Entry._fields]
    if not all(isinstance(name, str) and name for name in names):
        raise _broken("malformed_chain")
    fields = _Entry(*(str(name) for name in names))
    # Spec 9: base64url of at most 16 384 characters.
    if len(fields.certificate) > CERTIFICATE_CHARS_MAX:
        raise _broken("certificate_too_large")
    if len(fields.subject) > _NAME_CHARS_MAX or len(fields.issuer) > _NAME_CHARS_MAX:
        raise _broken("malformed_chain")
    return fields


def _read_certificate(entry: _Entry) -> IssuerCertificate:
    """Return the certificate of an entry, which must have the entry's names."""
    try:
        padding = "=" * (-len(entry.certificate) % 4)
        raw = base64.b64decode(entry.certificate + padding, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise _broken("bad_certificate") from error
    # Spec 9: DER X.509, or the JSON form, which alone begins with a brace.
    certificate = _read_json(raw) if raw.startswith(b"{") else read_certificate(raw)
    if certificate is None:
        raise _broken("bad_certificate")
    # A certificate of other names proves nothing about this entry.
    if entry.subject not in certificate.subjects or entry.issuer not in certificate.issuers:
        raise _broken("name_mismatch")
    return certificate


def _read_json(raw: bytes) -> IssuerCertificate | None:
    """Return the certificate of a strata-cert-v1, or None."""
    try:
        document = parse(raw)
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            return None
        # Spec 9: signed over the canonical form of all members but the signature.
        signed_bytes = canonicalise({name: value for name, value in document.items() if name != "signature"})
    except RefusedError:
        return None
    names = (document.get("subject"), document.get("issuer"))
    window = (document.get("valid_from"), document.get("valid_until"))
    public_key = _read_key(document.get("subject_public_key"))
    signature = parse_signature(document.get("signature"))
    if public_key is None or signature is None or not all(isinstance(name, str) for name in names):
        return None
    if not all(type(second) is int for second in window):
        return None
    return _certificate(document, public_key, signed_bytes, signature)


def _certificate(
    document: dict[str, Any], public_key: bytes, signed_bytes: bytes, signature: bytes
) -> IssuerCertificate:
    return IssuerCertificate(
        subjects=frozenset({document["subject"]}),
        issuers=frozenset({document["issuer"]}),
        public_key=public_key,
        valid_from=document["valid_from"],
        valid_until=document["valid_until"],
        # Spec 9: a JSON certificate may vouch for others unless it says "authority": false.
        is_authority=document.get("authority", True) is True,
        signed_bytes=signed_bytes,
        signature=signature,
        digest="",
    )


def _read_key(text: object) -> bytes | None:
    """Return the key of 0x and 64 digits, in either case."""
    if not isinstance(text, str) or not text.startswith("0x") or len(text) != 2 + 2 * KEY_BYTES:
        return None
    try:
        key = bytes.fromhex(text[2:])
    except ValueError:
        return None
    return key if len(key) == KEY_BYTES else None


def _broken(detail: str) -> RefusedError:
    return RefusedError(Refusal(Code.INVALID_ISSUER_CHAIN, detail))
