"""Laws of cli.local_node: a client without a relay finds the node of the folder that it runs in."""

import os

import pytest

from tests.cli.build import caller
from tests.server.build import NodeProcess
from waystation.cli.bhumi.ways import open_ways
from waystation.cli.local_node import local_home, local_url
from waystation.cli.lprp.commands import find_host
from waystation.sdk.lprp import LprpState
from waystation.sdk.merk import SERVERS_FILE, Servers
from waystation.server.home import Home
from waystation.server.http.running import Running, write_running


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A node on free ports in a folder of its own."""
    running = NodeProcess(tmp_path_factory.mktemp("local") / "waystation", lprp__pow_base_bits_lease="6").start()
    yield running
    assert running.stop() == 0


@pytest.fixture
def here(node, monkeypatch):
    """Run in the folder of that node."""
    monkeypatch.chdir(node.home.parent)
    return node


def test_node_of_this_folder_is_found(here):
    """With the ports that it really has; the first listener that there is counts."""
    assert local_url("merk") == here.url("merk")
    assert local_url("none", "bhumi") == here.url("bhumi")
    assert local_url("none") is None


def test_home_may_be_named_by_the_environment(here, tmp_path, monkeypatch):
    """As for serve."""
    monkeypatch.chdir(tmp_path)
    before = local_url("merk")
    monkeypatch.setenv("WAYSTATION_NODE__HOME", str(here.home))

    assert before is None
    assert local_home() == here.home
    assert local_url("merk") == here.url("merk")


def test_listener_of_every_address_is_reached_by_loopback(tmp_path, monkeypatch):
    """Nobody dials 0.0.0.0."""
    monkeypatch.chdir(tmp_path)
    home = Home(tmp_path / "waystation")
    home.ensure()
    urls = {"merk": "ws://0.0.0.0:1/merk", "bhumi": "tls://[::]:2"}
    write_running(home, Running(os.getpid(), "1", urls, ""))
    stale = local_url("merk")
    with home.lock():
        found = local_url("merk"), local_url("bhumi")

    assert stale is None
    assert found == ("ws://127.0.0.1:1/merk", "tls://[::1]:2")


def test_damaged_file_is_no_node(tmp_path, monkeypatch):
    """A client goes on to its default."""
    monkeypatch.chdir(tmp_path)
    home = Home(tmp_path / "waystation")
    home.ensure()
    home.running_path.write_text("{")
    with home.lock():
        assert local_url("merk") is None


def test_strata_and_merk_take_the_node_of_this_folder(here, tmp_path, capfd):
    """A packet is stored there; a message is judged there."""
    code, _, err = caller("strata", capfd)("publish", "hello", "--home", str(tmp_path / "strata"))
    nobody = "0" * 63 + "1"
    merk = caller("merk", capfd)("send", nobody, "hello", "--mode", "signed", "--home", str(tmp_path / "merk"))

    assert (code, f"stored by {here.url('strata')}" in err) == (0, True)
    assert "no node linked with yours has the recipient" in merk[2]


def test_bhumi_and_lprp_take_the_node_of_this_folder(here, tmp_path):
    """Their addresses are those of the ready line."""
    with open_ways(tmp_path / "bhumi", None, None, insecure=True, find=False) as ways:
        assert ways.relays == [here.url("bhumi")]
    state = LprpState(tmp_path / "lprp")
    found = find_host(None, state)
    state.close()

    assert (str(found.address), found.key.hex()) == (here.url("lprp"), here.ready["node"]["public_key"])


def test_wrong_path_is_not_remembered_by_strata(here, tmp_path, capfd):
    """The path of another protocol takes a connection, and is no Strata relay."""
    strata, home = caller("strata", capfd), ("--home", str(tmp_path / "me"))
    code, _, _ = strata("publish", "hello", "--relay", here.url("merk").rstrip("/") + "/merk", *home)
    listed = strata("relays", "list", *home)

    assert code != 0
    assert "/merk" not in listed[1]


def test_merk_remembers_a_relay_that_took_it(here, tmp_path, capfd):
    """As the other clients do: the next command needs no --relay; one that nobody answers is not kept."""
    merk, home = caller("merk", capfd), ("--home", str(tmp_path / "me"))
    words = ("send", "0" * 63 + "1", "hello", "--mode", "signed", *home)
    merk(*words, "--relay", "ws://127.0.0.1:1/merk")
    before = [server.address for server in Servers(tmp_path / "me" / SERVERS_FILE).in_order()]
    merk(*words, "--relay", here.url("merk"))
    after = [server.address for server in Servers(tmp_path / "me" / SERVERS_FILE).in_order() if server.added]

    assert (before, after) == ([], [here.url("merk")])
