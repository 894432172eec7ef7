"""Laws of how bundles are heard: counted rightly, and on disk when it is said."""

import asyncio

from tests.sdk.bsp.build import acquaint, bodies, chained, devices
from waystation.sdk.bsp import Group, State
from waystation.sdk.bsp import bundles as bsp_bundles


def test_large_bundle_is_heard_in_turns_and_counted_whole(tmp_path, monkeypatch):
    """A bundle of many records lets others run in between, and what it brought is counted over all turns."""
    monkeypatch.setattr(bsp_bundles, "_RECORDS_PER_TURN", 3)

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            for number in range(10):
                await alice.send(group, b"%d" % number)
            out = await alice.export_file(bob.key, tmp_path / "out")
            read = await bob.import_file(out.path)
            return read.messages_count, read.new_count, len(bodies(bob, group))

    assert asyncio.run(main()) == (10, 10, 10)


def test_message_whose_dependency_is_missing_is_taken_and_waits(tmp_path):
    """A child that comes first is stored and acknowledged; it is delivered behind its parent."""

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk", format="deps_v1")
            await acquaint(alice, bob, group)
            root = (await alice.send(group, chained(b"root"), timestamp=2)).message
            first = await alice.export_file(bob.key, tmp_path / "first")
            await alice.send(group, chained(b"leaf", root.message_id), timestamp=1)
            second = await alice.export_file(bob.key, tmp_path / "second")
            child = await bob.import_file(second.path)
            before = [message.state for message in bob.history(group, every=True)]
            await bob.import_file(first.path)
            return child.new_count, child.refused_count, before, [body[-4:] for body in bodies(bob, group)]

    assert asyncio.run(main()) == (1, 0, [State.PENDING], [b"root", b"leaf"])


def test_records_of_an_unknown_group_are_counted_as_refused(tmp_path):
    """A message of a group that we are no member of is not taken, and counted so."""

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            group: Group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            await bob.leave(group)
            await alice.send(group, b"hello")
            out = await alice.export_file(bob.key, tmp_path / "out")
            read = await bob.import_file(out.path)
            return read.messages_count, read.new_count, read.refused_count

    assert asyncio.run(main()) == (1, 0, 1)
