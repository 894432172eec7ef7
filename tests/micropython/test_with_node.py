"""The microcontroller client at a real node in a process of its own, asked by the Python SDK's sender."""

import asyncio
import contextlib

import pytest

from tests.micropython.build import INTERPRETERS, Board, described
from tests.sdk.bhumi.test_with_node import Node
from waystation.core.ids import decode_id52
from waystation.crypto.signing import KeyPair
from waystation.sdk.bhumi import BhumiState, ContentType, Dialect, Sender, Timeouts
from waystation.sdk.bhumi.guide import Guide
from waystation.sdk.errors import InviteRefusedError
from waystation.transport.tls import authority_der

MAIN = """
import sys
import settings
from bhumi import device
from bhumi.state import State

device._RETRY_MS = 50


def answer(request):
    if request.content_type == device.payloads.BINARY:
        return request.content
    print("asked", request.text)
    if request.content_type == device.payloads.COMMAND:
        return {"cmd": request.command()[0]}
    if request.text == "wait":
        sys.stdin.readline()
    if request.text == "sleep":
        global awake
        awake = False
    return request.content


awake = True
ids = {settings.RELAYS[0][0]: bytes.fromhex("RELAY_ID")}
one = device.Device(State("bhumi.state"), settings.RELAYS, answer, relay_ids=ids)
while awake:
    one.step()
one.close()
print("asleep")
"""
TIMEOUTS = Timeouts(wait_s=30, doubt_s=30, settle_s=2)


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """One node for the module."""
    running = Node(tmp_path_factory.mktemp("node")).start()
    yield running
    assert running.stop() == 0


def key_of(node):
    """Return the key of the node."""
    return KeyPair.from_seed(bytes.fromhex((node.home / "node.key").read_text())).public


@pytest.fixture(params=INTERPRETERS)
def board(request, tmp_path, node):
    """A device's folder; its program is ended with the test."""
    url = node.url.replace("127.0.0.1", "localhost")
    authority = authority_der(node.home / "tls" / "ca.pem")
    main = MAIN.replace("RELAY_ID", key_of(node).hex())
    made = Board(tmp_path / "device", request.param, described(url, authority), main)
    yield made
    made.__exit__()


@contextlib.asynccontextmanager
async def paired(tmp_path, node, board, dialect, timeouts=TIMEOUTS):
    """Give a sender that has used the board's invite."""
    board.start()
    await asyncio.to_thread(board.until, "listening")
    state = BhumiState(tmp_path / "bob")
    try:
        async with Sender(state, node.url, tls=node.tls, dialect=dialect, timeouts=timeouts) as bob:
            await bob.accept(board.token, alias="board")
            yield bob, state
    finally:
        state.close()


@pytest.mark.parametrize("dialect", [Dialect.SUITE_1, Dialect.SUITE_2], ids=lambda dialect: dialect.value)
def test_pairing_and_requests(node, tmp_path, board, dialect):
    """An invite pairs, and texts, bytes and commands are answered, in both suites; spares were given."""

    async def scenario():
        async with paired(tmp_path, node, board, dialect) as (bob, state):
            said = await bob.send("board", "grüße")
            sent = await bob.send("board", bytes(range(256)), ContentType.BINARY)
            led = await bob.command("board", "led", {"on": True})
            return said.text, sent.content, led, state.find_peer("board").rights

    said, sent, led, rights = asyncio.run(scenario())

    assert (said, sent, led) == ("grüße", bytes(range(256)), {"cmd": "led"})
    assert rights >= 2
    assert decode_id52(board.lines[1].split()[-1])


def test_bhumi_v1_is_not_understood(node, tmp_path, board):
    """A sender that speaks the default dialect is told that its invite is gone, and the device says what to do."""

    async def scenario():
        async with paired(tmp_path, node, board, Dialect.E2E):
            raise AssertionError("paired")

    with pytest.raises(InviteRefusedError, match="another --e2e"):
        asyncio.run(scenario())
    assert "--e2e suite-2" in board.until("trouble")


def test_deep_sleep(node, tmp_path, board):
    """A device that slept is the same afterwards: its peer waits and is answered, without pairing again."""

    async def scenario():
        async with paired(tmp_path, node, board, Dialect.SUITE_2) as (bob, _):
            await bob.send("board", "sleep")
            await asyncio.to_thread(board.until, "asleep")
            assert await asyncio.to_thread(board.end) == 0
            asking = asyncio.create_task(bob.send("board", "good morning"))
            board.start()
            return (await asking).text

    assert asyncio.run(scenario()) == "good morning"


def test_answer_survives_a_power_cut(node, tmp_path, board):
    """The sender leaves while the handler works, then the power goes: the answer is fetched, the handler not called."""

    async def scenario():
        async with paired(tmp_path, node, board, Dialect.SUITE_2) as (bob, _):
            asking = asyncio.create_task(bob.send("board", "wait"))
            await asyncio.to_thread(board.until, "asked wait")
            asking.cancel()
            await asyncio.wait([asking])
        board.tell("go on")
        await asyncio.to_thread(board.until, "answered bob: wait")
        board.kill()
        board.start()
        await asyncio.to_thread(board.until, "listening")
        state = BhumiState(tmp_path / "bob")
        async with Sender(state, node.url, tls=node.tls, timeouts=TIMEOUTS) as bob:
            (recovered,) = await bob.recover()
        pending = state.pending()
        state.close()
        return recovered.reply.text, pending

    text, pending = asyncio.run(scenario())

    assert (text, pending) == ("wait", [])
    assert sum(line == "asked wait" for line in board.lines) == 1


def test_node_that_restarts(node, tmp_path, board):
    """A device whose relay goes away comes back to it by itself, and is asked as before."""

    async def scenario():
        async with paired(tmp_path, node, board, Dialect.SUITE_2) as (bob, _):
            await asyncio.to_thread(node.stop)
            await asyncio.to_thread(board.until, "disconnected")
            await asyncio.to_thread(node.start)
            await asyncio.to_thread(board.until, "listening")
            return (await bob.send("board", "again")).text

    assert asyncio.run(scenario()) == "again"


def test_presence_can_be_asked_for(node, tmp_path, board):
    """Whoever looks for the device finds it at this relay, by its own signature."""
    assert tmp_path.exists()

    async def scenario():
        board.start()
        listening = await asyncio.to_thread(board.until, "listening")
        identity = decode_id52(listening.split()[-1])
        guide = Guide(tls=node.tls)
        async with asyncio.timeout(30):
            places = ()
            while not places:
                places = await guide.where(node.url, identity)
        return [place.presence.relay_id for place in places]

    assert asyncio.run(scenario()) == [key_of(node)]
