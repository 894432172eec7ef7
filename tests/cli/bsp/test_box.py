"""Laws of ``waystation bsp box`` as people call it, against a real box."""

import json

import pytest
import typer.main

from tests.server.box.build import box_on_port
from waystation.cli.bsp import box as bsp_box
from waystation.core.errors import WaystationError


@pytest.fixture
def box(tmp_path):
    """Return an open box whose files lie where a node's home ./waystation has them."""
    with box_on_port(tmp_path / "waystation" / "box") as box:
        yield box


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Run a command in a fresh folder; gives what it prints on stdout, or the error."""
    monkeypatch.chdir(tmp_path)
    command = typer.main.get_command(bsp_box.app)

    def call(*words, token=None):
        monkeypatch.setenv("WAYSTATION_BOX_TOKEN", token or "")
        try:
            command(list(words), standalone_mode=False)
        except WaystationError as error:
            return error
        return capfd.readouterr().out

    return call


def test_file_goes_from_contact_to_owner(run, box, tmp_path):
    """The whole way: invite, put, list, get, delete; the owner names a folder by its first digits."""
    at = ("--url", box.url)
    contact = json.loads(run("invite", *at, "--json", token=box.owner))
    (tmp_path / "x.bsp").write_bytes(b"sealed")
    put = json.loads(run("put", "x.bsp", *at, "--json", token=contact["token"]))
    folder = ("--folder", contact["to_owner"][:8])
    listed = json.loads(run("list", *at, *folder, "--json", token=box.owner))
    shown = run("list", *at, *folder, token=box.owner)
    run("get", put["id"], *at, *folder, "--out", "y.bsp", token=box.owner)
    run("delete", put["id"], *at, *folder, token=box.owner)

    assert listed == {"files": [put]}
    assert shown == f"{put['id']}  6 bytes\n"
    assert (tmp_path / "y.bsp").read_bytes() == b"sealed"
    assert run("list", *at, *folder, token=box.owner) == ""


def test_file_goes_from_owner_to_contact(run, box, tmp_path):
    """A contact needs no folder: its token says which."""
    at = ("--url", box.url)
    words = run("invite", *at, token=box.owner).split()
    token, to_contact = words[1], words[-1]
    (tmp_path / "x.bsp").write_bytes(b"sealed")
    name = run("put", "x.bsp", *at, "--folder", to_contact, token=box.owner).strip()
    run("get", name, *at, "--out", "y.bsp", token=token)

    assert (tmp_path / "y.bsp").read_bytes() == b"sealed"


def test_contacts_are_shown_and_removed(run, box):
    """The list has both folders and no token."""
    at = ("--url", box.url)
    contact = json.loads(run("invite", *at, "--json", token=box.owner))
    shown = run("contacts", *at, token=box.owner)
    listed = json.loads(run("contacts", *at, "--json", token=box.owner))["contacts"]
    run("remove", contact["to_owner"][:6], *at, token=box.owner)

    assert contact["to_owner"] in shown and contact["to_contact"] in shown and contact["token"] not in shown
    assert listed == [
        {"to_owner": contact["to_owner"], "to_contact": contact["to_contact"], "files_count": 0, "size_bytes": 0}
    ]
    assert run("contacts", *at, token=box.owner) == ""


def test_operator_lets_owners_in_and_out(run, box):
    """Setup prints a token that the running box takes, and forget ends it."""
    token = run("setup", "bob").strip()
    taken = run("contacts", "--url", box.url, token=token)
    names = (run("owners"), json.loads(run("owners", "--json")))
    run("forget", "bob")
    after = run("contacts", "--url", box.url, token=token)
    other = json.loads(run("setup", "carol", "--json"))

    assert (taken, names) == ("", ("alice\nbob\n", {"owners": ["alice", "bob"]}))
    assert "nobody has this token" in str(after)
    assert other["name"] == "carol" and len(other["token"]) == 64


def test_token_may_come_from_a_file(run, box, tmp_path):
    """So that it stands in no list of processes."""
    (tmp_path / "my.token").write_text(box.owner + "\n")

    assert run("contacts", "--url", box.url, "--token-file", "my.token") == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("list",), "an owner says which --folder"),
        (("list", "--folder", "abc"), "0 folders begin with 'abc'"),
        (("remove", "0000"), "0 folders begin with '0000'"),
        (("put", "none.bsp"), "cannot read none.bsp"),
        (("list", "--token-file", "none"), "cannot read none"),
        (("get", "0" * 64, "--folder", "0" * 64, "--out", "y"), "you have no such folder"),
    ],
)
def test_mistakes_are_told(run, box, words, said):
    """Each in a sentence that says what to do."""
    assert said in str(run(*words, "--url", box.url, token=box.owner))


def test_nobody_is_asked_who_he_is(run):
    """Without a token nothing is connected."""
    assert "who are you?" in str(run("list", "--url", "http://127.0.0.1:1"))


def test_file_that_is_there_is_not_overwritten(run, box, tmp_path):
    """What was taken before stays."""
    at = ("--url", box.url)
    contact = json.loads(run("invite", *at, "--json", token=box.owner))
    (tmp_path / "x.bsp").write_bytes(b"sealed")
    name = run("put", "x.bsp", *at, token=contact["token"]).strip()
    answer = run("get", name, *at, "--folder", contact["to_owner"], "--out", "x.bsp", token=box.owner)
    nowhere = run("get", name, *at, "--folder", contact["to_owner"], "--out", "none/x.bsp", token=box.owner)

    assert "not overwritten" in str(answer)
    assert "cannot write none/x.bsp" in str(nowhere)


@pytest.mark.parametrize("name", sorted(typer.main.get_command(bsp_box.app).commands))
def test_commands_explain_themselves(name):
    """A sentence, an example that begins with the command's own name, and a help for every option."""
    command = typer.main.get_command(bsp_box.app).commands[name]

    assert f"Example: waystation bsp box {name}" in command.help
    assert not [part.name for part in command.params if not part.help]


def test_help_of_put_says_who_needs_a_folder():
    """A contact has one folder to write to, an owner one for each contact."""
    text = typer.main.get_command(bsp_box.app).commands["put"].help

    assert "An owner's has one for each contact, and names it with --folder" in text


def test_box_of_a_node_that_runs_elsewhere_is_not_made_here(run, tmp_path):
    """A configuration in another folder does not make a second home here, whose box nobody would serve."""
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "node.toml").write_text('[node]\nhome = "./waystation"\n')
    refused = run("setup", "bob", "--config", "node/node.toml")

    assert "no node has run in" in str(refused)
    assert not (tmp_path / "waystation").exists()
