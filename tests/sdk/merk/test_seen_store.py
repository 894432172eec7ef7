"""Laws of sdk.merk.seen_store."""

from waystation.protocols.merk.client.seen_messages import Seen
from waystation.sdk.merk.seen_store import SEEN_FILE, STORED_MS, SeenDatabase

A, B = b"a" * 32, b"b" * 32


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
