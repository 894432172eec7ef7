"""Dialling a relay: an address as people write it, and a pipe to it."""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import aiofastnet

from waystation.core.addresses import is_public
from waystation.core.errors import HostError, LocalError
from waystation.transport.pipe import Pipe, Sink
from waystation.transport.udp_pipe import connect_udp

__all__ = ["DATAGRAM_SCHEMES", "DEFAULT_PORT", "DEFAULT_UDP_PORT", "STREAM_SCHEMES", "RelayUrl", "dial"]

DEFAULT_PORT: Final = 8443  # design.md, Outside face: the bhumi listener
DEFAULT_UDP_PORT: Final = 4810  # and the lprp listener
STREAM_SCHEMES: Final = ("tls", "tcp")
DATAGRAM_SCHEMES: Final = ("udp",)
_NAME_MISMATCHES: Final = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH and _IP_ADDRESS_MISMATCH of OpenSSL


@dataclass(frozen=True, slots=True)
class RelayUrl:
    """Where a relay listens; ``str`` gives the text back."""

    scheme: str
    """``tls``, ``tcp`` or ``udp``."""
    host: str
    """Name or address, without brackets."""
    port: int

    @classmethod
    def parse(cls, text: str, schemes: Sequence[str] = STREAM_SCHEMES) -> "RelayUrl":
        """Return the address in ``scheme://host:port`` or ``host:port``, which means the first of ``schemes``.

        The port may be left out (8443, with udp 4810); IPv6 addresses stand in brackets.

        Args:
            text: What a person wrote.
            schemes: What the caller's protocol runs over: ``STREAM_SCHEMES`` or ``DATAGRAM_SCHEMES``.

        Raises:
            LocalError: Anything else.
        """
        full = text if "://" in text else f"{schemes[0]}://{text}"
        try:
            parts = urlsplit(full)
            port = parts.port
        except ValueError as error:
            raise LocalError(f"not a relay address: {text!r} ({error})") from error
        extra = parts.path.strip("/") or parts.query or parts.fragment or parts.username is not None
        is_number = (parts.hostname or "").isdecimal()  # a port alone, most likely; no host is called that
        if parts.scheme not in schemes or not parts.hostname or extra or is_number:
            expected = " or ".join(f"{scheme}://host:port" for scheme in schemes)
            raise LocalError(f"not a relay address: {text!r}; expected {expected}")
        default = DEFAULT_UDP_PORT if parts.scheme in DATAGRAM_SCHEMES else DEFAULT_PORT
        return cls(parts.scheme, parts.hostname, default if port is None else port)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


async def dial(
    url: RelayUrl | str,
    sink: Sink,
    context: ssl.SSLContext | None,
    timeout_s: float,
    *,
    place: str = "",
    only_public: bool = False,
) -> Pipe:
    """Connect and return the pipe; the sink has been told ``connected`` by then.

    Args:
        url: Where to; a text is one of ``STREAM_SCHEMES``.
        sink: Gets everything the pipe reports; over ``udp`` each chunk and each ``received`` is one datagram.
        context: TLS context for ``tls`` addresses (None means the system's authorities); else not used.
        timeout_s: For name lookup, connecting and the TLS handshake together; over ``udp`` there is only the lookup.
        place: IP address to connect to instead of asking for those of the host, which TLS still is to prove.
        only_public: Without a place: connect only if every address of the host is on the open internet, and to one of
            those that were judged. For places that strangers name; not for ``udp``.

    Raises:
        LocalError: The text is no address.
        HostError: Nobody listens, no answer in time, the certificate is not trusted, or the place is not public.
    """
    target = RelayUrl.parse(url) if isinstance(url, str) else url
    try:
        async with asyncio.timeout(timeout_s):
            if target.scheme in DATAGRAM_SCHEMES:
                return await connect_udp(target.host, target.port, sink)
            if only_public and not place:
                place = await _public_address(target)
            return await _connect(target, sink, context, timeout_s, place)
    except (OSError, UnicodeError) as error:  # TimeoutError and ssl.SSLError are OSErrors; a host may be no IDNA name
        raise HostError(_reason(target, error, timeout_s)) from error


async def _public_address(target: RelayUrl) -> str:
    """Return an address of the host after all of them were judged; raises HostError for a place that is not public."""
    found = await asyncio.get_running_loop().getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    addresses = [str(each[0]) for *_, each in found]
    private = [address for address in addresses if not is_public(address)]
    if private:
        raise HostError(f"{target} leads to {private[0]}, which is not on the open internet; not dialled")
    return addresses[0]


async def _connect(target: RelayUrl, sink: Sink, context: ssl.SSLContext | None, timeout_s: float, place: str) -> Pipe:
    tls = (context or ssl.create_default_context()) if target.scheme == "tls" else None
    transport, pipe = await aiofastnet.create_connection(
        asyncio.get_running_loop(),
        lambda: Pipe(sink, target.host),
        place or target.host,
        target.port,
        ssl=tls,
        server_hostname=target.host if tls is not None else None,
        ssl_handshake_timeout=timeout_s if tls is not None else None,
    )
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
        hint = "; is it a plain tcp:// listener?" if target.scheme == "tls" else ""
        return f"{target} did not answer within {timeout_s:g} s{hint}"
    if isinstance(error, ConnectionRefusedError):
        return f"nobody listens on {target}; is the relay running?"
    if isinstance(error, socket.gaierror | UnicodeError):
        return f"cannot find the host of {target}: {error}"
    if isinstance(error, ssl.SSLError | ConnectionResetError):
        why = f" ({error})" if str(error) else ""
        return f"{target} did not complete the TLS handshake{why}; is it a plain tcp:// listener?"
    return f"cannot reach {target}: {error}"
