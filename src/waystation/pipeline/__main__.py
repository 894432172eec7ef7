"""Entry for spark-submit and ``python -m waystation.pipeline``.

The master, packages and memory are spark-submit's business; nothing here names them.
"""

import argparse
import datetime
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from waystation.core.errors import HostError, WaystationError
from waystation.pipeline.jobs.step import DateRange
from waystation.pipeline.progress import progress_for_stderr
from waystation.pipeline.run import Request, run_pipeline

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all steps and print the run report as one line of JSON; return the exit code."""
    try:
        result = run_pipeline(_request(arguments), progress_for_stderr())
    except WaystationError as error:
        sys.stderr.write(f"waystation: {error}\n")
        return error.exit_code if isinstance(error, HostError) else 2
    sys.stdout.write(json.dumps(result.document()) + "\n")
    return 0


def _request(arguments: Sequence[str] | None) -> Request:
    parser = argparse.ArgumentParser(
        "waystation.pipeline", description="Turn a node's journal into tables and a report."
    )
    parser.add_argument("--home", type=Path, default=Path("waystation"), help="folder of the node")
    parser.add_argument("--journal", type=Path, help="default: HOME/journal")
    parser.add_argument("--archive", type=Path, help="packets; default: archive beside the journal")
    parser.add_argument("--lake", type=Path, help="default: HOME/lake")
    parser.add_argument("--report", type=Path, help="default: HOME/report.html")
    parser.add_argument("--from", dest="first", type=datetime.date.fromisoformat, help="first UTC date, YYYY-MM-DD")
    parser.add_argument("--to", dest="last", type=datetime.date.fromisoformat, help="last UTC date, YYYY-MM-DD")
    given = parser.parse_args(arguments)
    return Request(
        given.journal or given.home / "journal",
        given.lake or given.home / "lake",
        given.report or given.home / "report.html",
        DateRange(given.first, given.last),
        given.archive,
    )


if __name__ == "__main__":
    sys.exit(main())
