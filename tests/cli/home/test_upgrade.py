"""Laws of ``waystation upgrade``."""

import json

import pytest
from typer.testing import CliRunner

from tests.server.home.build import NAMES, ended_home
from tests.store.build import kept_home
from waystation.cli import app
from waystation.server.home import Home
from waystation.server.home.mark import prepare_home
from waystation.store.sqlite_layout import SCHEMA_VERSION, check_file

run = CliRunner()


def upgraded(home, *arguments):
    """Run the command on a home; return its result and, where it ended well, the document."""
    result = run.invoke(app, ["upgrade", "--home", str(home), *map(str, arguments), "--json"])
    return result, json.loads(result.stdout)


@pytest.mark.parametrize("layout", [1, 2, 3])
def test_old_home_is_saved_and_brought_up(tmp_path, layout):
    """From which layout to which is told, and the backup made first is of the old one."""
    home = kept_home(layout, tmp_path)
    result, document = upgraded(home, "--backup", tmp_path / "backup")

    assert result.exit_code == 0
    assert (document["layout_found"], document["layout"], document["done"]) == (layout, SCHEMA_VERSION, True)
    assert check_file(home / "store.sqlite") == SCHEMA_VERSION
    assert check_file(tmp_path / "backup" / "store.sqlite") == layout


def test_check_changes_nothing(tmp_path):
    """``--check`` says what is due."""
    home = kept_home(2, tmp_path)
    result, document = upgraded(home, "--check")

    assert result.exit_code == 0
    assert (document["needed"], document["done"]) == (True, False)
    assert check_file(home / "store.sqlite") == 2


def test_backup_is_asked_for(tmp_path):
    """Without a backup, or the word that there is one, nothing is changed."""
    home = kept_home(2, tmp_path)
    refused, document = upgraded(home)
    untouched = check_file(home / "store.sqlite")
    allowed, _ = upgraded(home, "--no-backup")

    assert (refused.exit_code, untouched) == (2, 2)
    assert "--backup" in document["error"]
    assert allowed.exit_code == 0
    assert check_file(home / "store.sqlite") == SCHEMA_VERSION


def test_todays_home_needs_nothing(tmp_path):
    """The same command again, or on a new home, says so and asks for no backup."""
    home = ended_home(tmp_path / "home")
    result = run.invoke(app, ["upgrade", "--home", str(home.path)])

    assert result.exit_code == 0
    assert "nothing to do" in result.stdout


def test_home_without_a_store_needs_nothing(tmp_path):
    """A home that no node has used has no layout."""
    home = Home(tmp_path / "home")
    prepare_home(home, NAMES)
    result = run.invoke(app, ["upgrade", "--home", str(home.path)])

    assert result.exit_code == 0
    assert "there is no store yet" in result.stdout


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda home: home.store_path.write_bytes(b""), "store.sqlite is empty"),
        (lambda home: home.store_path.unlink(), "store.sqlite is missing"),
        (lambda home: home.key_path.unlink(), "node.key is missing"),
    ],
    ids=["empty store", "no store", "no key"],
)
@pytest.mark.parametrize("flags", [[], ["--check"]])
def test_home_that_has_lost_something_is_told(tmp_path, loss, words, flags):
    """What ``check`` finds is no upgrade that is due, and no home that begins."""
    home = ended_home(tmp_path / "home")
    loss(home)
    result = run.invoke(app, ["upgrade", "--home", str(home.path), *flags])

    assert result.exit_code == 5
    assert words in result.stderr
