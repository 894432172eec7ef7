"""Observations that all protocols' simulations share: the sizes of a node's tables, and a request never fulfilled.

Scenarios and simulated disks emit them, the invariants read them; each protocol adds its own kinds.
"""

from typing import NamedTuple

from waystation.sim.disk import Row
from waystation.sim.trace import canonical

__all__ = ["DiskLost", "DiskRefused", "Sized", "Unfulfilled"]


class Sized(NamedTuple):
    """How much of each bounded thing a node holds."""

    node: int | str
    sizes: dict[str, int]
    facts: dict[str, int] = {}  # noqa: RUF012 - never changed
    """What the bounds depend on, by name."""
    settled: bool | None = None
    """True when every client has left and every lifetime has passed; None where nothing has to become empty."""

    def __str__(self) -> str:
        """Return a line for the trace."""
        ending = () if self.settled is None else (self.settled,)
        return canonical(self, (self.node, self.sizes, *self.facts.values(), *ending))


class DiskLost(NamedTuple):
    """The disk of a node lost rows: they are damaged, or older than what was committed."""

    node: int | str
    lost: frozenset[Row]
    values: tuple[bytes, ...] = ()
    """What ever stood in them, and in other tables under their keys."""

    def __str__(self) -> str:
        """Return a line for the trace."""
        return canonical(self, (self.node, *(f"{row.table} {row.key.hex()[:16]}" for row in sorted(self.lost))))


class DiskRefused(NamedTuple):
    """The disk of a node did not take a group of changes, and the node knows it."""

    node: int | str


class Unfulfilled(NamedTuple):
    """An honest client did not get what is due after the faults had ended."""

    what: str
