"""The base class of all invariants: a checker gets observations one by one and raises ``ViolationError``.

An invariant is a rule that every step of every run obeys. ``Watch`` passes each observation to the checkers whose
handler methods are annotated with its type.
"""

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any, ClassVar, get_args

from waystation.core.errors import WaystationError
from waystation.core.instant import Instant
from waystation.sim.disk import Row
from waystation.sim.observations import DiskLost, Unfulfilled

__all__ = ["ExceptLost", "Handler", "Invariant", "Liveness", "ViolationError", "Watch"]


class ViolationError(WaystationError):
    """An invariant is broken.

    Attributes:
        invariant: Name of the checker.
        detail: What happened.
    """

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant
        self.detail = detail


Handler = Callable[[Any, Instant], None]


class Invariant:
    """One invariant."""

    name: ClassVar[str]
    """What a violation is called."""

    def handlers(self) -> dict[type[Any], Handler]:
        """Return the methods that look at observations, by kind of observation.

        They are those named ``_on_...`` that take an observation and an instant; its annotation says which kinds.
        """
        found: dict[type[Any], Handler] = {}
        for name in dir(self):
            if name.startswith("_on_"):
                handler = getattr(self, name)
                annotations = [each.annotation for each in signature(handler).parameters.values()]
                if len(annotations) == 2 and annotations[1] is Instant:
                    found |= dict.fromkeys(get_args(annotations[0]) or annotations[:1], handler)
        assert found, f"{self.name} looks at nothing"
        return found

    def broken(self, detail: str) -> ViolationError:
        """Return the error to raise."""
        return ViolationError(self.name, detail)


class ExceptLost(Invariant):
    """Asks nothing of what a disk has lost: rows that are damaged, or that changed since the copy that was restored."""

    def __init__(self) -> None:
        """Begin with disks that have lost nothing."""
        self._lost: dict[int | str, set[Row]] = {}

    def _on_disk_lost(self, lost: DiskLost, _now: Instant) -> None:
        self._lost.setdefault(lost.node, set()).update(lost.lost)

    def has_lost(self, node: int | str, row: Row) -> bool:
        """Return whether the disk of a node ever lost this row."""
        return row in self._lost.get(node, ())

    def has_anybody_lost(self, row: Row) -> bool:
        """Return whether any disk ever lost this row."""
        return any(row in rows for rows in self._lost.values())


class Liveness(Invariant):
    """After the faults have ended everybody honest gets what is due."""

    name = "liveness"

    def _on_unfulfilled(self, unfulfilled: Unfulfilled, _now: Instant) -> None:
        raise self.broken(unfulfilled.what)


class Watch:
    """Shows each observation to the invariants that look at its kind."""

    def __init__(self, invariants: Sequence[Invariant]) -> None:
        """Watch with ``invariants``, in their order."""
        self._handlers: dict[type[Any], list[Handler]] = {}
        for invariant in invariants:
            for kind, handler in invariant.handlers().items():
                self._handlers.setdefault(kind, []).append(handler)

    def observe(self, observation: Any, now: Instant) -> None:
        """Show one observation.

        Raises:
            ViolationError: An invariant is broken.
        """
        for handler in self._handlers.get(type(observation), ()):
            handler(observation, now)
