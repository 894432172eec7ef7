"""How long a run of the pipeline waits before it does anything: our session and a bare PySpark one, in one run.

Usage: python -m bench.pipeline_start [--rounds 5] [--json FILE]

Each session is opened in a process of its own, with Java from the same place, and answers one query in the JVM and one
that needs a Python worker. Times count from the start of the process, so Python's imports are in them.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from waystation.pipeline.java import choose_java

MOMENTS: Final = ("session", "first query", "first Python worker")

_COMMON: Final = """
import json, os, sys, time
begun = float(sys.argv[1])
told = []
tell = lambda: told.append(time.time() - begun)

def ask(spark):
    tell()
    assert spark.range(1_000).selectExpr("sum(id) as total").first()["total"] == 499_500
    tell()
    assert spark.range(1_000).mapInArrow(lambda batches: batches, "id long").count() == 1_000
    tell()
"""
_BARE: Final = """
os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
ask(spark)
spark.stop()
"""
_OURS: Final = """
from waystation.pipeline.session import open_session
with open_session(cpus=2) as opened:
    ask(opened.spark)
"""
PROGRAMS: Final = {name: f"{_COMMON}{text}print(json.dumps(told))" for name, text in (("ours", _OURS), ("bare", _BARE))}


def start(name: str) -> list[float]:
    """Return the seconds to each of ``MOMENTS`` in a new process."""
    environment = os.environ | {"JAVA_HOME": str(choose_java(os.environ).home)}
    command = [sys.executable, "-c", PROGRAMS[name], str(time.time())]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    seconds: list[float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print(f"start of the session; {os.cpu_count()} cores; {platform.platform()}")
    start("bare")  # brings Java and Spark into the page cache
    rounds = [{name: start(name) for name in PROGRAMS} for _ in range(options.rounds)]
    for index, moment in enumerate(MOMENTS):
        ours, bare = ([one[name][index] for one in rounds] for name in ("ours", "bare"))
        ratios = [one["ours"][index] / one["bare"][index] for one in rounds]
        print(
            f"  {moment:20} {statistics.median(ours):6.2f} s, bare {statistics.median(bare):6.2f} s; ratio "
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        )
    if options.json:
        options.json.write_text(json.dumps(rounds, indent=1))


if __name__ == "__main__":
    main()
