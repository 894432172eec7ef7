"""Benchmark: the start-up time of the pipeline's Spark session compared with a bare PySpark session.

Usage: python -m bench.pipeline.start [--rounds 5] [--json FILE]

Each session runs in its own process with the same Java. It answers one query in the JVM and one that needs a Python
worker. Times count from process start, so they include Python's imports.
"""

import json
import os
import subprocess
import sys
import time
from operator import itemgetter
from typing import Any, Final

from bench.report import Bench, Figures
from waystation.pipeline.java import choose_java

MOMENTS: Final = ("session", "first query", "first Python worker")

_COMMON: Final = """
import json, os, sys, time
begun = float(sys.argv[1])
moments = []
note = lambda: moments.append(time.time() - begun)

def ask(spark):
    note()
    assert spark.range(1_000).selectExpr("sum(id) as total").first()["total"] == 499_500
    note()
    assert spark.range(1_000).mapInArrow(lambda batches: batches, "id long").count() == 1_000
    note()
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
PROGRAMS: Final = {
    name: f"{_COMMON}{text}print(json.dumps(moments))" for name, text in (("ours", _OURS), ("bare", _BARE))
}


def start(name: str) -> list[float]:
    """Return the seconds to each of ``MOMENTS`` in a new process."""
    environment = os.environ | {"JAVA_HOME": str(choose_java(os.environ).home)}
    command = [sys.executable, "-c", PROGRAMS[name], str(time.time())]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    seconds: list[float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def start_both(_options: Any) -> Figures:
    """Start both once."""
    taken: Figures = {}
    for moment, ours, bare in zip(MOMENTS, start("ours"), start("bare"), strict=True):
        taken |= {f"{moment}, s": ours, f"{moment}, bare s": bare, f"{moment}, ratio": ours / bare}
    return taken


if __name__ == "__main__":
    bench = Bench(__doc__, {"start": start_both}, rounds=5)
    start("bare")  # brings Java and Spark into the page cache
    bench.run("start of the session", {f"{each}, ours over bare": itemgetter(f"{each}, ratio") for each in MOMENTS})
