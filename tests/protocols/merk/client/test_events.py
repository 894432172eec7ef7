"""Laws of merk.client_events."""

from typing import get_args

from waystation.protocols.merk.client import events


def test_events_are_a_closed_set():
    """Everything a client machine tells is a member of ``Event``, and nothing else is."""
    told = {name for name in events.__all__ if name != "Event"}

    assert {each.__name__ for each in get_args(events.Event)} == told


def test_an_outcome_counts_as_sent_unless_it_says_otherwise():
    """Whoever forgets to say may at worst be too careful about sending again."""
    assert events.FrameOutcome(b"h" * 16, None).sent
