"""NODE-STEPPED on a whole node: a clock that is set costs LPRP and Strata no more than the time that it is wrong."""

import asyncio
import json
import time
from urllib.parse import urlsplit

import pytest

from soak.shims.preload import Shims, Word
from tests.server.build import NodeProcess, until
from tests.server.lprp.stand_in import HEARTBEAT, Party
from waystation.core.errors import WaystationError
from waystation.sdk.strata.keys import create_identity
from waystation.sdk.strata.relay import RelayClient

pytestmark = pytest.mark.slow

HOUR_US = 3_600_000_000
NOTICED_S = 1.0
BUSY_S = 4.0
"""What a busy machine may add to the second in which a step is noticed; the fault took 31 to 64 s."""


@pytest.fixture
def shims(tmp_path):
    """Return the shim of the clock."""
    with Shims(tmp_path / "shims", tmp_path / "home", "clock") as made:
        yield made


@pytest.fixture
def node(tmp_path, shims):
    """Return a node whose clock can be set."""
    settings = {"lprp__pow_base_bits_lease": "0", "lprp__pow_adaptive": "false", "node__log_format": "json"}
    node = NodeProcess(tmp_path / "home", **settings)
    node.environment = shims.environment
    with node.start():
        yield node


def seconds_until(holds):
    """Return how long it took until ``holds`` was true."""
    began = time.monotonic()
    until(holds)
    return time.monotonic() - began


def steps(node):
    """Return the lines about steps."""
    lines = [json.loads(line) for line in node.log().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == "clock.stepped"]


@pytest.mark.parametrize("by", [HOUR_US, -HOUR_US, 5 * 24 * HOUR_US])
def test_clock_that_comes_back_is_right_at_once(node, shims, tmp_path, by):
    """The host answers and the relay stores within a second and what a try takes; log, metric and trouble say why."""
    place = urlsplit(node.url("lprp"))
    identity = create_identity(tmp_path / "author")

    def stores():
        async def post():
            async with RelayClient(node.url("strata"), identity=identity) as relay:
                return await relay.post({"type": "POST", "text": str(time.monotonic_ns())}, timeout_s=5)

        try:
            return asyncio.run(post())
        except WaystationError:
            return None

    with Party(bytes([2]) * 32, node.public_key, (place.hostname, place.port)) as party:

        def answers():
            party.say(party.packet(HEARTBEAT))
            return party.hear(0.3) is not None

        party.lease()
        assert stores()
        shims[Word.CLOCK_STEP_US] = by
        noticed_s = seconds_until(lambda: steps(node))
        trouble = node.ask("GET", "/admin/v1/status")[1]["trouble"]
        shims[Word.CLOCK_STEP_US] = 0
        lprp_s, strata_s = seconds_until(answers), seconds_until(stores)
    status = node.ask("GET", "/admin/v1/status")[1]
    metrics = node.ask("GET", "/metrics")[1]

    assert "the clock was set while the node ran" in trouble[0]
    assert max(noticed_s, lprp_s, strata_s) < NOTICED_S + BUSY_S
    assert [round(line["by_s"]) for line in steps(node)] == [by // 1_000_000, -by // 1_000_000]
    assert status["clock"]["steps"] == 2 and abs(status["clock"]["shift_s"]) < 1
    assert not [line for line in status["trouble"] if "clock" in line]
    assert "waystation_clock_steps_total 2.0" in metrics
