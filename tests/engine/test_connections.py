"""Laws of engine.connections: what is open, and word of both ends."""

from waystation.core.instant import Instant
from waystation.engine.connections import Connection, Connections, Traffic

ALICE = b"a" * 32


class Seen:
    """Keeps what a watcher is given."""

    def __init__(self):
        self.calls = []

    def opened(self, connection):
        """Note the beginning."""
        self.calls.append(("opened", connection.peer))

    def closed(self, connection, reason, now):
        """Note the end."""
        self.calls.append(("closed", connection.peer, reason, now))


def connection(peer):
    """Return one that has just begun."""
    return Connection("bhumi", peer, Traffic(), Instant(5), "192.0.2.1")


def test_connection_is_there_from_its_beginning_to_its_end():
    """An end takes exactly one away, and gives it back with its traffic."""
    open_now = Connections()
    first, second = connection(1), connection(2)
    open_now.add(first)
    open_now.add(second)

    assert open_now.remove(1, "gone", Instant(9)) is first
    assert list(open_now) == [second]
    assert len(open_now) == 1


def test_identity_is_known_once_it_is_proved():
    """A late proof of a connection that is over changes nothing."""
    open_now = Connections()
    open_now.add(connection(1))
    open_now.identify(1, ALICE)
    open_now.identify(2, ALICE)

    assert [each.identity for each in open_now] == [ALICE]


def test_watcher_hears_of_both_ends():
    """Each connection is given to the watcher twice, the second time with the reason."""
    open_now = Connections()
    open_now.watcher = seen = Seen()
    open_now.add(connection(1))
    open_now.remove(1, "idle_timeout", Instant(9))

    assert seen.calls == [("opened", 1), ("closed", 1, "idle_timeout", 9)]


def test_traffic_counts_both_directions():
    """The total is what was received and what was sent."""
    traffic = Traffic()
    traffic.bytes_in, traffic.bytes_out = 3, 4

    assert traffic.total == 7
