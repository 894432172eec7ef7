"""Progress on stderr."""

from waystation.pipeline.progress import PlainProgress, TerminalProgress, progress_for_stderr


def test_plain_progress_is_one_line_per_step(capsys) -> None:
    """A pipe gets one line when a step has ended."""
    progress = PlainProgress()
    progress.begin("ingest")
    progress.end("ingest", "3 rows in")

    assert capsys.readouterr().err == "ingest: 3 rows in\n"


def test_pipe_gets_plain_lines(capsys) -> None:
    """Without a terminal nothing moves."""
    assert isinstance(progress_for_stderr(), PlainProgress)


def test_terminal_progress_ticks_steps_off(capsys) -> None:
    """A finished step stays as a ticked line."""
    progress = TerminalProgress()
    progress.begin("ingest")
    progress.end("ingest", "3 rows in")

    assert "✓ ingest  3 rows in" in capsys.readouterr().err
