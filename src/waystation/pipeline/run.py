"""Executes one pipeline run: all or selected steps in one Spark application, then the report.

``waystation pipeline run`` calls it with a ``Request`` and prints the ``Result``.
"""

import dataclasses
import datetime
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from uuid import uuid4

from waystation.core.errors import HostError, LocalError
from waystation.pipeline.jobs.step import Context, DateRange, Problem
from waystation.pipeline.lake import Lake, Manifest
from waystation.pipeline.report import RunFacts, Summary, render, write_pictures
from waystation.pipeline.results import Result, StepReport
from waystation.pipeline.session import Opened, open_session
from waystation.pipeline.settings import PipelineSettings
from waystation.pipeline.steps import choose_steps
from waystation.pipeline.tables import BRONZE_EVENTS, DATASETS, OPS_RUNS, SILVER_DELIVERIES
from waystation.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "ARCHIVE_FOLDER",
    "Progress",
    "Request",
    "as_of_lake",
    "existing_lake",
    "opened_with",
    "rebuild_report",
    "run_pipeline",
]

ARCHIVE_FOLDER: Final = "archive"  # as the server's home names it
TAKING_IN: Final = frozenset({"ingest", "archive"})
"""Steps that run before the moment is known."""


class Progress(Protocol):
    """Receives the progress of a run."""

    def begin(self, step: str) -> None:
        """A step begins."""

    def end(self, step: str, sentence: str) -> None:
        """A step has ended, with one sentence for the operator."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to run on."""

    journal: Path
    lake: Path | str
    report: Path
    dates: DateRange = dataclasses.field(default_factory=DateRange)
    """Dates to compute and show; ingest and verify take whatever is new. Open: what is due, and all is shown."""
    archive: Path | None = None
    """Folder of archived packets; None takes ``archive`` beside the journal."""
    steps: tuple[str, ...] | None = None
    """Names of steps; None takes all that run by default."""
    as_of: datetime.datetime | None = None
    """Full hour in UTC at which windows end; None takes the one after the last recorded event."""
    settings: PipelineSettings = dataclasses.field(default_factory=PipelineSettings)
    master: str | None = None
    """Spark master; None takes the caller's or spark-submit's, else this machine."""
    conf: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Spark settings that win over ours."""


def run_pipeline(request: Request, progress: Progress) -> Result:
    """Run the steps; the same journal gives the same tables however often it runs.

    Raises:
        LocalError: The journal is no folder, or a step is unknown.
        HostError: No Java, or the lake or the report cannot be written.
    """
    choose_steps(request.steps)
    if not request.journal.is_dir():
        raise LocalError(f"there is no journal at {request.journal}: start the node first, or name it with --journal")
    lake = Lake(request.lake)
    started = datetime.datetime.now(datetime.UTC)
    run_id = f"{started:%Y%m%dT%H%M%S}-{uuid4().hex[:8]}"
    with lake.locked(), opened_with(request, progress) as opened:
        steps, as_of = _run_steps(opened.spark, lake, request, run_id, progress)
        summary = _summarise(opened.spark, lake, request.dates, as_of, progress)
        engine = _engine(opened)
    finished = datetime.datetime.now(datetime.UTC)
    result = Result(
        run_id,
        started.isoformat(timespec="seconds"),
        finished.isoformat(timespec="seconds"),
        as_of.isoformat(timespec="seconds"),
        engine,
        tuple(steps),
        dict(summary.row_counts),
        request.report,
        lake.run_path(OPS_RUNS, run_id, started.date()),
    )
    _write_report(request.report, summary, _facts(result, request))
    lake.write_run(OPS_RUNS, run_id, started.date(), result.document())
    return result


def rebuild_report(request: Request, progress: Progress, pictures: Path | None = None) -> Path:
    """Draw the report again from what the lake holds, without reading the journal; return its path.

    Args:
        request: The lake, the page, the dates.
        progress: Receives the steps.
        pictures: Folder for each plot as a PNG, None for none.

    Raises:
        LocalError: There is no lake, or it has nothing of these dates; the page is left as it was.
        HostError: No Java, or the report cannot be written.
    """
    lake = existing_lake(request)
    _check_dates(lake, request.dates)
    with opened_with(request, progress) as opened:
        as_of = request.as_of or as_of_lake(opened.spark, lake)
        summary = _summarise(opened.spark, lake, request.dates, as_of, progress)
        facts = RunFacts([("lake", str(request.lake)), ("engine", _engine(opened))])
    _write_report(request.report, summary, facts)
    if pictures is not None:
        write_pictures(pictures, summary)
    return request.report


def existing_lake(request: Request) -> Lake:
    """Return the lake of a request.

    Raises:
        LocalError: There is none.
    """
    lake = Lake(request.lake)
    if not lake.exists():
        raise LocalError(f"there is no lake at {request.lake}: run the pipeline first, or name it with --lake")
    return lake


def as_of_lake(spark: "SparkSession", lake: Lake) -> datetime.datetime:
    """Return the first full hour after everything that was recorded: the same lake gives the same answer.

    A node whose clock is ahead of ours moves nothing: no hour is returned that has not begun here (PIPE-ASOF).
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name; imports Spark

    last = lake.manifest(BRONZE_EVENTS).dates()[-1:]
    newest = lake.read(spark, BRONZE_EVENTS, last).agg(F.max(F.unix_seconds("ts"))).first() if last else None
    here = int(time.time())
    seconds = here if newest is None or newest[0] is None else min(newest[0], here)
    return datetime.datetime.fromtimestamp((seconds // 3_600 + 1) * 3_600, datetime.UTC)


def _run_steps(
    spark: "SparkSession", lake: Lake, request: Request, run_id: str, progress: Progress
) -> tuple[list[StepReport], datetime.datetime]:
    """Run the chosen steps; those that take events in come first, since they decide what the moment is."""
    done: list[StepReport] = []
    archive = request.archive or request.journal.parent / ARCHIVE_FOLDER
    as_of = request.as_of
    before = lake.manifest(BRONZE_EVENTS)
    for step in choose_steps(request.steps):
        if as_of is None and step.name not in TAKING_IN:
            as_of = as_of_lake(spark, lake)
        context = Context(
            spark, lake, run_id, request.dates, as_of or _EPOCH, request.settings, request.journal, archive
        )
        late = _too_late(context, before) if step.name == "conform" else []
        progress.begin(step.name)
        begun = time.monotonic()
        counts = step.load()(context)
        counts = dataclasses.replace(counts, problems=(*counts.problems, *late))
        report = StepReport(step.name, counts, round(time.monotonic() - begun, 2))
        progress.end(step.name, counts.sentence())
        done.append(report)
    return done, as_of or as_of_lake(spark, lake)


def _too_late(context: Context, before: Manifest) -> list[Problem]:
    """Return a note for each date that has new rows and is not due any more: nothing is late silently."""
    known, due = set(before.batches), set(context.due(SILVER_DELIVERIES, BRONZE_EVENTS))
    late: dict[datetime.date, int] = {}
    for batch in context.lake.manifest(BRONZE_EVENTS).batches:
        if batch not in known and batch.event_date not in due:
            late[batch.event_date] = late.get(batch.event_date, 0) + batch.rows
    return [
        Problem(date.isoformat(), f"late: {rows} rows came after the date was closed; compute it with --date {date}")
        for date, rows in sorted(late.items())
    ]


class opened_with:  # noqa: N801 - used like a function
    """A Spark session as a request wants it, with its opening reported as a step."""

    def __init__(self, request: Request, progress: Progress) -> None:
        self._progress = progress
        self._session = open_session(master=request.master, extra=dict(request.conf))

    def __enter__(self) -> Opened:
        self._progress.begin("spark")
        opened = self._session.__enter__()
        self._progress.end("spark", f"Spark {opened.spark.version}, {opened.why}")
        return opened

    def __exit__(self, *error: object) -> None:
        self._session.__exit__(*error)  # type: ignore[arg-type]


def _check_dates(lake: Lake, wanted: DateRange) -> None:
    """Check that the lake has something of the dates that were named."""
    dates = sorted({date for dataset in DATASETS for date in lake.manifest(dataset).dates()})
    if wanted == DateRange() or wanted.select(dates):
        return
    known = f"it has {dates[0]} to {dates[-1]}" if dates else "it is empty"
    raise LocalError(f"the lake {lake.root} has nothing of the dates you name: {known}")


def _summarise(
    spark: "SparkSession", lake: Lake, dates: DateRange, as_of: datetime.datetime, progress: Progress
) -> Summary:
    from waystation.pipeline.jobs.summarise import summarise  # noqa: PLC0415 - imports Spark

    progress.begin("report")
    summary = summarise(spark, lake, dates, as_of)
    progress.end("report", f"{sum(row.n for row in summary.outcomes):,} delivery attempts summed up")
    return summary


def _engine(opened: Opened) -> str:
    return f"Spark {opened.spark.version} ({opened.why})"


def _facts(result: Result, request: Request) -> RunFacts:
    lines = [
        ("run", result.run_id),
        ("started (UTC)", result.started_at),
        ("finished (UTC)", result.finished_at),
        ("windows end (UTC)", result.as_of),
        ("journal", str(request.journal)),
        ("lake", str(request.lake)),
        ("dates", f"{request.dates.first or 'first'} to {request.dates.last or 'last'}"),
        ("engine", result.engine),
        ("waystation", __version__),
    ]
    steps = [
        (s.name, f"{s.counts.rows_in:,}", f"{s.counts.rows_out:,}", f"{s.counts.rows_rejected:,}", f"{s.seconds:.1f}")
        for s in result.steps
    ]
    return RunFacts(lines, steps, [problem for step in result.steps for problem in step.counts.problems])


def _write_report(path: Path, summary: Summary, facts: RunFacts) -> None:
    page = render(summary, facts)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise HostError(f"cannot write the report {path}: {error.strerror}", exit_code=4) from error


_EPOCH: Final = datetime.datetime.fromtimestamp(0, datetime.UTC)
