"""Laws of sdk.merk.seen_store."""

import asyncio
import os
import random
import shutil
import subprocess
import sys

import pytest

from soak.shims.power_cut import cut_power
from soak.shims.preload import Shims, Word
from tests.sdk.merk.build import ALICE, BOB, RelayServer, client, first
from tests.server.build import eventually
from waystation.protocols.merk.client.seen_messages import Seen
from waystation.protocols.merk.messages import MailTaken, MessageType
from waystation.protocols.merk.wire import decode_info_frame
from waystation.sdk.merk import seen_store
from waystation.sdk.merk.seen_store import SEEN_FILE, STORED_MS, SeenDatabase

A, B = b"a" * 32, b"b" * 32


def synced(folder):
    """Return how many names a power cut leaves: those in the file itself, without its -wal file."""
    (folder / "cut").mkdir(exist_ok=True)
    shutil.copy(folder / SEEN_FILE, folder / "cut")
    store = SeenDatabase(folder / "cut" / SEEN_FILE)
    count = len(store.load()[0])
    store.close()
    return count


class Arrivals(list):
    """Frames that arrive at a relay; of those that say that a message was taken, how many names were synced by then."""

    def __init__(self, folder):
        super().__init__()
        self.said, self._folder = [], folder

    def append(self, frame):
        super().append(frame)
        if frame[2] == MessageType.NODE_INFO and isinstance(decode_info_frame(frame), MailTaken):
            self.said.append(("taken", synced(self._folder)))
        elif frame[2] == MessageType.ENCRYPTED_DATA and frame[24:56] == BOB.signing.public:
            self.said.append(("receipt", synced(self._folder)))


def test_what_is_remembered_is_there_after_a_restart(tmp_path):
    """Names come back by ascending time; the same one twice is one; the file is private."""
    store = SeenDatabase(tmp_path / SEEN_FILE)
    for seen in (Seen(A, b"2" * 16, 20), Seen(B, b"1" * 16, 10), Seen(A, b"2" * 16, 20)):
        store.remember(seen)
    store.close()
    again = SeenDatabase(tmp_path / SEEN_FILE)
    loaded = again.load()
    again.close()

    assert loaded == ([Seen(B, b"1" * 16, 10), Seen(A, b"2" * 16, 20)], {})
    assert (tmp_path / SEEN_FILE).stat().st_mode & 0o777 == 0o600


def test_what_is_forgotten_leaves_its_floor(tmp_path):
    """A floor takes what is as old of its sender, or of nobody; a sender can go wholly, and so can an age."""
    store = SeenDatabase(tmp_path / SEEN_FILE)
    for time_ms in (10, 20, 30):
        for sender in (A, B):
            store.remember(Seen(sender, time_ms.to_bytes(16, "big"), time_ms))
    store.raise_floor(A, 20)
    store.raise_floor(b"", 25)
    raised = store.load()
    store.forget(A)
    store.expire(10)
    left = store.load()
    store.close()

    assert [(each.sender, each.time_ms) for each in raised[0]] == [(B, 10), (B, 20), (A, 30), (B, 30)]
    assert raised[1] == {A: 20, b"": 25}
    assert ([(each.sender, each.time_ms) for each in left[0]], left[1]) == ([(B, 20), (B, 30)], {b"": 25})


def test_a_stored_message_is_waited_for_over_a_restart(tmp_path):
    """Until its receipt, once; another recipient's receipt says nothing, and after 14 days none is waited for."""
    store = SeenDatabase(tmp_path / SEEN_FILE)
    for number, time_ms in ((1, 10), (2, 10 + STORED_MS), (3, 11 + STORED_MS)):
        store.await_read(A, number.to_bytes(16, "big"), time_ms)
    store.close()
    again = SeenDatabase(tmp_path / SEEN_FILE)
    read = [again.was_read(who, number.to_bytes(16, "big")) for who, number in ((A, 1), (B, 2), (A, 2), (A, 2), (A, 3))]
    again.close()

    assert read == [False, False, True, False, True]


