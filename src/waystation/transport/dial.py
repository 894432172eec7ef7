"""Parses a relay's address, and opens a pipe to it over TLS, TCP or UDP.

SDK clients, the node's outlets and commands call ``dial``: a URL such as ``tls://host:port`` goes in, a ``Pipe`` that
reports to the given sink comes out. With ``only_public`` an address inside a private network is refused.
"""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from waystation.core.addresses import is_public
from waystation.core.errors import HostError, LocalError
from waystation.transport.connect import connect_tcp
from waystation.transport.datagrams.pipe import connect_udp
from waystation.transport.pipe import Pipe, Sink
from waystation.transport.silence import SilencePolicy
from waystation.transport.tls import client_context, find_authority, system_context

__all__ = [
    "DATAGRAM_SCHEMES",
    "DEFAULT_PORT",
    "DEFAULT_UDP_PORT",
    "REFUSES_ADDRESSES",
    "STREAM_SCHEMES",
    "WEB_PORT",
    "RelayUrl",
    "UntrustedError",
    "dial",
    "fetch_authority",
    "speaks_http",
    "speaks_tls",
]

DEFAULT_PORT: Final = 8443  # the bhumi listener, docs/configuration.md
DEFAULT_UDP_PORT: Final = 4810  # and the lprp listener
STREAM_SCHEMES: Final = ("tls", "tcp")
DATAGRAM_SCHEMES: Final = ("udp",)
ADDRESSES_MAX: Final = 4
"""Addresses of one host that are tried in turn."""
REFUSES_ADDRESSES: Final = "refuse this address: not on its list, banned, or too many connections of it"
"""What else a connection may mean that is closed before anything was said (engine.admission)."""
WEB_PORT: Final = "an HTTP server answers there; is the port right?"
"""What is said of a port that ``speaks_http``."""
_CHUNK_BYTES: Final = 65_536
_HTTP_BEGINS: Final = b"HTTP/"
_NAME_MISMATCHES: Final = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH and _IP_ADDRESS_MISMATCH of OpenSSL


class UntrustedError(HostError):
    """The certificate has the right name, and no authority that is trusted has signed it."""


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

        The port may be left out (8443, with udp 4810); IPv6 addresses have brackets.

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
    silence: SilencePolicy = SilencePolicy(),  # noqa: B008 - immutable
) -> Pipe:
    """Connect and return the pipe, which has reported ``connected`` to its sink by then.

    Args:
        url: Where to; a text is one of ``STREAM_SCHEMES``.
        sink: Gets everything the pipe reports; over ``udp`` each chunk and each ``received`` is one datagram.
        context: TLS context for ``tls`` addresses (None means the system's authorities); else not used.
        timeout_s: For name lookup, connecting and the TLS handshake together; over ``udp`` there is only the lookup.
        place: IP address to connect to instead of asking for those of the host, which TLS still is to prove.
        only_public: Without a place: connect only if every address of the host is on the open internet, and to one of
            those that were checked, of which ``ADDRESSES_MAX`` are tried in turn. For addresses from unauthenticated
            peers; not for ``udp``.
        silence: How long the other side of a stream may be silent.

    Raises:
        LocalError: The text is no address.
        UntrustedError: No authority that is trusted has signed the certificate.
        HostError: Nobody listens, no answer in time, the certificate is for another name, or the place is not public.
    """
    target = RelayUrl.parse(url) if isinstance(url, str) else url
    try:
        async with asyncio.timeout(timeout_s):
            if target.scheme in DATAGRAM_SCHEMES:
                return await connect_udp(target.host, target.port, sink)
            places = await _public_addresses(target) if only_public and not place else [place]
            return await _connect_to_one(target, sink, context, timeout_s, places, silence)
    except (OSError, UnicodeError) as error:  # TimeoutError and ssl.SSLError are OSErrors; a host may be no IDNA name
        is_other = isinstance(error, ssl.SSLCertVerificationError) and error.verify_code not in _NAME_MISMATCHES
        raise (UntrustedError if is_other else HostError)(_reason(target, error, timeout_s)) from error


async def speaks_tls(url: RelayUrl, timeout_s: float) -> bool:
    """Return whether a TLS handshake succeeds at a place that a plain connection gets no answer from.

    Nothing is sent, and no certificate is checked: this is for a sentence, never for a connection that is used.
    """
    try:
        async with asyncio.timeout(timeout_s):
            transport, _ = await connect_tcp(
                asyncio.Protocol,
                url.host,
                url.port,
                tls=client_context(verify=False),
                tls_name=url.host,
                tls_within_s=timeout_s,
            )
    except (OSError, UnicodeError):  # TimeoutError and ssl.SSLError are OSErrors
        return False
    transport.abort()
    return True


