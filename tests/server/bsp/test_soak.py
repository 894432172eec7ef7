"""Nodes and devices in processes, killed and flooded: what `make soak` tries for long (soak/), tried for a moment."""

import pytest

from soak.bsp import kills as bsp_kills
from soak.bsp import memory as bsp_memory
from soak.bsp.nodes import Line

SEED = 7
UP = Line("up", 0, "", 0)


class Told:
    """A device whose log is written by a test."""

    def __init__(self, *lines):
        self.lines = list(lines)

    def news(self):
        """Return the lines of the test."""
        return self.lines


def watched(*lines):
    """Return a watch that has read these lines."""
    watch = bsp_kills.Watch(Told(*lines))
    watch.look()
    return watch


def test_nothing_is_lost_or_doubled_by_a_kill(tmp_path):
    """After SIGKILL of a node or device under load all have the same, each message was delivered once, in order."""
    told = bsp_kills.check(tmp_path, SEED, rounds=2)

    assert told.startswith("2 kills")
    assert "none lost" in told


@pytest.mark.slow
def test_each_kill_costs_one_repeat_at_most(tmp_path):
    """Ten kills on either side: whatever is sent again is sent once for each new connection."""
    told = bsp_kills.check(tmp_path, SEED, rounds=10)

    assert told.startswith("10 kills")
    assert "at most once for each" in told


@pytest.mark.slow
def test_floods_leave_memory_flat(tmp_path):
    """Offers, requests, strange groups, what waits for ever, and half a handshake cost no memory that stays."""
    told = bsp_memory.check(tmp_path, SEED, messages=2_000, connections=40)

    assert told.count("MiB before and after each round") == 7


def test_repeat_on_the_next_connection_is_lawful():
    """One copy each way on each of two connections that follow one another, and a late one, are no fault."""
    copies = [Line(what, 10, "ab", 0) for what in ("sent", "received")]
    watch = watched(UP, *copies, UP, *copies, Line("sent", 1_100, "ab", 0))

    assert (watch.repeated, watch.late) == (2, 1)


@pytest.mark.parametrize(
    "lines",
    [
        (UP, Line("sent", 10, "ab", 0), Line("sent", 20, "ab", 0)),
        (UP, Line("received", 10, "ab", 0), Line("received", 20, "ab", 0)),
        (UP, Line("sent", 10, "ab", 0), UP, UP, Line("sent", 9_000, "ab", 0)),
        (UP, Line("delivered", 10, "ab", 1), UP, Line("delivered", 20, "ab", 1)),
    ],
    ids=["sent-twice", "received-twice", "settled-long-ago", "delivered-twice"],
)
def test_watch_finds_what_is_doubled(lines):
    """A second copy on one connection, one of a message that was settled, and a second delivery are faults."""
    with pytest.raises(AssertionError):
        watched(*lines)
