from typing import get_args

from waystation.protocols.strata.client import events


def test_every_event_says_what_it_is():
    """The union holds every event of the module, and each has its sentence."""
    declared = {getattr(events, name) for name in events.__all__} - {
        events.ClientEnd,
        events.Event,
    }

    assert set(get_args(events.Event)) == declared
    assert all(event.__doc__.strip().endswith(".") for event in declared)
