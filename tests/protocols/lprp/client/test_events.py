"""Laws of protocols.lprp.client_events."""

from typing import get_args

from waystation.protocols.lprp.client import events
from waystation.protocols.lprp.messages import Kind


def test_events_are_a_closed_set():
    """Everything a client machine tells is a member of ``Event``, and nothing else is."""
    told = {name for name in events.__all__ if name not in ("Event", "RequestOutcome")}

    assert {each.__name__ for each in get_args(events.Event)} == told


def test_search_is_named_by_its_challenge():
    """The first 64 bytes of the challenge are its signature, which ``work_found`` takes."""
    wanted = events.WorkWanted(b"s" * 64 + b"r" * 144, Kind.RELAY, 0, 12)

    assert wanted.challenge_signature == b"s" * 64
