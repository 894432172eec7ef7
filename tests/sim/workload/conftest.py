"""The small workloads that most laws are shown with."""

import pytest

from tests.sim.workload.build import made


@pytest.fixture(params=[(), ("all",)], ids=["honest", "all"])
def workload(request):
    """Return the small workload without scenarios, and with all of them."""
    return made(*request.param)
