"""Command-line entry for spark-submit and ``python -m waystation.pipeline``; prints the run report as one JSON line.

spark-submit sets the master, the packages and the memory; this module has no options for them.

Operators with a Spark cluster use it in place of ``waystation pipeline run``, which starts Spark itself.
"""

import argparse
import datetime
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from waystation.core.errors import ConfigError, HostError, WaystationError
from waystation.pipeline.config import CONFIG_FILE, load_settings
from waystation.pipeline.jobs.step import DateRange
from waystation.pipeline.progress import progress_for_stderr
from waystation.pipeline.run import Request, run_pipeline
from waystation.pipeline.steps import STEPS

__all__ = ["main"]

_USAGE: Final = 2
_CONFIG: Final = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the steps and print the run report as one line of JSON; return the exit code."""
    try:
        result = run_pipeline(_request(arguments), progress_for_stderr())
    except WaystationError as error:
        sys.stderr.write(f"waystation: {error}\n")
        if isinstance(error, HostError):
            return error.exit_code
        return _CONFIG if isinstance(error, ConfigError) else _USAGE
    sys.stdout.write(json.dumps(result.document()) + "\n")
    return 0


def _request(arguments: Sequence[str] | None) -> Request:
    parser = argparse.ArgumentParser(
        "waystation.pipeline", description="Turn what nodes record into tables, a report, and policy for the nodes."
    )
    names = ",".join(step.name for step in STEPS)
    parser.add_argument("--home", type=Path, default=Path("waystation"), help="folder of the node")
    parser.add_argument("--config", type=Path, help=f"TOML with a [pipeline] table; default: HOME/{CONFIG_FILE}")
    parser.add_argument("--journal", type=Path, help="default: HOME/journal")
    parser.add_argument("--archive", type=Path, help="packets; default: archive beside the journal")
    parser.add_argument("--lake", help="folder or URL; default: HOME/lake")
    parser.add_argument("--report", type=Path, help="default: HOME/report.html")
    parser.add_argument("--steps", help=f"only these of {names}")
    parser.add_argument("--from", dest="first", type=datetime.date.fromisoformat, help="first UTC date, YYYY-MM-DD")
    parser.add_argument("--to", dest="last", type=datetime.date.fromisoformat, help="last UTC date, YYYY-MM-DD")
    given = parser.parse_args(arguments)
    default = given.home / CONFIG_FILE
    settings = load_settings(given.config or (default if default.exists() else None), os.environ)
    return Request(
        given.journal or given.home / "journal",
        given.lake or settings.lake or given.home / "lake",
        given.report or given.home / "report.html",
        DateRange(given.first, given.last),
        given.archive,
        tuple(given.steps.split(",")) if given.steps else None,
        settings=settings,
    )


if __name__ == "__main__":
    sys.exit(main())
