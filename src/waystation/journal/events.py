"""Event classes of the journal, derived from the fact declarations in ``core.facts``.

The recorder creates them and ``store.segments`` writes them. An event is a time followed by the fact's fields, with a
reference in place of each identity. ``ts_us`` is wall-clock time in microseconds UTC since 1970. A ``conn_ref`` has 8
bytes, every other reference 16. An ``attempt_ref`` only distinguishes attempts of one protocol (NODE-REFS). The event
of ``facts.DeliveryAccepted`` is ``events.DeliveryAccepted``, and so on.

Creating an event costs one tuple; the segment writer's thread encodes it later.
"""

from collections import namedtuple
from collections.abc import Callable, Mapping
from typing import Any, Final, get_args

from waystation.core.facts import Fact, PacketStored
from waystation.core.fields import fields_of
from waystation.core.node_facts import NodeFact

__all__ = ["EVENTS", "RECORDED", "Event", "event_of"]


class Event(tuple[Any, ...]):
    """What every event has, whatever its kind."""

    __slots__ = ()
    _fields: tuple[str, ...]
    _replace: Callable[..., Any]
    ts_us: int
    """Wall-clock time, microseconds UTC since 1970."""


def event_of(fact: type[Any]) -> type[Event]:
    """Return the class of a fact's event: a named tuple of ``ts_us`` and the fact's fields in their order."""
    names = [field.name for field in fields_of(fact)]
    defaults = list(fact._field_defaults.values())
    fields = namedtuple(fact.__name__, ["ts_us", *names], defaults=defaults)  # type: ignore[misc]  # noqa: PYI024
    return type(fact.__name__, (fields, Event), {"__slots__": (), "__module__": __name__, "__doc__": fact.__doc__})


RECORDED: Final = tuple(fact for fact in (*get_args(NodeFact), *get_args(Fact)) if fact is not PacketStored)
"""Facts that have an event, in the order of docs/journal.md; the archive has the other one."""

EVENTS: Final[Mapping[str, type[Event]]] = {fact.__name__: event_of(fact) for fact in RECORDED}
"""The classes of events by name; each is an attribute of this module too."""


def __getattr__(name: str) -> Any:
    """Return the class of the event of this name."""
    try:
        return EVENTS[name]
    except KeyError:
        raise AttributeError(f"there is no event {name}") from None
