"""The version of a build: that of the release, and what tells this tree from others until the next one.

Read by hatchling from pyproject.toml, so it imports the standard library only. It asks neither git nor the network.
"""

import ast
import hashlib
import os
from pathlib import Path
from typing import Final

__all__ = ["RELEASE_VARIABLE", "build_version"]

RELEASE_VARIABLE: Final = "WAYSTATION_RELEASE"
"""Set to anything, a build has the bare version, as package indexes demand."""

_SOURCES: Final = ("src/waystation", "micropython/bhumi")
_DIGITS: Final = 10
_VERSION_FILE: Final = "src/waystation/version.py"


def build_version(root: Path | None = None) -> str:
    """Return the version of what would be built from a tree: "0.1.0+t" and ten hexadecimal digits of its sources' hash.

    Two trees with the same sources have the same version, also a checkout and the source distribution made of it.

    Args:
        root: Of the repository; this one when None.
    """
    tree = root or Path(__file__).parents[1]
    release = _release_of(tree / _VERSION_FILE)
    if "+" in release or os.environ.get(RELEASE_VARIABLE):
        return release
    digest = hashlib.sha256()
    for path in sorted(path for top in _SOURCES for path in (tree / top).rglob("*") if _counts(path)):
        digest.update(f"{path.relative_to(tree).as_posix()}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return f"{release}+t{digest.hexdigest()[:_DIGITS]}"


def _counts(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts and path.suffix not in {".pyc", ".mpy", ".key"}


def _release_of(file: Path) -> str:
    for statement in ast.parse(file.read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__version__":
            return str(ast.literal_eval(statement.value))
    raise ValueError(f"{file} has no __version__")
