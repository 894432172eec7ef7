"""Laws of a BSP device as a program sees it: real sockets, real stores, real files."""

import asyncio
import random

import pytest

from tests.sdk.bsp.build import (
    acquaint,
    bodies,
    chained,
    delivered,
    devices,
    hurry,
    next_event,
    peer_in,
)
from waystation.core.errors import HostError, LocalError
from waystation.core.ids import encode_id52
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.device.orders import AddMessage, DeleteMessage, queue_order
from waystation.sdk.bsp import (
    BspHome,
    BspPeer,
    MalformedError,
    OrderRefused,
    PeerDown,
    PeerUnreachable,
    PeerUp,
    Refusal,
    State,
    StoreFailed,
    Visibility,
)
from waystation.sdk.errors import HomeBusyError

OTHER = KeyPair.from_seed(bytes([7]) * 32).public


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Nobody waits a second for what takes milliseconds."""
    hurry(monkeypatch)


def test_messages_go_both_ways_over_tls_and_each_is_delivered_once(tmp_path):
    """Two devices that share a group hold the same messages, told once, and each knows that the other holds them."""

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            alices, bobs = alice.news(), bob.news()
            bob.connect(alice.key, await alice.listen())
            mine, theirs = await alice.send(group, b"from alice"), await bob.send(group, b"from bob")
            heard = [await delivered(alices, 2), await delivered(bobs, 2)]
            await mine.settled()
            return (
                {mine.message.message_id, theirs.message.message_id},
                heard,
                bodies(alice, group),
                bodies(bob, group),
                bob.status(),
            )

    ids, heard, alices, bobs, status = asyncio.run(main())

    assert [set(each) for each in heard] == [ids, ids]
    assert sorted(alices) == sorted(bobs) == [b"from alice", b"from bob"]
    assert [peer.link for peer in status.peers] == ["tls"]


def test_name_of_a_group_is_given_once(tmp_path):
    """A program that makes its group at each start is told which group it has, and gets no second one of the name."""

    async def main():
        async with devices(tmp_path, 1) as (alice,):
            group = await alice.create_group("talk")
            with pytest.raises(LocalError, match="there is a group 'talk' already"):
                await alice.create_group("talk")
            await alice.create_group()
            await alice.create_group()
            return alice.group("talk") == group, len(alice.home.groups())

    assert asyncio.run(main()) == (True, 3)


def test_what_was_added_is_there_after_a_restart_and_goes_out_then(tmp_path):
    """A message that nobody could be told of waits on disk, and reaches the peer in a later life."""

    async def first():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk", format="deps_v1")
            await acquaint(alice, bob, group)
            root = (await alice.send(group, chained(b"root"))).message
            await alice.send(group, chained(b"leaf", root.message_id))
            return group

    async def second(group):
        async with peer_in(tmp_path / "1") as alice, peer_in(tmp_path / "2") as bob:
            news = bob.news()
            bob.connect(alice.key, await alice.listen())
            await delivered(news, 2)
            return [message.order for message in alice.history(group)], bodies(bob, group)

    group = asyncio.run(first())
    orders, bobs = asyncio.run(second(group))

    assert orders == [1, 2]
    assert [body[-4:] for body in bobs] == [b"root", b"leaf"]


def test_messages_after_an_order_are_what_a_program_goes_on_from(tmp_path):
    """``after`` leaves out what was seen; ``every`` adds what waits; a deleted body stays deleted."""

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk", format="deps_v1")
            await acquaint(alice, bob, group)
            hidden = (await alice.send(group, chained(b"hidden"), share=True)).message
            added = [(await alice.send(group, chained(b"%d" % number))).message for number in range(3)]
            await alice.delete(group, added[1].message_id)
            with pytest.raises(LocalError, match="depends on"):
                await alice.send(group, chained(b"orphan", bytes(32)))
            with pytest.raises(LocalError, match="no message"):
                alice.message(group, bytes(32))
            return alice.history(group, after=hidden.order), alice.history(group, every=True)

    after, every = asyncio.run(main())

    assert [message.body and message.body[-1:] for message in after] == [b"0", None, b"2"]
    assert [message.order for message in every] == [1, 2, 3, 4]
    assert all(message.state is State.DELIVERED and message.shared for message in every)


def test_files_bring_everything_and_acknowledgements_back(tmp_path):
    """Two devices that never meet come to hold the same by files, and a file read twice changes nothing."""

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            for number in range(5):
                await alice.send(group, b"%d" % number)
            out = await alice.export_file(bob.key, tmp_path / "out.bsp")
            nothing = await alice.export_file(bob.key, tmp_path / "nothing.bsp")
            first, second = [await bob.import_file(out.path) for _ in range(2)]
            back = await bob.export_file(alice.key, tmp_path / "back.bsp")
            acked = await alice.import_file(back.path)
            return out, nothing, first, second, acked, bodies(bob, group), alice.status().peers[0].owed_count

    out, nothing, first, second, acked, bobs, owed = asyncio.run(main())

    assert (out.messages_count, out.complete, nothing.path) == (5, True, None)
    assert (first.messages_count, first.new_count, first.refused_count) == (5, 5, 0)
    assert (second.new_count, second.refused_count) == (0, 0)
    assert (acked.acks_count, acked.messages_count, owed) == (5, 0, 0)
    assert bobs == [b"0", b"1", b"2", b"3", b"4"]
    assert not (tmp_path / "nothing.bsp").exists()


def test_large_export_is_cut_and_a_lost_file_is_written_again(tmp_path):
    """A file keeps its bound and says that there is more; ``again`` puts in what an earlier file had."""

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            for number in range(4):
                await alice.send(group, bytes([number]) * 30_000)
            files = [await alice.export_file(bob.key, tmp_path / f"out{n}", bytes_max=65_536) for n in range(3)]
            again = await alice.export_file(bob.key, tmp_path / "again", again=True)
            with pytest.raises(LocalError, match="there already"):
                await alice.export_file(bob.key, tmp_path / "again", again=True)
            return files, again, await bob.import_file(again.path)

    files, again, read = asyncio.run(main())

    assert [(file.messages_count, file.complete, file.size_bytes <= 65_536) for file in files] == [
        (2, False, True),
        (2, True, True),
        (0, True, True),
    ]
    assert (again.messages_count, read.new_count) == (4, 4)
    assert files[0].number < files[1].number < again.number


def test_failed_export_sends_nothing(tmp_path):
    """What could not be written does not count as sent."""

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            await alice.send(group, b"hello")
            with pytest.raises(HostError, match="cannot write"):
                await alice.export_file(bob.key, tmp_path / "no folder" / "out.bsp")
            return await alice.export_file(bob.key, tmp_path / "out.bsp")

    assert asyncio.run(main()).messages_count == 1


@pytest.mark.parametrize(
    ("harm", "refusal"),
    [
        (lambda data: data[:-1], Refusal.FILE_SIGNATURE),
        (lambda data: data[:100], Refusal.FILE_FORM),
        (lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:], Refusal.FILE_SIGNATURE),
        (lambda data: b"junk", Refusal.FILE_FORM),
        (lambda data: data + bytes(5_000_000), Refusal.FILE_TOO_LARGE),
    ],
)
def test_damaged_file_is_refused_and_changes_nothing(tmp_path, harm, refusal):
    """A file that is not what its sender signed says why it is refused, and nothing of it is taken."""

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            await alice.send(group, bytes(300))
            out = await alice.export_file(bob.key, tmp_path / "out.bsp")
            (tmp_path / "harmed.bsp").write_bytes(harm(out.path.read_bytes()))
            with pytest.raises(MalformedError) as refused:
                await bob.import_file(tmp_path / "harmed.bsp")
            return refused.value.refusal, bodies(bob, group)

    assert asyncio.run(main()) == (refusal, [])


def test_file_of_a_stranger_or_for_another_is_refused(tmp_path):
    """Only files of known peers that are made out to us are read."""

    async def main():
        async with devices(tmp_path, 3) as (alice, bob, carol):
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            await alice.send(group, b"hello")
            out = await alice.export_file(bob.key, tmp_path / "out.bsp")
            with pytest.raises(MalformedError) as foreign:
                await carol.import_file(out.path)
            await bob.part(alice.key)
            with pytest.raises(MalformedError) as stranger:
                await bob.import_file(out.path)
            return foreign.value.refusal, stranger.value.refusal

    assert asyncio.run(main()) == (Refusal.FILE_NOT_FOR_US, Refusal.FILE_SENDER)


def test_unshared_group_stays_unheard(tmp_path):
    """A member that the group is not shared with is told nothing, and nothing of it is taken."""

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            await bob.share(group, alice.key, Visibility.INVISIBLE)
            await alice.send(group, b"hello")
            out = await alice.export_file(bob.key, tmp_path / "out.bsp")
            read = await bob.import_file(out.path)
            back = await bob.export_file(alice.key, tmp_path / "back.bsp")
            return read, back.path

    read, back = asyncio.run(main())

    assert (read.messages_count, read.new_count, read.refused_count) == (1, 0, 1)
    assert back is None


def test_stranger_is_turned_away_and_told_once_it_is_known(tmp_path):
    """Who is not in the table of peers gets no connection; once it is, its next attempt succeeds."""

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            await bob.meet(alice.key)
            news = bob.news()
            bob.connect(alice.key, await alice.listen())
            down = await next_event(news, lambda event: isinstance(event, PeerDown))
            await alice.meet(bob.key)
            up = await next_event(news, lambda event: isinstance(event, PeerUp))
            return down.reason, up.kind

    assert asyncio.run(main()) == (Refusal.REFUSED_BY_PEER.value, "tls")


def test_wrong_key_is_noticed(tmp_path):
    """Whoever answers under another key than the one that was dialled is not spoken to."""

    async def main():
        async with devices(tmp_path, 3) as (alice, bob, mallory):
            await bob.meet(alice.key)
            await mallory.meet(bob.key)
            news = bob.news()
            place = (await mallory.listen()).partition("@")[2]
            bob.connect(alice.key, f"bsp+tls://{place}")
            down = await next_event(news, lambda event: isinstance(event, PeerDown))
            with pytest.raises(LocalError, match="another key"):
                bob.connect(alice.key, f"bsp+tls://{mallory.key.hex()}@{place}")
            return down.reason

    assert asyncio.run(main()) == Refusal.WRONG_PEER.value


def test_unreachable_peer_is_told_and_tried_again(tmp_path):
    """A dial that fails is told with its reason, and the peer is reached once it listens."""

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            await acquaint(alice, bob, await alice.create_group())
            place = await alice.listen()
            port = int(place.rpartition(":")[2])
            await alice.aclose()
            news = bob.news()
            bob.connect(alice.key, place)
            trouble = await next_event(news, lambda event: isinstance(event, PeerUnreachable))
            async with peer_in(tmp_path / "1") as again:
                await again.listen(port=port)
                up = await next_event(news, lambda event: isinstance(event, PeerUp))
            return trouble.reason, up.key == trouble.peer

    reason, came = asyncio.run(main())

    assert "nobody listens" in reason
    assert came


def test_home_has_one_program_at_a_time(tmp_path):
    """A second program is told that the home is in use."""

    async def main():
        async with peer_in(tmp_path / "1"):
            with pytest.raises(HomeBusyError, match="another program works with"):
                async with peer_in(tmp_path / "1"):
                    pass

    asyncio.run(main())


def test_orders_and_tables_of_other_programs_are_followed(tmp_path):
    """A running device does what another program has written into its home, and tells what it cannot do."""

    async def main():
        async with peer_in(tmp_path / "1") as alice:
            group, news = await alice.create_group("talk"), alice.news()
            beside = BspHome(tmp_path / "1", makes=False)
            other = beside.profile.group(bytes(32), b"", "opaque")
            beside.commit(
                [
                    queue_order(AddMessage(group.group_id, 5, b"left beside"), 1),
                    queue_order(DeleteMessage(group.group_id, bytes(32)), 2),
                    beside.put_group("second", other),
                    beside.put_peer("bob", OTHER),
                    beside.put_share(other.group_id, OTHER, Visibility.SHARED),
                ]
            )
            beside.close()
            refused = await next_event(news, lambda event: isinstance(event, OrderRefused))
            (message_id,) = await delivered(news, 1)
            return alice.message(group, message_id), refused.reason, alice.status()

    message, reason, status = asyncio.run(main())

    assert (message.timestamp, message.body) == (5, b"left beside")
    assert "no message" in reason
    assert {entry.name: list(entry.audience) for entry in status.groups} == {"talk": [], "second": [OTHER]}


def test_group_of_an_unknown_format_is_refused(tmp_path):
    """A group whose messages nobody can read is not joined."""

    async def main():
        async with peer_in(tmp_path / "1") as alice:
            with pytest.raises(LocalError, match="no format 'chess'"):
                await alice.create_group(format="chess")

    asyncio.run(main())


def test_leaving_and_parting_forget(tmp_path):
    """After leaving a group nothing of it is there, and a peer that is parted with is unknown."""

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            await alice.send(group, b"hello")
            await alice.part(bob.key)
            parted = alice.status()
            await alice.leave("talk")
            await alice.join(group)
            with pytest.raises(LocalError, match="no peer"):
                await alice.share(group, encode_id52(bob.key))
            return parted, alice.history(group)

    parted, messages = asyncio.run(main())

    assert (parted.peers, parted.groups[0].audience, messages) == ((), {}, [])


def test_why_names_the_peer_that_lacks_a_message(tmp_path):
    """``why`` says where a message stands here and with each peer."""

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            message = (await alice.send(group, b"hello")).message
            return alice.why("talk", message.message_id), alice.why(group, bytes(32)), bob.key

    known, unknown, bob = asyncio.run(main())

    assert known.reason.startswith("it is delivered (number 1) and shared")
    assert [(each.peer, "no link to the peer is up" in each.reason) for each in known.peers] == [(bob, True)]
    assert "no peer has offered" in unknown.reason


def test_full_disk_is_told_and_ends_nothing(tmp_path, monkeypatch):
    """BSP-REFUSED: whoever adds and whoever listens is told, and what is confirmed later was kept."""

    async def main():
        async with peer_in(tmp_path / "1") as alice:
            group, news = await alice.create_group("talk"), alice.news()

            def commit(changes):
                raise HostError("the disk is full", exit_code=5)

            monkeypatch.setattr(alice.home.store, "commit", commit)
            with pytest.raises(HostError, match=r"not on disk yet; .*disk is full"):
                await alice.send(group, b"late")
            with pytest.raises(HostError, match="nothing was kept: the disk is full"):
                await alice.send(group, b"never")
            told = (await next_event(news, lambda event: isinstance(event, StoreFailed))).reason
            monkeypatch.undo()
            await delivered(news, 1)
            return told, bodies(alice, group)

    assert asyncio.run(main()) == ("the disk is full", [b"late"])


def test_program_without_addresses_of_its_own_dials_nobody(tmp_path):
    """``dials=False`` leaves the addresses of the home alone."""

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            url = await alice.listen()
            await alice.meet(bob.key)
            await bob.meet(alice.key, url=url)
            await bob.aclose()
            async with peer_in(tmp_path / "2", dials=False) as quiet:
                silent = quiet.status().peers[0].link
            async with peer_in(tmp_path / "2") as dialling:
                news = dialling.news()
                up = await next_event(news, lambda event: isinstance(event, PeerUp))
            return silent, up.kind

    assert asyncio.run(main()) == (None, "tls")


def test_hundreds_arrive_in_order_over_one_connection(tmp_path):
    """A long chain arrives whole, each message behind the one that it depends on."""

    async def main():
        async with devices(tmp_path, 2) as (alice, bob):
            group = await alice.create_group("talk", format="deps_v1")
            await acquaint(alice, bob, group)
            last = ()
            rng = random.Random(3)
            for number in range(200):
                message = (await alice.send(group, chained(rng.randbytes(8), *last), timestamp=1_000 - number)).message
                last = (message.message_id,)
            news = bob.news()
            bob.connect(alice.key, await alice.listen())
            await delivered(news, 200)
            return [m.message_id for m in alice.history(group)], [m.message_id for m in bob.history(group)]

    alices, bobs = asyncio.run(main())

    assert alices == bobs


def test_peer_is_made_of_a_home_that_stays_open(tmp_path):
    """A home that was handed over open is still open behind the peer."""
    home = BspHome(tmp_path / "1", rng=random.Random(1))

    async def main():
        async with BspPeer(home) as alice:
            await alice.create_group("talk")

    asyncio.run(main())

    assert [entry.name for entry in home.groups()] == ["talk"]
    home.close()
