"""TLS contexts: what we offer, what we check, and how a certificate is replaced while peers stay connected."""

import ssl
from pathlib import Path

from waystation.core.errors import HostError

__all__ = ["client_context", "reload_certificate", "server_context"]


def server_context(cert: Path, key: Path) -> ssl.SSLContext:
    """Return a context for listeners: TLS 1.2 and 1.3, with the PEM certificate chain and key.

    TLS 1.2 because MicroPython's mbedTLS has nothing newer (design.md, Identity and TLS).

    Raises:
        HostError: A file cannot be read, or key and certificate do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    _load(context, cert, key)
    return context


def reload_certificate(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    """Use a new certificate for handshakes from now on; connections that stand are not touched.

    Raises:
        HostError: The new pair cannot be used; the old one stays in force.
    """
    _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), cert, key)
    _load(context, cert, key)


def client_context(ca: Path | None = None, *, verify: bool = True) -> ssl.SSLContext:
    """Return a context for dialling.

    Args:
        ca: PEM file of an authority to trust besides the system's.
        verify: False takes any certificate, for relays whose payload protection does not rest on TLS.

    Raises:
        HostError: The file cannot be read or holds no certificate.
    """
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca is not None:
        try:
            context.load_verify_locations(cafile=ca)
        except (OSError, ssl.SSLError) as error:
            raise HostError(f"cannot use {ca} as a certificate authority: {error}") from error
    return context


def _load(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise HostError(f"cannot use the certificate {cert} with the key {key}: {error}") from error
