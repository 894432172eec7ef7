"""One node, five protocols under load, and faults: ``python -m soak.run --only faults --minutes 30 --seed 1``."""

from soak.faults.law import run_faults as check

__all__ = ["check"]
