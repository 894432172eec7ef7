"""Creates TLS contexts for listeners and clients, and replaces certificates at run time.

Listeners (``server.certificates``) and all dialling code get an ``ssl.SSLContext`` here from PEM files. A context is
changed in place, so listeners stay open while a certificate is renewed.
"""

import contextlib
import hashlib
import os
import ssl
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from waystation.core.errors import HostError, LocalError

__all__ = [
    "KeyFileError",
    "PemPair",
    "TlsContext",
    "added_authorities",
    "authority_der",
    "client_context",
    "context_of",
    "find_authority",
    "leaf_sha256",
    "pinned_context",
    "read_pems",
    "reload_certificate",
    "server_context",
    "system_context",
    "trust_authority",
    "verifies",
]

TlsContext = ssl.SSLContext
"""What rooms that open no TLS connection themselves call the type that they hand on."""

_ENCRYPTED_MARKS: Final = (b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"Proc-Type: 4,ENCRYPTED")
_KEY_MARK: Final = b"PRIVATE KEY-----"
_PEM_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_DER_BEGIN: Final = b"\x30"
_PEM_END: Final = "-----END CERTIFICATE-----"


class KeyFileError(HostError):
    """A private key cannot be used as its file is; the message ends with the command that mends it."""


@dataclass(frozen=True, slots=True, repr=False)
class PemPair:
    """A certificate chain and its key as they were read, whatever the files hold by now; never shown."""

    cert: Path
    key: Path
    cert_pem: bytes
    key_pem: bytes


def read_pems(cert: Path, key: Path) -> PemPair:
    """Return what lies in the two files.

    Raises:
        HostError: One cannot be read.
    """
    try:
        return PemPair(cert, key, cert.read_bytes(), key.read_bytes())
    except OSError as error:
        raise HostError(f"cannot use the certificate {cert} with the key {key}: {error}") from error


def server_context(cert: Path, key: Path, *, only_tls13: bool = False, protocols: Sequence[str] = ()) -> ssl.SSLContext:
    """Return a context for listeners with what lies in two files; see ``context_of``."""
    return context_of(read_pems(cert, key), only_tls13=only_tls13, protocols=protocols)


def context_of(pems: PemPair, *, only_tls13: bool = False, protocols: Sequence[str] = ()) -> ssl.SSLContext:
    """Return a context for listeners: TLS 1.2 and 1.3, with the PEM certificate chain and key.

    TLS 1.2 because MicroPython's mbedTLS has nothing newer (docs/micropython.md).

    Args:
        pems: Chain in PEM, the leaf first, and the key of the leaf.
        only_tls13: Whether 1.2 is refused, and no session tickets are handed out.
        protocols: Names for ALPN (RFC 7301), the preferred one first; who names none, or none of them, is served too.

    Raises:
        HostError: Key and certificate do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if only_tls13 else ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    if only_tls13:
        context.num_tickets = 0
    if protocols:
        context.set_alpn_protocols(list(protocols))
    _load(context, pems)
    return context


def reload_certificate(context: ssl.SSLContext, pems: PemPair) -> None:
    """Use a new certificate for handshakes from now on; established connections are not touched.

    Raises:
        HostError: The new pair cannot be used; the old one stays in force.
    """
    _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), pems)
    _load(context, pems)


def leaf_sha256(cert: Path, cert_pem: bytes | None = None) -> bytes:
    """Return the SHA-256, 32 bytes, of the first certificate in a PEM file as it is sent.

    Args:
        cert: The file.
        cert_pem: What was read from it; None reads it.

    Raises:
        HostError: The file cannot be read or holds no certificate.
    """
    try:
        data = cert.read_bytes() if cert_pem is None else cert_pem
        return hashlib.sha256(_first_der(data)).digest()
    except OSError as error:
        raise HostError(f"cannot use the certificate {cert}: {error}") from error
    except ValueError as error:
        raise HostError(f"cannot use the certificate {cert}: it holds no certificate in PEM ({_PEM_BEGIN})") from error


def authority_der(ca: Path) -> bytes:
    """Return the one certificate of a PEM or DER file in DER, for devices that trust one authority.

    Raises:
        LocalError: The file holds none, or more than one.
        HostError: It cannot be read.
    """
    try:
        data = ca.read_bytes()
    except OSError as error:
        raise HostError(f"cannot read {ca}: {error.strerror}") from error
    count = data.count(_PEM_BEGIN.encode())
    if count > 1:
        raise LocalError(
            f"{ca} holds {count} certificates; a device trusts one: keep the authority that signs the relay's"
        )
    try:
        der = ssl.PEM_cert_to_DER_cert(data.decode("ascii")[data.index(_PEM_BEGIN.encode()) :]) if count else data
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=der)
    except (ValueError, ssl.SSLError) as error:
        raise LocalError(f"{ca} holds no certificate that can be read") from error
    return der


def added_authorities(context: ssl.SSLContext) -> list[bytes]:
    """Return the authorities in DER that a context trusts besides the system's."""
    system = set(system_context().get_ca_certs(binary_form=True))
    return [der for der in context.get_ca_certs(binary_form=True) if der not in system]


