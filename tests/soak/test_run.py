"""The runner finds every law, hands minutes to those that take them, and prints what they return."""

import json
import re
from pathlib import Path

import pytest

from soak import run
from soak.faults.report import Report


@pytest.fixture
def laws(monkeypatch):
    """Return two laws in place of the long ones, and what they were called with."""
    called = []

    def short(folder, seed):
        called.append(("short", seed))
        return "figures"

    def any_time(folder, seed, minutes=5.0):
        called.append(("any", seed, minutes))
        report = Report(("bsp",), failures=["it fell"] if seed == 13 else [])
        assert not report.failures, "it fell"
        return report

    monkeypatch.setattr(run, "INVARIANTS", {"short": short, "any": any_time})
    return called


def ran(monkeypatch, *arguments):
    """Return the exit code of the runner."""
    monkeypatch.setattr("sys.argv", ["soak.run", *arguments])
    return run.main()


def test_every_law_has_the_name_of_its_path():
    """Faults and power cuts are among the laws; a folder's law has the folder's name."""
    assert {"faults", "bsp-cuts", "lprp-cuts", "strata-cuts", "strata-kill"} <= run.INVARIANTS.keys()
    assert "faults-law" not in run.INVARIANTS


def test_page_names_every_law_as_the_runner_does():
    """The table of soak/README.md has each law of the runner once, and no other."""
    page = (Path(run.__file__).parent / "README.md").read_text()
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = [name for cell in cells for name in re.findall(r"`([\w-]+)`", cell)]

    assert sorted(named) == sorted(run.INVARIANTS)


def test_minutes_reach_those_that_take_them(monkeypatch, laws):
    """A law that can last for any time gets the minutes; another is called as ever."""
    assert ran(monkeypatch, "--seed", "7", "--minutes", "2", "--only", "short,any") == 0
    assert laws == [("short", 7), ("any", 7, 2.0)]


def test_json_has_a_line_for_each(monkeypatch, laws, capsys):
    """With ``--json`` each law that held is one line with its figures."""
    ran(monkeypatch, "--seed", "7", "--json", "--only", "short,any")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert [line["figures"] for line in lines] == ["figures", Report(("bsp",)).as_json()]
    assert [line["name"] for line in lines] == ["short", "any"]


def test_broken_law_is_the_exit_code(monkeypatch, laws, capsys):
    """One that does not hold leaves 1 and says where its folder is; with ``--json`` that is a line, too."""
    assert ran(monkeypatch, "--seed", "13", "--json", "--only", "any,short") == 1
    failed, held = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert failed["failed"].startswith("it fell")
    Path(failed["folder"]).rmdir()  # it is kept for whoever looks for the reason
    assert held["figures"] == "figures"
