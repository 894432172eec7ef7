"""Scenarios are chosen by name, with parameters."""

import pytest

from waystation.core.errors import LocalError
from waystation.sim.workload.scenarios import ALL_SCENARIOS, DEFAULTS, HONEST, parameters_of


def test_names_get_their_default_parameters():
    """A name alone plays the scenario as it is described."""
    assert parameters_of(["slow_relay"]) == {"slow_relay": DEFAULTS["slow_relay"]}
    assert parameters_of(ALL_SCENARIOS) == DEFAULTS
    assert parameters_of(HONEST) == {}


def test_said_parameters_win():
    """What is said replaces the default and leaves the others."""
    assert parameters_of({"mesh_partition": {"hours": 3}}) == {"mesh_partition": {"day": 2, "hours": 3}}


def test_order_of_names_does_not_matter():
    """Scenarios are played in one order, however they were named."""
    assert list(parameters_of(["schema_mix", "slow_relay"])) == ["slow_relay", "schema_mix"]


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"sloth": {}}, "no scenario"),
        ({"slow_relay": {"depth": 1}}, "no parameter"),
        ({"duplicates": {"line_percent": 101}}, "cannot be 101"),
        ({"slow_relay": {"latency_ms": -1}}, "cannot be -1"),
    ],
)
def test_nonsense_is_refused(given, what):
    """Unknown names and numbers out of range are the caller's mistake."""
    with pytest.raises(LocalError, match=what):
        parameters_of(given)
