"""Laws of cli.mcu_compile: what MicroPython loads."""

import subprocess

import pytest

from waystation.cli.mcu_compile import can_compile, compile_package
from waystation.cli.mcu_package import package_folder


def test_every_module_is_compiled(tmp_path):
    """Each source has its .mpy, of the version that MicroPython 1.22 and later load, without a path of this machine."""
    made = compile_package(package_folder(), tmp_path / "bhumi")

    assert can_compile()
    assert [path.stem for path in made] == sorted(path.stem for path in package_folder().glob("*.py"))
    assert {path.read_bytes()[:2] for path in made} == {b"M\x06"}
    assert not [path for path in made if str(package_folder()).encode() in path.read_bytes()]
    assert b"bhumi/device.py" in (tmp_path / "bhumi" / "device.mpy").read_bytes()


def test_bad_source_does_not_compile(tmp_path):
    """A module with a mistake is an error, not a file."""
    source = tmp_path / "bhumi"
    source.mkdir()
    (source / "bad.py").write_text("def f(:\n")

    with pytest.raises(subprocess.CalledProcessError):
        compile_package(source, tmp_path / "out")
    assert not (tmp_path / "out" / "bad.mpy").exists()
