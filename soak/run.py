"""Runs the long tests of nodes: ``python -m soak.run --seed 1 [--only strata-kill,faults] [--minutes 30] [--json]``.

Each test starts its own nodes on loopback in a temporary folder. The results are printed with the seed. If a check
fails, the exit code is 1 and that test's folder is kept.
"""

import argparse
import importlib
import inspect
import json
import pkgutil
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import soak as package
from soak.shims.power_cut import Power


def find_laws() -> dict[str, Callable[..., Any]]:
    """Return ``check`` of every module below this folder that has one, by the words of its path.

    It takes a folder and a seed, and ``minutes`` where it can last for any time. What it returns is printed as it is,
    and in JSON what its ``as_json`` gives, where it has that. One that kills nodes takes ``power``: its protocol's
    ``cuts`` is the same law with 100 power cuts, after which unsynced writes are lost, or half of them.
    """
    names = [each.name for each in pkgutil.walk_packages(package.__path__, "soak.") if each.name != "soak.run"]
    checks = {name: getattr(importlib.import_module(name), "check", None) for name in names}
    laws = {"-".join(name.split(".")[1:]): check for name, check in checks.items() if check is not None}
    cuts = {f"{name.partition('-')[0]}-cuts": _with_cuts(law) for name, law in laws.items() if _takes(law, "power")}
    return laws | cuts


def _takes(law: Callable[..., Any], name: str) -> bool:
    return name in inspect.signature(law).parameters


def _with_cuts(law: Callable[..., Any]) -> Callable[[Path, int], Any]:
    return lambda folder, seed: law(folder, seed, rounds=100, power=Power(seed))


INVARIANTS: Final = find_laws()


def main() -> int:
    """Try those asked for; return 1 when one did not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", default=",".join(INVARIANTS))
    parser.add_argument("--minutes", type=float, help="for those that can last for any time")
    parser.add_argument("--json", action="store_true", help="print one line of JSON for each")
    options = parser.parse_args()
    failed = [name for name in options.only.split(",") if not _try(name, options)]
    return 1 if failed else 0


def _try(name: str, options: argparse.Namespace) -> bool:
    seed = options.seed
    folder = Path(tempfile.mkdtemp(prefix=f"soak-{name}-"))
    began = time.monotonic()
    law = INVARIANTS[name]
    lasts = _takes(law, "minutes") and options.minutes is not None
    try:
        figures = law(folder, seed, **({"minutes": options.minutes} if lasts else {}))
    except Exception as error:  # noqa: BLE001 - the others are tried all the same, and the run ends with 1
        traceback.print_exc()
        said, more = f"FAILED, see {folder}", {"failed": str(error), "folder": str(folder)}
    else:
        shutil.rmtree(folder)
        said, more = str(figures), {"figures": figures.as_json() if hasattr(figures, "as_json") else str(figures)}
    took_s = round(time.monotonic() - began)
    shown = json.dumps({"name": name, "seed": seed, "took_s": took_s, **more})
    print(shown if options.json else f"{name}: seed {seed}: {took_s} s: {said}", flush=True)
    return "figures" in more


if __name__ == "__main__":
    sys.exit(main())
