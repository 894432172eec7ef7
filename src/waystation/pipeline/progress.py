"""Progress output on stderr: plain lines for a file or pipe, a spinner on a terminal.

``pipeline.run`` calls ``begin`` and ``end`` for each step; stdout stays free for the result.
"""

import sys
from typing import TYPE_CHECKING

from waystation.pipeline.run import Progress

if TYPE_CHECKING:
    from rich.status import Status

__all__ = ["PlainProgress", "TerminalProgress", "progress_for_stderr"]


class PlainProgress:
    """One line when a step has ended."""

    def begin(self, step: str) -> None:
        """Say nothing: a log wants results."""

    def end(self, step: str, sentence: str) -> None:
        """Write one line."""
        sys.stderr.write(f"{step}: {sentence}\n")
        sys.stderr.flush()


class TerminalProgress:
    """A spinner while a step runs, and a ticked line when it has ended."""

    def __init__(self) -> None:
        from rich.console import Console  # noqa: PLC0415 - only for terminals

        self._console = Console(stderr=True)
        self._status: Status | None = None

    def begin(self, step: str) -> None:
        """Show that the step runs."""
        self._status = self._console.status(f"{step} …")
        self._status.start()

    def end(self, step: str, sentence: str) -> None:
        """Tick the step off."""
        if self._status is not None:
            self._status.stop()
            self._status = None
        self._console.print(f"[green]✓[/] [bold]{step}[/]  {sentence}", highlight=False)


def progress_for_stderr() -> Progress:
    """Return the kind of progress that fits where stderr goes."""
    return TerminalProgress() if sys.stderr.isatty() else PlainProgress()
