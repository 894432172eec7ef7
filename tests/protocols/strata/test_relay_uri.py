import pytest

from waystation.core.errors import LocalError
from waystation.protocols.strata.relay_uri import RelayUri, http_base_of, parse_relay, parse_relay_json, parse_relay_uri

GOOD = {
    "strata://relay?v=1&http=https://a.example": ("https://a.example", "wss://a.example/strata"),
    "strata://relay?http=http://a.example:8080/ignored": ("http://a.example:8080", "ws://a.example:8080/strata"),
    "strata://relay?http=https%3A%2F%2Fa.example&ws=wss%3A%2F%2Fb.example%2Fx": (
        "https://a.example",
        "wss://b.example/x",
    ),
    "strata://relay?http=https://[::1]:1&unknown=1": ("https://[::1]:1", "wss://[::1]:1/strata"),
    "strata://relay?http=https://A.Example": ("https://a.example", "wss://a.example/strata"),
    "wss://a.example/strata": ("https://a.example", "wss://a.example/strata"),
    "ws://a.example": ("http://a.example", "ws://a.example/strata"),
    "https://a.example/": ("https://a.example", "wss://a.example/strata"),
}
BAD = [
    "strata://other?http=https://a.example",
    "strata://relay",
    "strata://relay?v=2&http=https://a.example",
    "strata://relay?v=&http=https://a.example",
    "strata://relay?http=ftp://a.example",
    "strata://relay?http=https://a.example?x=1",
    "strata://relay?http=https://",
    "strata://relay?http=https://u:p@a.example",
    "strata://relay?http=https://a.example:99999",
    "strata://relay?http=https://a.example&ws=https://a.example",
    "strata://relay?http=https://a.example&http=https://b.example",
    "strata://relay?http=https://a.example&mode=never",
    "strata://relay?http=https://a.example&label=" + "x" * 65,
    "strata://relay?http=https://a.example" + "&extra_ws=wss://b" * 17,
    "strata://relay?http=https://a.example&label=" + "x" * 5_000,
    "strata://relay?http=https://a%20b.example",
    "mailto:a@b",
    "",
]


@pytest.mark.parametrize("text", GOOD)
def test_row_41_good_uris_are_read(text):
    """The WebSocket address is the one given, or derived."""
    read = parse_relay(text)

    assert (read.http, read.ws) == GOOD[text]
    assert parse_relay(str(read)) == read
    assert parse_relay_json(read.to_json()) == read


@pytest.mark.parametrize("text", BAD)
def test_row_41_bad_uris_are_refused(text):
    """Each breaks one rule."""
    with pytest.raises(LocalError):
        parse_relay(text)


def test_label_loses_what_could_steer_a_terminal():
    """Control characters and changes of direction are taken out."""
    read = parse_relay_uri("strata://relay?http=https://a.example&label=a%1b%5b2J%0a%E2%80%AEb")

    assert read.label == "a[2Jb"


def test_everything_survives_a_round_trip():
    """Label, mode and further endpoints are kept in both forms."""
    uri = RelayUri("https://a.example", "wss://a.example/strata", "My & relay", "manual", ("wss://b.example/strata",))

    assert parse_relay_uri(str(uri)) == uri
    assert parse_relay_json(uri.to_json()) == uri


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"type": "strata.relay"},
        {"type": "strata.relay", "http": 1},
        {"type": "strata.relay", "v": 2, "http": "https://a.example"},
        {"type": "strata.relay", "v": "1", "http": "https://a.example"},
        {"type": "strata.relay", "http": "https://a.example", "extra_ws": "wss://a"},
    ],
)
def test_json_of_another_shape_is_refused(body):
    """The JSON form has the same rules."""
    with pytest.raises(LocalError):
        parse_relay_json(body)


def test_plain_addresses_and_foreign_hosts_are_warned_about():
    """Whoever is asked to agree sees what is wrong with it."""
    secure = parse_relay("https://a.example")
    plain = parse_relay("strata://relay?http=http://a.example&ws=wss://b.example")

    assert secure.warnings == ()
    assert any("http://a.example is not encrypted" in warning for warning in plain.warnings)
    assert any("a.example, b.example" in warning for warning in plain.warnings)


def test_base_of_a_websocket_address():
    """The HTTP surface is at the same host."""
    assert http_base_of("wss://a.example:1/strata") == "https://a.example:1"


@pytest.mark.parametrize(
    ("address", "count"),
    [
        ("ws://relay.example/strata", 1),
        ("strata://relay?http=http://relay.example&ws=ws://relay.example:81/s", 2),
        ("wss://relay.example/strata", 0),
        ("ws://127.0.0.1:8080/strata", 0),
        ("http://[::1]:8080", 0),
        ("ws://localhost/strata", 0),
        ("ws://127.0.0.1.example/strata", 1),
    ],
)
def test_exposed_listener_is_warned_of_once(address, count):
    """HTTP and WebSocket of one relay are one warning; what stays on this machine needs none."""
    assert sum("not encrypted" in each for each in parse_relay(address).warnings) == count
