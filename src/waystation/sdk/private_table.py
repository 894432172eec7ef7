"""A small table that a client keeps in a JSON file of its own, or in memory.

MERK's list of relays and its pinned keys subclass it. Several programs may use one identity, so each change begins by
reading what others wrote.
"""

import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from waystation.core.errors import HostError, LocalError
from waystation.sdk.private_file import read_private_json, write_private

__all__ = ["WAITING_MAX", "PrivateTable"]

WAITING_MAX: Final = 1_000
"""Changes that hold in memory alone while the disk refuses."""


class PrivateTable(ABC):
    """Every change is written at once, and what other programs wrote is read before."""

    def __init__(self, path: Path | None, what: str) -> None:
        """Keep it in the file ``path``, made at the first change; None keeps it in memory. It holds ``what``."""
        self._path = path
        self._what = what
        self._waiting: list[Callable[[], None]] = []
        self._refresh()

    @abstractmethod
    def _read(self, document: dict[str, Any]) -> None:
        """Take over what the file holds; what this raises for a file that holds something else becomes a HostError."""

    @abstractmethod
    def _document(self) -> dict[str, Any]:
        """Return what the file shall hold."""

    def _refresh(self) -> None:
        """Read the file again, if there is one."""
        if self._path is None:
            return
        try:
            self._read(read_private_json(self._path))
        except (KeyError, TypeError, ValueError, LocalError) as error:
            raise HostError(f"{self._path} does not hold {self._what}; fix or remove it") from error
        for change in self._waiting:
            with contextlib.suppress(LocalError):  # what another program has written since may leave no room for it
                change()

    def _change(self, change: Callable[[], None]) -> None:
        """Make a change, on what the file holds now.

        Raises:
            LocalError: What ``change`` raises; nothing is changed.
            HostError: The disk refuses. The change holds in memory, and is written with the next one; it is lost if the
                program ends first, or if ``WAITING_MAX`` wait already.
        """
        self._refresh()
        change()
        if self._path is None:
            return
        try:
            write_private(self._path, json.dumps(self._document(), indent=1) + "\n")
        except HostError as error:
            if len(self._waiting) < WAITING_MAX:
                self._waiting.append(change)
            sentence = f"{error}; it holds until the program ends, and is written once the disk takes writes again"
            raise HostError(sentence, exit_code=error.exit_code) from error
        self._waiting.clear()

    def settle(self) -> None:
        """Write what the disk has refused; raises HostError."""
        if self._waiting:
            self._change(self._waiting.pop())
