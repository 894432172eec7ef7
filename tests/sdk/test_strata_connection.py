"""Laws of sdk.strata_connection: what a client says of its connection, tried in full by test_strata_relay."""

from waystation.sdk.strata_connection import Connected, Disconnected, Pinged


def test_events_name_their_units():
    """Milliseconds and seconds stand in the names, since a bare number would say neither."""
    names = [name for event in (Connected, Disconnected, Pinged) for name in event._fields]

    assert names == ["handshake_ms", "reason", "up_s", "retry_s", "latency_ms"]
