"""Column declarations and value lists that several datasets share.

The other modules of ``tables`` build their ``Dataset`` declarations from them, so one column has one type everywhere.
"""

from typing import Final

from waystation.core.facts import Outcome
from waystation.journal.contract import Privacy
from waystation.pipeline.tables.dataset import Column

__all__ = ["NODE", "OPERATIONAL", "OUTCOMES", "PROTOCOL", "PSEUDONYMOUS", "PUBLIC", "RELAY", "UNFINISHED"]

PUBLIC: Final = Privacy.PUBLIC
OPERATIONAL: Final = Privacy.OPERATIONAL
PSEUDONYMOUS: Final = Privacy.PSEUDONYMOUS

NODE: Final = Column("node_id", "string", False, PUBLIC, "Node that saw it, 16 hexadecimal digits.")
PROTOCOL: Final = Column("protocol", "string", False, PUBLIC, "Protocol.")
RELAY: Final = Column("relay_id", "string", False, PUBLIC, "Relay it is about, 16 hexadecimal digits.")

UNFINISHED: Final = "unfinished"
"""Outcome of attempts that have none yet, in ``gold.delivery_outcomes``."""

OUTCOMES: Final = {
    Outcome.OK.value: "the recipient answered, or was handed what needs no answer",
    Outcome.CACHED.value: "answered from the relay's cache: a retry whose first answer was lost",
    Outcome.OFFLINE.value: "the recipient was not connected; nothing was delivered",
    Outcome.BAD_CAPABILITY.value: "the preimage was unknown or used already; nothing was delivered",
    Outcome.TIMEOUT.value: "the recipient, or a node that was asked for it, did not answer in time",
    Outcome.GONE.value: "the recipient left before it answered, or its lease ended before it had the packet",
    Outcome.REFUSED.value: "a queue was full, a rate or a size exceeded; nothing was delivered",
    UNFINISHED: "no outcome was recorded, as when the node was killed",
}
"""Each outcome and what it means, for the page and the documentation."""
