"""Finds the microcontroller package, copies it into a device's folder, and finds the MicroPython program to run it."""

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from waystation.cli.mcu.compile import can_compile, compile_package
from waystation.core.errors import HostError

__all__ = ["PACKAGE", "copy_package", "device_module", "micropython", "package_folder"]

PACKAGE: Final = "bhumi"
_INSTALLED: Final = Path(__file__).parents[2]
_LOADED: Final = "waystation_mcu"
_WHEEL: Final = "micropython_unix"
# The wheel holds no program but a module whose function is one; as a script it would hide how the program ended.
_START: Final = f"import sys, {_WHEEL}; sys.argv[0] = 'micropython'; sys.exit({_WHEEL}.main())"


def package_folder() -> Path:
    """Return the folder of the package's sources: a wheel's, with the compiled files beside them, or the checkout's."""
    places = (_INSTALLED / "_mcu" / PACKAGE, _INSTALLED.parents[1] / "micropython" / PACKAGE)
    for place in places:
        if (place / "device.py").exists():
            return place
    raise HostError(f"this installation lacks the microcontroller package: there is no {places[0]}")


def copy_package(target: Path, *, sources: bool = False) -> bool:
    """Put the package into the new folder ``target``; return whether it is compiled.

    Args:
        target: The folder that is to be the package.
        sources: Whether ``.py`` files are wanted, as CPython needs them and people read them.
    """
    folder = package_folder()
    compiled = sorted(folder.glob("*.mpy"))
    if not sources and not compiled and can_compile():
        compile_package(folder, target)
        return True
    target.mkdir(parents=True)
    files = sorted(folder.glob("*.py")) if sources or not compiled else compiled
    for file in files:
        shutil.copyfile(file, target / file.name)
    return files[0].suffix == ".mpy"


def device_module(name: str) -> Any:
    """Return a module of the package ("state"), loaded into this Python."""
    if _LOADED not in sys.modules:
        folder = package_folder()
        spec = importlib.util.spec_from_file_location(
            _LOADED, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None
        package: ModuleType = importlib.util.module_from_spec(spec)
        sys.modules[_LOADED] = package
    return importlib.import_module(f"{_LOADED}.{name}")


def micropython() -> list[str] | None:
    """Return the words that start MicroPython, or None: the variable MICROPYTHON, this Python's wheel, or PATH."""
    chosen = os.environ.get("MICROPYTHON")
    if chosen:
        found = shutil.which(chosen)
        return None if found is None else [found]
    if importlib.util.find_spec(_WHEEL) is not None:
        return [sys.executable, "-c", _START]
    found = shutil.which("micropython")
    return None if found is None else [found]
