"""Laws of ``waystation id``."""

import json

from typer.testing import CliRunner

from waystation.cli import app
from waystation.core.dids import encode_did
from waystation.core.ids import encode_id52
from waystation.server.home import Home

RUNNER = CliRunner()


def test_id_shows_one_key_in_three_spellings(tmp_path):
    """JSON and text name the node's public key as hex, id52 and DID."""
    home = Home(tmp_path / "home")
    home.ensure()
    public = home.key_pair().public
    expected = {"public_key": public.hex(), "id52": encode_id52(public), "did": encode_did(public)}
    as_json = RUNNER.invoke(app, ["id", "--home", str(home.path), "--json"])
    as_text = RUNNER.invoke(app, ["id", "--home", str(home.path)])

    assert json.loads(as_json.stdout) == expected
    assert [line.split()[1] for line in as_text.stdout.splitlines()] == list(expected.values())


def test_id_makes_nothing(tmp_path):
    """Asking who the node is does not give it a key."""
    result = RUNNER.invoke(app, ["id", "--home", str(tmp_path / "home")])

    assert result.exit_code == 1
    assert "node.key" in result.stderr
    assert not (tmp_path / "home").exists()
