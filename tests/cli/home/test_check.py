"""Laws of ``waystation check``."""

import json
import os

import pytest
from typer.testing import CliRunner

from tests.server.home.build import ended_home, killed_home
from tests.store.build import kept_home
from waystation.cli import app
from waystation.server.home import Home
from waystation.server.home.mark import check_home, mark_path

run = CliRunner()


@pytest.fixture
def home(tmp_path):
    """A home whose node has ended."""
    return ended_home(tmp_path / "home")


def findings(*arguments):
    """Run the command; return its exit code and what each finding says, by name."""
    result = run.invoke(app, ["check", *map(str, arguments), "--json"])
    document = json.loads(result.stdout)
    assert document["good"] == (result.exit_code == 0)
    return result.exit_code, {each["name"]: each for each in document["findings"]}, document["given_up"]


def test_whole_home_is_good(home):
    """Key, mark and store are named, and nothing is written."""
    before = mark_path(home).read_bytes()
    code, found, given_up = findings(home.path)

    assert (code, given_up) == (0, [])
    assert found.keys() == {"key", "mark", "store"}
    assert mark_path(home).read_bytes() == before


def test_lines_for_people(home):
    """One line for each finding, with its verdict first."""
    home.key_path.unlink()
    result = run.invoke(app, ["check", str(home.path)])

    assert result.exit_code == 1
    assert [line[:4] for line in result.stdout.splitlines()] == ["FAIL", "FAIL", "ok  "]
    assert "node.key is missing" in result.stdout


@pytest.mark.parametrize("lost", ["node.key", "store.sqlite"])
def test_accept_says_what_is_given_up_and_takes_the_rest(home, lost):
    """After ``--accept`` the home is good, and the loss was told."""
    (home.path / lost).unlink()
    before = findings(home.path)[0]
    code, _, given_up = findings(home.path, "--accept")

    assert (before, code) == (1, 0)
    assert len(given_up) == 1
    assert lost in given_up[0]
    check_home(home)


def test_damaged_mark_can_be_accepted(home):
    """A mark that nobody can read is written anew."""
    mark_path(home).write_text("rubbish")
    code, _, given_up = findings(home.path, "--accept")

    assert code == 0
    assert "home.json is damaged" in given_up[0]


def test_home_that_loses_its_log_under_a_node_is_not_to_be_given_up(tmp_path):
    """While the node runs it can still write what it has open; nothing is said of a crash, or of ``--accept``."""
    home = killed_home(tmp_path / "home", tmp_path / "aside")
    (home.path / "store.sqlite-wal").unlink()
    with home.lock():
        code, found, _ = findings(home.path)
    after = findings(home.path)[1]["mark"]["says"]

    says = found["mark"]["says"]
    assert (code, found["mark"]["good"]) == (1, False)
    assert "store.sqlite-wal is missing" in says and f"(process {os.getpid()})" in says
    assert "stop the node in order (SIGTERM), then start it; do not kill it" in says
    assert "--accept" not in says and "did not end" not in says
    assert "--accept" in after


def test_running_node_keeps_its_home(home):
    """While a node runs nothing is accepted."""
    with home.lock():
        result = run.invoke(app, ["check", str(home.path), "--accept"])

    assert result.exit_code == 1
    assert "runs on the home" in result.stderr


def test_home_of_an_older_build_is_good(tmp_path):
    """A home from before the mark lacks nothing."""
    code, found, _ = findings(kept_home(2, tmp_path))

    assert code == 0
    assert "before homes had a mark" in found["mark"]["says"]


def test_damaged_store_is_found(home):
    """A store that is not whole fails, with the way out."""
    home.store_path.write_bytes(b"junk" * 2_000)
    code, found, _ = findings(home.path)

    assert code == 1
    assert not found["store"]["good"]
    assert "waystation check --accept" in found["store"]["says"]


@pytest.mark.parametrize(
    ("loss", "name", "says"),
    [
        (lambda home: home.store_path.write_bytes(b""), "store", "is empty"),
        (lambda home: home.store_path.unlink(), "store", "is missing"),
        (lambda home: home.key_path.unlink(), "key", "is missing"),
    ],
    ids=["empty store", "no store", "no key"],
)
def test_no_line_contradicts_the_mark(home, loss, name, says):
    """What the mark remembers and is not there fails under its own name too."""
    loss(home)
    code, found, _ = findings(home.path)

    assert code == 1
    assert not found["mark"]["good"]
    assert not found[name]["good"]
    assert says in found[name]["says"]


def test_structure_is_all_that_the_plain_check_vouches_for(home):
    """It reads no row, and names what does; with that, it does not."""
    plain, deep = (findings(home.path, *more)[1]["store"]["says"] for more in ((), ("--deep",)))

    assert plain == f"{home.store_path}: its structure is whole; waystation check --deep reads every row"
    assert deep == f"{home.store_path}: its structure is whole"


def test_mark_that_is_missing_is_said_to_be(home):
    """A store of today was used by nodes that write one: the home is not from before."""
    mark_path(home).unlink()
    code, found, _ = findings(home.path)

    assert code == 0
    assert found["mark"]["note"]
    assert "home.json is missing, although" in found["mark"]["says"]
    assert "before" not in found["mark"]["says"]


def test_folder_that_is_not_there(tmp_path):
    """A typo is a sentence."""
    result = run.invoke(app, ["check", str(tmp_path / "none")])

    assert result.exit_code == 1
    assert "there is no folder" in result.stderr
    assert not Home(tmp_path / "none").path.exists()
