from waystation.core.contacts import Connected, Disconnected
from waystation.protocols.strata.client.events import (
    Authenticated,
    AuthFailed,
    Limited,
    Published,
    PublishUnknown,
    ServerNamed,
    Violation,
)
from waystation.protocols.strata.client.watch import Pinged, RelayWatch
from waystation.rules.relay_entry import RelayEntry
from waystation.rules.relay_state import State
from waystation.rules.relay_window import observations

NOW = 1_800_000_000


class Watched:
    """A watch with a clock in one hand."""

    def __init__(self, *, is_named=False):
        self.now_s = NOW
        self.changes = []
        entry = RelayEntry.new("ws://a/strata", NOW)
        self.watch = RelayWatch(
            entry, lambda: self.now_s, lambda _url, change: self.changes.append(change.after), is_named=is_named
        )

    @property
    def seen(self):
        return observations(self.watch.entry.window, self.now_s)


def test_connections_and_times_are_counted():
    """Connects, failures, time wanted and time connected, reconnects, latency."""
    watched = Watched()
    watched.watch.want()
    watched.watch.note(Disconnected("r", "no", None, 1.0))
    watched.now_s += 10
    watched.watch.note(Connected("r", 5.0))
    watched.watch.note(Authenticated((), 100_000))
    watched.now_s += 30
    watched.watch.note(Disconnected("r", "cut", 30.0, 1.0))
    watched.watch.note(Connected("r", 5.0))
    watched.watch.evaluate()

    seen = watched.seen
    assert (seen.ok, seen.fail, seen.up_s, seen.want_s, seen.reconnects) == (2, 1, 30, 40, 1)
    assert seen.latency_ms == 100.0


def test_good_relay_becomes_active():
    """Five minutes, five observations and three good evaluations."""
    watched = Watched()
    watched.watch.want()
    watched.watch.note(Connected("r", 1.0))
    for number in range(10):
        watched.watch.note(Published(f"p{number}", b"", False, None, None, 20_000))
        watched.now_s += 60
        watched.watch.evaluate()

    assert watched.changes == [State.ACTIVE]


def test_three_violations_ban():
    """Whatever kind they are of."""
    watched = Watched()
    for reason in ("signature", "packet_id", "outside_filter"):
        watched.watch.note(Violation(reason, "", None))

    assert watched.changes == [State.BLACKLISTED]


def test_limits_and_unknown_outcomes_are_no_violations():
    """They cost, but ban nobody by themselves."""
    watched = Watched()
    watched.watch.note(Limited(30, None, None))
    watched.watch.note(AuthFailed("timeout", ""))
    watched.watch.note(PublishUnknown("p1", b""))
    watched.watch.note_probe(found=False)
    seen = watched.seen

    assert (seen.limited, seen.recent_error, seen.violations, seen.missing) == (True, True, 0, 1)
    assert watched.changes == []


def test_first_name_is_kept():
    """The table pins it for the next program."""
    watched = Watched()
    watched.watch.note(ServerNamed("did:strata:x"))

    assert watched.watch.entry.relay_id == "did:strata:x"


def test_pings_give_a_reader_its_latency():
    """A client that neither publishes nor authenticates still learns how far away the relay is."""
    watched = Watched()
    watched.watch.note(Connected("r", 1.0))
    watched.watch.note(Pinged(80.0))

    assert watched.seen.latency_ms == 80.0


def test_relay_has_answered_once_it_spoke_as_one():
    """Any WebSocket takes a connection; only what a Strata relay says is an answer, and a loss changes nothing."""
    watched = Watched()
    found = []
    for event in (
        Disconnected("r", "no", None, 1.0),
        PublishUnknown("p1", b""),
        Connected("r", 1.0),
        Published("p1", b"", False, None, None, 1_000),
        Disconnected("r", "cut", 3.0, 1.0),
    ):
        watched.watch.note(event)
        found.append(watched.watch.answered)

    assert found == [False, False, False, True, True]


def test_relay_that_the_program_named_is_not_banned_for_the_network():
    """NODE-SILENCE: it cannot be reached for hours, and is used as soon as it can; one of a list is left alone."""
    found = {}
    for is_named in (True, False):
        watched = Watched(is_named=is_named)
        for _ in range(100):
            watched.watch.note(Disconnected("r", "no answer", None, 1.0))
        found[is_named] = watched.watch.entry.standing.state

    assert found == {True: State.PROBATION, False: State.BLACKLISTED}


def test_one_silence_is_one_failure():
    """Forty packets that one pause of the relay leaves unanswered do not ban it; ten pauses in a row do."""
    watched = Watched()
    for _ in range(40):
        watched.watch.note(PublishUnknown("p1", b""))

    assert watched.changes == []

    for _ in range(9):
        watched.now_s += 10
        watched.watch.note(PublishUnknown("p1", b""))

    assert watched.changes == [State.BLACKLISTED]
