"""Further Spark applications on the Parquet tables: stream new events, backtest a policy, and check the tables.

The commands of ``waystation pipeline`` call them with a ``Request``; each opens its own Spark session.
"""

from collections.abc import Callable
from pathlib import Path

from waystation.core.errors import LocalError, WaystationError
from waystation.pipeline.backtest import BacktestReport
from waystation.pipeline.checks import Check, audit, tie_out
from waystation.pipeline.jobs.step import Context, Counts
from waystation.pipeline.lake import CHECKPOINTS, Lake
from waystation.pipeline.run import ARCHIVE_FOLDER, Progress, Request, as_of_lake, existing_lake, opened_with
from waystation.rules.policy import PolicyRule, decode_rules

__all__ = ["backtest_policy", "check_lake", "follow", "read_rules"]

POLICY_BYTES_MAX = 64 << 20
"""Size of a policy file that is read: the largest policy of a node, many times over."""


def follow(
    request: Request, progress: Progress, stop: Callable[[], bool] = bool, *, for_good: bool = False, every_s: int = 10
) -> dict[str, Counts]:
    """Stream what nodes write into bronze, journal and archive, segments that still grow included.

    Args:
        request: Journal, archive and lake.
        progress: Receives both.
        stop: Asked every second whether to end.
        for_good: Go on until ``stop`` says so; else end when everything was read that is there now.
        every_s: Seconds from one look to the next.

    Returns:
        What was taken, by step; of a stream for good only the journal's, since one query runs at a time.
    """
    from waystation.pipeline.jobs.ingest import ARCHIVE, JOURNAL  # noqa: PLC0415 - these import Spark
    from waystation.pipeline.jobs.stream import stream  # noqa: PLC0415

    if not request.journal.is_dir():
        raise LocalError(f"there is no journal at {request.journal}: start the node first, or name it with --journal")
    lake = Lake(request.lake)
    archive = request.archive or request.journal.parent / ARCHIVE_FOLDER
    taken: dict[str, Counts] = {}
    with opened_with(request, progress) as opened:
        for name, folder, source in (("archive", archive, ARCHIVE), ("ingest", request.journal, JOURNAL)):
            progress.begin(name)
            counts = stream(
                opened.spark,
                lake,
                folder,
                lake.storage.spark_path(f"{CHECKPOINTS}/{name}"),
                source=source,
                available_now=not for_good or name == "archive",
                stop=stop,
                every_s=every_s,
            )
            progress.end(name, counts.sentence())
            taken[name] = counts
    return taken


def read_rules(path: Path) -> list[PolicyRule]:
    """Return the rules of a policy file, as published or written by hand.

    Raises:
        LocalError: There is none, or a line is no rule.
    """
    try:
        with path.open("rb") as file:
            data = file.read(POLICY_BYTES_MAX + 1)
    except OSError as error:
        raise LocalError(f"cannot read the policy {path}: {error.strerror}") from error
    if len(data) > POLICY_BYTES_MAX:
        raise LocalError(f"the policy {path} has more than {POLICY_BYTES_MAX} bytes")
    try:
        return list(decode_rules(data))
    except WaystationError as error:
        raise LocalError(f"{path} is no policy: {error}") from error


def backtest_policy(request: Request, rules: list[PolicyRule], progress: Progress) -> BacktestReport:
    """Return what ``rules`` would have refused of what the nodes accepted on the chosen dates."""
    from waystation.pipeline.jobs.backtest import run_backtest  # noqa: PLC0415 - imports Spark

    lake = existing_lake(request)
    with opened_with(request, progress) as opened:
        progress.begin("backtest")
        as_of = request.as_of or as_of_lake(opened.spark, lake)
        report = run_backtest(Context(opened.spark, lake, "backtest", request.dates, as_of, request.settings), rules)
        progress.end("backtest", f"rules: {len(rules):,}")
    return report


def check_lake(request: Request, progress: Progress, *, ties: bool) -> list[Check]:
    """Hold a lake to its contract; with ``ties`` also compare the sums of its tables, which needs Spark."""
    lake = existing_lake(request)
    found = audit(lake)
    if ties:
        with opened_with(request, progress) as opened:
            progress.begin("ties")
            found += tie_out(opened.spark, lake)
            progress.end("ties", f"{len(found)} checks")
    return found
