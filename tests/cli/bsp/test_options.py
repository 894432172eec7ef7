"""Laws of what several bsp commands share."""

import pytest

from waystation.cli.bsp.options import body_of, listen_address, names_of, peer_of
from waystation.core.errors import LocalError
from waystation.sdk.bsp import BspHome

KEY = b"\x01" * 32


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("7500", ("127.0.0.1", 7500)),
        ("0", ("127.0.0.1", 0)),
        ("0.0.0.0:1", ("0.0.0.0", 1)),
        ("peer.example", ("peer.example", 7443)),
        ("[::1]:2", ("::1", 2)),
    ],
)
def test_listening_place_is_read(text, address):
    """A port alone is this machine's, a host alone has the usual port."""
    assert listen_address(text) == address


@pytest.mark.parametrize("text", ["", "https://x", "1:2:3", "host:port"])
def test_what_is_no_listening_place_is_told(text):
    """Anything else is refused."""
    with pytest.raises(LocalError, match="expected host:port, or a port"):
        listen_address(text)


def test_body_is_text_or_a_file(tmp_path):
    """A body is taken as it is, up to its bound."""
    (tmp_path / "body").write_bytes(b"\xff" * 32_768)

    assert body_of("zoë", None) == "zoë".encode()
    assert len(body_of(None, tmp_path / "body")) == 32_768


def test_names_are_of_those_who_have_one(tmp_path):
    """Peers without a name are left to their keys."""
    home = BspHome(tmp_path / "me")
    home.commit([home.put_peer("bob", KEY), home.put_peer("", b"\x02" * 32)])

    assert names_of(home) == {KEY: "bob"}
    home.close()


def test_peer_of_a_mistyped_home_is_none(tmp_path):
    """A device is not made by accident."""
    with pytest.raises(LocalError, match="is no home"):
        peer_of(tmp_path / "typo")
