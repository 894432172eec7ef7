"""Laws of progress on stderr."""

import io

import pytest
from rich import console

from waystation.cli.progress import ProgressLines


@pytest.mark.parametrize(("shown", "terminal"), [(True, True), (True, False), (False, True)])
def test_lines_are_drawn_only_where_somebody_looks(monkeypatch, shown, terminal):
    """A line is drawn on a terminal when it is asked for, and nothing fails elsewhere; one of no work is no error."""
    drawn = io.StringIO()
    monkeypatch.setattr(
        "waystation.cli.progress.Console", lambda **_: console.Console(file=drawn, force_terminal=terminal)
    )
    with ProgressLines(shown=shown) as lines:
        lines.show("a", "reading", 1, 2)
        lines.show("b", "writing")
        lines.show("a", "reading", 2, 2)
        lines.end("a")

    assert ("writing" in drawn.getvalue()) == (shown and terminal)
