"""Laws of server.http.origins (NODE-HOSTS); test_authorisation.py tries them on every route."""

import pytest

from waystation.server.http.origins import HostNames, host_name, origin_refusal

OWN = "192.0.2.7"
NAMES = HostNames(["Admin.Example.org", "2001:DB8::1"])


def status(*headers, own=OWN, names=NAMES):
    """Return the status of the refusal of these headers, None for no refusal."""
    refusal = origin_refusal([(name.encode(), value.encode("latin-1")) for name, value in headers], names, own)
    return refusal.status if refusal is not None else None


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8081",
        "LocalHost:1",
        "127.0.0.1:8081",
        "[::1]:8081",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]:8081",
        OWN,
        f"{OWN}:8081",
        "admin.example.org",
        "ADMIN.example.ORG:443",
        "[2001:db8:0::1]:8081",
    ],
)
def test_names_of_the_port(host):
    """Loopback, the address that was asked and the named hosts are its own, in any spelling and with any port."""
    assert status(("host", host)) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8081",
        "localhost.",
        "localhost.:8081",
        "localhost.evil.example",
        "xlocalhost",
        "127.0.0.1.evil.example",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "0.0.0.0:8081",
        "[::]:8081",
        "127.0.0.2",
        "192.0.2.8",
        "[2001:db8::2]",
        "example.org",
        "x.admin.example.org",
    ],
)
def test_other_names_were_meant_for_somebody_else(host):
    """A name that was rebound, a dot behind and spellings of addresses that only some resolvers take get 421."""
    assert status(("host", host)) == 421


@pytest.mark.parametrize(
    "host",
    [
        "",
        " ",
        ":8081",
        "user@localhost",
        "user:password@localhost:8081",
        "localhost:",
        "localhost:x",
        "localhost:123456",
        "localhost:80:80",
        "local host",
        "localhost/",
        "localhost,evil.example",
        "::1",
        "[::1",
        "[::1%lo]",
        "[v1.x]",
        "[zz]",
        "[1.2.3.4]",
        "löcalhost",
        "l\x00calhost",
        "a" * 261,
    ],
)
def test_what_is_no_host(host):
    """User info, zones, lists, and what is too long get 400."""
    assert status(("host", host)) == 400


def test_host_comes_once():
    """None and two of them get 400, also when the two agree."""
    assert status() == status(("host", "localhost"), ("host", "localhost")) == 400


def test_own_address_needs_a_connection_to_it():
    """Over the unix socket there is no address of its own."""
    assert status(("host", OWN), own="") == 421
    assert status(("host", "localhost"), own="") is None


@pytest.mark.parametrize("host", ["localhost:8081", "[::1]:8081", "admin.example.org"])
@pytest.mark.parametrize("scheme", ["http", "https", "HTTP"])
def test_own_page(host, scheme):
    """The Origin of the port's own page is its scheme and the host that was asked for."""
    assert status(("host", host), ("origin", f"{scheme}://{host}"), ("sec-fetch-site", "same-origin")) is None


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "http://localhost:3000",
        "http://localhost",
        "http://127.0.0.1:8081",
        "http://localhost:8081.evil.example",
        "http://user@localhost:8081",
        "http://localhost:8081/",
        "ftp://localhost:8081",
        "chrome-extension://localhost:8081",
        "localhost:8081",
        "null",
        "",
    ],
)
def test_page_of_another_origin(origin):
    """Another port of this machine is another origin, and so is whatever has none."""
    assert status(("host", "localhost:8081"), ("origin", origin)) == 403


def test_two_origins():
    """Nobody sends two."""
    own = ("origin", "http://localhost")
    assert status(("host", "localhost"), own, own) == 403


@pytest.mark.parametrize(("site", "expected"), [("none", None), ("same-site", 403), ("cross-site", 403), ("x", 403)])
def test_page_without_origin(site, expected):
    """A picture or a script of another page has no Origin; the browser says what the page is."""
    assert status(("host", "localhost"), ("sec-fetch-site", site)) == expected


def test_name_is_without_port_and_capitals():
    """What is compared has one spelling."""
    assert [host_name(text) for text in ("A.b:1", "[::FFFF:1.2.3.4]", "[1::0]:2", "x@y")] == [
        "a.b",
        "1.2.3.4",
        "1::",
        None,
    ]
