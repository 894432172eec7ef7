"""Laws of ``waystation config``."""

import json

from typer.testing import CliRunner

from waystation.cli import app
from waystation.server.config.reference import render_docs, render_sample

RUNNER = CliRunner()


def test_show_names_value_and_origin(tmp_path):
    """Flags, files and defaults are told apart, in text and in JSON."""
    path = tmp_path / "node.toml"
    path.write_text("[limits]\nenabled = false\n")
    arguments = ["config", "show", "--config", str(path), "--set", "bhumi.tls=127.0.0.1:0", "--home", "h"]
    as_json = json.loads(RUNNER.invoke(app, [*arguments, "--json"]).stdout)
    as_text = RUNNER.invoke(app, arguments).stdout

    assert as_json["limits.enabled"] == {"value": False, "origin": f"{path}:2"}
    assert as_json["bhumi.tls"] == {"value": "127.0.0.1:0", "origin": "flag bhumi.tls"}
    assert as_json["node.home"] == {"value": "./h", "origin": "flag node.home"}
    assert as_json["store.url"] == {"value": "sqlite", "origin": "default"}
    assert len(as_text.splitlines()) == len(as_json)


def test_sample_and_docs_are_printed_whole():
    """What is printed can be written to a file as it is."""
    assert RUNNER.invoke(app, ["config", "sample"]).stdout == render_sample()
    assert RUNNER.invoke(app, ["config", "docs"]).stdout == render_docs()


def test_show_refuses_a_bad_file(tmp_path):
    """Showing checks, so a file can be tried before the node is restarted."""
    path = tmp_path / "node.toml"
    path.write_text("[bhumi]\nplain = '0.0.0.0:1'\n")

    assert RUNNER.invoke(app, ["config", "show", "--config", str(path)]).exit_code == 3
