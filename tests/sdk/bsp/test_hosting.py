"""Laws of sdk.bsp_hosting: a program's device as the mailbox of others."""

import asyncio
import contextlib

import pytest

from tests.sdk.bsp.build import bodies, hurry, key_of, next_event, peer_in, until
from waystation.core.errors import LocalError
from waystation.protocols.bsp.device.orders import Join, queue_order
from waystation.protocols.bsp.mailbox.commands import AnswerStatus
from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.settings import BspSettings
from waystation.sdk.bsp import BspHome, Dropped, GroupLeftOut, OrderRefused, Visibility, hosting
from waystation.sdk.bsp import peer as bsp_peer
from waystation.sdk.bsp.mailbox import MailboxOwner
from waystation.sdk.errors import MailboxRefusedError, MailboxSilentError

KEEPER, ALICE, BOB = 1, 2, 3
"""Alice is the owner."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Nobody waits a second for what takes milliseconds."""
    hurry(monkeypatch)


def mailbox_in(folder, **options):
    """Return a device that keeps groups for Alice."""
    return peer_in(folder / "keeper", KEEPER, **{"owners": [key_of(ALICE)], **options})


@contextlib.asynccontextmanager
async def online(folder, number, url, *groups):
    """Be online as somebody who dials the mailbox."""
    async with peer_in(folder / str(number), number) as peer:
        await peer.meet(key_of(KEEPER), "keeper")
        for group in groups:
            await peer.join(group)
            await peer.share(group, "keeper")
        peer.connect("keeper", url)
        yield peer


@contextlib.asynccontextmanager
async def owner_and_mailbox(folder, **options):
    """Open a mailbox, and Alice with a group that Bob shall get."""
    async with mailbox_in(folder, **options) as mailbox:
        url = await mailbox.listen()
        async with online(folder, ALICE, url) as alice:
            await alice.meet(key_of(BOB), "bob")
            yield mailbox, url, alice, await alice.create_group("talk")


def hosted(mailbox):
    """Return how many groups a mailbox keeps, and bodies in them."""
    sizes = mailbox.status().sizes
    return sizes["hosted"], sizes["hosted_bodies"]


def test_kept_until_the_other_has_it_over_a_restart(tmp_path):
    """What was left is handed to who comes after the mailbox was started anew, and its body goes then."""

    async def scenario():
        async with owner_and_mailbox(tmp_path) as (mailbox, _, alice, group):
            done = await MailboxOwner(alice, "keeper").host("talk", ["bob"])
            await alice.send(group, b"hello")
            await until(lambda: hosted(mailbox) == (1, 1))
        async with mailbox_in(tmp_path) as mailbox:
            again = hosted(mailbox)
            async with online(tmp_path, BOB, await mailbox.listen(), group) as bob:
                await until(lambda: bodies(bob, group) == [b"hello"])
                await until(lambda: hosted(mailbox) == (1, 0))
        return done, again

    assert asyncio.run(scenario()) == (AnswerStatus.DONE, (1, 1))


def test_owners_and_members_need_no_names_in_the_home(tmp_path):
    """They are peers as long as they are owners or members, seen in the status; home and its tables stay empty."""

    async def scenario():
        async with owner_and_mailbox(tmp_path) as (mailbox, _, alice, group):
            owner, seen = MailboxOwner(alice, "keeper"), []
            for work in (owner.host(group, ["bob"]), owner.members(group, (), ["bob"]), owner.drop(group)):
                await work
                seen.append({peer.key for peer in mailbox.status().peers})
            return seen, mailbox.home.groups(), mailbox.home.peers(), mailbox.home.shares()

    seen, *tables = asyncio.run(scenario())

    assert seen == [{key_of(ALICE), key_of(BOB)}, {key_of(ALICE)}, {key_of(ALICE)}]
    assert tables == [[], [], []]


def test_tables_of_the_home_and_what_is_kept_leave_each_other_alone(tmp_path):
    """A change of the tables ends nothing that is kept, and a member who goes stays a peer of the home."""

    async def scenario():
        async with owner_and_mailbox(tmp_path) as (mailbox, _, alice, group):
            owner = MailboxOwner(alice, "keeper")
            await owner.host(group, ["bob"])
            own = await mailbox.create_group("own")
            await mailbox.meet(key_of(BOB), "bob")
            await mailbox.share(own, "bob")
            await alice.send(group, b"hello")
            await until(lambda: hosted(mailbox) == (1, 1))
            await owner.members(group, (), ["bob"])
            left = mailbox.status()
            await owner.members(group, ["bob"])
            await mailbox.part("bob")
            parted = mailbox.status()
            await owner.drop(group)
            dropped = mailbox.status()
        return left, parted, dropped

    left, parted, dropped = asyncio.run(scenario())

    assert [(each.name, each.key) for each in left.peers if each.name] == [("bob", key_of(BOB))]
    assert left.groups[0].audience == {key_of(BOB): Visibility.SHARED}
    assert {each.key for each in parted.peers} == {key_of(ALICE), key_of(BOB)}
    assert parted.groups[0].audience == {}
    assert parted.sizes["hosted"] == 1
    assert {each.key for each in dropped.peers} == {key_of(ALICE)}


