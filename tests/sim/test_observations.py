"""What is observed is looked at, and can be written down."""

from typing import get_args

from waystation.sim import observations
from waystation.sim.invariants import bhumi_invariants
from waystation.sim.observations import Observation


def test_every_observation_is_looked_at_by_some_law():
    """An observation that no law looks at would only cost time."""
    watched = {kind for invariant in bhumi_invariants(1_000) for kind in invariant.handlers()}

    assert watched == set(get_args(Observation))


def test_union_names_every_kind():
    """Whatever the module exports is an observation, and the other way round."""
    kinds = {getattr(observations, name) for name in observations.__all__} - {Observation}

    assert kinds == set(get_args(Observation))
    assert all(kind.__doc__ and kind._fields for kind in kinds)