async def fetch_authority(url: RelayUrl, fingerprint: bytes, timeout_s: float) -> bytes:
    """Return the authority in DER that a relay shows behind its certificate and that has this SHA-256 (32 bytes).

    Nothing is sent over this connection, and it is closed: only the fingerprint says that the authority is the right
    one. Who trusts it verifies the relay with the next connection.

    Raises:
        HostError: The relay cannot be reached, or shows no such authority.
    """
    try:
        async with asyncio.timeout(timeout_s):
            found = find_authority(await _shake_hands(url), fingerprint)
    except (OSError, UnicodeError, EOFError) as error:  # TimeoutError and ssl.SSLError are OSErrors
        raise HostError(_reason(url, error if isinstance(error, OSError) else OSError(error), timeout_s)) from error
    if found is None:
        raise HostError(
            f"{url} does not show the authority that the invitation names (SHA-256 {fingerprint.hex()[:16]}…): it is "
            "another relay, somebody stands between, or its certificate was exchanged; ask for a new invitation, or "
            "name the authority with --ca"
        )
    return found


async def _shake_hands(url: RelayUrl) -> ssl.SSLObject:
    """Return the end of a TLS handshake, with what the other side has shown; the connection is closed."""
    reader, writer = await asyncio.open_connection(url.host, url.port)
    try:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        ours = client_context(verify=False).wrap_bio(incoming, outgoing, server_hostname=url.host)
        while True:
            try:
                ours.do_handshake()
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
            else:
                return ours
            received = await reader.read(_CHUNK_BYTES)
            if not received:
                raise EOFError("the connection ended in the TLS handshake")
            incoming.write(received)
    finally:
        writer.transport.abort()


async def speaks_http(url: RelayUrl, timeout_s: float) -> bool:
    """Return whether a place that gets a connection and says nothing answers a GET.

    It is asked over a connection of its own, and no certificate is checked: as ``speaks_tls``, this is for a sentence.
    """
    is_tls = url.scheme == "tls"
    reader = asyncio.StreamReader()
    transport: asyncio.Transport | None = None
    try:
        async with asyncio.timeout(timeout_s):
            transport, _ = await connect_tcp(
                lambda: asyncio.StreamReaderProtocol(reader),
                url.host,
                url.port,
                tls=client_context(verify=False) if is_tls else None,
                tls_name=url.host,
                tls_within_s=timeout_s,
            )
            assert transport is not None
            transport.write(b"GET / HTTP/1.1\r\nHost: relay\r\nConnection: close\r\n\r\n")
            return await reader.readexactly(len(_HTTP_BEGINS)) == _HTTP_BEGINS
    except (OSError, UnicodeError, EOFError):
        return False
    finally:
        if transport is not None:
            transport.abort()


async def _public_addresses(target: RelayUrl) -> list[str]:
    """Return the host's addresses after all of them were judged; raises HostError for a place that is not public."""
    found = await asyncio.get_running_loop().getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    addresses = [str(each[0]) for *_, each in found]
    private = [address for address in addresses if not is_public(address)]
    if private:
        raise HostError(f"{target} leads to {private[0]}, which is not on the open internet; not dialled")
    return list(dict.fromkeys(addresses))[:ADDRESSES_MAX]


async def _connect_to_one(
    target: RelayUrl,
    sink: Sink,
    context: ssl.SSLContext | None,
    timeout_s: float,
    places: Sequence[str],
    silence: SilencePolicy,
) -> Pipe:
    """Connect to the first place that answers within its share of the time; raises what the first one met."""
    trouble: OSError | None = None
    for place in places:
        try:
            async with asyncio.timeout(timeout_s / len(places)):
                return await _connect(target, sink, context, timeout_s, place, silence)
        except OSError as error:
            trouble = trouble or error
    assert trouble is not None
    raise trouble


async def _connect(
    target: RelayUrl,
    sink: Sink,
    context: ssl.SSLContext | None,
    timeout_s: float,
    place: str,
    silence: SilencePolicy,
) -> Pipe:
    tls = (context or system_context()) if target.scheme == "tls" else None
    _, pipe = await connect_tcp(
        lambda: Pipe(sink, target.host),
        place or target.host,
        target.port,
        tls=tls,
        tls_name=target.host,
        tls_within_s=timeout_s,
        silence=silence,
    )
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
    if isinstance(error, TimeoutError) and target.scheme == "udp":  # nobody was asked anything yet
        return f"the socket for {target} was not open within {timeout_s:g} s; is this machine too busy?"
    if isinstance(error, TimeoutError):
        hint = "; does the relay stand still, or is it a plain tcp:// listener?" if target.scheme == "tls" else ""
        return f"{target} did not answer within {timeout_s:g} s{hint}"
    if isinstance(error, ConnectionRefusedError):
        return f"nobody listens on {target}; is the relay running?"
    if isinstance(error, socket.gaierror | UnicodeError):
        return f"cannot find the host of {target}: {error}"
    if isinstance(error, ssl.SSLError | ConnectionResetError):
        why = f" ({error})" if str(error) else ""
        said = f"{target} did not complete the TLS handshake{why}; is it a plain tcp:// listener?"
        return said if isinstance(error, ssl.SSLError) else f"{said} Or does it {REFUSES_ADDRESSES}?"
    return f"cannot reach {target}: {error}"
