"""Run fuzz targets: ``python -m fuzz.run --inputs 1000000 --seed 7 [--target wire]``.

Prints progress, rate and the outcomes; exits with 1 on the first find, after writing its input under tests/cases.
"""

import argparse
import hashlib
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from fuzz.bhumi_extensions import BhumiExtensionsTarget
from fuzz.bhumi_guests import BhumiDeviceTarget, BhumiGuestTarget
from fuzz.bhumi_lan import BhumiLanTarget
from fuzz.bsp_bundle import BspBundleTarget
from fuzz.bsp_device import BspDeviceTarget
from fuzz.bsp_mailbox import BspMailboxTarget
from fuzz.bsp_sessions import BspMachineTarget
from fuzz.bsp_wire import BspWireTarget
from fuzz.fuzz_client import DeviceTarget, SenderTarget
from fuzz.fuzz_journal import JournalTarget
from fuzz.fuzz_payloads import EnvelopeTarget, InviteTarget, PayloadTarget
from fuzz.fuzz_session import SessionTarget
from fuzz.fuzz_wire import WireTarget
from fuzz.lprp_client import LprpClientTarget
from fuzz.lprp_fragments import LprpFragmentsTarget
from fuzz.lprp_host import LprpHostTarget
from fuzz.lprp_wire import LprpWireTarget
from fuzz.merk_client import MerkClientTarget
from fuzz.merk_contents import MerkContentsTarget
from fuzz.merk_sessions import MerkRelayTarget
from fuzz.merk_wire import MerkWireTarget
from fuzz.strata_canonical import CanonicalTarget
from fuzz.strata_sessions import StrataClientTarget, StrataRelayTarget
from fuzz.target import Target

__all__ = ["CASES", "TARGETS", "fuzz", "main"]

CASES: Final = Path(__file__).parents[1] / "tests" / "cases"
TARGETS: Final[dict[str, Target]] = {
    target.name: target
    for target in (
        WireTarget(),
        BhumiExtensionsTarget(),
        BhumiDeviceTarget(),
        BhumiGuestTarget(),
        SessionTarget(),
        DeviceTarget(),
        SenderTarget(),
        PayloadTarget(),
        EnvelopeTarget(),
        InviteTarget(),
        BhumiLanTarget(),
        JournalTarget(),
        CanonicalTarget(),
        StrataRelayTarget(),
        StrataClientTarget(),
        LprpWireTarget(),
        LprpHostTarget(),
        LprpClientTarget(),
        LprpFragmentsTarget(),
        MerkWireTarget(),
        MerkContentsTarget(),
        MerkRelayTarget(),
        MerkClientTarget(),
        BspWireTarget(),
        BspBundleTarget(),
        BspMachineTarget(),
        BspMailboxTarget(),
        BspDeviceTarget(),
    )
}
_REPORT_S: Final = 10.0


def fuzz(
    target: Target, inputs: int, seed: int, report: Callable[[int, Counter[str]], None] | None = None
) -> tuple[Counter[str], bytes | None]:
    """Feed ``inputs`` inputs to a target.

    Returns:
        How often each outcome came, and the input of the first find or None. The find's exception is being handled by
        nobody: run the input again to see it.
    """
    outcomes: Counter[str] = Counter()
    rng = random.Random(f"{target.name} {seed}")
    for number in range(inputs):
        data = target.make(rng)
        try:
            outcomes[target.run(data)] += 1
        except Exception:  # noqa: BLE001 - whatever escapes a target is what we look for
            return outcomes, data
        if report is not None and number % 1_000 == 0:
            report(number, outcomes)
    return outcomes, None


def save(target: Target, data: bytes) -> Path:
    """Write the input of a find where the tests replay it."""
    CASES.mkdir(exist_ok=True)
    path = CASES / f"{target.name}-{hashlib.sha256(data).hexdigest()[:12]}.bin"
    path.write_bytes(data)
    return path


class _Progress:
    """Says every ten seconds how far a run is."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._began = self._said = time.monotonic()

    def __call__(self, number: int, outcomes: Counter[str]) -> None:
        now = time.monotonic()
        if now - self._said >= _REPORT_S:
            self._said = now
            sys.stdout.write(
                f"{self._name}: {number} inputs, {number / (now - self._began):.0f}/s, {len(outcomes)} outcomes\n"
            )
            sys.stdout.flush()

    def finish(self, inputs: int, seed: int, outcomes: Counter[str]) -> None:
        took = time.monotonic() - self._began
        sys.stdout.write(f"{self._name}: {inputs} inputs, seed {seed}, {inputs / took:.0f}/s, no find\n")
        for outcome, count in outcomes.most_common():
            sys.stdout.write(f"  {count:>9}  {outcome}\n")
        sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the targets named on the command line, all by default; 1 on a find."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="inputs per target")
    parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same inputs")
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), help="may be given more than once")
    options = parser.parse_args(arguments)
    for name in options.target or TARGETS:
        progress = _Progress(name)
        outcomes, found = fuzz(TARGETS[name], options.inputs, options.seed, progress)
        if found is not None:
            path = save(TARGETS[name], found)
            sys.stdout.write(f"{name}: find after {sum(outcomes.values())} inputs, seed {options.seed}: {path}\n")
            try:
                TARGETS[name].run(found)
            except Exception:  # noqa: BLE001 - shown, not swallowed
                traceback.print_exc()
            return 1
        progress.finish(options.inputs, options.seed, outcomes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
