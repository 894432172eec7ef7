"""A board with the memory of an ESP32 that tells something every few seconds, is asked, and is managed meanwhile."""

import asyncio

import pytest

from tests.micropython.build import ESP32_HEAP, MICROPYTHON, Board, described
from tests.micropython.test_with_node import TIMEOUTS, listening, paired
from tests.sdk.bhumi.test_with_node import Node
from tests.server.build import eventually
from waystation.sdk.bhumi import BhumiState, Sender
from waystation.transport.tls import authority_der

PAIRS = 8
MAIN = """
import time
import settings
from bhumi.device import Device
from bhumi.state import State

device = Device(State("bhumi.state"), settings.RELAYS, lambda request: "heard " + request.text)
count = 0
next_at = time.ticks_ms()
while True:
    device.step()
    if time.ticks_diff(time.ticks_ms(), next_at) >= 0:
        next_at = time.ticks_add(next_at, EVERY_MS)
        try:
            device.notify("bob", "reading %d" % count)
            count += 1
        except (ValueError, OSError) as error:  # no such peer yet, or no room
            print("not told", error)
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """One node for the module."""
    running = Node(tmp_path_factory.mktemp("node")).start()
    yield running
    assert running.stop() == 0


def manage(bob, name, **arguments):
    """Return what a management command gives."""
    return bob.command("board", f"bhumi:{name}", arguments)


async def guest(tmp_path, node, bob, name):
    """Invite somebody, who pairs, asks once and is unpaired; return what was asked and heard."""
    invited = await manage(bob, "invite", alias=name, hours=1)
    state = BhumiState(tmp_path / name)
    try:
        async with Sender(state, node.url, tls=node.tls, timeouts=TIMEOUTS) as sender:
            await sender.accept(invited["token"], alias="board")
            heard = (await sender.send("board", name)).text
    finally:
        state.close()
    aliases = [each["alias"] for each in await manage(bob, "peers")]
    unpaired = await manage(bob, "unpair", peer=name)
    return heard, aliases, unpaired


@pytest.mark.slow
@pytest.mark.micropython
@pytest.mark.timeout(900)
@pytest.mark.parametrize("every_ms", [2_500, 5_000])
def test_board_that_tells_is_asked_and_managed(node, tmp_path, every_ms):
    """Guests are invited, pair, ask and are unpaired while readings go on; each reading is heard once, in order."""
    url = node.url.replace("127.0.0.1", "localhost")
    main = MAIN.replace("EVERY_MS", str(every_ms))
    authority = authority_der(node.home / "tls" / "ca.pem")
    board = Board(tmp_path / "device", MICROPYTHON, described(url, authority), main, heap=ESP32_HEAP)
    heard, found = [], []

    async def scenario():
        async with paired(tmp_path, node, board) as (bob, state), listening(state, node, heard):
            for number in range(PAIRS):
                before = len(heard)
                found.append(await guest(tmp_path, node, bob, f"guest {number}"))
                await eventually(lambda wanted=before + 2: len(heard) >= wanted, "readings")

    try:
        asyncio.run(scenario())
    finally:
        board.kill()
    names = [f"guest {number}" for number in range(PAIRS)]
    assert found == [(f"heard {name}", ["bob", name], {"unpaired": name}) for name in names]
    assert heard == [f"reading {number}" for number in range(len(heard))]


RESTARTS = 8
ROLES = 'roles={"bob": ("light", "text"), "carol": ("text",)}'


@pytest.mark.slow
@pytest.mark.micropython
@pytest.mark.timeout(900)
def test_board_with_roles_outlives_restarts_of_its_relay(tmp_path):
    """A board with two peers, roles and readings comes back each time, and runs out of memory at no step of that."""
    node = Node(tmp_path / "node").start()
    url = node.url.replace("127.0.0.1", "localhost")
    main = MAIN.replace("EVERY_MS", "3_000").replace("request.text)", f"request.text, {ROLES})", 1)
    authority = authority_der(node.home / "tls" / "ca.pem")
    board = Board(tmp_path / "device", MICROPYTHON, described(url, authority), main, heap=ESP32_HEAP)
    heard, found = [], []

    async def scenario():
        async with paired(tmp_path, node, board) as (bob, state), listening(state, node, heard):
            invited = await manage(bob, "invite", alias="carol", hours=1)
            carols = BhumiState(tmp_path / "carol")
            async with Sender(carols, node.url, tls=node.tls, timeouts=TIMEOUTS) as carol:
                await carol.accept(invited["token"], alias="board")
                for number in range(RESTARTS):
                    await asyncio.to_thread(node.stop)
                    await asyncio.to_thread(node.start)
                    found.append([(await each.send("board", f"{number}")).text for each in (bob, carol)])
                    before = len(heard)
                    await eventually(lambda wanted=before + 1: len(heard) >= wanted, "readings")
            carols.close()

    try:
        asyncio.run(scenario())
        short = [line for line in board.printed("") if "memory" in line]
    finally:
        board.kill()
        node.stop()
    assert short == []
    assert found == [[f"heard {number}"] * 2 for number in range(RESTARTS)]
    assert heard == [f"reading {number}" for number in range(len(heard))]
