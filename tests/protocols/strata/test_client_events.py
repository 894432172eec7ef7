from typing import get_args

from waystation.protocols.strata import client_events


def test_every_event_says_what_it_is():
    """The union holds every event of the module, and each has its sentence."""
    declared = {getattr(client_events, name) for name in client_events.__all__} - {
        client_events.CloseConnection,
        client_events.Event,
        client_events.Output,
    }

    assert set(get_args(client_events.Event)) == declared
    assert all(event.__doc__.strip().endswith(".") for event in declared)
