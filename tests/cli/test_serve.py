"""Laws of ``waystation serve`` up to where the node takes over; the node itself is tried in tests/server."""

import os

import pytest
from typer.testing import CliRunner

from waystation.cli import app
from waystation.server.home import Home

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


def test_readable_key_exits_4(home):
    """A secret that others may read stops the node."""
    home.key_path.chmod(0o644)
    result = RUNNER.invoke(app, ["serve", "--home", str(home.path)])

    assert result.exit_code == 4
    assert "chmod 600" in result.stderr
