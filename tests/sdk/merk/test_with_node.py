"""The SDK against real nodes in processes of their own: a line of three, and one behind TLS."""

import asyncio
import contextlib
import os

import pytest

from tests.sdk.merk.build import ALICE, BOB, CAROL, QUICK, Events, first
from tools.served import ServedNode
from waystation.protocols.merk.messages import MailboxState
from waystation.sdk.merk import Connected, Disconnected, FileProgress, Json, MerkClient, Mode, Outcome
from waystation.transport.tls import client_context

A, B, C = (keys.signing.public for keys in (ALICE, BOB, CAROL))


class Node(ServedNode):
    """A node with MERK alone."""

    def __init__(self, home, peers=(), **settings):
        super().__init__(home, "merk", merk__peers=peers, **settings)

    @property
    def url(self):
        return self.address_of("merk")

    @property
    def key(self):
        return self.public_key


@pytest.fixture(scope="module")
def line(tmp_path_factory):
    """Three nodes, each linked with the one before."""
    home, nodes = tmp_path_factory.mktemp("line"), []
    for name in "abc":
        peers = [nodes[-1].url] if nodes else []
        nodes.append(Node(home / name, peers, merk__allow_private_peers=True).start())
    yield nodes
    assert [node.stop() for node in nodes] == [0, 0, 0]


def client(node, keys, **options):
    """Return a client of one node."""
    return MerkClient(node.url, keys=keys, only=True, **QUICK, **options)


def run(scenario):
    """Run a scenario, and give up on one that hangs."""

    async def bounded():
        async with asyncio.timeout(60):
            return await scenario()

    return asyncio.run(bounded())


async def until_delivered(send):
    """Send again and again while nodes look for each other; return the outcomes until the delivered one."""
    outcomes = []
    async with asyncio.timeout(30):
        while not outcomes or not outcomes[-1].ok:
            outcomes.append((await send()).outcome)
    return outcomes


@contextlib.asynccontextmanager
async def ends(line, **options):
    """Give Alice at the first node and Bob at the last, once the line carries messages."""
    async with client(line[0], ALICE) as alice, client(line[-1], BOB, **options) as bob:
        await until_delivered(lambda: alice.send(B, "warm", mode=Mode.SIGNED))
        await first(bob)
        yield alice, bob


def test_text_json_and_file_over_a_line_of_three(line, tmp_path):
    """Everything arrives encrypted, bound and once between clients of different nodes."""
    data = os.urandom(5 << 20)
    (tmp_path / "big.bin").write_bytes(data)
    events = Events()

    async def scenario():
        async with ends(line, on_event=events) as (alice, bob):
            outcomes = [
                (await alice.send(B, "hello")).outcome,
                (await alice.send(B, Json.of([1, 2]))).outcome,
                (await alice.send(B, tmp_path / "big.bin")).outcome,
            ]
            text, value, file = await first(bob, 3)
            whole = file.content.read_bytes() == data
            return outcomes, [text.text, value.text], whole, {each.auth.value for each in (text, value, file)}, bob

    outcomes, texts, whole, auths, bob = run(scenario)

    assert outcomes == [Outcome.DELIVERED] * 3
    assert (texts, whole, auths) == (["hello", "[1,2]"], True, {"bound"})
    assert bob.waiting_count == 0
    assert len(events.of_type(FileProgress)) == 39


def test_message_to_nobody_is_told(line):
    """All nodes are asked; none has the recipient."""

    async def scenario():
        async with client(line[0], ALICE) as alice:
            return (await alice.send(C, "x", mode=Mode.SIGNED)).outcome

    assert run(scenario) is Outcome.UNKNOWN_TARGET


def test_client_that_moves_is_found_again(line):
    """Bob leaves the last node for the middle one; messages follow him, none arrives twice."""

    async def scenario():
        async with client(line[0], ALICE) as alice:
            async with client(line[2], BOB) as bob:
                await until_delivered(lambda: alice.send(B, "one", mode=Mode.SIGNED))
                before = [(await first(bob))[0].text]
            async with client(line[1], BOB) as bob:
                await until_delivered(lambda: alice.send(B, "two", mode=Mode.SIGNED))
                return before, [message.text for message in await first(bob)], bob.waiting_count

    assert run(scenario) == (["one"], ["two"], 0)


