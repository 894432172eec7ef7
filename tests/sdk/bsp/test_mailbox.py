"""Laws of sdk.bsp_mailbox, with a whole node as the mailbox."""

import asyncio
import contextlib
import time

import pytest

from tests.sdk.bsp.build import bodies, chained, key_of, next_event, peer_in
from tests.server.build import NodeProcess
from waystation.core.errors import LocalError
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.mailbox.commands import AnswerStatus
from waystation.sdk.bsp import Delivered, PeerHolds, Visibility
from waystation.sdk.bsp.mailbox import MailboxOwner
from waystation.sdk.errors import MailboxRefusedError, MailboxSilentError

OFF = {f"{name}__enabled": "false" for name in ("bhumi", "lprp", "merk", "strata")}
NOBODY = KeyPair.from_seed(b"n" * 32).public


ALICE, BOB, CAROL = 101, 102, 103
"""Alice and Carol are owners."""


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """One node for the module."""
    owners = ",".join(key_of(number).hex() for number in (ALICE, CAROL))
    running = NodeProcess(
        tmp_path_factory.mktemp("mailbox") / "home", bsp__tls="127.0.0.1:0", bsp__owners=owners, **OFF
    ).start()
    yield running
    assert running.stop() == 0


def node_key(node):
    """Return the node's key."""
    return bytes.fromhex(node.ready["node"]["public_key"])


def url_of(node):
    """Return where peers dial the node."""
    return f"bsp+{node.url('bsp')}"


@contextlib.asynccontextmanager
async def online(folder, number, node, *groups):
    """Be online as somebody for a while, dialling the node."""
    async with peer_in(folder / str(number), number) as peer:
        await peer.meet(node_key(node), "node", url=url_of(node))
        for group in groups:
            await peer.join(group)
            await peer.share(group, "node")
        yield peer


async def all_said(peer, group):
    """Wait until the node holds everything of a group that is ours to give."""
    news = peer.news()
    while any(each.owed_count for each in peer.status().peers):
        await next_event(news, lambda event: isinstance(event, PeerHolds))
    await news.aclose()


async def until_bodies(peer, group, count):
    """Wait until so many messages of a group are here."""
    news = peer.news()
    while len(bodies(peer, group)) < count:
        await next_event(news, lambda event: isinstance(event, Delivered))
    await news.aclose()


def test_two_who_are_never_online_together(tmp_path, node):
    """Through the mailbox each gets what the other said, in causal order, and nothing of it stays there."""

    async def scenario():
        last = ()
        async with online(tmp_path, ALICE, node) as alice:
            group = await alice.create_group("talk", format="deps_v1")
            await alice.meet(key_of(BOB), "bob")
            done = await MailboxOwner(alice, "node").host("talk", ["bob"])
        for turn in range(3):
            for number in (ALICE, BOB):
                async with online(tmp_path, number, node, group) as peer:
                    await until_bodies(peer, group, 2 * turn + (number == BOB))
                    said = (await peer.send(group, chained(b"%d %d" % (turn, number), *last))).message
                    last = (said.message_id,)
                    await all_said(peer, group)
        async with online(tmp_path, ALICE, node, group) as alice:
            await until_bodies(alice, group, 6)
            owner = MailboxOwner(alice, node_key(node))
            state = await owner.status()
            while state.groups[0].live_messages:
                state = await owner.status()
            alices = bodies(alice, group)
            await owner.drop(group)
            left = await owner.status()
        async with peer_in(tmp_path / str(BOB), BOB) as bob:
            bobs = bodies(bob, group)
        return done, alices, bobs, state, left

    done, alices, bobs, state, left = asyncio.run(scenario())

    assert done is AnswerStatus.DONE
    assert len(alices) == 6 and alices == bobs
    assert (state.groups[0].members, state.groups[0].live_bytes, state.groups[0].tombstones) == (2, 0, 6)
    assert (left.uses.groups, left.groups) == (0, ())


