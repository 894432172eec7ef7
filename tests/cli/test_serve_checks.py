"""Laws of cli.serve_checks: what serve refuses, the doctor finds."""

import sqlite3

import pytest

from tests.server.build import run_serve
from tests.server.build_node import OFF, configured
from waystation.cli.home.check import check_store
from waystation.cli.serve_checks import check_start, check_writable, running_pid
from waystation.server.home import Home
from waystation.store.sqlite import SqliteStore
from waystation.store.sqlite_layout import SCHEMA_VERSION


@pytest.fixture
def home(tmp_path):
    """A home that is made."""
    made = Home(tmp_path / "home")
    made.ensure()
    return made


def test_node_that_would_start_is_good(home):
    """One finding, whatever the number of parts."""
    (finding,) = check_start(configured(home.path), home)

    assert finding.good


@pytest.mark.parametrize(
    ("name", "value"),
    [("strata.did_documents", "/none/keys"), ("policy.path", "/none/published"), ("merk.peers_ca", "/none/ca.pem")],
)
def test_part_that_serve_refuses_is_found(home, name, value):
    """Whatever a part cannot use: the doctor says it before serve does, and names the part."""
    findings = list(check_start(configured(home.path, **{name.replace(".", "__"): value}), home))
    served = run_serve(home.path, OFF | {name: value})

    assert served.returncode != 0
    assert [finding.good for finding in findings] == [False]
    assert findings[0].says.startswith(name.partition(".")[0])


def test_store_of_a_newer_layout_is_a_failure(home):
    """Serve refuses it with the same sentence."""
    SqliteStore(home.store_path).close()
    with sqlite3.connect(home.store_path) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    finding = check_store(home)

    assert not finding.good and "was written by a newer waystation" in finding.says


def test_foreign_database_is_no_store(tmp_path):
    """A database of another program is not whole just because SQLite can read it."""
    other = Home(tmp_path)
    with sqlite3.connect(other.store_path) as connection:
        connection.execute("CREATE TABLE other (x)")
    connection.close()

    assert "not a waystation store" in check_store(other).says


def test_home_of_a_running_node_is_writable_by_right(home):
    """The doctor leaves it alone, and knows the process."""
    with home.lock():
        assert check_writable(home) is None
        assert running_pid(home) is not None
    assert running_pid(home) is None
    assert running_pid(Home(home.path / "none")) is None


def test_doctor_leaves_nothing_behind(home):
    """What it writes to try the disk, it removes."""
    before = sorted(home.path.iterdir())

    assert check_writable(home) is None
    assert sorted(home.path.iterdir()) == before
