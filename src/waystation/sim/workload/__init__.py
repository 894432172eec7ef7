"""Generates synthetic input for the pipeline: nodes' journals and archives of several days, with expected results.

``plan`` fixes nodes, time span and load. ``scenarios`` names the anomalies. ``deliveries``, ``node_events``,
``packets``, ``mesh``, ``groups``, ``relays`` and ``attackers`` create events; ``stage`` collects them per time slot.
``writer`` and ``mixture`` turn them into files. ``truth`` and ``graphs`` record the expected results, and ``generator``
runs everything. No module here calls the pipeline's rules. Expected results follow from how the data was made.
"""

from waystation.sim.workload.generator import SIGNED_PER_DAY, Workload
from waystation.sim.workload.plan import START_US
from waystation.sim.workload.scenarios import ALL_SCENARIOS, DEFAULTS, HONEST
from waystation.sim.workload.writer import WorkloadFile

__all__ = ["ALL_SCENARIOS", "DEFAULTS", "HONEST", "SIGNED_PER_DAY", "START_US", "Workload", "WorkloadFile"]
