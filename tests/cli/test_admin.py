"""Laws of ``waystation admin``, over homes with and without a running node."""

import json
import stat

import pytest
from typer.testing import CliRunner

from tests.server.build import NodeProcess
from waystation.cli import app
from waystation.server.home import Home


@pytest.fixture
def home(tmp_path):
    """A home without a node."""
    place = Home(tmp_path / "home")
    place.ensure()
    return place


def run(*words):
    """Run a command; return exit code, stdout and stderr."""
    result = CliRunner().invoke(app, list(words))
    return result.exit_code, result.stdout, result.stderr


def test_token_is_printed(home):
    """It is the text of the file, which is made when there is none."""
    code, out, _ = run("admin", "token", "--home", str(home.path))
    as_json = run("admin", "token", "--home", str(home.path), "--json")[1]

    assert (code, out.strip()) == (0, home.token_path.read_text().strip())
    assert json.loads(as_json) == {"token": out.strip()}


def test_token_is_replaced_without_a_node(home):
    """The file is for its owner alone, and the next start takes it."""
    old = home.admin_token()
    code, out, _ = run("admin", "rotate", "--home", str(home.path))

    assert (code, out) == (0, f"wrote  {home.token_path}: the next start of the node takes it\n")
    assert home.admin_token() != old
    assert stat.S_IMODE(home.token_path.stat().st_mode) == 0o600


@pytest.mark.parametrize("settings", [{}, {"admin__listen": ""}, {"admin__socket": ""}])
def test_token_is_replaced_under_a_node(tmp_path, settings):
    """Over the socket or the address, the running node refuses the old one at once."""
    with NodeProcess(tmp_path / "home", **settings).start() as node:
        old = node.token
        code, out, _ = run("admin", "rotate", "--home", str(node.home), "--json")
        again = run("admin", "rotate", "--home", str(node.home))
        asked = (
            [node.ask("GET", "/admin/v1/bans", token=token)[0] for token in (old, node.token)] if not settings else []
        )

    assert (code, json.loads(out)) == (0, {"file": str(node.home / "admin.token"), "in_force": True})
    assert again[:2] == (0, f"wrote  {node.home}/admin.token: the running node takes no other one from now on\n")
    assert asked in ([], [401, 200])


def test_node_without_an_admin_port_does_not_matter(tmp_path):
    """Nothing refuses or takes a token there, so the file alone changes."""
    with NodeProcess(tmp_path / "home", admin__listen="", admin__socket="").start() as node:
        old = Home(node.home).admin_token()
        code, out, _ = run("admin", "rotate", "--home", str(node.home))

    assert code == 0 and "next start" in out and node.token != old


def test_file_that_the_node_has_not_taken_over_is_named(tmp_path):
    """Where somebody replaced the file, the sentence says how the node takes it over; nothing is written."""
    with NodeProcess(tmp_path / "home").start() as node:
        (node.home / "admin.token").write_text("mine\n")
        code, _, err = run("admin", "rotate", "--home", str(node.home))

    assert code == 1 and f"kill -HUP {node.ready['pid']}" in err
    assert node.token == "mine"


@pytest.mark.parametrize("command", ["token", "rotate"])
def test_folder_without_a_node_is_left_alone(tmp_path, command):
    """Where there is no home, none is made, and the sentence says what to do."""
    code, _, err = run("admin", command, "--home", str(tmp_path / "none"))

    assert code == 1 and "there is no home of a node at" in err and "waystation serve --home" in err
    assert list(tmp_path.iterdir()) == []
