"""Runs fuzz targets: ``python -m fuzz.run --inputs 1000000 --seed 7 [--target wire]``.

Prints progress, rate and outcome counts. At the first failure it writes the input below tests/cases and exits with 1.
"""

import argparse
import hashlib
import importlib
import inspect
import pkgutil
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import fuzz as package
from fuzz.conversation import Conversation
from fuzz.target import Target

CASES: Final = Path(__file__).parents[1] / "tests" / "cases"


def _find_targets() -> dict[str, Target]:
    """Return one target of every class below this folder that makes and runs inputs, by name."""
    names = [each.name for each in pkgutil.walk_packages(package.__path__, "fuzz.") if each.name != "fuzz.run"]
    found: dict[str, Target] = {}
    for name in names:
        members: dict[str, Any] = vars(importlib.import_module(name))
        for kind in members.values():
            if inspect.isclass(kind) and hasattr(kind, "make") and hasattr(kind, "name"):
                target: Any = kind if issubclass(kind, Conversation) else kind()
                found[target.name] = target
    return found


TARGETS: Final = _find_targets()
_REPORT_S: Final = 10.0


def fuzz(target: Target, inputs: int, seed: int, *, shows: bool = False) -> tuple[Counter[str], bytes | None]:
    """Feed ``inputs`` inputs to a target, and print every ten seconds how far it is if that shall be shown.

    Returns:
        How often each outcome came, and the input of the first find or None. The find's exception is not
        handled: run the input again to see it.
    """
    outcomes: Counter[str] = Counter()
    rng = random.Random(f"{target.name} {seed}")
    began = shown = time.monotonic()
    for number in range(inputs):
        data = target.make(rng)
        try:
            outcomes[target.run(data)] += 1
        except Exception:  # noqa: BLE001 - whatever escapes a target is what we look for
            return outcomes, data
        if shows and number % 1_000 == 0 and (now := time.monotonic()) - shown >= _REPORT_S:
            shown = now
            print(
                f"{target.name}: {number} inputs, {number / (now - began):.0f}/s, {len(outcomes)} outcomes", flush=True
            )
    return outcomes, None


def save(target: Target, data: bytes) -> Path:
    """Write the input of a find where the tests replay it."""
    CASES.mkdir(exist_ok=True)
    path = CASES / f"{target.name}-{hashlib.sha256(data).hexdigest()[:12]}.bin"
    path.write_bytes(data)
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the targets named on the command line, all by default; 1 on a find."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="inputs per target")
    parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same inputs")
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), help="may be given more than once")
    options = parser.parse_args(arguments)
    for name in options.target or TARGETS:
        target, began = TARGETS[name], time.monotonic()
        outcomes, found = fuzz(target, options.inputs, options.seed, shows=True)
        if found is not None:
            print(f"{name}: find after {outcomes.total()} inputs, seed {options.seed}: {save(target, found)}")
            try:
                target.run(found)
            except Exception:  # noqa: BLE001 - shown, not swallowed
                traceback.print_exc()
            return 1
        rate = options.inputs / (time.monotonic() - began)
        print(f"{name}: {options.inputs} inputs, seed {options.seed}, {rate:.0f}/s, no find")
        for outcome, count in outcomes.most_common():
            print(f"  {count:>9}  {outcome}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
