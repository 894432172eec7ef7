"""Laws of files that are carried: written before they count, and read without harm at every length."""

import asyncio

import pytest

from tests.sdk.bsp_build import acquaint, bodies, devices, next_event
from waystation.sdk import bsp_courier
from waystation.sdk.bsp import MalformedError, PeerUp


def test_file_cut_at_any_length_is_refused_and_the_whole_one_is_read(tmp_path):
    """Each beginning of a file is refused; nothing of it sticks, so that the whole one brings everything."""

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            await alice.add(group, b"hello")
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
                await peer.add(group, b"from %d" % number)
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
    write = bsp_courier.write_bundle_file

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            await alice.add(group, b"first")
            loop, added = asyncio.get_running_loop(), []

            def write_slowly(path, data, *, replace):
                added.append(asyncio.run_coroutine_threadsafe(alice.add(group, b"second"), loop).result(5))
                write(path, data, replace=replace)

            monkeypatch.setattr(bsp_courier, "write_bundle_file", write_slowly)
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
            adding = asyncio.ensure_future(alice.add(group, b"hello"))
            await asyncio.sleep(0)
            out = await alice.export_file(bob.key, tmp_path / "out", again=True)
            await adding
            return out.complete

    assert asyncio.run(main())
