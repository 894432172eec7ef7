"""Laws of what a client knows of one relay."""

from waystation.rules.relay_choice import Candidate
from waystation.rules.relay_entry import RelayEntry
from waystation.rules.relay_state import State


def test_new_relay_is_on_probation_with_a_score_in_the_middle():
    """Nothing was observed, and its identity is not known."""
    entry = RelayEntry.new("wss://relay.example", 1_000)

    assert (entry.standing.state, entry.standing.since_s, entry.score) == (State.PROBATION, 1_000, 0.5)
    assert (entry.relay_id, entry.last_tried_s, entry.updated_s) == (None, None, 0)
    assert entry.candidate == Candidate("wss://relay.example", State.PROBATION, 0.5, False, None)
