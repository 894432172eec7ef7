"""Runs the long tests of nodes: ``python -m soak.run --seed 1 [--only strata-kill,strata-hostile]``.

Each test starts its own nodes on loopback in a temporary folder. The results are printed with the seed. If a check
fails, the exit code is 1 and that test's folder is kept.
"""

import argparse
import importlib
import pkgutil
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final

import soak as package


def find_laws() -> dict[str, Callable[[Path, int], str]]:
    """Return ``check`` of every module below this folder that has one, by the words of its path."""
    names = [each.name for each in pkgutil.walk_packages(package.__path__, "soak.") if each.name != "soak.run"]
    checks = {name: getattr(importlib.import_module(name), "check", None) for name in names}
    return {"-".join(name.split(".")[1:]): check for name, check in checks.items() if check is not None}


INVARIANTS: Final = find_laws()


def main() -> int:
    """Try those asked for; return 1 when one did not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", default=",".join(INVARIANTS))
    options = parser.parse_args()
    failed = [name for name in options.only.split(",") if not _try(name, options.seed)]
    return 1 if failed else 0


def _try(name: str, seed: int) -> bool:
    folder = Path(tempfile.mkdtemp(prefix=f"soak-{name}-"))
    began = time.monotonic()
    try:
        figures = INVARIANTS[name](folder, seed)
    except Exception:  # noqa: BLE001 - the others are tried all the same, and the run ends with 1
        traceback.print_exc()
        print(f"{name}: seed {seed}: FAILED after {time.monotonic() - began:.0f} s, see {folder}", flush=True)
        return False
    shutil.rmtree(folder)
    print(f"{name}: seed {seed}: {time.monotonic() - began:.0f} s: {figures}", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
