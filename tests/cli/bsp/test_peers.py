"""Laws of ``waystation bsp peers``."""

import json

import pytest

from tests.cli.build import caller
from waystation.cli.bsp.peers import read_peer
from waystation.core.errors import LocalError
from waystation.core.ids import encode_id52
from waystation.crypto.signing import KeyPair

KEY = KeyPair.from_seed(bytes(32)).public
OTHER = KeyPair.from_seed(b"\x01" * 32).public


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Run a bsp command in a fresh folder; gives exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    return caller("bsp", capfd)


def test_peer_is_added_named_and_moved(run):
    """A peer keeps what is not said anew: its name when its address changes, its address when its name does."""
    run("peers", "add", f"bsp+tls://{encode_id52(KEY)}@peer.example:1")
    run("peers", "add", KEY.hex(), "--name", "bob")
    (peer,) = [json.loads(line) for line in run("peers", "list", "--json")[1].splitlines()]
    removed = json.loads(run("peers", "remove", "bob", "--json")[1])

    assert peer == {
        "key": KEY.hex(),
        "id52": encode_id52(KEY),
        "name": "bob",
        "url": "bsp+tls://peer.example:1",
        "groups": [],
    }
    assert removed == {"key": KEY.hex(), "removed": True}
    assert run("peers", "list")[1] == ""


def test_peer_is_added_and_shared_with_at_once(run):
    """--share shares a group in the same step."""
    group = json.loads(run("group", "new", "talk", "--json")[1])
    peer = json.loads(run("peers", "add", KEY.hex(), "--share", "talk", "--json")[1])

    assert peer["groups"] == [group["id"]]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("add", "short"), "a key has 64 hexadecimal digits"),
        (("add", "bsp+tls://peer.example:1"), "does not say which key"),
        (("add", OTHER.hex(), "--name", "bob"), "another peer of the name"),
        (("add", OTHER.hex(), "--share", "nowhere"), "no group 'nowhere'"),
        (("remove", "nobody"), "no peer 'nobody'"),
    ],
)
def test_impossible_peer_is_told(run, words, why):
    """What cannot be is told in one sentence with exit code 2, and nothing is written."""
    run("peers", "add", KEY.hex(), "--name", "bob")
    code, _, err = run("peers", *words)

    assert code == 2
    assert why in err
    assert len(run("peers", "list")[1].splitlines()) == 1


@pytest.mark.parametrize("text", [KEY.hex(), encode_id52(KEY)])
def test_key_alone_has_no_address(text):
    """A key in either spelling is a peer that is not dialled."""
    assert read_peer(text) == (KEY, "")


def test_address_without_a_key_is_none():
    """An address names a peer only with its key."""
    with pytest.raises(LocalError):
        read_peer("tls://peer.example")
