"""Run the long laws of nodes: ``python -m soak.run --seed 1 [--only kill,hostile]``.

Each law starts its own nodes on loopback, in a folder that is removed afterwards, and ends by itself. What happened is
printed with the seed; exits with 1 when a law did not hold, with the folder left behind for whoever looks into it.
"""

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final

from soak import (
    bsp_kills,
    bsp_memory,
    lprp_kills,
    lprp_memory,
    merk_herd,
    merk_memory,
    merk_mesh,
    strata_federation,
    strata_hostile,
    strata_kill,
    strata_memory,
    strata_slow,
    strata_subscribers,
)

LAWS: Final[dict[str, Callable[[Path, int], str]]] = {
    "kill": strata_kill.law,
    "subscribers": strata_subscribers.law,
    "federation": strata_federation.law,
    "hostile": strata_hostile.law,
    "slow": strata_slow.law,
    "memory": strata_memory.law,
    "merk-mesh": merk_mesh.law,
    "merk-memory": merk_memory.law,
    "merk-herd": merk_herd.law,
    "lprp-kills": lprp_kills.law,
    "lprp-memory": lprp_memory.law,
    "bsp-kills": bsp_kills.law,
    "bsp-memory": bsp_memory.law,
}


def main() -> int:
    """Try the laws asked for; return 1 when one did not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", default=",".join(LAWS))
    options = parser.parse_args()
    failed = [name for name in options.only.split(",") if not _try(name, options.seed)]
    return 1 if failed else 0


def _try(name: str, seed: int) -> bool:
    folder = Path(tempfile.mkdtemp(prefix=f"soak-{name}-"))
    began = time.monotonic()
    try:
        told = LAWS[name](folder, seed)
    except Exception:  # noqa: BLE001 - the other laws are tried all the same, and the run ends with 1
        traceback.print_exc()
        print(f"{name}: seed {seed}: FAILED after {time.monotonic() - began:.0f} s, see {folder}", flush=True)
        return False
    shutil.rmtree(folder)
    print(f"{name}: seed {seed}: {time.monotonic() - began:.0f} s: {told}", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
