"""Laws of server.sampler: what a minute of a node comes to, and when it is looked at."""

import asyncio
import os

import pytest

from tests.engine.build import Rig
from tests.protocols.bhumi.build import KEYS
from waystation.core import facts
from waystation.core.facts import Outcome
from waystation.journal.events import NodeSampled
from waystation.journal.segment import read_rows
from waystation.server.config.settings import JournalSettings
from waystation.server.home import Home
from waystation.server.sampler import Reading, Sampler, messages_judged, sample, seconds_to_next
from waystation.server.written import Written

MINUTE = 60_000_000
KEY = KEYS[0].public


def test_a_sample_has_what_stood_at_its_end_and_what_happened_before():
    """Sizes are those of the second reading, counts the difference."""
    before = Reading(10, 5, 100, 1_000, 2_000, 70, 4, 5, 6)
    after = Reading(20, 3, 160, 1_007, 2_000, 90, 40, 50, 60)

    assert sample(before, after) == NodeSampled(20, 3, 60, 7, 0, 20, 40, 50, 60)
    assert sample(after, after)._replace(ts_us=20) == NodeSampled(20, 3, 0, 0, 0, 0, 40, 50, 60)


@pytest.mark.parametrize(
    ("past_us", "wait_s"),
    [(0, 60.0), (1, 59.999999), (30_000_000, 30.0), (59_000_000, 1.0), (59_500_000, 60.5)],
)
def test_the_next_look_is_at_a_full_minute(past_us, wait_s):
    """One that would come within a second of a look is left out."""
    assert seconds_to_next(1_767_225_600_000_000 + past_us) == pytest.approx(wait_s)


def test_messages_are_what_was_judged():
    """Deliveries, packets and messages of groups count; what was held or deleted, refused or leased does not."""
    totals = {
        "deliveries": {("bhumi", "ok"): 1, ("bhumi", "gone"): 2},
        "packets": {("strata", "duplicate"): 4},
        "messages": {("bsp", "delivered"): 8, ("bsp", "held"): 16, ("bsp", "deleted"): 32},
        "refusals": {("bsp", "oversize"): 64},
        "leases": {("lprp", "granted"): 128},
    }

    assert messages_judged(totals) == 15


class Minute:
    """A node in an empty home, its sampler, and what happens while it waits."""

    def __init__(self, path, **settings):
        self.home = Home(path)
        self.home.ensure()
        self.rig = Rig()
        self.written = Written(JournalSettings(**settings), self.home, bytes(8))
        self.sampler = Sampler(self.rig.node, self.rig.recorder, self.written, self.home, lambda: 5_000)
        self.looks = 0

    async def pause(self, seconds):
        """Let something happen instead of waiting, and end the second time."""
        assert 1 <= seconds < 61
        self.looks += 1
        if self.looks > 1:
            raise asyncio.CancelledError
        peer = self.rig.connect()
        self.rig.say(peer, b"x" * 3)
        self.rig.recorder.note(facts.DeliveryFinished("bhumi", 1, KEY, Outcome.OK, 1, 0, 1), self.rig.now)
        self.home.store_path.write_bytes(bytes(500))
        self.home.store_path.with_name("store.sqlite-wal").write_bytes(bytes(50))

    def run(self):
        """Watch until the second pause; return the rows of the journal."""

        async def story():
            try:
                await self.sampler.watch(self.pause)
            except asyncio.CancelledError:
                await self.written.close()
                return True
            return False

        self.was_cancelled = asyncio.run(story())
        return [
            row
            for path in sorted(self.home.journal_path.rglob("*.jsonl*"))
            for row in read_rows(path.read_bytes())
            if row["kind"] == "node_sampled"
        ]


def test_a_minute_of_a_node_is_one_row(tmp_path):
    """It tells what was counted since the look before, and the store with what lies beside it."""
    minute = Minute(tmp_path)
    (row,) = minute.run()
    told = {name: int(text) for name, text in row["attrs"].items()}

    assert [told[name] for name in ("connections", "messages", "bytes_in", "store_bytes")] == [1, 1, 3, 5_550]
    assert told["bytes_out"] > 0
    assert told["cpu_us"] >= 0
    assert told["memory_bytes"] > os.sysconf("SC_PAGE_SIZE")
    assert told["journal_bytes"] == 0
    assert minute.was_cancelled


def test_without_a_journal_nobody_looks(tmp_path):
    """There is nowhere to write to."""
    minute = Minute(tmp_path, enabled=False)

    assert minute.run() == []
    assert (minute.looks, minute.was_cancelled) == (0, False)