def test_what_the_mailbox_refuses_is_told(tmp_path, node):
    """Each refusal has a sentence; a group that is another's is taken, or served to us as well."""

    async def scenario():
        refused = []
        async with (
            online(tmp_path, ALICE, node) as alice,
            online(tmp_path, CAROL, node) as carol,
        ):
            group = await alice.create_group("talk")
            await carol.join(group, "talk")
            await alice.meet(key_of(CAROL), "carol")
            alices, carols = MailboxOwner(alice, "node"), MailboxOwner(carol, "node")
            for work in (alices.drop("talk"), alices.members("talk", ["carol"])):
                with pytest.raises(MailboxRefusedError, match="no such group") as caught:
                    await work
                refused.append(caught.value.status)
            await alices.host("talk", keep_ms=60_000)
            with pytest.raises(MailboxRefusedError, match="somebody else") as caught:
                await carols.host("talk")
            refused.append(caught.value.status)
            await alices.members("talk", ["carol"])
            served = await carols.host("talk")
            state = await alices.status()
            await alices.members("talk", (), ["carol"])
            await alices.drop("talk")
            shared = alice.status().groups
        return refused, served, state, [each.audience for each in shared if each.name == "talk"]

    refused, served, state, shared = asyncio.run(scenario())

    assert refused == [AnswerStatus.NOT_HOSTED, AnswerStatus.NOT_HOSTED, AnswerStatus.TAKEN]
    assert served is AnswerStatus.SERVED
    assert [(row.members, row.keep_ms) for row in state.groups] == [(2, 60_000)]
    assert shared == [{}]


def test_hosted_group_is_shared_with_the_mailbox(tmp_path, node):
    """Host does both, so that messages flow."""

    async def scenario():
        async with online(tmp_path, ALICE, node) as alice:
            await alice.create_group("talk")
            await MailboxOwner(alice, "node").host("talk")
            found = next(each.audience for each in alice.status().groups if each.name == "talk")
            names = [each.name for each in alice.status().groups]
            await MailboxOwner(alice, "node").drop("talk")
            return found, names

    found, names = asyncio.run(scenario())

    assert found == {node_key(node): Visibility.SHARED}
    assert sorted(names) == ["mailbox node", "talk"]


def test_silence_ends_and_the_command_is_kept(tmp_path, node):
    """Without a way to the mailbox the command waits; once there is one, it is carried out, and so are later ones."""

    async def scenario():
        async with peer_in(tmp_path / "a", ALICE) as alice:
            await alice.meet(node_key(node), "node")
            group = await alice.create_group("talk")
            owner = MailboxOwner(alice, "node", timeout_s=0.05)
            with pytest.raises(MailboxSilentError, match=r"0\.05 s; the command is kept.*'mailbox node'"):
                await owner.host("talk")
            alice.connect("node", url_of(node))
            later = MailboxOwner(alice, "node")
            state = await later.status()
            await later.drop("talk")
            return group.group_id, [row.group_id for row in state.groups]

    group_id, hosted = asyncio.run(scenario())

    assert hosted == [group_id]


def test_question_that_nobody_answers_is_withdrawn(tmp_path):
    """Who asks a node that is not its mailbox owes it nothing afterwards, so that exchanges with it come to an end."""

    async def scenario():
        async with peer_in(tmp_path, ALICE) as alice:
            await alice.meet(NOBODY, "node")
            with pytest.raises(MailboxSilentError, match="the question is withdrawn"):
                await MailboxOwner(alice, "node", timeout_s=0.01).status()
            return alice.status().peers[0].owed_count

    assert asyncio.run(scenario()) == 0


def test_mistakes_are_the_callers(tmp_path):
    """An unknown mailbox, group or member, and a group that fits into no command, are told before anything is sent."""

    async def scenario():
        async with peer_in(tmp_path, ALICE) as alice:
            await alice.create_group("talk")
            await alice.create_group("large", descriptor=bytes(16_385))
            await alice.meet(NOBODY, "node")
            for work in (
                MailboxOwner(alice, "nobody").status(),
                MailboxOwner(alice, "node").host("none"),
                MailboxOwner(alice, "node").host("talk", ["nobody"]),
                MailboxOwner(alice, "node").host("talk", keep_ms=1),
                MailboxOwner(alice, "node").host("large"),
                MailboxOwner(alice, "node").members("talk", ["nobody"]),
                MailboxOwner(alice, "node").drop("none"),
            ):
                with pytest.raises(LocalError):
                    await work

    asyncio.run(scenario())


def test_closing_ends_the_waiting(tmp_path):
    """Whoever waits for an answer of a device that is closed is told so at once."""

    async def scenario():
        async with peer_in(tmp_path, ALICE) as alice:
            await alice.meet(NOBODY, "node")
            asking = asyncio.ensure_future(MailboxOwner(alice, "node").status())
            news = alice.news()
            await next_event(news, lambda event: isinstance(event, Delivered))
            await news.aclose()
            await asyncio.sleep(0)
        with pytest.raises(LocalError, match="closed before"):
            await asking

    began = time.monotonic()
    asyncio.run(scenario())

    assert time.monotonic() - began < 20
