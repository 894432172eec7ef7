"""A relay behind a bunch does the same as one that gets its messages one by one."""

from dataclasses import replace

from tests.sim.build_merk import BURSTS, QUIET, Quarter, run_with
from waystation.sim import merk_observations as seen
from waystation.sim.merk_bunches import Bunches

TWO = replace(QUIET, nodes=1, clients=2, client=replace(BURSTS.client, extended=0.0, asks=0.0))


class Noting:
    """Notes what a relay is told."""

    def __init__(self):
        self.calls = []

    def receive_many(self, peer, messages, now):
        self.calls.append((peer, messages, now))

    def wake(self, now):
        self.calls.append(now)


def test_messages_of_one_peer_and_instant_go_together():
    """A message of somebody else, of another instant, or any other input, ends a bunch."""
    relay = Noting()
    bunches = Bunches(relay)
    for peer, data, now in ((1, b"a", 5), (1, b"b", 5), (2, b"c", 5), (2, b"d", 6)):
        bunches.receive(peer, data, now)
    bunches.wake(7)
    bunches.wake(8)

    assert relay.calls == [(1, [b"a", b"b"], 5), (2, [b"c"], 5), (2, [b"d"], 6), 7, 8]


def test_bunches_change_nothing_but_the_order_of_turns():
    """What arrives at clients is the same, whether their node gets messages together or alone."""
    taken = []
    for bunches in (False, True):
        quarter = Quarter(replace(TWO, bunches=bunches))
        clients = [quarter.client(has_extensions=False) for _ in range(2)]
        for client in clients:
            client.start(clients)
        quarter.run(30)
        taken.append([(each.key, each.frame) for each in quarter.kinds(seen.Taken)])

    assert taken[0] == taken[1]
    assert len(taken[0]) > 50


def test_runs_take_place():
    """In a world of bursts the relay is handed several messages at once, and keeps every law."""
    result = run_with(None, 5, BURSTS)

    assert result.failure is None
    assert result.exchanges["read"] > 300
