"""Laws of server.status.twin_watch: one line an hour for each key that two nodes have, and a sentence meanwhile."""

from structlog.testing import capture_logs

from waystation.core.ids import encode_did
from waystation.core.instant import Instant
from waystation.engine.connections import Connection, Connections, Traffic
from waystation.rules.twins import OVERLAPS_MIN, Twin, Twins
from waystation.server.status.twin_watch import HOUR_S, TwinWatch

OURS, THEIRS = b"o" * 32, b"t" * 32
SECOND = 1_000_000


class Host:
    """A protocol that knows which keys are nodes."""

    def __init__(self, *nodes):
        self.nodes, self.met = nodes, Twins()

    def twins(self):
        return self.met

    def has_node(self, key):
        return key in self.nodes


class Stage:
    """A watch over connections, at a time that a test sets."""

    def __init__(self, *nodes):
        self.now = Instant(HOUR_S * SECOND)
        self.host = Host(*nodes)
        self.connections = Connections()
        self.watch = TwinWatch(
            OURS, dict.fromkeys(("merk", "bhumi", "strata"), self.host), self.connections, lambda: self.now
        )
        self.count = 0

    def come(self, key, address, protocol="merk", *, dialled=""):
        """Let a connection come, or be dialled, and prove a key; return its number."""
        self.count += 1
        connection = Connection(protocol, self.count, Traffic(), self.now, address)
        connection.dialled = dialled
        self.connections.add(connection)
        self.connections.identify(self.count, key)
        return self.count

    def take_turns(self, key, *addresses):
        """Let connections of a key come, each while the one before it stands."""
        before = None
        for address in addresses:
            number = self.come(key, address)
            if before is not None:
                self.connections.remove(before, "replaced", self.now)
            before = number

    def pass_second(self):
        """Let the time pass in which a dial of ourselves shows on both sides."""
        self.now = Instant(self.now + SECOND)

    def look(self):
        """Return the lines of a look."""
        with capture_logs() as lines:
            self.watch.look()
        return [(line["event"], line["ours"], line["places"]) for line in lines]


TURNS = ("a", "b") * OVERLAPS_MIN


def test_nodes_that_take_turns_are_named_once_an_hour():
    """The line has both places; the sentence stands for an hour, and the next turns have a line again."""
    stage = Stage(THEIRS)
    stage.take_turns(THEIRS, *TURNS)
    first, second = stage.look(), stage.look()
    said = stage.watch.trouble()
    stage.now = Instant(stage.now + HOUR_S * SECOND + 1)
    quiet = stage.look(), stage.watch.trouble()
    stage.take_turns(THEIRS, *TURNS)

    assert first == [("peer.twin", False, ["a", "b"])] and second == []
    assert len(said) == 1 and "a and b" in said[0]
    assert quiet == ([], [])
    assert len(stage.look()) == 1


def test_clients_and_one_place_are_no_twins():
    """Clients may share a key and take turns; a node that comes again from where it was has lost its connection."""
    stage = Stage(THEIRS)
    stage.take_turns(b"c" * 32, *TURNS)
    stage.take_turns(THEIRS, *["a"] * 10)

    assert stage.look() == []


def test_own_key_of_somebody_else_is_a_twin():
    """Whoever proves our own key has it; MERK's relay alone may meet ourselves that way, and says what it met."""
    stage = Stage()
    stage.come(OURS, "x", "merk")
    stage.pass_second()
    before = stage.look()
    stage.come(OURS, "y", "bhumi")
    stage.pass_second()

    assert before == []
    assert stage.look() == [("peer.twin", True, ["y"])]
    assert "another node has our key" in stage.watch.trouble()[0]


def test_own_key_where_we_dialled_is_a_twin_unless_we_dialled_ourselves():
    """A Strata upstream proves its DID: ours is another node's, or our own when it came to us at the same time."""
    stage, did = Stage(), encode_did(OURS).encode()
    stage.come(OURS, "127.0.0.1", "strata")
    stage.come(did, "", "strata", dialled="ws://me/strata")
    stage.pass_second()
    ourselves = stage.look()
    stage.come(did, "", "strata", dialled="ws://other/strata")
    stage.pass_second()

    assert ourselves == []
    assert stage.look() == [("peer.twin", True, ["ws://other/strata"])]


def test_what_a_relay_met_is_named():
    """Relays note their own sightings."""
    stage = Stage()
    stage.host.met.note(Twin(OURS, ("wss://b.example/merk",)), stage.now)

    assert stage.look() == [("peer.twin", True, ["wss://b.example/merk"])]
