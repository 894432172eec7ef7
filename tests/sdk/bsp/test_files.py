"""Laws of bundles in files: written before they count, and read without harm at every length."""

import asyncio
import errno
import os
from pathlib import Path

import pytest

from tests.sdk.bsp.build import acquaint, bodies, devices, next_event
from waystation.core.errors import HostError, LocalError
from waystation.protocols.bsp.bundle import BUNDLE_BYTES_MAX
from waystation.sdk.bsp import MalformedError, PeerUp
from waystation.sdk.bsp import peer as bsp_peer
from waystation.sdk.bsp.files import read_bundle_file, write_bundle_file


def names(folder):
    """Return what stands in a folder."""
    return [path.name for path in folder.iterdir()]


def test_file_holds_what_was_written_and_is_private(tmp_path):
    """A file is there whole under its name, for its owner only, and nothing else is left in the folder."""
    path = tmp_path / "to-bob.bsp"
    write_bundle_file(path, b"sealed")

    assert read_bundle_file(path) == b"sealed"
    assert path.stat().st_mode & 0o777 == 0o600
    assert names(tmp_path) == ["to-bob.bsp"]


def test_file_of_the_name_stays_unless_it_may_be_replaced(tmp_path):
    """A file is not overwritten by accident."""
    path = tmp_path / "to-bob.bsp"
    write_bundle_file(path, b"first")
    with pytest.raises(LocalError, match="there already"):
        write_bundle_file(path, b"second")
    kept = read_bundle_file(path)
    write_bundle_file(path, b"third", replace=True)

    assert kept == b"first"
    assert read_bundle_file(path) == b"third"
    assert names(tmp_path) == ["to-bob.bsp"]


def test_disk_without_links_is_written_all_the_same(tmp_path, monkeypatch):
    """A stick whose file system knows no links takes the file, and still overwrites none."""

    def link(source, target):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", link)
    path = tmp_path / "to-bob.bsp"
    write_bundle_file(path, b"first")

    with pytest.raises(LocalError, match="there already"):
        write_bundle_file(path, b"second")
    assert read_bundle_file(path) == b"first"


def test_file_that_could_not_be_synced_is_not_there(tmp_path, monkeypatch):
    """A disk that refuses leaves nothing under the name."""

    def fsync(descriptor):
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "fsync", fsync)

    with pytest.raises(HostError, match="no space"):
        write_bundle_file(tmp_path / "to-bob.bsp", b"sealed")
    assert names(tmp_path) == []


def test_missing_file_and_folder_are_told(tmp_path):
    """What cannot be read or written is said with its name."""
    with pytest.raises(HostError, match=r"cannot read .*gone"):
        read_bundle_file(tmp_path / "gone")
    with pytest.raises(HostError, match=r"cannot write .*gone"):
        write_bundle_file(tmp_path / "gone" / "file", b"")


def test_no_more_is_read_than_shows_that_it_is_too_large(tmp_path):
    """Of a huge file just enough is read to refuse it."""
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.truncate(100 * BUNDLE_BYTES_MAX)

    assert len(read_bundle_file(path)) == BUNDLE_BYTES_MAX + 1


@pytest.mark.parametrize("name", ["", "inner"])
def test_folder_is_no_file_to_write(tmp_path, monkeypatch, name):
    """Whoever names a folder is told, also by a dot."""
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path)

    with pytest.raises(LocalError, match="is a folder"):
        write_bundle_file(Path(name), b"x", replace=True)


def test_file_cut_at_any_length_is_refused_and_the_whole_one_is_read(tmp_path):
    """Each beginning of a file is refused; nothing of it sticks, so that the whole one brings everything."""

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            await alice.send(group, b"hello")
            out = await alice.export_file(bob.key, tmp_path / "out")
            data, cut, refused = out.path.read_bytes(), tmp_path / "cut", 0
            for size in range(len(data)):
                cut.write_bytes(data[:size])
                with pytest.raises(MalformedError):
                    await bob.import_file(cut)
                refused += 1
            read = await bob.import_file(out.path)
            return refused == len(data), read.new_count, bodies(bob, group)

    assert asyncio.run(main()) == (True, 1, [b"hello"])


def test_three_devices_that_never_meet_come_to_hold_the_same_by_files(tmp_path):
    """Files from hand to hand make the sets equal, each message delivered once, and then there is nothing to carry."""

    async def main():
        async with devices(tmp_path, 3) as peers:
            alice, bob, carol = peers
            group = await alice.create_group("talk")
            for one, other in ((alice, bob), (bob, carol)):
                await acquaint(one, other, group)
            for number, peer in enumerate(peers):
                await peer.send(group, b"from %d" % number)
            ways = [(alice, bob), (bob, carol), (carol, bob), (bob, alice), (alice, bob), (bob, carol)]
            for number, (sender, reader) in enumerate(ways):
                out = await sender.export_file(reader.key, tmp_path / f"file{number}")
                if out.path is not None:
                    await reader.import_file(out.path)
            left = [(await one.export_file(other.key, tmp_path / "left")).path for one, other in ways]
            return [sorted(bodies(peer, group)) for peer in peers], left

    sets, left = asyncio.run(main())

    assert sets == [[b"from 0", b"from 1", b"from 2"]] * 3
    assert left == [None] * 6


def test_message_that_arrives_while_a_file_is_written_goes_into_the_next(tmp_path, monkeypatch):
    """What is added behind the choice is neither lost nor marked as sent."""
    write = bsp_peer.write_bundle_file

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            await alice.send(group, b"first")
            loop, added = asyncio.get_running_loop(), []

            def write_slowly(path, data, *, replace):
                added.append(asyncio.run_coroutine_threadsafe(alice.send(group, b"second"), loop).result(5))
                write(path, data, replace=replace)

            monkeypatch.setattr(bsp_peer, "write_bundle_file", write_slowly)
            first = await alice.export_file(bob.key, tmp_path / "first")
            monkeypatch.undo()
            second = await alice.export_file(bob.key, tmp_path / "second")
            for out in (second, first):
                await bob.import_file(out.path)
            return first.messages_count, second.messages_count, first.complete, bodies(bob, group)

    first, second, complete, bobs = asyncio.run(main())

    assert (first, second, complete) == (1, 1, False)
    assert sorted(bobs) == [b"first", b"second"]


def test_file_beside_a_connection_is_complete(tmp_path):
    """What a file holds goes out over a connection that stands as well, and no further file is asked for."""

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            news = alice.news()
            bob.connect(alice.key, await alice.listen())
            await next_event(news, lambda event: isinstance(event, PeerUp))
            adding = asyncio.ensure_future(alice.send(group, b"hello"))
            await asyncio.sleep(0)
            out = await alice.export_file(bob.key, tmp_path / "out", again=True)
            await adding
            return out.complete

    assert asyncio.run(main())
