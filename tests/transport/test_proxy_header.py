"""Laws of transport.proxy_header: both versions to the byte, and not one byte read after the header."""

import ipaddress
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.transport.proxy_header import (
    HEADER_BYTES_MAX,
    PEEKED_BYTES,
    ProxyHeaderError,
    is_header,
    missing,
    source_of,
)

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
V4, V6 = "203.0.113.7", "2001:db8::7"
REST = b"\x16\x03\x01after the header"


def binary(command, family, body):
    """Return a header of version 2."""
    return SIGNATURE + struct.pack(">BBH", command, family, len(body)) + body


def of_v4(extra=b""):
    """Return a header of version 2 that names an IPv4 client."""
    packed = ipaddress.IPv4Address(V4).packed + ipaddress.IPv4Address("192.0.2.1").packed
    return binary(0x21, 0x11, packed + struct.pack(">HH", 4711, 443) + extra)


def of_v6():
    """Return a header of version 2 that names an IPv6 client."""
    packed = ipaddress.IPv6Address(V6).packed + ipaddress.IPv6Address("2001:db8::1").packed
    return binary(0x21, 0x21, packed + struct.pack(">HH", 4711, 443))


WHOLE = [
    (b"PROXY TCP4 203.0.113.7 192.0.2.1 4711 443\r\n", V4),
    (b"PROXY TCP6 2001:db8::7 2001:db8::1 4711 443\r\n", V6),
    (b"PROXY TCP6 " + b":".join([b"ffff"] * 8) + b" " + b":".join([b"ffff"] * 8) + b" 65535 65535\r\n", None),
    (b"PROXY UNKNOWN\r\n", ""),
    (b"PROXY UNKNOWN " + b"x" * 91 + b"\r\n", ""),
    (of_v4(), V4),
    (of_v4(b"\x20\x00\x05\x01\x00\x00\x00\x00"), V4),
    (of_v6(), V6),
    (binary(0x20, 0x00, b""), ""),
    (binary(0x20, 0x11, b"anything"), ""),
    (binary(0x21, 0x00, b""), ""),
    (binary(0x21, 0x12, bytes(12)), ""),
    (binary(0x21, 0x31, bytes(216)), ""),
    (of_v4(bytes(HEADER_BYTES_MAX - 28)), V4),
]


def read(stream):
    """Return the header that a caller of ``missing`` reads from a stream, and what is left of the stream."""
    header = b""
    while count := missing(header):
        assert count > 0
        chunk, stream = stream[:count], stream[count:]
        assert len(chunk) == count, "a whole header asked for more"
        header += chunk
    return header, stream


@pytest.mark.parametrize(("header", "source"), WHOLE)
def test_header_is_read_to_its_last_byte_and_no_further(header, source):
    """What follows, such as a TLS handshake, stays for others."""
    found, rest = read(header + REST)

    assert (found, rest) == (header, REST)
    if source is not None:
        assert source_of(found) == source


@pytest.mark.parametrize(("header", "source"), WHOLE)
def test_every_part_of_a_header_wants_more(header, source):
    """A header that is cut anywhere is never whole, whatever chunks it comes in."""
    assert all(missing(header[:cut]) > 0 for cut in range(len(header)))
    assert missing(header) == 0
    del source


@pytest.mark.parametrize(
    "stream",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40),
        b"GET / HTTP/1.1\r\n\r\n",
        b"PROXZ TCP4 203.0.113.7 192.0.2.1 1 2\r\n",
        b"PROXY TCP4 203.0.113.7 192.0.2.1 1 2\nx" + bytes(200),
        b"PROXY UNKNOWN " + b"x" * 200 + b"\r\n",
        SIGNATURE[:-1] + b"\r" + bytes(40),
        SIGNATURE + struct.pack(">BBH", 0x21, 0x11, 65_535) + bytes(70_000),
        SIGNATURE + struct.pack(">BBH", 0x21, 0x11, HEADER_BYTES_MAX - 15) + bytes(70_000),
    ],
)
def test_stream_without_a_header_is_refused(stream):
    """Nobody guesses: what a trusted proxy sends first is a header, or the connection ends."""
    with pytest.raises(ProxyHeaderError):
        read(stream)


@pytest.mark.parametrize(
    "header",
    [
        b"PROXY TCP4\r\n",
        b"PROXY TCP4 203.0.113.7 192.0.2.1 1\r\n",
        b"PROXY TCP4 203.0.113.7 192.0.2.1 1 2 3\r\n",
        b"PROXY TCP4 203.0.113.7 192.0.2.1 01 2\r\n",
        b"PROXY TCP4 203.0.113.7 192.0.2.1 65536 2\r\n",
        b"PROXY TCP4 203.0.113.7 192.0.2.1 -1 2\r\n",
        b"PROXY TCP4 203.0.113.007 192.0.2.1 1 2\r\n",
        b"PROXY TCP4 2001:db8::7 192.0.2.1 1 2\r\n",
        b"PROXY TCP6 203.0.113.7 2001:db8::1 1 2\r\n",
        b"PROXY TCP6 fe80::1%1 2001:db8::1 1 2\r\n",
        b"PROXY TCP4  203.0.113.7 192.0.2.1 1 2\r\n",
        b"PROXY TCP4 203.0.113.\xff 192.0.2.1 1 2\r\n",
        b"PROXY UDP4 203.0.113.7 192.0.2.1 1 2\r\n",
        binary(0x22, 0x11, bytes(12)),
        binary(0x11, 0x11, bytes(12)),
        binary(0x21, 0x11, bytes(11)),
        binary(0x21, 0x21, bytes(35)),
    ],
)
def test_malformed_header_is_refused(header):
    """A header names one client, exactly as the document has it."""
    found, _ = read(header)
    with pytest.raises(ProxyHeaderError):
        source_of(found)


@given(st.binary(max_size=200).flatmap(lambda rest: st.sampled_from([rest, SIGNATURE + rest, b"PROXY " + rest])))
def test_any_bytes_are_a_header_or_refused(stream):
    """No input raises anything else, and no more bytes are wanted than a header may have."""
    header = b""
    try:
        while count := missing(header):
            if len(stream) < count:
                return
            header, stream = header + stream[:count], stream[count:]
            assert len(header) <= HEADER_BYTES_MAX
        source = source_of(header)
    except ProxyHeaderError:
        return
    assert not source or ipaddress.ip_address(source)


@pytest.mark.parametrize("first", [SIGNATURE, b"PROXY TCP4 ", b"PROXY "])
def test_first_bytes_of_a_header_are_recognised(first):
    """Both versions, and with whatever follows."""
    assert is_header(first[:PEEKED_BYTES])
    assert is_header(first + REST)


@pytest.mark.parametrize(
    "first", [b"", b"PROXY", b"proxy ", SIGNATURE[:-1], b"GET / HTTP/1", REST, b"\x00\x02\x00\x00\x00\x62"]
)
def test_first_bytes_of_anything_else_are_no_header(first):
    """Not a beginning of one, nor what TLS, HTTP and our protocols begin with."""
    assert not is_header(first)
