"""The same run on this machine and on a standalone Spark master and worker, started from the package's own classes."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.pipeline.build import rough_archive, rough_journal
from tests.pipeline.reading import table_hashes
from tools.served import free_port
from waystation.pipeline.java import choose_java, write_launcher
from waystation.pipeline.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1_200)]

START_S = 60.0
RUN_S = 400.0


@contextlib.contextmanager
def daemon(folder: Path, said: str, *arguments: str) -> Iterator[None]:
    """Run one of Spark's own servers, from the moment it has ``said`` what it says when it is ready."""
    folder.mkdir(parents=True)
    log = folder / "log"
    write_launcher(choose_java(os.environ), folder, log)
    home = Path(pyspark.__file__).parent
    places = {"SPARK_HOME": str(home), "JAVA_HOME": str(folder), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [str(home / "bin" / "spark-class"), *arguments]
    environment = {**os.environ, **places, "SPARK_DAEMON_MEMORY": "512m", "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC"}
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out, env=environment) as process:
        try:
            wait_for(log, said)
            yield
        finally:
            process.terminate()
            process.wait(30)


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """Run a master and one worker; give the master's URL once the worker has registered."""
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    master = ("org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
    worker = ("org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "2")
    work = ("--memory", "2g", "--work-dir", str(folder / "work"), url)
    with (
        daemon(folder / "master", "I have been elected leader", *master),
        daemon(folder / "worker", "Successfully registered with master", *worker, *work),
    ):
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


def test_cluster_gives_what_this_machine_gives(tmp_path: Path) -> None:
    """The same command with another master writes the same rows into every table."""
    rough_journal(tmp_path / "journal")
    rough_archive(tmp_path / "archive")
    here = run(tmp_path, tmp_path / "here", "--master", "local[2]")
    with cluster(tmp_path / "cluster") as url:
        there = run(tmp_path, tmp_path / "there", "--master", url, "--conf", "spark.executor.memory=1g")

    assert there == here
    assert table_hashes(Lake(tmp_path / "there")) == table_hashes(Lake(tmp_path / "here"))
