"""Laws of authorities and relays: a relay may change its authority without a cable to the board."""

import contextlib

import pytest

from tests.micropython.build import HandRelay
from waystation.cli.mcu.package import device_module
from waystation.server.home import Home
from waystation.transport.tls import authority_der

authorities = device_module("authorities")


@pytest.fixture
def successor(tmp_path):
    """A home whose authority comes next."""
    made = Home(tmp_path / "successor")
    made.ensure()
    return made


def test_next_authority_is_trusted(make, relay, home, successor):
    """A relay that shows a certificate of its next authority is connected to; that one is in use from then on."""
    board = make()
    path = board.folder / "relay-1.der"
    following = authority_der(successor.ca_path)
    assert authorities.add_authority(str(path), following)
    board.start()
    relay.accept()
    relay.welcome()
    board.until("listening")
    port = int(relay.url.rpartition(":")[2])
    relay.close()
    later = HandRelay(successor.tls_path, port=port)
    with contextlib.suppress(OSError):
        later.accept()
        later.ends()
    for _ in range(5):
        with contextlib.suppress(OSError):
            later.accept()
            later.welcome()
            break

    board.until("listening")
    later.close()
    assert authorities.authorities(str(path)) == [following, authority_der(home.ca_path)]


def test_two_are_kept(tmp_path, home, successor):
    """The one in use stays, a third replaces the other; what is none is refused, and what is known is not news."""
    third = Home(tmp_path / "third")
    third.ensure()
    path = tmp_path / "relay-1.der"
    first, second, last = (authority_der(each.ca_path) for each in (home, successor, third))
    path.write_bytes(first)

    assert authorities.authorities(str(path)) == [first]
    assert authorities.add_authority(str(path), second) and not authorities.add_authority(str(path), second)
    assert authorities.authorities(str(path)) == [first, second]
    assert authorities.add_authority(str(path), last) and authorities.authorities(str(path)) == [first, last]
    with pytest.raises(device_module("port").SetupError, match="not a certificate"):
        authorities.add_authority(str(path), b"0\x03abc")
    authorities.prefer_second(str(path))
    assert authorities.authorities(str(path)) == [last, first]


def test_power_cut_between_removing_and_renaming(tmp_path, home):
    """On FAT the file may have its other name only: it is read."""
    path = tmp_path / "relay-1.der"
    path.with_name("relay-1.der.new").write_bytes(authority_der(home.ca_path))

    assert authorities.authorities(str(path)) == [authority_der(home.ca_path)]
    with pytest.raises(device_module("port").SetupError, match="is missing"):
        authorities.authorities(str(tmp_path / "none.der"))
