"""Laws of cli.bsp.relays: a device exchanges with the node that it is told, or with that of its folder."""

import contextlib
import json

import pytest

from tests.cli.bsp.build import key_of, make_homes
from tests.cli.build import caller
from tests.server.build import NodeProcess
from waystation.sdk.bsp import BspHome


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A node that knows alice, in a folder with her home."""
    folder = tmp_path_factory.mktemp("relay")
    make_homes(folder)
    peers = f'[{{key="{key_of(folder / "alice")}"}}]'
    running = NodeProcess(folder / "waystation", bsp__peers=peers, bsp__tls="127.0.0.1:0").start()
    yield running
    assert running.stop() == 0


@pytest.fixture
def run(node, monkeypatch, capfd):
    """Run a bsp command in the folder of that node."""
    monkeypatch.chdir(node.home.parent)
    return caller("bsp", capfd)


def address_of(node):
    """Return the address that its operator hands out."""
    return node.url("bsp").replace("tls://", f"bsp+tls://{node.ready['node']['public_key']}@")


def peers_of(node, name):
    """Return the addresses that a device remembers, by key."""
    with contextlib.closing(BspHome(node.home.parent / name, makes=False)) as home:
        return {peer.key.hex(): peer.url for peer in home.peers()}


def test_relay_that_answers_is_a_peer_from_then_on(run, node):
    """The next command needs no --relay."""
    key = node.ready["node"]["public_key"]
    first = json.loads(run("sync", "--home", "alice", "--relay", address_of(node), "--json")[1])
    second = json.loads(run("sync", "--home", "alice", "--json")[1])

    assert first["connected"] == second["connected"] == [key]
    assert peers_of(node, "alice")[key].endswith(node.url("bsp").partition("://")[2])


def test_node_of_this_folder_is_the_default(run, node):
    """A device whose peers have no address finds it; one that the node does not know is told so, and forgets it."""
    code, out, _ = run("sync", "--home", "bob", "--json")
    result, key = json.loads(out), node.ready["node"]["public_key"]

    assert (code, list(result["failed"])) == (1, [key])
    assert key not in peers_of(node, "bob")


def test_relay_has_its_key_in_its_address(run):
    """A device connects with nobody whose key it does not know."""
    code, _, err = run("sync", "--home", "alice", "--relay", "bsp+tls://127.0.0.1:1")
    key_alone = run("sync", "--home", "alice", "--relay", "aa" * 32)

    assert (code, "expected bsp+tls://KEY@host:port" in err) == (2, True)
    assert (key_alone[0], "expected bsp+tls://KEY@host:port" in key_alone[2]) == (2, True)
