"""Laws of ``waystation serve`` up to where the node takes over; the node itself is tried in tests/server."""

import os

import pytest
from typer.testing import CliRunner

from tests.server.home.build import ended_home
from waystation.cli import app
from waystation.core.errors import HostError, StoreFault, StoreFaultKind
from waystation.server.home import Home
from waystation.server.home.mark import damage_explained

RUNNER = CliRunner()


@pytest.fixture
def home(tmp_path):
    """A home that is made."""
    home = Home(tmp_path / "home")
    home.ensure()
    return home


def test_bad_setting_exits_3_before_anything_is_made(tmp_path):
    """A node with a bad configuration leaves no trace."""
    result = RUNNER.invoke(app, ["serve", "--home", str(tmp_path / "home"), "--set", "bhumi.tsl=127.0.0.1:0"])

    assert result.exit_code == 3
    assert result.stderr.startswith("waystation: flag bhumi.tsl: unknown key in [bhumi]: tsl; did you mean tls?")
    assert not (tmp_path / "home").exists()


def test_bad_log_format_is_a_setting_like_others():
    """--log-format goes through the same check."""
    result = RUNNER.invoke(app, ["serve", "--log-format", "xml"])

    assert result.exit_code == 3
    assert 'one of "auto", "console", "json"' in result.stderr


def test_second_node_on_one_home_exits_1(home):
    """The sentence names the process that runs."""
    with home.lock():
        result = RUNNER.invoke(app, ["serve", "--home", str(home.path)])

    assert result.exit_code == 1
    assert f"another node (process {os.getpid()}) runs on the home" in result.stderr


@pytest.mark.parametrize("keeps", [0, 100])
def test_damaged_store_exits_5_with_the_way_out(tmp_path, keeps):
    """Whatever finds the damage, the operator reads what to do."""
    home = ended_home(tmp_path / "home")
    whole = home.store_path.read_bytes()
    home.store_path.write_bytes(whole[:keeps] + b"\xff" * (len(whole) - keeps))
    result = RUNNER.invoke(app, ["serve", "--home", str(home.path)])

    assert result.exit_code == 5
    assert result.stderr.count("waystation restore BACKUP --home NEW_HOME") == 1
    assert f"waystation check --deep {home.path}" in result.stderr


def test_damage_that_a_running_store_meets_has_the_way_out(home):
    """Only damage has it, and once: a home that has lost something names its own."""
    fold = StoreFault("the store x could not fold its log in: malformed", StoreFaultKind.DAMAGED)
    for error, times in (
        (fold, 1),
        (HostError("the store's table x is damaged", exit_code=5), 1),
        (HostError("it is damaged; waystation restore", exit_code=5), 0),
        (StoreFault("the disk failed", StoreFaultKind.IO), 0),
        (HostError("the certificate is damaged"), 0),
    ):
        with pytest.raises(HostError) as caught, damage_explained(home):
            raise error
        assert caught.value.exit_code == error.exit_code
        assert str(caught.value).count("check --deep") == times


def test_readable_key_exits_4(home):
    """A secret that others may read stops the node."""
    home.key_path.chmod(0o644)
    result = RUNNER.invoke(app, ["serve", "--home", str(home.path)])

    assert result.exit_code == 4
    assert "chmod 600" in result.stderr
