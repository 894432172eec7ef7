"""The node's end of a stream passes on what happens to it."""

from waystation.sim.net.node_end import NodeEnd


class Remembering:
    """Notes what it is told, and by whom."""

    def __init__(self):
        self.told = []

    def received(self, end, data):
        self.told.append((end, data))

    def congested(self, end):
        self.told.append((end, "congested"))

    def drained(self, end):
        self.told.append((end, "drained"))

    def ended(self, end):
        self.told.append((end, "ended"))


def test_everything_is_passed_on_with_the_end_it_happened_to():
    """The world hears of bytes, of back-pressure and of the end, in order, from this end."""
    world = Remembering()
    end = NodeEnd(world)

    end.received(b"bytes")
    end.congested()
    end.drained()
    end.ended()

    assert world.told == [(end, b"bytes"), (end, "congested"), (end, "drained"), (end, "ended")]


def test_fresh_end_belongs_to_no_peer_yet():
    """Until the connection stands there is no number, and nothing has come."""
    end = NodeEnd(Remembering())

    assert end.peer is None
    assert end.early == []
    assert end.waiting_bytes == 0
