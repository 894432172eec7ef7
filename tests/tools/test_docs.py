"""Laws of tools.docs: pages are written whole, and drift is seen."""

import pytest

from tools import docs
from tools.docs import PAGES, commands, drifted, main


@pytest.fixture
def copy(tmp_path):
    """A folder that holds every page as the code writes it."""
    for name, render in PAGES.items():
        (tmp_path / name).write_text(render())
    return tmp_path


def test_fresh_pages_have_not_drifted(copy):
    """A copy of what the code says is up to date."""
    assert drifted(copy) == []


@pytest.mark.parametrize("name", PAGES)
def test_one_changed_character_is_drift(copy, name):
    """A page edited by hand, or missing, is named."""
    (copy / name).write_text((copy / name).read_text() + "!")

    assert drifted(copy) == [name]

    (copy / name).unlink()

    assert drifted(copy) == [name]


def test_check_names_drift_and_writing_mends_it(tmp_path, monkeypatch, capsys):
    """``--check`` changes nothing and exits 1; without it the page is written; then ``--check`` is content."""
    (tmp_path / "docs").mkdir()
    for name, render in PAGES.items():
        (tmp_path / "docs" / name).write_text(render())
    (tmp_path / "docs" / "metrics.md").write_text("old")
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    codes = [main(["--check"]), main([]), main(["--check"])]

    assert codes == [1, 0, 0]
    assert capsys.readouterr().out == "docs/metrics.md has drifted; run: make docs\nwrote docs/metrics.md\n"


def test_every_command_has_a_section():
    """The page of commands has one section per command that can be run."""
    page = PAGES["cli.md"]()

    assert [line.removeprefix("## waystation ") for line in page.splitlines() if line.startswith("## ")] == [
        name for name, _ in commands()
    ]
