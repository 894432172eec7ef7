"""``waystation commands`` on the command line."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from waystation.cli.pipeline import commands, options
from waystation.cli.pipeline.commands import app
from waystation.core.errors import HostError, LocalError


def test_doctor_says_which_java_and_why(tmp_path) -> None:
    """The doctor prints versions, the Java with its reason, and the paths."""
    done = CliRunner().invoke(app, ["doctor", "--json", "--home", str(tmp_path)])
    facts = json.loads(done.stdout)

    assert done.exit_code == 0
    assert facts["ready"]
    assert facts["java_why"]
    assert facts["pyspark"].startswith("4.3")
    assert facts["lake"] == str(tmp_path / "lake")


def test_doctor_fails_when_something_is_missing(monkeypatch) -> None:
    """A machine that cannot run the commands gets exit code 1 and the word missing."""
    monkeypatch.setattr(commands, "NEEDED", ("pyspark", "no-such-package"))
    done = CliRunner().invoke(app, ["doctor"])

    assert done.exit_code == 1
    assert "no-such-package missing" in done.stdout


@pytest.mark.parametrize("command", ["run", "report"])
def test_missing_extra_is_one_sentence(monkeypatch, command: str) -> None:
    """Without Spark the command says what to install."""
    monkeypatch.setattr(options, "NEEDED", ("no_such_package",))
    done = CliRunner().invoke(app, [command])

    assert isinstance(done.exception, HostError)
    assert 'pip install "waystation[spark]"' in str(done.exception)


@pytest.mark.parametrize("arguments", [["--date", "tomorrow"], ["--date", "2026-05-29", "--from", "2026-05-29"]])
def test_bad_dates_are_refused(arguments: list[str]) -> None:
    """A date that is none, or two ways to name one, is a usage error."""
    done = CliRunner().invoke(app, ["run", *arguments])

    assert isinstance(done.exception, LocalError)


def test_import_is_light() -> None:
    """Importing the command loads neither Spark nor matplotlib nor the commands."""
    program = (
        "import sys, waystation.cli.pipeline.commands\n"
        "heavy = {'pyspark', 'pandas', 'matplotlib'}\n"
        "print([n for n in sys.modules if n.split('.')[0] in heavy or n == 'waystation.pipeline.run'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
