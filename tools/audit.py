"""Asks for known vulnerabilities of the pinned dependencies: ``python -m tools.audit`` (``make audit``).

pip-audit runs in an environment of its own over requirements.lock. Its data come from the package index. Where they
cannot be fetched, or pip-audit cannot be installed, this prints a warning and says that nothing was checked. It never
fails a build: whether a finding concerns the node is for a person to judge.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["Finding", "Ran", "findings_in", "main"]

ROOT: Final = Path(__file__).parents[1]
PLACE: Final = ROOT / "build" / "audit"
PROGRAM: Final = "pip-audit==2.10.1"
TIMEOUT_S: Final = 300
_AUDIT: Final = ("--requirement", "requirements.lock", "--no-deps", "--disable-pip", "--format", "json")


class Finding(NamedTuple):
    """A known vulnerability of a pinned package."""

    package: str
    version: str
    identity: str
    """Such as PYSEC-2026-1 or a CVE."""
    fixed_in: str
    """Versions, "" for none yet."""


class Ran(NamedTuple):
    """How a command ended."""

    stdout: str
    stderr: str
    is_good: bool


def main(run: Callable[[Sequence[str]], Ran] | None = None) -> int:
    """Print what is known, or why nothing is; return 0.

    Args:
        run: Runs a command; in a process when None.
    """
    run = run or _run
    python = str(PLACE / "bin" / "python")
    steps: list[tuple[str, ...]] = [] if Path(python).exists() else [(sys.executable, "-m", "venv", str(PLACE))]
    steps.append((python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PROGRAM))
    for step in steps:
        ran = run(step)
        if not ran.is_good:
            return _not_checked(f"{PROGRAM} cannot be installed", ran.stderr)
    ran = run((python, "-m", "pip_audit", "--progress-spinner", "off", *_AUDIT))
    findings = findings_in(ran.stdout)
    if findings is None:
        return _not_checked("the vulnerability data cannot be fetched", ran.stderr)
    for finding in findings:
        fixed = f"fixed in {finding.fixed_in}" if finding.fixed_in else "no fix yet"
        print(f"audit: WARNING: {finding.package} {finding.version} has {finding.identity}: {fixed}")
    print(f"audit: {len(findings)} known vulnerabilities in requirements.lock")
    return 0


def findings_in(text: str) -> list[Finding] | None:
    """Return what pip-audit's JSON lists, None when it is none."""
    try:
        dependencies = json.loads(text)["dependencies"]
        return [
            Finding(each["name"], each.get("version", ""), known["id"], ", ".join(known["fix_versions"]))
            for each in dependencies
            for known in each.get("vulns", [])
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _not_checked(why: str, details: str) -> int:
    last = (details.strip().splitlines() or [""])[-1]
    print(f"audit: WARNING: nothing was checked: {why}{': ' + last if last else ''}")
    return 0


def _run(command: Sequence[str]) -> Ran:
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Ran("", str(error), is_good=False)
    return Ran(done.stdout, done.stderr, done.returncode == 0)


if __name__ == "__main__":
    sys.exit(main())
