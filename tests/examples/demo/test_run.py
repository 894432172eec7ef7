"""The demonstration as `make demo` runs it, without Spark."""

import pytest

from waystation.examples.demo.run import run

pytestmark = pytest.mark.slow


def test_every_step_ends_as_promised(tmp_path):
    """Each protocol is played once by nodes, devices and senders, and no result differs from the expected one."""
    assert run(tmp_path, stay=False, report=False)