def test_node_killed_and_started_again(line):
    """Alice's node dies: she hears of it, is back by herself, and her next message is delivered."""
    events = Events()

    async def scenario():
        async with client(line[0], ALICE, on_event=events) as alice, client(line[2], BOB) as bob:
            await until_delivered(lambda: alice.send(B, "before", mode=Mode.SIGNED))
            line[0].kill()
            await events.until(Disconnected)
            await asyncio.get_running_loop().run_in_executor(None, line[0].start)
            await events.until(Connected, count=2)
            await until_delivered(lambda: alice.send(B, "after", mode=Mode.SIGNED))
            return [message.text for message in await first(bob, 2)]

    assert run(scenario) == ["before", "after"]
    assert {event.server for event in events.of_type(Connected)} == {line[0].key}


def test_next_node_serves_while_one_is_down(line, tmp_path):
    """With two addresses a client goes on at the second when the first is gone."""
    spare = Node(tmp_path / "spare").start()

    async def scenario():
        events = Events()
        urls = [spare.url, line[1].url]
        async with MerkClient(urls, keys=CAROL, only=True, on_event=events, **QUICK) as carol:
            at_first = carol.relay == spare.url
            spare.kill()
            async with client(line[1], ALICE) as alice:
                await until_delivered(lambda: alice.send(C, "hi", mode=Mode.SIGNED))
                (message,) = await first(carol)
                await events.until(Connected, count=2)  # a message may come before the node has proved itself
                return at_first, carol.relay == line[1].url, message.text

    assert run(scenario) == (True, True, "hi")


def test_tls(tmp_path):
    """Over wss with the node's own authority the relay proves its key all the same."""
    node = Node(tmp_path / "tls", merk__tls=True).start()
    events = Events()

    async def scenario():
        tls = client_context(node.home / "tls" / "ca.pem")
        async with client(node, ALICE, tls=tls, on_event=events) as alice, client(node, BOB, tls=tls) as bob:
            await until_delivered(lambda: alice.send(B, "hi", mode=Mode.SIGNED))
            return (await first(bob))[0].text

    text = run(scenario)

    assert text == "hi"
    assert node.url.startswith("wss://")
    assert [(event.server, event.authenticated) for event in events.of_type(Connected)] == [(node.key, True)]
    assert node.stop() == 0


def test_mail_for_another_node_outlives_its_kill(tmp_path):
    """Killed right behind STORED, the recipient's node gives each message once, and receipts reach the other node.

    The recipient is back before the nodes are linked again.
    """
    letters, nodes = [f"{number}" for number in range(20)], []

    async def scenario():
        near, far = nodes
        async with client(near, BOB, mailbox=True) as bob:
            assert (await bob.mailbox.open()).state is MailboxState.OPEN
        async with client(far, ALICE) as alice:
            linked = await until_delivered(lambda: alice.send(B, "first"))
            sent = [await alice.send(B, each) for each in letters]
            near.kill()
            near.start()
            async with client(near, BOB) as bob:
                texts = [message.text for message in await first(bob, 1 + len(letters))]
                read = await asyncio.gather(*(each.read() for each in sent))
                more_count = bob.waiting_count
            async with client(near, BOB) as bob:
                return linked, sent, texts, read, more_count + (await bob.mailbox.state()).messages_count

    with contextlib.ExitStack() as running:
        nodes.append(running.enter_context(Node(tmp_path / "near").start()))
        nodes.append(running.enter_context(Node(tmp_path / "far", [nodes[0].url]).start()))
        linked, sent, texts, read, left = run(scenario)

    assert linked[-1] is Outcome.STORED
    assert {each.outcome for each in sent} == {Outcome.STORED}
    assert texts == ["first", *letters]
    assert all(read)
    assert left == 0
