"""Laws of server.status.disk: the space that is left, and a sentence before it ends."""

import pytest

from waystation.core.errors import HostError
from waystation.server.home import Home
from waystation.server.status.disk import FREE_BYTES_LEAST, disk_trouble, disk_view, free_bytes, store_bytes


def test_disk_shows_what_the_node_takes(tmp_path):
    """What protocols keep counts with the files of the store; sealed segments are known by their writers."""
    home = Home(tmp_path)
    home.store_path.write_bytes(b"x" * 10)
    home.store_path.with_name("store.sqlite-wal").write_bytes(b"x" * 5)
    shown = disk_view(home, {"journal": 7}, 100)

    assert (shown["store_bytes"], shown["journal_bytes"], shown["archive_bytes"]) == (115, 7, 0)
    assert 0 < shown["free_bytes"] <= shown["size_bytes"]


def test_full_disk_is_said_in_words():
    """The sentence names the space, how much is enough, how much the node took, and the settings for that."""
    took = {"store_bytes": 3 << 20, "journal_bytes": 191 << 10, "archive_bytes": 0}
    (sentence,) = disk_trouble({"free_bytes": FREE_BYTES_LEAST - 1, **took}, ["journal.retention_mib", "strata.x_mib"])
    (young,) = disk_trouble({"free_bytes": 0, **dict.fromkeys(took, None)}, ["journal.retention_mib"])

    assert sentence == (
        "only 255 MiB are free on the disk of the home, less than 256 MiB; make room (the node has 3 MiB of it), "
        "or lower journal.retention_mib, strata.x_mib"
    )
    assert "the node has less than 1 MiB of it" in young
    assert disk_trouble({"free_bytes": FREE_BYTES_LEAST}) == []


def test_file_system_that_does_not_answer_is_trouble(tmp_path):
    """A home that is gone has no space, and the status still comes."""
    gone = Home(tmp_path / "gone")
    with pytest.raises(HostError, match="cannot ask the file system"):
        free_bytes(gone.path)

    there = {"free_bytes": None, "home_is_there": True}
    assert disk_trouble(there) == ["the file system of the home does not answer; look at the kernel's log"]


def test_home_that_was_moved_is_not_at_its_path(tmp_path):
    """Nothing is wrong with the file system, and what is beside the store is not shown as its size."""
    shown = disk_view(Home(tmp_path / "gone"), {}, 139)

    assert shown["store_bytes"] is None
    (sentence,) = disk_trouble(shown)
    assert sentence.startswith(f"the home is not at its path {tmp_path / 'gone'}: ") and "put it back" in sentence


def test_file_that_cannot_be_asked_hides_one_number_alone(tmp_path):
    """A store that is a link to itself has no size, and the rest of the status still comes."""
    home = Home(tmp_path)
    home.store_path.symlink_to(home.store_path)
    with pytest.raises(OSError, match="symbolic links"):
        store_bytes(home)
    shown = disk_view(home, {"journal": 7}, 100)

    assert (shown["store_bytes"], shown["journal_bytes"]) == (None, 7)
    assert shown["free_bytes"] > 0
