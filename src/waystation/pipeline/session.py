"""Opens the Spark session; no other module does.

``pipeline.run`` enters ``open_session`` around its steps. An active session of the caller is reused, with a sibling
session for our settings. Under spark-submit, the submitter sets the Java, and the master unless the caller names one.
Otherwise a JVM is started here, by default with a local master and one thread per processor. It binds to loopback and
uses a garbage collector that is safe on every Java chosen.
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from waystation.core.errors import HostError
from waystation.pipeline.java import JavaChoice, choose_java, write_launcher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Opened", "open_session"]

_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"  # set by spark-submit for the Python program it starts
_COLLECTOR: Final = "-XX:+UseSerialGC"  # never G1: JDK-8377811; and the smallest and quickest to start of the others
_FORK: Final = "-Djdk.lang.Process.launchMechanism=VFORK"  # Hadoop starts a chmod for every file and folder it makes
_SHUFFLE_PARTITIONS_PER_CPU: Final = 2

_LOG: Final = "spark.log"
_LOG_CHARS_SHOWN: Final = 2_000
_VARIABLES: Final = ("JAVA_HOME", "PYSPARK_PYTHON", "SPARK_LOCAL_IP")

_EVERYWHERE: Final = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": "1048576",  # a batch counts rows only, and a packet may be long
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
}
_LOCAL: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",  # Parquet has checksums of its own
}


@dataclass(frozen=True, slots=True)
class Opened:
    """A session and where it comes from."""

    spark: "SparkSession"
    java: JavaChoice | None
    """The Java we started, or None when the JVM was there before us."""
    why: str
    """One clause for the operator."""


@contextmanager
def open_session(
    *, cpus: int | None = None, master: str | None = None, extra: Mapping[str, str] | None = None
) -> Iterator[Opened]:
    """Yield a Spark session in UTC; stop it afterwards if it was opened here.

    Args:
        cpus: Threads of a local session; None takes as many as the machine has.
        master: Spark master, such as ``spark://host:7077``; None takes spark-submit's, else this machine.
        extra: Settings that win over ours.

    Raises:
        HostError: No usable Java.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - Spark is an extra

    active = SparkSession.getActiveSession()
    if active is not None:
        yield Opened(_isolated(active), None, "the caller's session")
        return
    submitted = _SUBMITTED in os.environ
    java = None if submitted else choose_java(os.environ)
    with tempfile.TemporaryDirectory(prefix="waystation-spark-") as folder, _environment(java, Path(folder)):
        master = master or (None if submitted else f"local[{cpus or os.cpu_count() or 1}]")
        settings = _settings(Path(folder), cpus or os.cpu_count() or 1, master) | dict(extra or {})
        spark = _start(settings, Path(folder) / _LOG)
        try:
            why = "spark-submit" if java is None else f"Java {java.version}: {java.why}"
            yield Opened(spark, java, why)
        finally:
            spark.stop()


def _start(settings: dict[str, str], log: Path) -> "SparkSession":
    from pyspark.errors import PySparkException  # noqa: PLC0415 - Spark is an extra
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder = SparkSession.builder.appName("waystation").config(map=dict(settings))
    try:
        return builder.getOrCreate()
    except (PySparkException, RuntimeError) as error:
        output = log.read_text(errors="replace")[-_LOG_CHARS_SHOWN:] if log.exists() else ""
        raise HostError(f"Spark did not start: {error} {output}".rstrip()) from error


def _isolated(active: "SparkSession") -> "SparkSession":
    """Return a sibling of the caller's session, so that its settings stay as they are."""
    spark = active.newSession()
    for key, value in _EVERYWHERE.items():
        spark.conf.set(key, value)
    return spark


def _settings(scratch: Path, cpus: int, master: str | None) -> dict[str, str]:
    settings = _EVERYWHERE | {"spark.sql.warehouse.dir": str(scratch / "warehouse")}
    if master is None:
        return settings
    logging = scratch / "log4j2.properties"
    logging.write_text(_LOG4J)
    return (
        settings
        | _LOCAL
        | {
            "spark.master": master,
            "spark.sql.shuffle.partitions": str(cpus * _SHUFFLE_PARTITIONS_PER_CPU),
            "spark.local.dir": str(scratch),
            # Spark puts these before spark.driver.extraJavaOptions, so that a caller's options add to ours.
            "spark.driver.defaultJavaOptions": f"{_COLLECTOR} {_FORK} -Dlog4j2.configurationFile={logging.as_uri()}",
        }
    )


@contextmanager
def _environment(java: JavaChoice | None, folder: Path) -> Iterator[None]:
    """Set what PySpark reads from the environment, and put it back."""
    before = {name: os.environ.get(name) for name in _VARIABLES}
    # The default is python3 on PATH, which is not this one inside a virtual environment.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if java is not None:
        write_launcher(java, folder, folder / _LOG)
        os.environ["JAVA_HOME"] = str(folder)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


_LOG4J: Final = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n
"""
