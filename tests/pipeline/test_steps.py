"""The list of steps."""

import importlib.util

import pytest

from waystation.core.errors import LocalError
from waystation.pipeline.steps import STEPS, choose_steps


def test_each_step_comes_after_what_it_needs() -> None:
    """The list is an order in which every step finds its inputs."""
    seen: set[str] = set()
    for step in STEPS:
        assert set(step.needs) <= seen
        seen.add(step.name)


def test_names_are_unique() -> None:
    """A step is named once."""
    assert len({step.name for step in STEPS}) == len(STEPS)


def test_chosen_steps_keep_their_order() -> None:
    """Whatever order somebody names them in, steps run in theirs."""
    assert [step.name for step in choose_steps(["qos", "conform"])] == ["conform", "qos"]


def test_default_leaves_out_what_is_on_request() -> None:
    """Only compaction waits for somebody to ask."""
    assert {step.name for step in STEPS} - {step.name for step in choose_steps(None)} == {"compact"}


def test_unknown_step_is_refused_with_the_known_ones() -> None:
    """A typo is told, and what there is."""
    with pytest.raises(LocalError, match="there is no step confrom; the steps are: ingest, archive, conform"):
        choose_steps(["confrom"])


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_every_step_has_its_function(step) -> None:
    """What the list names is there."""
    module = step.job.partition(":")[0]

    assert importlib.util.find_spec(f"waystation.pipeline.jobs.{module}") is not None
    assert callable(step.load())
