"""Laws of cli.program: a command that is printed can be entered."""

import os
import sys

import pytest

from waystation.cli.program import own_program


@pytest.mark.parametrize(
    ("called", "words"),
    [
        ("waystation", ["waystation"]),
        ("/bin/pytest", ["waystation"]),
        (".venv/bin/waystation", [".venv/bin/waystation"]),
        ("/somewhere/waystation/__main__.py", [sys.executable, "-m", "waystation"]),
    ],
)
def test_words(monkeypatch, called, words):
    """The words are those that the program was called with, or its name where these say nothing."""
    monkeypatch.setattr(sys, "argv", [called])

    assert own_program() == words


def test_program_on_the_path(tmp_path, monkeypatch):
    """What the shell finds needs no path."""
    (tmp_path / "waystation").write_text("")
    (tmp_path / "waystation").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin")
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "waystation")])

    assert own_program() == ["waystation"]
