"""Laws of server.hub: a protocol that fails costs itself; the timer, the turn and the answers of the others go on."""

import asyncio
import random
import time

import pytest
from structlog.testing import capture_logs

from tests.server.build import Echo, eventually, key_pair
from waystation.core.effects import Commit, SignatureCheck, Verify
from waystation.core.records import Record
from waystation.crypto.signing import sign
from waystation.engine.admission import Admission
from waystation.engine.bans import BanList
from waystation.engine.node import Node
from waystation.engine.recorder import Recorder
from waystation.server.commit import GroupCommit
from waystation.server.failures.log import FailureLog
from waystation.server.hub import Hub, monotonic_now
from waystation.store.memory import MemoryStore

PAIR = key_pair()
NAMES = ("a", "b", "broken", "c", "d")
CALLS = ("take", "wake", "deadline", "committed", "verified")


class Ticker(Echo):
    """A relay that every 5 ms is woken, asks for a commit and a signature, and counts the answers."""

    def __init__(self):
        super().__init__(durable=False)
        self.counts = {"wake": 0, "committed": 0, "verified": 0}
        self.due = monotonic_now()

    def wake(self, now):
        self.due = now + 5_000
        self.counts["wake"] += 1
        self.outbox.append(Commit(self.counts["wake"], (Record("t", b"k", b"v"),)))
        self.outbox.append(Verify(self.counts["wake"], (SignatureCheck((PAIR.public,), b"t", sign(PAIR, b"t")),)))

    def deadline(self):
        return self.due

    def committed(self, ticket, now):
        self.counts["committed"] += 1

    def verified(self, ticket, answers, now):
        self.counts["verified"] += 1


class Broken(Ticker):
    """One that raises in the call of this name, and counts how often."""

    def __init__(self, call):
        super().__init__()
        self.raised = 0
        setattr(self, call, self._raise)

    def _raise(self, *_):
        self.raised += 1
        raise RuntimeError("a bug of ours")


def run(broken, holds):
    """Drive five relays by a hub until ``holds(relays)``; return the relays and the log."""

    async def main():
        relays = {name: broken if name == "broken" else Ticker() for name in NAMES}
        store = MemoryStore()
        recorder = Recorder([].append, random.Random(1))
        recorder.set_wall(monotonic_now(), time.time_ns() // 1_000)
        recorder.use_key(b"k" * 32)
        commits = GroupCommit(store, FailureLog(monotonic_now))
        hub = Hub(Node(relays, Admission(), BanList(store), recorder), commits)
        with capture_logs() as lines:
            hub.plan_turn()
            await eventually(lambda: holds(relays))
        hub.close()
        await commits.close()
        return relays, lines

    return asyncio.run(main())


def go_on(relays):
    """Say whether the four others were woken and answered often."""
    return all(min(relay.counts.values()) >= 20 for name, relay in relays.items() if name != "broken")


@pytest.mark.parametrize("call", CALLS)
def test_failing_relay_stops_no_other(call):
    """Four relays are woken and answered on and on; the fifth raises in one call, and has one line."""
    broken = Broken(call)
    _, lines = run(broken, lambda relays: broken.raised and go_on(relays))

    assert [(line["event"], line["protocol"]) for line in lines] == [("engine.failed", "broken")]


def test_failing_deadline_does_not_spin():
    """A relay that can never meet its deadline is asked about once a second, not in every turn of the loop."""
    broken, began_s = Broken("wake"), time.monotonic()
    run(broken, go_on)

    assert broken.raised <= 2 + time.monotonic() - began_s


def test_effect_that_fails_costs_the_rest_of_its_protocol_alone():
    """What stands behind an effect that the hub cannot carry out is lost; the others' effects are not."""

    class Strange(Ticker):
        def take(self):
            return [Verify(0, None)]

    _, lines = run(Strange(), go_on)

    assert [(line["event"], line["protocol"], line["what"]) for line in lines] == [
        ("engine.failed", "broken", "effects")
    ]
