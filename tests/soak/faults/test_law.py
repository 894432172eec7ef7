"""The soak of all faults, for two minutes: what `python -m soak.run --only faults --minutes 30` tries for long."""

import pytest

from soak.faults.law import run_faults

SEED = 11


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_faults_in_any_order_lose_nothing(tmp_path):
    """Kills, power cuts, pauses and steps of the clock in an order of the seed: all is kept, true, and soon back."""
    report = run_faults(tmp_path, SEED, minutes=2, only=("kill", "power-cut", "stop", "slow-sync", "clock-ahead"))

    assert not report.failures
    assert {trial.fault for trial in report.trials} == {"kill", "power-cut", "stop", "slow-sync", "clock-ahead"}
    assert all(counts["acknowledged"] > 100 for counts in report.counts.values())
