"""What events can hold, and what they cost."""

import typing

from tests.journal.build import ONE_OF_EACH
from waystation.journal import events

ALLOWED_TYPES = {int, str, bytes, int | None, str | None, bytes | None, events.Outcome}


def test_every_event_begins_with_its_time() -> None:
    """An event's first field is the wall clock in microseconds."""
    firsts = {kind._fields[0] for kind in typing.get_args(events.Event)}

    assert firsts == {"ts_us"}


def test_fields_hold_only_plain_values() -> None:
    """No event has a field that could carry a structure of somebody else's making."""
    types = {hint for kind in typing.get_args(events.Event) for hint in typing.get_type_hints(kind).values()}

    assert types <= ALLOWED_TYPES


def test_events_are_immutable() -> None:
    """What was recorded cannot be changed before it is written."""
    changed = [event for event in ONE_OF_EACH if not isinstance(event, tuple)]

    assert changed == []


def test_deliveries_have_no_connection() -> None:
    """An event of a delivery has no reference that a sender's connection also has."""
    fields = {*events.DeliveryAccepted._fields, *events.DeliveryFinished._fields}

    assert "conn_ref" not in fields
