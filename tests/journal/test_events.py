"""What events can hold, and what they cost."""

import pickle

import pytest

from tests.journal.build import ONE_OF_EACH
from waystation.core.facts import Outcome
from waystation.core.fields import fields_of
from waystation.journal import events
from waystation.journal.events import EVENTS, RECORDED


def test_every_event_begins_with_its_time() -> None:
    """An event's first field is the wall clock in microseconds."""
    assert {kind._fields[0] for kind in EVENTS.values()} == {"ts_us"}


def test_fields_hold_only_plain_values() -> None:
    """No event has a field that could carry a structure of a peer's making, or an identity."""
    plain = {int, str, int | None, str | None, Outcome}
    bare = {
        (fact.__name__, field.name)
        for fact in RECORDED
        for field in fields_of(fact)
        if field.type not in plain and field.place.protection is None
    }

    assert bare == set()


def test_event_has_the_name_and_the_defaults_of_its_fact() -> None:
    """A class of events is found under the name of its fact, and what a fact may leave out, its event may."""
    event = events.Refused(1, "bhumi", None, "truncated")

    assert (type(event).__name__, event.times, event.source_ref) == ("Refused", 1, None)
    assert isinstance(event, events.Event)
    assert pickle.loads(pickle.dumps(event)) == event


def test_unknown_name_is_no_event() -> None:
    """A name that no fact has is an error at once."""
    with pytest.raises(AttributeError, match="no event Surprise"):
        _ = events.Surprise


def test_events_are_immutable() -> None:
    """What was recorded cannot be changed before it is written."""
    changed = [event for event in ONE_OF_EACH if not isinstance(event, tuple)]

    assert changed == []


def test_deliveries_have_no_connection() -> None:
    """An event of a delivery has no reference that a sender's connection also has."""
    fields = {*events.DeliveryAccepted._fields, *events.DeliveryFinished._fields}

    assert "conn_ref" not in fields
