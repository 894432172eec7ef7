"""The header of the PROXY protocol, versions 1 and 2: a proxy names the client whose connection it passes on.

``transport.listen`` parses it for connections of trusted proxies. The header is read before everything else, TLS
included, and not one byte after it. ``missing`` says how many bytes to read next, so that a caller never reads too
many; ``source_of`` returns the client's address.

Spec: HAProxy, "The PROXY protocol", 2.1 (text), 2.2 (binary). Choice NODE-PROXY: a command other than LOCAL and PROXY,
or a header above ``HEADER_BYTES_MAX``, ends the connection; a family that is no TCP counts as LOCAL, as 2.2 wants.
"""

import ipaddress
import struct
from typing import Final

from waystation.core.errors import RemoteError

__all__ = ["HEADER_BYTES_MAX", "PEEKED_BYTES", "ProxyHeaderError", "is_header", "missing", "source_of"]

HEADER_BYTES_MAX: Final = 4_096
"""Of version 2 with all its extensions; the TLS extensions of HAProxy take a few hundred."""
_TEXT_BYTES_MAX: Final = 107  # 2.1
_SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_TEXT: Final = b"PROXY "
PEEKED_BYTES: Final = len(_SIGNATURE)
"""As many first bytes of a connection as ``is_header`` wants."""
_BINARY_BYTES: Final = 16  # signature, version and command, family, length
_LOCAL: Final = 0x20
_PROXY: Final = 0x21
_TCP4: Final = 0x11
_TCP6: Final = 0x21
_TCP4_BYTES: Final = 12
_TCP6_BYTES: Final = 36
_PORT_MAX: Final = 65_535


class ProxyHeaderError(RemoteError):
    """A trusted proxy sent something else than a header."""


def is_header(first: bytes) -> bool:
    """Return whether the first bytes of a connection begin a PROXY header, which no other protocol here begins with."""
    return first.startswith((_SIGNATURE, _TEXT))


def missing(header: bytes) -> int:
    """Return how many more bytes the header has at least, 0 once it is whole.

    Raises:
        ProxyHeaderError: These bytes begin no header, or one that is too long.
    """
    if len(header) < len(_SIGNATURE):
        if not (_SIGNATURE.startswith(header) or _begins_text(header)):
            raise ProxyHeaderError("the connection does not begin with a PROXY header")
        return len(_SIGNATURE) - len(header)  # the shortest text has 15 bytes
    if header.startswith(_SIGNATURE):
        if len(header) < _BINARY_BYTES:
            return _BINARY_BYTES - len(header)
        whole = _BINARY_BYTES + int.from_bytes(header[14:16], "big")
        if whole > HEADER_BYTES_MAX:
            raise ProxyHeaderError(f"a PROXY header has at most {HEADER_BYTES_MAX} bytes")
        return whole - len(header)
    if not _begins_text(header):
        raise ProxyHeaderError("the connection does not begin with a PROXY header")
    if header.endswith(b"\r\n"):
        return 0
    if len(header) >= _TEXT_BYTES_MAX or b"\n" in header:
        raise ProxyHeaderError(f"a PROXY header in text is one line of at most {_TEXT_BYTES_MAX} bytes")
    return 1 if header.endswith(b"\r") or len(header) == _TEXT_BYTES_MAX - 1 else 2


def source_of(header: bytes) -> str:
    """Return the client's IP address, "" when the proxy speaks for itself (a health check) or names none.

    Args:
        header: Whole, as ``missing`` says.

    Raises:
        ProxyHeaderError: It is malformed.
    """
    return _binary_source(header) if header.startswith(_SIGNATURE) else _text_source(header)


def _begins_text(header: bytes) -> bool:
    return header.startswith(_TEXT) or _TEXT.startswith(header)


def _binary_source(header: bytes) -> str:
    command, family, length = struct.unpack_from(">BBH", header, len(_SIGNATURE))
    if command == _LOCAL:
        return ""
    if command != _PROXY:
        raise ProxyHeaderError(f"a PROXY header of version 2 has command 0 or 1, this has byte 0x{command:02x}")
    if family == _TCP4:
        if length < _TCP4_BYTES:
            raise ProxyHeaderError("a PROXY header is shorter than its addresses")
        return str(ipaddress.IPv4Address(header[_BINARY_BYTES : _BINARY_BYTES + 4]))
    if family == _TCP6:
        if length < _TCP6_BYTES:
            raise ProxyHeaderError("a PROXY header is shorter than its addresses")
        return str(ipaddress.IPv6Address(header[_BINARY_BYTES : _BINARY_BYTES + 16]))
    return ""


def _text_source(header: bytes) -> str:
    words = header[:-2].split(b" ")
    if words[1] == b"UNKNOWN":
        return ""
    if len(words) != 6 or words[1] not in (b"TCP4", b"TCP6") or not all(map(_is_port, words[4:])):
        raise ProxyHeaderError("a PROXY header in text is: PROXY TCP4 source destination port port")
    kind = ipaddress.IPv4Address if words[1] == b"TCP4" else ipaddress.IPv6Address
    try:
        source, _ = (kind(word.decode("ascii")) for word in words[2:4])
    except ValueError as error:  # also a byte that is no ASCII
        raise ProxyHeaderError("a PROXY header names something that is no address") from error
    if isinstance(source, ipaddress.IPv6Address) and source.scope_id is not None:
        raise ProxyHeaderError("a PROXY header names an address with a zone")
    return str(source)


def _is_port(word: bytes) -> bool:
    return word.isdigit() and str(int(word)).encode() == word and int(word) <= _PORT_MAX
