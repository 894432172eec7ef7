"""Laws of ``waystation backup``."""

import json
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from tests.server.build import NodeProcess, until
from tests.server.home.build import ended_home
from tests.store.build_rot import flip_column
from waystation.cli import app
from waystation.core.ids import encode_id52
from waystation.server.home import Home
from waystation.server.home.backup import LIST_FILE
from waystation.server.home.mark import mark_path

run = CliRunner()


@pytest.fixture
def home(tmp_path):
    """A home whose node has ended."""
    return ended_home(tmp_path / "home")


def test_result_names_folder_node_and_the_way_back(home, tmp_path):
    """For people: what was written, whose it is, and the command that makes a home of it."""
    folder = tmp_path / "backup"
    result = run.invoke(app, ["backup", str(folder), "--home", str(home.path)])

    assert result.exit_code == 0
    assert f"wrote    {folder}: " in result.stdout
    assert encode_id52(home.key_pair().public) in result.stdout
    assert f"waystation restore {folder} --home NEW_HOME" in result.stdout


def test_json_has_the_same(home, tmp_path):
    """For programs: one object."""
    folder = tmp_path / "backup"
    result = run.invoke(app, ["backup", str(folder), "--home", str(home.path), "--json"])
    document = json.loads(result.stdout)

    assert document.keys() == {"folder", "home", "files", "bytes", "generation", "public_key", "id52", "damaged"}
    assert (document["generation"], document["public_key"]) == (3, home.key_pair().public.hex())


def test_damaged_rows_are_told(home, tmp_path):
    """The backup is written with them, as good as can be; how many of which table is said, and the exit code is 1."""
    flip_column(home.store_path, "records", 2, "value")
    text = run.invoke(app, ["backup", str(tmp_path / "one"), "--home", str(home.path)])
    document = run.invoke(app, ["backup", str(tmp_path / "two"), "--home", str(home.path), "--json"])
    restored = run.invoke(app, ["restore", str(tmp_path / "one"), "--home", str(tmp_path / "new")])

    assert (text.exit_code, document.exit_code, restored.exit_code) == (1, 1, 0)
    assert "DAMAGED  1 of things: rows that are not as they were written" in text.stdout
    assert json.loads(document.stdout)["damaged"] == {"things": 1}


def test_home_comes_from_the_configuration(home, tmp_path):
    """``--config`` names the home as for the other commands."""
    config = tmp_path / "node.toml"
    config.write_text(f'[node]\nhome = "{home.path}"\n')
    result = run.invoke(app, ["backup", str(tmp_path / "backup"), "--config", str(config)])

    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["backup", "HOME", "--home", "HOME"], 2, "lies in the home itself"),
        (["backup", "BACKUP", "--home", "NONE"], 1, "there is no home of a node"),
    ],
)
def test_impossible_request_is_a_sentence(home, tmp_path, arguments, code, words):
    """What cannot be saved is said, with the code of the cause."""
    places = {"HOME": home.path, "BACKUP": tmp_path / "backup", "NONE": tmp_path / "none"}
    result = run.invoke(app, [str(places.get(word, word)) for word in arguments])

    assert result.exit_code == code
    assert words in result.stderr


@pytest.mark.parametrize("has_mark", [True, False])
def test_home_without_its_key_is_told(home, tmp_path, has_mark):
    """It is a home of a node, whose key is missing."""
    home.key_path.unlink()
    if not has_mark:
        mark_path(home).unlink()
    result = run.invoke(app, ["backup", str(tmp_path / "backup"), "--home", str(home.path)])

    assert result.exit_code == 5
    assert "node.key is missing" in result.stderr


def test_backup_of_a_running_node(tmp_path):
    """A ban that the running node has acknowledged is in the backup, and the node goes on."""
    node = NodeProcess(tmp_path / "home").start()
    body = {"subject": "192.0.2.9", "reason": "acknowledged"}
    assert node.ask("POST", "/admin/v1/bans", body, node.token)[0] == 201
    saved = run.invoke(app, ["backup", str(tmp_path / "backup"), "--home", str(node.home)])
    made = run.invoke(app, ["restore", str(tmp_path / "backup"), "--home", str(tmp_path / "new")])
    assert node.ask("GET", "/readyz")[0] == 200
    assert node.stop() == 0
    again = NodeProcess(tmp_path / "new").start()
    _, bans = again.ask("GET", "/admin/v1/bans")

    assert (saved.exit_code, made.exit_code) == (0, 0)
    assert "192.0.2.9" in str(bans)
    assert again.ready["node"] == node.ready["node"]
    assert again.stop() == 0


def test_backup_that_is_killed_is_none(home, tmp_path):
    """After kill -9 in the middle there is a folder, and ``restore`` does not take it."""
    (home.path / "journal").mkdir(exist_ok=True)
    (home.path / "journal" / "x.jsonl").write_bytes(bytes(1 << 20))
    folder = tmp_path / "backup"
    program = (
        "import sys, time, waystation.server.home.backup as b\n"
        "b._write_list = lambda *_: (print('copied', flush=True), sys.stdin.read())\n"
        "from waystation.cli import main\n"
        "main(sys.argv[1:])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, "backup", str(folder), "--home", str(home.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        until(lambda: process.stdout.readline() == b"copied\n", "the copies")
        process.send_signal(signal.SIGKILL)
    result = run.invoke(app, ["restore", str(folder), "--home", str(tmp_path / "new")])

    assert (folder / "store.sqlite").exists()
    assert not (folder / LIST_FILE).exists()
    assert result.exit_code == 2
    assert "is no backup, or one that was cut short" in result.stderr
    assert not (tmp_path / "new").exists()
    assert Home(home.path).key_pair()