def test_stored_messages_that_are_waited_for_are_bounded(tmp_path, monkeypatch):
    """The oldest are given up first."""
    monkeypatch.setattr("waystation.sdk.merk.seen_store.STORED_COUNT_MAX", 3)
    store = SeenDatabase(tmp_path / SEEN_FILE)
    for number in range(6):
        store.await_read(A, number.to_bytes(16, "big"), number)
    read = [number for number in range(6) if store.was_read(A, number.to_bytes(16, "big"))]
    store.close()

    assert read == [3, 4, 5]


@pytest.mark.parametrize(
    ("receipts", "said"), [(True, [("receipt", 1), ("taken", 1)]), (False, [("taken", 1)])], ids=["receipts", "none"]
)
def test_nobody_learns_of_a_message_that_a_power_cut_makes_new(tmp_path, monkeypatch, receipts, said):
    """When the receipt and TAKEN arrive at the relay, the message's name is synced, whenever the next sync is due."""
    monkeypatch.setattr(seen_store, "SYNC_EVERY_S", 60.0)

    async def scenario():
        async with RelayServer() as relay:
            async with client(relay, BOB, mailbox=True) as bob:
                await bob.mailbox.open()
            async with client(relay, ALICE) as alice:
                await alice.send(BOB.signing.public, "hello")
                store = SeenDatabase(tmp_path / SEEN_FILE)
                store.sync()
                relay.frames = Arrivals(tmp_path)
                async with client(relay, BOB, seen=store, receipts=receipts) as bob:
                    await first(bob)
                    await eventually(lambda: len(relay.frames.said) == len(said))
                return sorted(relay.frames.said)

    assert asyncio.run(scenario()) == said


def test_names_are_synced_soon_where_nobody_learns_of_them(tmp_path):
    """One sync is for all that is taken meanwhile."""

    async def scenario():
        store = SeenDatabase(tmp_path / SEEN_FILE)
        store.sync()
        for number in range(3):
            store.remember(Seen(A, number.to_bytes(16, "big"), number))
        before = synced(tmp_path)
        await eventually(lambda: synced(tmp_path) == 3, "a sync")
        store.close()
        return before

    assert asyncio.run(scenario()) == 0


TAKEN = """
import os, pathlib
from waystation.protocols.merk.client.seen_messages import Seen
from waystation.sdk.merk import seen_store
from waystation.sdk.merk.seen_store import SEEN_FILE, SeenDatabase

store = SeenDatabase(pathlib.Path("{home}") / SEEN_FILE)
for number in range(20):
    store.remember(Seen(b"a" * 32, number.to_bytes(16, "big"), number))
    if number in (9, 14):
        store.sync()
if {closes}:
    store.close()
os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("forgotten", "is_cut", "closes", "kept"),
    [(0, True, False, 15), (1, True, False, 0), (0, False, False, 20), (0, True, True, 20)],
)
def test_power_cut_takes_what_was_not_synced(tmp_path, forgotten, is_cut, closes, kept):
    """A killed program loses no name; with the power go those since the last sync, and all where syncs do nothing.

    A client that was closed before loses none.
    """
    home = tmp_path / "home"
    SeenDatabase(home / SEEN_FILE).close()
    with Shims(tmp_path / "shims", home, "io_faults", "power_cut") as shims:
        shims[Word.FSYNC_FORGOTTEN] = forgotten
        environment = {**os.environ, **shims.environment}
        subprocess.run([sys.executable, "-c", TAKEN.format(home=home, closes=closes)], env=environment, check=False)
        if is_cut:
            cut_power(home, shims.synced, random.Random(1), 0.0)
    store = SeenDatabase(home / SEEN_FILE)
    names = [int.from_bytes(each.message_id, "big") for each in store.load()[0]]
    store.close()

    assert names == list(range(kept))
