"""Makes one HTTP request with a limit on time and answer size, for clients that query a relay.

SDK clients and commands call it; status, headers and body come out. It follows no redirects, uses no proxy and keeps no
cookies.
"""

import asyncio
import contextlib
import http.client
import socket
import ssl
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from waystation.core.errors import HostError, LocalError
from waystation.transport.tls import TlsContext, system_context

__all__ = ["BODY_BYTES_MAX", "HttpReply", "TlsContext", "http_get", "http_request"]

BODY_BYTES_MAX: Final = 2 * 1_048_576
"""Larger than the largest packet of any protocol here with its envelope."""

_PIECE_BYTES: Final = 65_536


class HttpReply(NamedTuple):
    """An answer that came whole."""

    status: int
    body: bytes


async def http_get(
    url: str,
    *,
    context: TlsContext | None = None,
    body_bytes_max: int = BODY_BYTES_MAX,
    timeout_s: float = 10.0,
) -> HttpReply:
    """Fetch a URL and return whatever status it has.

    Args:
        url: ``http://`` or ``https://``.
        context: TLS context for ``https`` (None means the system's authorities).
        body_bytes_max: A longer body is an error.
        timeout_s: For everything together.

    Raises:
        LocalError: The text is no such URL.
        HostError: Nobody answers, the certificate is not trusted, the answer is too long or no HTTP.
    """
    return await http_request("GET", url, context=context, body_bytes_max=body_bytes_max, timeout_s=timeout_s)


async def http_request(
    method: str,
    url: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    context: TlsContext | None = None,
    body_bytes_max: int = BODY_BYTES_MAX,
    timeout_s: float = 10.0,
) -> HttpReply:
    """Send a request and return its answer, whatever status that has.

    Args:
        method: GET, PUT, POST or DELETE.
        url: ``http://`` or ``https://``.
        body: What is sent along; None for nothing.
        headers: More of them, in ASCII.
        context: TLS context for ``https`` (None means the system's authorities).
        body_bytes_max: A longer answer is an error.
        timeout_s: For everything together.

    Raises:
        LocalError: The text is no such URL.
        HostError: Nobody answers, the certificate is not trusted, the answer is too long or no HTTP.
    """
    connection, target = _connection(url, context, timeout_s)
    said = {"Accept": "application/json", "Connection": "close", **(headers or {})}
    try:
        async with asyncio.timeout(timeout_s):
            return await asyncio.to_thread(_fetch, connection, method, target, body, said, body_bytes_max)
    except TimeoutError as error:
        raise HostError(f"{url} did not answer within {timeout_s:g} s{_hint(url, error)}") from error
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        raise HostError(f"cannot fetch {url}: {str(error) or type(error).__name__}{_hint(url, error)}") from error
    finally:
        _cut(connection)


def _connection(url: str, context: TlsContext | None, timeout_s: float) -> tuple[http.client.HTTPConnection, str]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise LocalError(f"not an HTTP address: {url!r} ({error})") from error
    if parts.scheme not in {"http", "https"} or not host or not url.isascii() or not url.isprintable() or " " in url:
        raise LocalError(f"not an HTTP address: {url!r}")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=timeout_s), target
    tls = context or system_context()
    return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=tls), target


def _hint(url: str, error: Exception) -> str:
    """Return what to try when the other side seems to speak TLS where we do not, or the other way round."""
    if url.startswith("http:"):
        garbled = isinstance(error, http.client.BadStatusLine | ConnectionResetError)
        return "; if it is a TLS listener, try https://" if garbled else ""
    unproved = isinstance(error, ssl.SSLCertVerificationError)
    garbled = isinstance(error, ssl.SSLError | ConnectionResetError | TimeoutError) and not unproved
    return "; if it is a plain listener, try http://" if garbled else ""


def _fetch(
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    body: bytes | None,
    headers: Mapping[str, str],
    body_bytes_max: int,
) -> HttpReply:
    connection.request(method, target, body, headers)
    answer = bytearray()
    with connection.getresponse() as response:
        while piece := response.read1(_PIECE_BYTES):
            answer += piece
            if len(answer) > body_bytes_max:
                raise http.client.HTTPException(f"the answer is longer than {body_bytes_max} bytes")
        return HttpReply(response.status, bytes(answer))


def _cut(connection: http.client.HTTPConnection) -> None:
    """Close the connection under a thread that may still read from it; its read ends at once."""
    carrier = connection.sock
    if carrier is not None:
        with contextlib.suppress(OSError):
            carrier.shutdown(socket.SHUT_RDWR)
    connection.close()
