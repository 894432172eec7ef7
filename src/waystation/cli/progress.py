"""Draws the progress of long work on stderr: one line for each piece of work, on a terminal only.

Commands call ``show`` with a key, a name and how far it is; without a terminal nothing is drawn.
"""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

__all__ = ["ProgressLines"]


class ProgressLines:
    """Lines on stderr for work under way, when somebody looks at it; use it in ``with``."""

    def __init__(self, *columns: ProgressColumn, shown: bool) -> None:
        """Prepare.

        Args:
            columns: What a line has after its text; none for a spinner, the text and the time that went by.
            shown: Whether anything may be drawn, on a terminal.
        """
        console, text = Console(stderr=True), TextColumn("{task.description}", markup=False)
        self._progress = Progress(
            *((text, *columns) if columns else (SpinnerColumn(), text, TimeElapsedColumn())),
            console=console,
            disable=not (shown and console.is_terminal),
            transient=True,
        )
        self._tasks: dict[object, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, key: object, text: str, done: int = 0, total: int | None = None) -> None:
        """Draw how far the work with this key is; its line goes when it is done."""
        if key not in self._tasks:
            self._tasks[key] = self._progress.add_task(text, total=total)
        self._progress.update(self._tasks[key], description=text, completed=done)
        if total is not None and done >= total:
            self.end(key)

    def end(self, key: object) -> None:
        """Take the line of a piece of work away, if there is one."""
        task = self._tasks.pop(key, None)
        if task is not None:
            self._progress.remove_task(task)
