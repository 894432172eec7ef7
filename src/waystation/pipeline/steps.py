"""List of pipeline steps with their dependencies, in execution order.

``pipeline.run`` executes them. Each step reads the tables of earlier steps and writes its own. Any step can therefore
be repeated alone, and no orchestrator is needed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Final, cast

from waystation.core.errors import LocalError
from waystation.pipeline.jobs.step import Context, Counts

__all__ = ["STEPS", "Job", "Step", "choose_steps"]

Job = Callable[[Context], Counts]


@dataclass(frozen=True, slots=True)
class Step:
    """One step."""

    name: str
    needs: tuple[str, ...]
    """Steps whose tables it reads."""
    job: str
    """Module and function below ``waystation.pipeline.jobs``, imported when it runs: it brings Spark along."""
    does: str
    """One clause for the operator."""
    by_default: bool = True
    """Whether a run without ``--steps`` takes it."""

    def load(self) -> Job:
        """Return its function."""
        module, _, name = self.job.partition(":")
        return cast("Job", getattr(import_module(f"waystation.pipeline.jobs.{module}"), name))


STEPS: Final = (
    Step("ingest", (), "ingest:ingest_journal", "take new segments of the journal in"),
    Step("archive", (), "ingest:ingest_archive", "take new segments of the packet archive in"),
    Step("conform", ("ingest",), "conform:conform", "pair events to connections and delivery attempts"),
    Step("verify", ("archive",), "verify:verify_packets", "check ids and signatures of archived packets"),
    Step("outcomes", ("conform",), "outcomes:count_outcomes", "count outcomes and latencies by the hour"),
    Step("verdicts", ("ingest",), "verdicts:count_verdicts", "count the node's verdicts on packets by the hour"),
    Step("qos", ("ingest",), "qos:judge_relays", "judge other relays over seven days"),
    Step("abuse", ("ingest",), "abuse:find_abuse", "find who misuses a node, and decide what to do"),
    Step("bsp", ("ingest",), "bsp:judge_groups", "compute closure, invalidity and convergence of groups"),
    Step("mesh", ("ingest",), "mesh:map_mesh", "draw the mesh: links, parts, servers it depends on"),
    Step("consistency", ("archive",), "consistency:compare_relays", "find what relays drop silently"),
    Step("capacity", ("ingest", "abuse"), "capacity:measure_capacity", "measure growth and days to full"),
    Step(
        "publish",
        ("outcomes", "qos", "abuse", "bsp", "mesh", "consistency", "capacity"),
        "publish:publish",
        "sign and publish policy and scores for the nodes",
    ),
    Step("retain", (), "retain:retain", "delete what is older than it may be, and prove it"),
    Step("compact", (), "compact:compact", "make few large files of many small ones", by_default=False),
)
"""All steps in the order in which they run."""


def choose_steps(names: Sequence[str] | None) -> tuple[Step, ...]:
    """Return the steps to run, in their order; None takes those that run by default.

    Raises:
        LocalError: A name is no step's.
    """
    if names is None:
        return tuple(step for step in STEPS if step.by_default)
    unknown = sorted(set(names) - {step.name for step in STEPS})
    if unknown:
        known = ", ".join(step.name for step in STEPS)
        raise LocalError(f"there is no step {', '.join(unknown)}; the steps are: {known}")
    return tuple(step for step in STEPS if step.name in names)
