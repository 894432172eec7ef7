"""Laws of ``waystation restore``."""

import json

import pytest
from typer.testing import CliRunner

from tests.server.home.build import ended_home
from waystation.cli import app

run = CliRunner()


@pytest.fixture
def folder(tmp_path):
    """A backup."""
    home = ended_home(tmp_path / "home")
    assert run.invoke(app, ["backup", str(tmp_path / "backup"), "--home", str(home.path)]).exit_code == 0
    return tmp_path / "backup"


def test_result_warns_of_two_nodes_with_one_key(folder, tmp_path):
    """Who restores is told what to do about the old node, and how to start the new one."""
    result = run.invoke(app, ["restore", str(folder), "--home", str(tmp_path / "new")])

    assert result.exit_code == 0
    assert "never start the old home again: two nodes with one key" in result.stdout
    assert f"next   waystation serve --home {tmp_path / 'new'}" in result.stdout


def test_json_has_the_same(folder, tmp_path):
    """For programs: one object."""
    result = run.invoke(app, ["restore", str(folder), "--home", str(tmp_path / "new"), "--json"])
    document = json.loads(result.stdout)

    assert document.keys() == {"home", "files", "bytes", "generation", "public_key", "id52", "note"}
    assert document["generation"] == 3


def test_home_with_anything_in_it_is_refused(folder, tmp_path):
    """Nothing is written over; the sentence names the folder."""
    result = run.invoke(app, ["restore", str(folder), "--home", str(tmp_path / "home")])

    assert result.exit_code == 2
    assert f"{tmp_path / 'home'} is not empty" in result.stderr


def test_rotten_backup_is_exit_code_5(folder, tmp_path):
    """A byte that changed since the backup is found."""
    data = bytearray((folder / "store.sqlite").read_bytes())
    data[-100] ^= 1
    (folder / "store.sqlite").write_bytes(data)
    result = run.invoke(app, ["restore", str(folder), "--home", str(tmp_path / "new")])

    assert result.exit_code == 5
    assert "store.sqlite is not as it was when the backup was made" in result.stderr
