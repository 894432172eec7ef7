"""Laws of ``waystation check --deep``."""

import json

import pytest
from typer.testing import CliRunner

from tests.server.build import NodeProcess, until
from tests.server.home.build import ended_home
from tests.store.build import kept_home
from tests.store.build_rot import flip_column
from waystation.cli import app
from waystation.server.home import Home

run = CliRunner()


@pytest.fixture
def home(tmp_path):
    """A home whose node has ended."""
    return ended_home(tmp_path / "home")


def findings(folder):
    """Run the command; return its exit code and its findings by name."""
    result = run.invoke(app, ["check", str(folder), "--deep", "--json"])
    document = json.loads(result.stdout)
    assert document["good"] == (result.exit_code == 0)
    return result.exit_code, {each["name"]: each for each in document["findings"]}


def test_deep_reads_everything(home):
    """Each table, the file, the journal and the archive have a finding; the home stays as it is."""
    before = {path: path.read_bytes() for path in home.path.rglob("*") if path.is_file()}
    code, found = findings(home.path)

    assert code == 0
    assert found["things"]["says"] == "3 rows are whole"
    assert found.keys() == {"key", "mark", "store", "things", "file", "journal", "archive"}
    assert {path: path.read_bytes() for path in home.path.rglob("*") if path.is_file()} == before


def test_deep_names_damaged_rows(home):
    """The plain check calls the store whole, for SQLite sees nothing wrong with it (NODE-ROT)."""
    flip_column(home.store_path, "records", 2, "value")
    plain, deep = run.invoke(app, ["check", str(home.path)]), run.invoke(app, ["check", str(home.path), "--deep"])

    assert (plain.exit_code, deep.exit_code) == (0, 1)
    assert f"FAIL  things       1 of 3 rows are damaged: key {b'1'.hex()}" in deep.stdout.splitlines()


def test_deep_of_a_home_from_before(tmp_path):
    """A store without checksums is named, with the way to get them."""
    home = Home(kept_home(2, tmp_path))
    code, found = findings(home.path)

    assert code == 1
    assert "waystation upgrade" in found["rows"]["says"]


def test_deep_after_a_kill_is_good(tmp_path):
    """What a killed node left of journal and archive is a note with the count, and no failure."""
    killed = NodeProcess(tmp_path / "home").start()
    until(lambda: any(path.stat().st_size for path in killed.home.glob("journal/*/*.jsonl.open")), "the first lines")
    killed.kill()
    again = NodeProcess(tmp_path / "home").start()
    assert again.stop() == 0
    code, found = findings(tmp_path / "home")

    assert code == 0
    assert found["journal"]["note"]
    assert "; 1 of them end without a last line" in found["journal"]["says"]
