"""Laws of one send over holes of the field's own length, with a node, devices and a board in processes (slow).

Handlers take 1, 40 and 70 s; nothing passes for 5, 70 and 300 s at the sender, at the device, or at both. All pairs of
a hole run side by side, so that it takes little longer than the longest.
"""

import asyncio
import contextlib
import shlex
import sys

import pytest

from tests.micropython.build import ESP32_HEAP, INTERPRETERS, MICROPYTHON, Board, described
from tests.sdk.bhumi.sending.build_holes import Stretch
from tools.served import ServedNode
from waystation.sdk.bhumi import BhumiState, Outcome, Sender
from waystation.transport.tls import authority_der, client_context

TAKES_S = (1, 40, 70)
PLACES = ("sender", "device", "between")
PATIENCE_S = 240
MAIN = """
from time import sleep as work
import settings
from bhumi.device import Device
from bhumi.state import State


def answer(request):
    print("asked", request.text)
    if request.text == "toggle the pump":
        work(TAKES_S)
    return "done " + request.text


Device(State("bhumi.state"), settings.RELAYS, answer).run()
"""
PROGRAM = """
import sys
from time import sleep as work
text = sys.stdin.read()
with open(sys.argv[1], "a") as log:
    log.write("asked " + text + "\\n")
if text == "toggle the pump":
    work(float(sys.argv[2]))
print("done " + text, end="")
"""


class Listening:
    """`waystation bhumi listen` in a process, whose handler is a program; every call is a line of a file."""

    def __init__(self, folder, relay, ca, takes_s):
        folder.mkdir()
        self._log = folder / "calls"
        self._log.touch()
        program = folder / "handler.py"
        program.write_text(PROGRAM)
        handler = shlex.join([sys.executable, str(program), str(self._log), str(takes_s)])
        home = str(folder / "home")
        self._words = [sys.executable, "-m", "waystation", "bhumi"]
        self._invite = [*self._words, "invite", "--home", home, "--relay", relay, "--ca", ca]
        self._listen = [*self._words, "listen", "--home", home, "--relay", relay, "--ca", ca, "--exec", handler]

    async def start(self):
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(*self._listen, stderr=pipe)
        while not (await self._process.stderr.readline()).startswith(b"listening"):
            pass
        self._rest = asyncio.create_task(self._process.stderr.read())
        made = await asyncio.create_subprocess_exec(*self._invite, stdout=pipe)
        return (await made.communicate())[0].decode().strip()

    def calls(self):
        return self._log.read_text().splitlines()

    async def stop(self):
        self._process.terminate()
        await self._process.wait()
        await self._rest


class OnBoard:
    """A board in real MicroPython with the memory of an ESP32; its handler blocks it."""

    def __init__(self, folder, relay, ca, takes_s):
        main = MAIN.replace("TAKES_S", str(takes_s))
        self._board = Board(folder, MICROPYTHON, described(relay, authority_der(ca)), main, heap=ESP32_HEAP)

    async def start(self):
        self._board.start()
        await asyncio.to_thread(self._board.until, "listening")
        return self._board.token

    def calls(self):
        return self._board.printed("asked")

    async def stop(self):
        await asyncio.to_thread(self._board.kill)


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """One node for the module."""
    running = ServedNode(tmp_path_factory.mktemp("node"), "bhumi").start()
    yield running
    assert running.stop() == 0


async def came(holds, what):
    """Return once something holds that takes a while in the field."""
    ends_at = asyncio.get_running_loop().time() + PATIENCE_S
    while not (found := holds()):
        assert asyncio.get_running_loop().time() < ends_at, f"{what} did not come within {PATIENCE_S} s"
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.2)
    return found


async def pair(folder, node, starting, made, where, takes_s, hole_s):
    """Have one request cross one hole; return what the sender and the device's handler have seen."""
    ca = node.home / "tls" / "ca.pem"
    url = node.address_of("bhumi")
    async with contextlib.AsyncExitStack() as stack:
        near = await stack.enter_async_context(Stretch(url))
        far = await stack.enter_async_context(Stretch(url))
        device = made(folder / "device", far.url, ca, takes_s)
        state = BhumiState(folder / "bob")
        stack.callback(state.close)
        bob = await stack.enter_async_context(Sender(state, near.url, find=False, tls=client_context(ca)))
        async with starting:  # a machine that starts eighteen at once has time for none
            token = await device.start()
            stack.push_async_callback(device.stop)
            peer = await bob.accept(token, alias="alice")
            await came(lambda: state.peer(peer.identity).rights == 3, "spares")
        silent = {"sender": [near], "device": [far], "between": [near, far]}[where]
        asking = asyncio.create_task(bob.send("alice", "toggle the pump"))
        await came(device.calls, "the handler")
        for stretch in silent:
            stretch.silence()
        asyncio.get_running_loop().call_later(hole_s, lambda: [stretch.mend() for stretch in silent])
        reply = await asking
        texts = [reply.text] if reply.outcome is Outcome.ANSWERED else []
        ends_at = asyncio.get_running_loop().time() + hole_s + PATIENCE_S
        while state.pending():
            texts += [each.reply.text for each in await bob.recover() if each.reply is not None]
            assert asyncio.get_running_loop().time() < ends_at, f"stays pending: {texts}, {device.calls()}"
        texts += [each.reply.text for each in await bob.recover() if each.reply is not None]
        after = await bob.send("alice", "and again")
        while not after.ok:
            assert after.outcome.retry_safe, after.sentence
            after = await bob.send("alice", "and again")
        await came(lambda: state.peer(peer.identity).rights == 3, "all permissions")
        return reply.outcome, [text for text in texts if text.startswith("done")], after.text, device.calls()


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("hole_s", [5, 70, 300])
def test_holes_of_the_field(node, tmp_path, hole_s):
    """Each request is handled once and answered in the end, by Python and on a board, and no permission is lost."""
    devices = {"python": Listening} | ({MICROPYTHON: OnBoard} if MICROPYTHON in INTERPRETERS else {})

    async def scenario():
        starting = asyncio.Semaphore(2)
        cases = [(name, where, takes_s) for name in devices for where in PLACES for takes_s in TAKES_S]
        folders = [tmp_path / "-".join(map(str, case)) for case in cases]
        for folder in folders:
            folder.mkdir()
        ended = await asyncio.gather(
            *(
                pair(folder, node, starting, devices[name], where, takes_s, hole_s)
                for folder, (name, where, takes_s) in zip(folders, cases, strict=True)
            ),
            return_exceptions=True,
        )
        return dict(zip(cases, ended, strict=True))

    ended = asyncio.run(scenario())

    wrong = {
        case: found
        for case, found in ended.items()
        if isinstance(found, BaseException)
        or found[0] not in {Outcome.ANSWERED, Outcome.UNCERTAIN}
        or found[1:] != (["done toggle the pump"], "done and again", ["asked toggle the pump", "asked and again"])
    }
    assert not wrong, "\n".join(f"{case}: {found!r}" for case, found in wrong.items())
