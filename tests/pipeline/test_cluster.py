"""The same run on this machine and on a standalone Spark master and worker, started from the package's own classes."""

import contextlib
import hashlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

from tests.pipeline.build import rough_archive, rough_journal
from waystation.pipeline.java import choose_java, write_launcher
from waystation.pipeline.lake import Lake
from waystation.pipeline.tables import DATASETS

pytestmark = [pytest.mark.spark, pytest.mark.slow]

START_S = 60.0
RUN_S = 400.0


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


@contextlib.contextmanager
def daemon(java: Path, log: Path, *arguments: str) -> Iterator[subprocess.Popen]:
    """Run one of Spark's own servers."""
    jars = Path(pyspark.__file__).parent / "jars"
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(jars.parent)}
    command = [str(java), "-cp", f"{jars}/*", "-Xmx512m", "-XX:+UseSerialGC", *arguments]
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out, env=environment) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(30)


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """Run a master and one worker; give the master's URL once the worker has registered."""
    folder.mkdir()
    java = choose_java(os.environ)
    write_launcher(java, folder, folder / "java.log")
    port, program = free_port(), folder / "bin" / "java"
    master = ("org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
    url = f"spark://127.0.0.1:{port}"
    worker = ("org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "2")
    with daemon(program, folder / "master.log", *master):
        wait_for(folder / "master.log", "I have been elected leader")
        work = ("--memory", "2g", "--work-dir", str(folder / "work"), url)
        with daemon(program, folder / "worker.log", *worker, *work):
            wait_for(folder / "worker.log", "Successfully registered with master")
            yield url


def wait_for(log: Path, text: str) -> None:
    """Return when a log says it."""
    ends = time.monotonic() + START_S
    while text not in log.read_text():
        assert time.monotonic() < ends, log.read_text()
        time.sleep(0.1)


def run(base: Path, lake: Path, *arguments: str) -> dict[str, int]:
    """Run the pipeline in a process of its own; return the rows of every table."""
    command = [
        sys.executable,
        "-m",
        "waystation",
        "pipeline",
        "run",
        "--home",
        str(base),
        "--lake",
        str(lake),
        "--json",
    ]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, timeout=RUN_S)

    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["row_counts"]


def contents(lake: Lake) -> dict[str, str]:
    """Return one hash for each table, over the rows that count, read without Spark."""
    hashes = {}
    for dataset in DATASETS:
        rows: list[str] = []
        for batch in lake.manifest(dataset).batches:
            folder = Path(lake.folder(dataset)) / f"event_date={batch.event_date}" / f"batch={batch.batch}"
            for path in folder.glob("*.parquet"):
                rows += [
                    f"{batch.event_date} {sorted(row.items())!r}" for row in pq.ParquetFile(path).read().to_pylist()
                ]
        hashes[dataset.full_name] = hashlib.sha256("\n".join(sorted(rows)).encode()).hexdigest()
    return hashes


def test_cluster_gives_what_this_machine_gives(tmp_path: Path) -> None:
    """The same command with another master writes the same rows into every table."""
    rough_journal(tmp_path / "journal")
    rough_archive(tmp_path / "archive")
    here = run(tmp_path, tmp_path / "here", "--master", "local[2]")
    with cluster(tmp_path / "cluster") as url:
        there = run(tmp_path, tmp_path / "there", "--master", url, "--conf", "spark.executor.memory=1g")

    assert there == here
    assert contents(Lake(tmp_path / "there")) == contents(Lake(tmp_path / "here"))
