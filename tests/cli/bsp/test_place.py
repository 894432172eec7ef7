"""Laws of where messages are found: the home of a device, or the store of a node."""

import json

import pytest

from tests.cli.bsp.build import CLIENT_ID, make_homes
from tests.cli.build import caller
from waystation.cli.bsp.place import open_home, open_place
from waystation.core.errors import HostError
from waystation.examples.chat.format import FORMATS_KNOWN
from waystation.protocols.bsp.device.orders import AddMessage, DeleteMessage, queue_order
from waystation.protocols.bsp.profile import SEED
from waystation.protocols.bsp.relay.groups import NodeGroup, changed_rows
from waystation.store.sqlite import SqliteStore

CONFIG = f"""
[node]
home = "HOME"
[[bsp.groups]]
client_id = "{CLIENT_ID.hex()}"
descriptor = ""
format = "opaque"
name = "talk"
share_with = ["{"03" * 32}"]
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Run a bsp command in a folder with the configuration of a node; gives exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "node.toml").write_text(CONFIG.replace("HOME", str(tmp_path / "node")))
    return caller("bsp", capfd)


def test_node_of_the_folder_is_found_before_it_ever_ran(run):
    """With node.toml here the node's store is meant, whether the node has run or not."""
    added = run("add", "--group", "talk", "--body", "hello")[1].strip()
    (row,) = [json.loads(line) for line in run("list", "--group", "talk", "--json")[1].splitlines()]
    why = run("why", added[:8])

    assert (row["id"], row["state"], row["delivery_order"], row["size_bytes"]) == (added, "delivered", 1, 5)
    assert (why[0], "030303" in why[1]) == (0, True)


def test_node_is_found_by_its_configuration_or_environment(run, tmp_path, monkeypatch):
    """--config names a node from anywhere; WAYSTATION_NODE__HOME says where the node of the environment lives."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    added = run("add", "--config", str(tmp_path / "node.toml"), "--group", "talk", "--body", "by config")
    monkeypatch.setenv("WAYSTATION_NODE__HOME", str(tmp_path / "node"))
    monkeypatch.setenv(
        "WAYSTATION_BSP__GROUPS", f'[{{client_id = "{CLIENT_ID.hex()}", descriptor = "", name = "talk"}}]'
    )
    listed = run("list", "--group", "talk", "--json")

    assert (added[0], listed[0]) == (0, 0)
    assert json.loads(listed[1])["id"] == added[1].strip()


def test_home_of_a_node_is_enough(tmp_path, monkeypatch, capfd):
    """What a node was a member of when it last ran stands in its store."""
    (tmp_path / "node").mkdir()
    group = NodeGroup("seed", SEED.group(CLIENT_ID, b"", "opaque"), "talk", ())
    store = SqliteStore(tmp_path / "node" / "store.sqlite")
    store.commit(changed_rows(store, [group]))
    store.close()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WAYSTATION_NODE__HOME", str(tmp_path / "node"))
    run = caller("bsp", capfd)

    added = run("add", "--group", group.group.group_id.hex(), "--body", "hello")
    listed = run("list", "--group", "talk", "--json")

    assert added[0] == 0
    assert json.loads(listed[1])["id"] == added[1].strip()


@pytest.mark.parametrize("names_home", [False, True])
def test_node_that_is_elsewhere_is_not_made_here(run, tmp_path, monkeypatch, names_home):
    """A home relative to the node's folder is not begun in another one, nor is one that only the environment names."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "node.toml").write_text(CONFIG.replace("HOME", "./node"))
    monkeypatch.chdir(elsewhere)
    if names_home:
        monkeypatch.setenv("WAYSTATION_NODE__HOME", "./node")

    code, out, err = run("add", *([] if names_home else ["--config", "../node.toml"]), "--group", "talk", "--body", "x")

    assert (code, out) == (5, "")
    assert "no node has run in" in err
    assert list(elsewhere.iterdir()) == []


def test_home_of_a_device_goes_before_the_node_of_the_folder(run, tmp_path):
    """--home names a device although there is a node here."""
    make_homes(tmp_path, "opaque")
    run("add", "--group", "talk", "--body", "x", "--home", "alice")

    assert run("list", "--group", "talk", "--json")[1] == ""
    assert len(run("list", "--group", "talk", "--json", "--home", "alice")[1].splitlines()) == 1


def test_store_in_memory_is_nobody_elses(run, tmp_path):
    """A node that keeps nothing cannot be looked into, which is said with exit code 5."""
    with (tmp_path / "node.toml").open("a") as file:
        file.write('[store]\nurl = "memory"\n')
    code, _, err = run("list", "--group", "talk")

    assert code == 5
    assert "store is memory" in err


def test_orders_that_wait_are_foreseen(tmp_path):
    """What was asked for and not taken up counts as done: added in the order of time, once, and deleted."""
    group = make_homes(tmp_path, "opaque")
    with open_home(tmp_path / "alice") as home:
        orders = [AddMessage(group.group_id, 1, b"one"), AddMessage(group.group_id, 2, b"two")]
        again = [orders[0], DeleteMessage(group.group_id, home.profile.message_id(group.group_id, 2, b"two"))]
        other = AddMessage(bytes(32), 3, b"elsewhere")
        home.commit([queue_order(order, at) for at, order in enumerate([*orders, *again, other])])
    with open_place(tmp_path / "alice", None, FORMATS_KNOWN) as place:
        rows = place.rows(group)
        bodies = [place.body(group, row) for row in rows]
        heads = place.heads(group)

    assert [(row.order, row.timestamp, row.body_present) for row in rows] == [(1, 1, True), (2, 2, False)]
    assert bodies[0] == b"one"
    assert heads == [row.message_id for row in rows]


def test_damaged_store_is_told(tmp_path):
    """A file that is no store says so, with exit code 5."""
    make_homes(tmp_path)
    (tmp_path / "alice" / "bsp.db").write_bytes(b"junk" * 1_000)

    with pytest.raises(HostError, match="store") as refused, open_place(tmp_path / "alice", None, FORMATS_KNOWN):
        pass
    assert refused.value.exit_code == 5
