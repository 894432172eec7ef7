"""Laws of ``waystation bsp mailbox`` as people call it, with a whole node as the mailbox."""

import json
import random

import pytest
import typer.main

from tests.server.build import NodeProcess
from waystation.cli.bsp import mailbox as bsp_mailbox
from waystation.core.errors import WaystationError
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.device.links import Visibility
from waystation.sdk.bsp import BspHome

OFF = {f"{name}__enabled": "false" for name in ("bhumi", "lprp", "merk", "strata")}
BOB, CAROL = (KeyPair.from_seed(letter * 32).public for letter in (b"b", b"c"))
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """One node for the module, whose only owner makes its key from the number 1."""
    owner = KeyPair.from_seed(random.Random(1).randbytes(32)).public
    running = NodeProcess(
        tmp_path_factory.mktemp("mailbox") / "home", bsp__tls="127.0.0.1:0", bsp__owners=owner.hex(), **OFF
    ).start()
    yield running
    assert running.stop() == 0


@pytest.fixture
def home(tmp_path, node):
    """The owner's home: it knows the node, Bob and Carol, and shares a group with Bob."""
    home = BspHome(tmp_path / "bsp-me", rng=random.Random(1))
    group = home.profile.group(random.Random(str(tmp_path)).randbytes(32), b"", "opaque")
    home.commit(
        [
            home.put_peer("node", bytes.fromhex(node.ready["node"]["public_key"]), f"bsp+{node.url('bsp')}"),
            home.put_peer("bob", BOB),
            home.put_peer("carol", CAROL),
            home.put_group("talk", group),
            home.put_share(group.group_id, BOB, Visibility.SHARED),
        ]
    )
    home.close()
    return group


@pytest.fixture
def run(tmp_path, monkeypatch, capfd, home):
    """Run a command in the folder of the home; gives what it prints on stdout, or the error."""
    monkeypatch.chdir(tmp_path)
    command = typer.main.get_command(bsp_mailbox.app)

    def call(*words):
        try:
            command(list(words), standalone_mode=False)
        except WaystationError as error:
            return error
        return capfd.readouterr().out

    return call


TALK = ("--group", "talk", "--mailbox", "node")


def test_group_is_hosted_changed_shown_and_dropped(run, home):
    """The whole life of a hosted group, for people and for programs."""
    said = [run("host", *TALK, "--keep-days", "2"), run("members", *TALK, "--add", "carol")]
    state = json.loads(run("status", "--mailbox", "node", "--json"))
    shown = run("status", "--mailbox", "node").splitlines()
    said += [run("members", *TALK, "--remove", "carol", "--json"), run("host", *TALK, "--member", "bob", "--json")]
    again = json.loads(run("status", "--mailbox", "node", "--json"))["groups"][0]
    said.append(run("drop", *TALK))

    assert said == ["hosted\n", "done\n", '{"status": "done"}\n', '{"status": "done"}\n', "done\n"]
    assert state["allows"]["groups"] == 64 and state["uses"]["groups"] == 1
    assert [(row["group"], row["name"], row["members"], row["keep_ms"]) for row in state["groups"]] == [
        (home.group_id.hex(), "talk", 3, 2 * DAY_MS)
    ]
    assert shown[0].startswith("1 of 64 groups, 0.0 of 64 MiB, ")
    assert shown[1] == "talk: 0 messages wait (0 bytes, the oldest 0 s), 3 members, kept for 2 days"
    assert (again["members"], again["keep_ms"]) == (2, 14 * DAY_MS)
    assert json.loads(run("status", "--mailbox", "node", "--json"))["groups"] == []


def test_node_of_this_folder_is_the_default(run, home, node, tmp_path, monkeypatch):
    """Without --mailbox it is met, asked, and known from then on, under the name that it has."""
    stranger = BspHome(tmp_path / "stranger")
    stranger.close()
    monkeypatch.setenv("WAYSTATION_NODE__HOME", str(node.home))
    said = [run("host", "--group", "talk"), run("drop", "--group", "talk")]
    state = json.loads(run("status", "--json"))
    silent = str(run("status", "--home", "stranger", "--timeout", "0.1"))
    known = [BspHome(tmp_path / name, makes=False) for name in ("bsp-me", "stranger")]
    addresses = [{peer.name: peer.url for peer in each.peers()} for each in known]
    for each in known:
        each.close()

    assert (said, state["uses"]["groups"]) == (["hosted\n", "done\n"], 0)
    assert "did not answer within 0.1 s" in silent
    assert addresses[0]["node"] == addresses[1][""] == f"bsp+{node.url('bsp')}"


def test_mailbox_that_is_neither_named_nor_here_is_asked_for(run, monkeypatch):
    """The sentence says both ways out."""
    monkeypatch.delenv("WAYSTATION_NODE__HOME", raising=False)

    assert "name a peer with --mailbox, or run this in the folder of a node" in str(run("status"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("drop", *TALK), "it hosts no such group for us"),
        (("members", *TALK), "say whom to --add or --remove"),
        (("host", "--group", "none", "--mailbox", "node"), "no group 'none' here"),
        (("status", "--mailbox", "nobody"), "no peer 'nobody' here"),
        (("status", "--mailbox", "carol", "--timeout", "0.1"), "did not answer within 0.1 s"),
        (("status", "--mailbox", "node", "--home", "elsewhere"), "no home of a BSP device"),
    ],
)
def test_mistakes_and_refusals_are_told(run, words, said):
    """Each in a sentence."""
    assert said in str(run(*words))


@pytest.mark.parametrize("name", sorted(typer.main.get_command(bsp_mailbox.app).commands))
def test_commands_explain_themselves(name):
    """A sentence, an example that begins with the command's own name, and a help for every option."""
    command = typer.main.get_command(bsp_mailbox.app).commands[name]

    assert f"Example: waystation bsp mailbox {name}" in command.help
    assert not [part.name for part in command.params if not part.help]
