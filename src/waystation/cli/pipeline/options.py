"""Options that the commands of ``waystation pipeline`` share, and the ``Request`` made from them.

The commands and ``reference`` import them: texts of options go in, a ``Request`` (journal, archive, lake, dates,
settings) for ``pipeline.run`` comes out.
"""

import datetime
import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from waystation.core.errors import HostError, LocalError

if TYPE_CHECKING:
    from waystation.pipeline.jobs.step import DateRange
    from waystation.pipeline.run import Request
    from waystation.pipeline.settings import PipelineSettings

__all__ = ["NEEDED", "ArchiveOption", "AsOfOption", "ConfOption", "ConfigOption", "DateOption", "FromOption"]
__all__ += ["JournalOption", "LakeOption", "MasterOption", "ReportOption", "ToOption"]
__all__ += ["demand_spark", "home_of", "read_settings", "request_of", "split_pairs"]

NEEDED: Final = ("pyspark", "pyarrow", "pandas", "matplotlib")
"""Packages that ``waystation[spark]`` brings and every command but ``doctor`` and ``generate`` needs."""

DEFAULT_HOME: Final = "waystation"

ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="TOML with a table named pipeline. Default: HOME/pipeline.toml, if any.")
]
JournalOption = Annotated[Path | None, typer.Option("--journal", help="The journal. Default: HOME/journal.")]
ArchiveOption = Annotated[
    Path | None, typer.Option("--archive", help="Archived packets. Default: archive beside the journal.")
]
LakeOption = Annotated[str | None, typer.Option("--lake", help="Where the tables lie. Default: HOME/lake.")]
ReportOption = Annotated[Path | None, typer.Option("--report", help="The page to write. Default: HOME/report.html.")]
DateOption = Annotated[str | None, typer.Option("--date", help="One UTC date, YYYY-MM-DD.")]
FromOption = Annotated[str | None, typer.Option("--from", help="First UTC date.")]
ToOption = Annotated[str | None, typer.Option("--to", help="Last UTC date.")]
AsOfOption = Annotated[
    str | None,
    typer.Option("--as-of", help="Hour at which windows end, 2026-11-20T07:00. Default: after the last event."),
]
MasterOption = Annotated[
    str | None, typer.Option("--master", help="Spark master, such as local[2] or spark://host:7077. Default: here.")
]
ConfOption = Annotated[list[str] | None, typer.Option("--conf", help="Spark setting, KEY=VALUE; may be repeated.")]


def demand_spark() -> None:
    """Go on only where Spark is installed.

    Raises:
        HostError: It is not; the text says what to install.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise HostError(f'the pipeline needs {", ".join(missing)}: install them with pip install "waystation[spark]"')


def home_of(home: str | None) -> Path:
    """Return the folder of the node."""
    return Path(home or DEFAULT_HOME)


def read_settings(home: str | None, config: Path | None) -> "PipelineSettings":
    """Return the pipeline's settings, from the named file or the one in the home."""
    from waystation.pipeline.config import CONFIG_FILE, load_settings  # noqa: PLC0415 - only when it runs

    default = home_of(home) / CONFIG_FILE
    return load_settings(config or (default if default.exists() else None), os.environ)


def request_of(
    home: str | None,
    *,
    config: Path | None = None,
    journal: Path | None = None,
    archive: Path | None = None,
    lake: str | None = None,
    report: Path | None = None,
    dates: tuple[str | None, str | None, str | None] = (None, None, None),
    as_of: str | None = None,
    steps: str | None = None,
    master: str | None = None,
    conf: list[str] | None = None,
) -> "Request":
    """Return what to run on, everything unsaid taken from the home.

    Raises:
        LocalError: A date, an hour or a Spark setting cannot be read.
    """
    from waystation.pipeline.run import Request  # noqa: PLC0415 - only when it runs

    base, settings = home_of(home), read_settings(home, config)
    return Request(
        journal or base / "journal",
        lake or settings.lake or base / "lake",
        report or base / "report.html",
        _dates(*dates),
        archive,
        tuple(name.strip() for name in steps.split(",")) if steps is not None else None,
        _hour(as_of) if as_of is not None else None,
        settings,
        master,
        split_pairs(conf or []),
    )


def split_pairs(pairs: list[str]) -> dict[str, str]:
    """Return ``KEY=VALUE`` texts as a dictionary.

    Raises:
        LocalError: One has no equals sign.
    """
    wrong = [pair for pair in pairs if not pair.partition("=")[1]]
    if wrong:
        raise LocalError(f"{wrong[0]!r} is no setting; write it as KEY=VALUE")
    return {key.strip(): value for key, _, value in (pair.partition("=") for pair in pairs)}


def _dates(date: str | None, first: str | None, last: str | None) -> "DateRange":
    from waystation.pipeline.jobs.step import DateRange  # noqa: PLC0415 - only when it runs

    if date is not None and (first is not None or last is not None):
        raise LocalError("--date names one date; give it, or --from and --to, not both")
    return DateRange(_date(date or first), _date(date or last))


def _date(text: str | None) -> datetime.date | None:
    if text is None:
        return None
    try:
        return datetime.date.fromisoformat(text)
    except ValueError as error:
        raise LocalError(f"{text!r} is no date; write it as YYYY-MM-DD") from error


def _hour(text: str) -> datetime.datetime:
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise LocalError(f"{text!r} is no hour; write it as YYYY-MM-DDTHH:00") from error
    moment = moment.replace(tzinfo=datetime.UTC) if moment.tzinfo is None else moment.astimezone(datetime.UTC)
    if (moment.minute, moment.second, moment.microsecond) != (0, 0, 0):
        raise LocalError(f"{text!r} is no full hour")
    return moment
