"""The scenarios of a workload (such as an attack, a split mesh, a bad relay) by name, with default parameters.

``waystation pipeline generate --scenario`` names them. Scenarios run on top of the honest load. Days count from 0; a
later day than the last means the last.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from waystation.core.errors import LocalError

__all__ = ["ALL_SCENARIOS", "DEFAULTS", "HONEST", "Parameters", "parameters_of"]

Parameters = Mapping[str, int]

DEFAULTS: Final[Mapping[str, Parameters]] = {
    "slow_relay": {"latency_ms": 4_000, "timeout_percent": 10},
    "flapping_relay": {"from_day": 1, "fails_per_hour": 2, "transitions_max": 6},
    "tampering_relay": {"from_day": 2, "violations": 5, "every_hours": 12},
    "dead_relay": {"from_day": 3, "tolerance_hours": 6},
    "silent_dropper": {"percent": 30, "author": -1},
    "replay_attacker": {"day": 2, "minutes": 60, "per_minute": 20},
    "burst_flooder": {"day": 3, "seconds": 600, "per_second": 100},
    "work_farmer": {"day": 4, "minutes": 60, "per_minute": 8},
    "spent_capabilities": {"day": 5, "minutes": 60, "per_minute": 10},
    "mesh_partition": {"day": 2, "hours": 6},
    "bsp_invalid_root": {"day": 1, "roots": 2, "descendants": 12},
    "clock_skew": {"seconds": 420},
    "duplicates": {"segment_percent": 10, "line_percent": 5},
    "out_of_order": {"segment_percent": 30},
    "late_segments": {"segment_percent": 10, "reach_days": 6},
    "truncated_segment": {"torn": 3},
    "schema_mix": {"segment_percent": 25},
    "bad_signatures": {"packets": 20},
}
"""Every scenario and what may be said about it.

``silent_dropper`` drops a percentage of what comes from others, or with ``author`` of that author's packets alone.
"""

HONEST: Final[tuple[str, ...]] = ()
"""No scenario: everybody is honest, with the oddities that honest nodes have."""

ALL_SCENARIOS: Final = tuple(DEFAULTS)
"""Every scenario at once."""


def parameters_of(scenarios: Iterable[str] | Mapping[str, Mapping[str, int]]) -> dict[str, Parameters]:
    """Return the scenarios that are played, each with all of its parameters, in the order of ``ALL_SCENARIOS``.

    Raises:
        LocalError: A scenario or a parameter is unknown, or a parameter is no number that makes sense.
    """
    given = scenarios if isinstance(scenarios, Mapping) else {name: {} for name in scenarios}
    for name, said in given.items():
        known = DEFAULTS.get(name)
        if known is None:
            raise LocalError(f"no scenario is called {name!r}; there are {', '.join(ALL_SCENARIOS)}")
        for key, value in said.items():
            if key not in known:
                raise LocalError(f"{name} has no parameter {key!r}; it has {', '.join(known)}")
            if value < (-1 if key == "author" else 0) or (key.endswith("_percent") and value > 100):
                raise LocalError(f"{name}: {key} cannot be {value}")
    return {name: {**DEFAULTS[name], **given[name]} for name in ALL_SCENARIOS if name in given}
