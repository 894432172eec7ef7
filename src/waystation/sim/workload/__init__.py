"""What nodes would have recorded in some days: journals and archives out of a seed, and the truth about them.

``plan`` decides who, when and how much; ``scenarios`` names what may go wrong; ``stage`` gathers a slot's events.
``deliveries``, ``house``, ``packets``, ``mesh``, ``groups``, ``relays`` and ``attackers`` are what happens; ``mixture``
and ``writer`` make files of it; ``truth`` keeps what is true, by ``graphs`` and plain counting, and ``workload`` puts
it together. Nothing here asks the rules: what they must find is known from how it was made.
"""

from waystation.sim.workload.plan import START_US
from waystation.sim.workload.scenarios import ALL_SCENARIOS, DEFAULTS, HONEST
from waystation.sim.workload.workload import SIGNED_PER_DAY, Workload
from waystation.sim.workload.writer import WorkloadFile

__all__ = ["ALL_SCENARIOS", "DEFAULTS", "HONEST", "SIGNED_PER_DAY", "START_US", "Workload", "WorkloadFile"]