def test_kept_group_is_joined_once_it_is_dropped(tmp_path):
    """Until then joining is refused; tables that say so in spite of that are followed later, and told once."""

    async def scenario():
        async with owner_and_mailbox(tmp_path) as (mailbox, _, alice, group):
            owner, news = MailboxOwner(alice, "keeper"), mailbox.news()
            await owner.host(group)
            with pytest.raises(LocalError, match="keeps the group for an owner"):
                await mailbox.join(group)
            beside = BspHome(mailbox.home.path, makes=False)
            beside.commit([queue_order(Join(group.client_id, group.descriptor, group.format, "mine"), 1)])
            refused = await next_event(news, lambda event: isinstance(event, OrderRefused))
            beside.commit([beside.put_group("mine", group)])
            beside.close()
            told = await next_event(news, lambda event: isinstance(event, GroupLeftOut))
            before = mailbox.status().left_out
            await owner.drop(group)
            await until(lambda: not mailbox.status().left_out)
            own = (await mailbox.send(group, b"now it is mine")).message
            with pytest.raises(MailboxRefusedError, match="somebody else"):
                await owner.host(group)
            return refused.reason, told, before, own.order

    reason, told, before, order = asyncio.run(scenario())

    assert "keeps the group" in reason
    assert before == (told,) and told.is_others and told.name == "mine"
    assert order == 1


def test_without_owners_nothing_is_kept_and_nothing_forgotten(tmp_path):
    """A program that names nobody is no mailbox: it hands out nothing, and leaves what is there for the next one."""

    async def scenario():
        async with owner_and_mailbox(tmp_path) as (mailbox, _, alice, group):
            await MailboxOwner(alice, "keeper").host(group, ["bob"])
            await alice.send(group, b"hello")
            await until(lambda: hosted(mailbox) == (1, 1))
        async with mailbox_in(tmp_path, owners=[]) as device:
            between = device.status()
        async with mailbox_in(tmp_path) as mailbox:
            return between, hosted(mailbox)

    between, after = asyncio.run(scenario())

    assert (between.peers, between.sizes["groups"], "hosted" in between.sizes) == ((), 0, False)
    assert after == (1, 1)


def test_only_owners_are_answered(tmp_path):
    """To anybody else a device is no mailbox."""

    async def scenario():
        async with owner_and_mailbox(tmp_path, owners=[key_of(BOB)]) as (mailbox, _, alice, group):
            await mailbox.meet(key_of(ALICE))
            with pytest.raises(MailboxSilentError):
                await MailboxOwner(alice, "keeper", timeout_s=0.3).host(group)
            return hosted(mailbox)

    assert asyncio.run(scenario()) == (0, 0)


def test_body_that_nobody_fetches_goes_in_time(tmp_path):
    """A body is kept as long as its owner said, by the clock of the mailbox, and no longer."""
    wall = [1_000_000_000.0]

    async def scenario():
        async with owner_and_mailbox(tmp_path, clock=lambda: wall[0]) as (mailbox, _, alice, group):
            await MailboxOwner(alice, "keeper").host(group, ["bob"], keep_ms=60_000)
            await alice.send(group, b"hello")
            await until(lambda: hosted(mailbox) == (1, 1))
        wall[0] += 61.0
        async with mailbox_in(tmp_path, clock=lambda: wall[0]) as mailbox:
            await until(lambda: hosted(mailbox) == (1, 0))

    asyncio.run(scenario())


def test_more_than_the_quota_stays_with_its_author(tmp_path, monkeypatch):
    """What is over an owner's quota is refused without an acknowledgement."""
    monkeypatch.setattr(hosting, "SETTINGS", BspSettings(owner_messages_max=3))

    async def scenario():
        async with owner_and_mailbox(tmp_path) as (mailbox, _, alice, group):
            news = mailbox.news()
            await MailboxOwner(alice, "keeper").host(group, ["bob"])
            for number in range(5):
                await alice.send(group, b"%d" % number)
            refused = await next_event(news, lambda event: isinstance(event, Dropped))
            owed = {peer.name: peer.owed_count for peer in alice.status().peers}
            return refused.refusal, hosted(mailbox), owed["keeper"]

    refusal, (_, kept_count), owed_count = asyncio.run(scenario())

    assert refusal is Refusal.QUOTA_FULL
    assert kept_count <= 3
    assert owed_count >= 2


def test_what_is_due_does_not_wait_for_the_next_look_at_the_home(tmp_path, monkeypatch):
    """A body that a command sets free goes as soon as that is carried out."""
    monkeypatch.setattr(bsp_peer, "LOOK_MS", 3_600_000)

    async def scenario():
        async with owner_and_mailbox(tmp_path) as (mailbox, _, alice, group):
            owner = MailboxOwner(alice, "keeper")
            await owner.host(group, ["bob"])
            await alice.send(group, b"hello")
            await until(lambda: hosted(mailbox) == (1, 1))
            await owner.members(group, (), ["bob"])
            await until(lambda: hosted(mailbox) == (1, 0))

    asyncio.run(scenario())


def test_file_for_a_member_whom_the_home_does_not_know(tmp_path):
    """Members get files from the mailbox by their keys."""

    async def scenario():
        async with owner_and_mailbox(tmp_path) as (mailbox, _, alice, group):
            await MailboxOwner(alice, "keeper").host(group, ["bob"])
            await alice.send(group, b"hello")
            await until(lambda: hosted(mailbox) == (1, 1))
            written = await mailbox.export_file(key_of(BOB), tmp_path / "to-bob.bsp")
            with pytest.raises(LocalError):
                await mailbox.export_file(key_of(99), tmp_path / "to-nobody.bsp")
        async with peer_in(tmp_path / str(BOB), BOB) as bob:
            await bob.meet(key_of(KEEPER), "keeper")
            await bob.join(group)
            await bob.share(group, "keeper")
            await bob.import_file(written.path)
            return bodies(bob, group)

    assert asyncio.run(scenario()) == [b"hello"]


def test_nobody_owns_himself(tmp_path):
    """Our own key is no owner."""

    async def scenario():
        async with mailbox_in(tmp_path, owners=[key_of(KEEPER)]):
            pass

    with pytest.raises(LocalError, match="our own key"):
        asyncio.run(scenario())