def trust_authority(context: ssl.SSLContext, der: bytes) -> None:
    """Trust one more authority in a context for dialling.

    Raises:
        HostError: The bytes are no certificate.
    """
    try:
        context.load_verify_locations(cadata=der)
    except (ValueError, ssl.SSLError) as error:
        raise HostError(f"an authority cannot be read: {error}") from error


def find_authority(shown: ssl.SSLObject, fingerprint: bytes) -> bytes | None:
    """Return the certificate in DER, of those that the other side has shown, whose SHA-256 this is; None without one.

    What was shown is not verified here. Who trusts the certificate that is found, because of its fingerprint, and then
    connects anew, gets a verified connection.
    """
    chain = shown._sslobj.get_unverified_chain()  # type: ignore[attr-defined]  # noqa: SLF001 - public from Python 3.13
    ders = [ssl.PEM_cert_to_DER_cert(each.public_bytes()) for each in chain or ()]
    return next((der for der in ders if hashlib.sha256(der).digest() == fingerprint), None)


@cache
def system_context() -> ssl.SSLContext:
    """Return the TLS context that trusts the authorities of the system; made once, since reading them takes 40 ms."""
    return ssl.create_default_context()


def client_context(
    ca: Path | str | None = None, *, verify: bool = True, only_tls13: bool = False, protocols: Sequence[str] = ()
) -> ssl.SSLContext:
    """Return a context for dialling.

    Args:
        ca: File of authorities to trust besides the system's: of any number in PEM, or of one in DER.
        verify: False takes any certificate, for relays whose payload protection does not rest on TLS.
        only_tls13: Whether 1.2 is refused.
        protocols: Names for ALPN (RFC 7301), the preferred one first.

    Raises:
        HostError: The file cannot be read or holds no certificate.
    """
    context = ssl.create_default_context()
    if only_tls13:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if protocols:
        context.set_alpn_protocols(list(protocols))
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca is not None:
        try:
            data = Path(ca).read_bytes()
            if data[:1] == _DER_BEGIN:
                context.load_verify_locations(cadata=data)
            else:
                context.load_verify_locations(cafile=ca)
        except (OSError, ssl.SSLError) as error:
            raise HostError(f"cannot use {ca} as a certificate authority: {error}") from error
    return context


def pinned_context(der: bytes, like: ssl.SSLContext | None = None) -> ssl.SSLContext:
    """Return a context for dialling that trusts one authority and no other.

    Args:
        der: Its certificate in DER.
        like: Whose least version of TLS it has.

    Raises:
        HostError: The bytes are no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if like is not None:
        context.minimum_version = like.minimum_version
    trust_authority(context, der)
    return context


def verifies(context: ssl.SSLContext | None) -> bool:
    """Return whether connections of a context for dialling are verified; None is the system's."""
    return context is None or context.verify_mode is ssl.CERT_REQUIRED


def _load(context: ssl.SSLContext, pems: PemPair) -> None:
    try:
        with _as_file(pems.cert_pem) as cert, _as_file(pems.key_pem) as key:
            context.load_cert_chain(cert, key, password="")  # without one OpenSSL would ask on the terminal, and wait
    except (OSError, ssl.SSLError) as error:
        if isinstance(error, ssl.SSLError) and any(mark in pems.key_pem for mark in _ENCRYPTED_MARKS):
            way_out = f"write it without one: openssl pkey -in {pems.key} -out {pems.key}.plain"
            raise KeyFileError(
                f"the key {pems.key} has a passphrase, and nobody is there to type it; {way_out}"
            ) from error
        why = _what_is_wrong(pems) or error
        raise HostError(f"cannot use the certificate {pems.cert} with the key {pems.key}: {why}") from error


def _what_is_wrong(pems: PemPair) -> str:
    """Return what OpenSSL has no words for, "" where it has."""
    has_cert, has_key = _PEM_BEGIN.encode() in pems.cert_pem, _KEY_MARK in pems.key_pem
    if not has_cert and not has_key and _KEY_MARK in pems.cert_pem:
        return "the first holds a private key; are the two exchanged?"
    if not has_cert:
        return f"{pems.cert} holds no certificate in PEM ({_PEM_BEGIN})"
    if not has_key:
        return f"{pems.key} holds no private key in PEM (-----BEGIN PRIVATE KEY-----)"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=_first_der(pems.cert_pem))
    except (ValueError, ssl.SSLError):
        return f"the certificate in {pems.cert} is damaged"
    return ""


def _first_der(cert_pem: bytes) -> bytes:
    """Return the first certificate of a PEM text in DER; ValueError when there is none, or no base64 in it."""
    text = cert_pem.decode("ascii", errors="replace")
    return ssl.PEM_cert_to_DER_cert(text[text.index(_PEM_BEGIN) :].partition(_PEM_END)[0] + _PEM_END)


@contextlib.contextmanager
def _as_file(pem: bytes) -> Iterator[str]:
    """Give a path at which OpenSSL, which reads files only, finds these bytes; in memory where the system has that."""
    if not hasattr(os, "memfd_create"):
        with tempfile.NamedTemporaryFile() as file:  # that nobody else may read
            file.write(pem)
            file.flush()
            yield file.name
        return
    descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(pem)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
