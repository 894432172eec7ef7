"""The microcontroller client at a real node in a process of its own, asked by the Python SDK's sender."""

import asyncio
import contextlib

import pytest

from tests.micropython.build import INTERPRETERS, Board, described
from tests.sdk.bhumi.test_with_node import Node
from tools.served import ServedNode
from waystation.cli.mcu.package import device_module
from waystation.core.ids import decode_id52
from waystation.crypto.signing import KeyPair
from waystation.sdk.bhumi import BhumiState, ContentType, Device, Dialect, Listening, Sender, Timeouts
from waystation.sdk.bhumi.guide import Guide
from waystation.sdk.errors import InviteRefusedError, UncertainError
from waystation.transport.tls import authority_der, client_context

MAIN = """
import sys
import settings
from bhumi import device
from bhumi.state import State

device._RETRY_MS = 50


def answer(request):
    if request.content_type == device.BINARY:
        return request.content
    print("asked", request.text)
    if request.content_type == device.COMMAND:
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
async def paired(tmp_path, node, board, dialect=None, timeouts=TIMEOUTS):
    """Give a sender that has used an invite of the board: its first one, or one for a legacy dialect."""
    token = board.token if dialect is None else legacy_invite(board)
    board.start()
    await asyncio.to_thread(board.until, "listening")
    state = BhumiState(tmp_path / "bob")
    try:
        async with Sender(state, node.url, tls=node.tls, dialect=dialect, timeouts=timeouts) as bob:
            await bob.accept(token, alias="board")
            yield bob, state
    finally:
        state.close()


def legacy_invite(board):
    """Make an invite without a pairing secret in a folder; return its token."""
    state = device_module("state").State(str(board.folder / "bhumi.state"))
    return device_module("invitations").invite_token(state.identity, state.add_invite("bob", 0, legacy=True)[0])


@pytest.mark.parametrize("dialect", [None, Dialect.SUITE_1, Dialect.SUITE_2], ids=str)
def test_pairing_and_requests(node, tmp_path, board, dialect):
    """An invite pairs, and texts, bytes and commands are answered, with the secret and in legacy; spares were given."""

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
    """A sender that speaks a dialect of old is not paired, and the device says what to do; its invite stays good."""

    async def scenario():
        async with paired(tmp_path, node, board, Dialect.E2E, Timeouts(wait_s=1, doubt_s=1, settle_s=1)):
            raise AssertionError("paired")

    with pytest.raises((InviteRefusedError, UncertainError)):
        asyncio.run(scenario())
    assert "--e2e suite-2" in board.until("trouble")


def test_deep_sleep(node, tmp_path, board):
    """A device that slept is the same afterwards: its peer waits and is answered, without pairing again."""

    async def scenario():
        async with paired(tmp_path, node, board) as (bob, _):
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
        async with paired(tmp_path, node, board) as (bob, _):
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
        async with paired(tmp_path, node, board) as (bob, _):
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


TELLS = """
import settings
from bhumi import device
from bhumi.state import State

device._RETRY_MS = 50
one = device.Device(State("bhumi.state"), settings.RELAYS, lambda request: "ok")
while not one._state.peers or not one._state.peers[0].rights:
    one.step()
print("may tell")
said = [one.notify("bob", "reading %d" % number) for number in range(5)]
for each in said:
    while not each.is_over:  # bob is not there at first
        one.step()
    print("outcome", each.outcome, each.answer.decode())
alarm = one.notify_command("bob", "alarm", {"door": 1})
print("outcome", one.wait(alarm), alarm.answer.decode())
failing = one.notify("bob", "fail")
print("outcome", one.wait(failing), failing.reason)
print("rights", len(one._state.peers[0].rights), len(one._state.notices))
while True:
    one.step()
"""


@pytest.fixture(params=INTERPRETERS)
def teller(request, tmp_path, node):
    """A device that tells bob things once he is paired."""
    url = node.url.replace("127.0.0.1", "localhost")
    authority = authority_der(node.home / "tls" / "ca.pem")
    heap = {} if request.param == "cpython" else {"heap": "56wK"}
    made = Board(tmp_path / "device", request.param, described(url, authority), TELLS, **heap)
    yield made
    made.__exit__()


@contextlib.asynccontextmanager
async def listening(state, node, heard):
    """Run a device of the SDK that keeps what it hears."""
    connected = asyncio.Event()

    async def handler(request):
        if request.text == "fail":
            raise ValueError("no paper")
        heard.append(request.text)
        return "noted"

    def told(event):
        if isinstance(event, Listening):
            connected.set()

    device = Device(state, node.url, handler, tls=node.tls, on_event=told)
    running = asyncio.create_task(device.run())
    await connected.wait()
    yield device
    running.cancel()
    await asyncio.wait([running])


def test_device_tells_a_peer(node, tmp_path, teller):
    """Readings and alarms of a device reach its peer's handler once each, in order, and come back with answers."""
    heard = []

    async def scenario():
        async with paired(tmp_path, node, teller) as (_, state), listening(state, node, heard):
            await asyncio.to_thread(teller.until, "rights")

    asyncio.run(scenario())

    outcomes = [line for line in teller.lines if line.startswith("outcome")]
    assert outcomes[:5] == ["outcome answered noted"] * 5
    assert outcomes[5:] == ['outcome answered {"ok":true,"data":"noted"}', "outcome refused bob: no paper"]
    assert heard[:5] == [f"reading {number}" for number in range(5)] and len(heard) == 6
    rights, left = (int(each) for each in teller.lines[-1].split()[1:])
    assert rights >= 2 and left == 0


def test_relay_that_demands_binding(tmp_path):
    """At a node with require_binding the device proves itself, is taken, and answers."""
    strict = ServedNode(tmp_path / "strict", "bhumi", bhumi__require_binding=True).start()
    strict.tls = client_context(strict.home / "tls" / "ca.pem")
    strict.url = strict.address_of("bhumi")
    url = strict.url.replace("127.0.0.1", "localhost")
    authority = authority_der(strict.home / "tls" / "ca.pem")
    main = MAIN.replace("RELAY_ID", key_of(strict).hex())
    board = Board(tmp_path / "device", INTERPRETERS[-1], described(url, authority), main)

    async def scenario():
        async with paired(tmp_path, strict, board) as (bob, _):
            return (await bob.send("board", "bound")).text

    text = asyncio.run(scenario())
    board.kill()
    assert strict.stop() == 0 and text == "bound"


def test_ninth_peer_learns_why(node, tmp_path, board):
    """Whoever is refused for want of room is told so, and not that the invite was used."""
    state = device_module("state").State(str(board.folder / "bhumi.state"))
    state.peers = [device_module("state").Peer(bytes([number]) * 32, bytes(32), 2, "") for number in range(8)]
    state.save()

    async def scenario():
        async with paired(tmp_path, node, board):
            raise AssertionError("paired")

    with pytest.raises(InviteRefusedError, match="the inviter refuses: no room for another peer: it has 8"):
        asyncio.run(scenario())
