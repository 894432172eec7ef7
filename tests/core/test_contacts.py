"""Laws of what a client reports of its connection."""

from waystation.core.contacts import Connected, Disconnected


def test_relay_that_was_never_reached_was_up_for_no_time():
    """A connection names the relay it is with; the server's key is None where the protocol names none."""
    connected, lost = Connected("wss://relay.example", 12.5), Disconnected("wss://relay.example", "refused", None, 1.0)

    assert (connected.server, connected.authenticated, lost.up_s) == (None, False, None)
    assert connected.relay == lost.relay
