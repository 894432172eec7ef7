"""Laws of protocols.bsp.events."""

import typing

from waystation.protocols.bsp.device import events
from waystation.protocols.bsp.device.events import DeviceEvent


def test_events_are_a_closed_set():
    """Everything a device tells is a member of ``DeviceEvent``, and nothing else is."""
    told = {name for name in events.__all__ if name != "DeviceEvent"}

    assert {each.__name__ for each in typing.get_args(DeviceEvent)} == told


def test_events_say_which_group_they_are_about():
    """All but the one about a whole peer, so that an application can follow one group."""
    without = {each.__name__ for each in typing.get_args(DeviceEvent) if "group_id" not in each._fields}

    assert without == {"Settled"}


def test_events_carry_no_body():
    """What a message says is asked for by name; an event may be written down anywhere."""
    fields = {field for each in typing.get_args(DeviceEvent) for field in each._fields}

    assert not fields & {"body", "content", "descriptor"}
