"""A world in which nobody misbehaves."""

from pathlib import Path

import pytest

from tests.pipeline.conftest import Recorded
from tests.pipeline.worlds.world import make_world, put_all, ship
from waystation.pipeline.lake import Lake
from waystation.pipeline.run import Request, run_pipeline
from waystation.pipeline.settings import PipelineSettings
from waystation.pipeline.tables import GOLD_ABUSE_FINDINGS, GOLD_CONSISTENCY, GOLD_POLICY, GOLD_RELAY_SCORES
from waystation.sim.workload import HONEST

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

STEPS = ("ingest", "archive", "qos", "abuse", "consistency")


@pytest.mark.parametrize("seed", [1, 2])
def test_nobody_is_accused(spark, tmp_path: Path, seed: int) -> None:
    """Retries, restarts, bursts below the limits and late files lead to no finding, no rule and no bad relay."""
    for files in ship(make_world(seed, HONEST, events=40_000), tmp_path).values():
        put_all(files)
    settings = PipelineSettings(recompute_days=13)
    request = Request(tmp_path / "journal", tmp_path / "lake", tmp_path / "r.html", steps=STEPS, settings=settings)
    run_pipeline(request, Recorded())
    lake = Lake(request.lake)

    assert lake.read(spark, GOLD_ABUSE_FINDINGS).collect() == []
    assert lake.read(spark, GOLD_POLICY).collect() == []
    assert lake.read(spark, GOLD_RELAY_SCORES).where("state = 'blacklisted' or integrity_faults > 0").collect() == []
    assert lake.read(spark, GOLD_CONSISTENCY).where("upper_bound < 0.95").collect() == []
    assert lake.read(spark, GOLD_RELAY_SCORES).count() > 0
