"""Dialling a relay: an address as people write it, and a pipe to it."""

import asyncio
import socket
import ssl
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import aiofastnet

from waystation.core.errors import HostError, LocalError
from waystation.transport.pipe import Pipe, Sink

__all__ = ["DEFAULT_PORT", "RelayUrl", "dial"]

DEFAULT_PORT: Final = 8443  # design.md, Outside face: the bhumi listener
_SCHEMES: Final = ("tls", "tcp")
_NAME_MISMATCHES: Final = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH and _IP_ADDRESS_MISMATCH of OpenSSL


@dataclass(frozen=True, slots=True)
class RelayUrl:
    """Where a relay listens; ``str`` gives the text back."""

    scheme: str
    """``tls`` or ``tcp``."""
    host: str
    """Name or address, without brackets."""
    port: int

    @classmethod
    def parse(cls, text: str) -> "RelayUrl":
        """Return the address in ``tls://host:port``, ``tcp://host:port`` or ``host:port`` (which means tls).

        The port may be left out (8443); IPv6 addresses stand in brackets.

        Raises:
            LocalError: Anything else.
        """
        full = text if "://" in text else f"tls://{text}"
        try:
            parts = urlsplit(full)
            port = parts.port
        except ValueError as error:
            raise LocalError(f"not a relay address: {text!r} ({error})") from error
        extra = parts.path.strip("/") or parts.query or parts.fragment or parts.username is not None
        if parts.scheme not in _SCHEMES or not parts.hostname or extra:
            raise LocalError(f"not a relay address: {text!r}; expected tls://host:port or tcp://host:port")
        return cls(parts.scheme, parts.hostname, DEFAULT_PORT if port is None else port)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


async def dial(url: RelayUrl | str, sink: Sink, context: ssl.SSLContext | None, timeout_s: float) -> Pipe:
    """Connect and return the pipe; the sink has been told ``connected`` by then.

    Args:
        url: Where to.
        sink: Gets everything the pipe reports.
        context: TLS context for ``tls`` addresses (None means the system's authorities); not used for ``tcp``.
        timeout_s: For name lookup, connecting and the TLS handshake together.

    Raises:
        LocalError: The text is no address.
        HostError: Nobody listens, no answer in time, or the certificate is not trusted.
    """
    target = RelayUrl.parse(url) if isinstance(url, str) else url
    tls = (context or ssl.create_default_context()) if target.scheme == "tls" else None
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            transport, pipe = await aiofastnet.create_connection(
                loop,
                lambda: Pipe(sink, target.host),
                target.host,
                target.port,
                ssl=tls,
                ssl_handshake_timeout=timeout_s if tls is not None else None,
            )
    except (OSError, UnicodeError) as error:  # TimeoutError and ssl.SSLError are OSErrors; a host may be no IDNA name
        raise HostError(_reason(target, error, timeout_s)) from error
    carrier = transport.get_extra_info("socket")
    if carrier is not None:
        carrier.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    assert isinstance(pipe, Pipe)
    return pipe


def _reason(target: RelayUrl, error: Exception, timeout_s: float) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message or str(error)
        if error.verify_code in _NAME_MISMATCHES:
            return (
                f"{target} shows a certificate that is not trusted: it does not name {target.host}; "
                f"dial a name that it has, or run `waystation init --name {target.host}` on the node"
            )
        return f"{target} shows a certificate that is not trusted ({why}); name its authority with --ca FILE"
    if isinstance(error, TimeoutError):
        return f"{target} did not answer within {timeout_s:g} s"
    if isinstance(error, ConnectionRefusedError):
        return f"nobody listens on {target}; is the relay running?"
    if isinstance(error, socket.gaierror | UnicodeError):
        return f"cannot find the host of {target}: {error}"
    if isinstance(error, ssl.SSLError | ConnectionResetError):
        return f"{target} did not complete the TLS handshake ({error}); is it a plain tcp:// listener?"
    return f"cannot reach {target}: {error}"
