"""Compiles shims with cc, gives a process its environment, and switches their faults while it runs."""

import mmap
import os
import shutil
import struct
import subprocess
from collections.abc import Mapping
from enum import IntEnum, auto
from pathlib import Path
from typing import Final, Self

__all__ = ["Shims", "Word", "has_compiler"]

_SOURCES: Final = Path(__file__).parent
_WORD: Final = struct.Struct("=q")


class Word(IntEnum):
    """A number that the shims look at; all begin with 0. The order is that of ``enum word`` in control.h."""

    FSYNC_FAILS = 0
    """So many syncs to come fail with EIO."""
    WRITE_ONE_IN = auto()
    """One write in so many fails."""
    WRITE_ERRNO = auto()
    """With this error."""
    READ_ERRNO = auto()
    """Every read fails with this error."""
    FSYNC_DELAY_MS = auto()
    """Every sync takes so much longer."""
    FSYNC_FORGOTTEN = auto()
    """A sync does nothing and reports success, as with ``PRAGMA synchronous=OFF``."""
    FULL = auto()
    """Writes fail with ENOSPC, and no space is free."""
    CLOCK_STEP_US = auto()
    """Added to the time of day."""
    HUNG = auto()
    """Writes and syncs do not return while this is not 0, as on a network disk whose server is gone."""
    INJECTED = auto()
    """Counts calls that have failed or were forgotten."""


def has_compiler() -> bool:
    """Return whether shims can be compiled here."""
    return os.uname().sysname == "Linux" and shutil.which("cc") is not None


class Shims:
    """Some shims for one process and the processes that it starts."""

    def __init__(self, folder: Path, home: Path, *names: str) -> None:
        """Compile them.

        Args:
            folder: Where libraries and control file go, made if absent; outside of ``home``.
            home: Only files below this folder are touched.
            names: Which: ``io_faults``, ``power_cut``, ``clock``.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.synced = folder / "synced"
        """Where ``power_cut`` puts what is on the disk."""
        self.synced.mkdir(exist_ok=True)
        control = folder / "control"
        control.write_bytes(bytes(_WORD.size * len(Word)))
        with control.open("r+b") as file:
            self._words = mmap.mmap(file.fileno(), 0)
        libraries = [_compile(name, folder) for name in names]
        self.environment: Mapping[str, str] = {
            "LD_PRELOAD": ":".join(map(str, libraries)),
            "WAYSTATION_SHIM_CONTROL": str(control),
            "WAYSTATION_SHIM_HOME": str(home),
            "WAYSTATION_SHIM_SYNCED": str(self.synced),
        }
        """For the process."""

    def __getitem__(self, word: Word) -> int:
        """Return what a word is now."""
        value: int = _WORD.unpack_from(self._words, word * _WORD.size)[0]
        return value

    def __setitem__(self, word: Word, value: int) -> None:
        """Set a word; it holds from the next call on."""
        _WORD.pack_into(self._words, word * _WORD.size, value)

    def close(self) -> None:
        """Let the control file go; safe to call twice."""
        self._words.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _compile(name: str, folder: Path) -> Path:
    library = folder / f"{name}.so"
    options = ["-std=gnu11", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-fno-builtin"]
    source = str(_SOURCES / f"{name}.c")
    subprocess.run(["cc", *options, "-o", str(library), source, "-ldl", "-lpthread"], check=True)
    return library
