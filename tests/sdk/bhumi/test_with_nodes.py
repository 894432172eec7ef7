"""Devices that move, and probes of other relays, over real nodes in processes of their own."""

import asyncio
import contextlib
import random

import pytest

from tests.sdk.build import RunningDevice, echo
from tests.sdk.tap import Tap
from tests.server.build import NodeProcess, until
from tests.server.build_node import configured, serving
from tools.served import free_port
from waystation.protocols.bhumi import extension_wire, messages, wire
from waystation.protocols.bhumi.client import device as device_client
from waystation.protocols.bhumi.extension_messages import QaVerdict
from waystation.protocols.bhumi.messages import FrameType
from waystation.protocols.bhumi.relay import probes as probes_asked
from waystation.rules.relay_state import State
from waystation.sdk.bhumi import (
    BhumiState,
    Moved,
    PresenceAsserted,
    Probed,
    RelayBook,
    RelayQuality,
    Sender,
    Timeouts,
    probe,
)
from waystation.sdk.bhumi import device as bhumi_device
from waystation.sdk.bhumi.guide import Guide

PATIENT = Timeouts(doubt_s=30.0, settle_s=2.0)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """Two nodes that have each other's advert."""
    started = []
    with contextlib.ExitStack() as stack:
        for name in ("old", "new"):
            address = f"127.0.0.1:{free_port()}"
            told = {"bhumi__plain": address, "bhumi__advertise": f"tcp://{address}", "bhumi__dials_private": "true"}
            peers = ",".join(f"tcp://{node.settings['bhumi.plain']}" for node in started)
            node = NodeProcess(tmp_path_factory.mktemp(name), **told, bhumi__peers=peers).start()
            stack.callback(node.stop)
            started.append(node)
        until(lambda: all(node.ask("GET", "/admin/v1/bhumi")[1]["neighbours"] for node in started), "adverts")
        yield tuple(node.url() for node in started)


@pytest.mark.parametrize("late", [False, True], ids=["ready before the old relay is left", "ready after the move"])
def test_device_moves_in_mid_exchange(tmp_path, nodes, monkeypatch, late):
    """The answer arrives and the handler runs once, whether it is ready in time for the old relay or not."""
    monkeypatch.setattr(bhumi_device, "LEAVE_S", 0.05 if late else 10.0)
    old, new = nodes
    calls = []

    async def scenario():
        called, gate, left = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def handler(request):
            calls.append(request.text)
            called.set()
            await gate.wait()
            return f"answer to {request.text}"

        async with RunningDevice(tmp_path / "alice", old, handler) as alice:
            await alice.until(PresenceAsserted)
            state = BhumiState(tmp_path / "bob")
            async with Sender(state, old, timeouts=PATIENT) as bob:
                await bob.accept(alice.token(), alias="alice")
                asking = asyncio.create_task(bob.send("alice", "hi"))
                await called.wait()
                before = alice.device._connection
                before.ended.add_done_callback(lambda _: left.set())
                await alice.device.move(new)
                if late:
                    await left.wait()
                gate.set()
                reply = await asking
                again = await bob.send("alice", "and again")
            place = state.place_of(alice.state.identity)
            state.close()
            return reply.text, again.text, place, [(event.before, event.after) for event in await alice.until(Moved)]

    reply, again, place, moves = asyncio.run(scenario())
    assert (reply, again) == ("answer to hi", "answer to and again")
    assert calls == ["hi", "and again"]
    assert (place, moves) == (new, [(old, new)])


RELAYS = 20
LIAR, SLOW = 7, 13
PROBES_MAX = 600
"""Nineteen candidates drawn at random: after so many, the chance to have missed one three times is below 10^-9."""
REPORT_HEADER = b"\x00\x4b\x00\x00\x00\x09"


class LyingTap(Tap):
    """A relay that registers everybody and answers requests by itself, with garbage."""

    def forward(self, side, frames, data, onward, back):
        requests = [kind for kind, _ in frames if kind == FrameType.SEND]
        if side == "client" and requests:
            back.write(wire.encode(messages.SendResult(0, b"\x07" * 150)) * len(requests))
        else:
            onward.write(data)


class SlowTap(Tap):
    """A relay that takes its time with requests and answers."""

    def forward(self, side, frames, data, onward, _back):
        if any(kind in (FrameType.SEND, FrameType.ACK) for kind, _ in frames):
            asyncio.get_running_loop().call_later(1.2, self._write, onward, data)
        else:
            onward.write(data)

    def _write(self, onward, data):
        if not onward.is_closing():
            onward.write(data)


class Network:
    """Nodes of one process, each behind a tap whose address it advertises."""

    def __init__(self, home, stack):
        self._home = home
        self._stack = stack
        self.taps = []
        self.nodes = []

    async def open(self):
        """Start everything; the first node is the one that the others name."""
        for number in range(RELAYS):
            kind = {LIAR: LyingTap, SLOW: SlowTap}.get(number, Tap)
            tap = await self._stack.enter_async_context(kind())
            settings = {"bhumi__advertise": tap.url, "bhumi__dials_private": "true", "limits__enabled": "false"}
            if self.taps:
                settings["bhumi__peers"] = self.taps[0].url
            home = self._home / str(number)
            node, _ = await self._stack.enter_async_context(serving(home, configured(home, **settings)))
            tap.target = node.status()["listeners"]["bhumi_plain"]
            self.taps.append(tap)
            self.nodes.append(node)

    def passages(self):
        """Return every connection that anybody made to anybody."""
        return [passage for tap in self.taps for passage in tap.passages]


async def learn_all(book, url):
    """Ask a relay for others until the book has all of them."""
    async with asyncio.timeout(60):
        while len(book.entries()) < RELAYS:
            for advert in await Guide().relays(url):
                book.learn(advert)


async def found_out(tmp_path):
    """Run a device until it has marked both, and return what it thinks, how many probes it took, and the network."""
    async with contextlib.AsyncExitStack() as stack:
        network = Network(tmp_path, stack)
        await network.open()
        home, me = network.taps[0].url, tmp_path / "device"
        book = stack.enter_context(contextlib.closing(RelayBook(me, allow_private=True)))
        quality = stack.enter_context(contextlib.closing(RelayQuality(me)))
        await learn_all(book, home)
        liar, slow = network.taps[LIAR].url, network.taps[SLOW].url
        async with RunningDevice(me, home, echo, book=book, quality=quality) as device:
            probed = []
            async with asyncio.timeout(180):
                while not is_marked(quality, liar, slow) and len(probed) < PROBES_MAX:
                    probed = await device.until(Probed, len(probed) + 1)
        entries = {entry.url: entry for entry in quality.entries()}
        order = [entry.address for entry in book.order(quality.score, random.Random(1))]
        counted = [node.bhumi()["probes"] for node in network.nodes]
        return entries, order, (liar, slow), probed, counted, network.passages()


def is_marked(quality, liar, slow):
    """Return whether the liar is banned and the slow one has been slow three times."""
    banned, late = quality.entry(liar), quality.entry(slow)
    is_banned = banned is not None and banned.standing.state is State.BLACKLISTED
    return is_banned and late is not None and late.standing.failures_running >= 3


@pytest.mark.slow
def test_liar_and_slow_relay_are_found_out_and_nobody_is_told(tmp_path, monkeypatch):
    """Both are marked within a bounded number of probes, no other is, and no verdict is in any byte that passed."""
    monkeypatch.setattr(probes_asked, "ASK_EVERY_MS", 60)
    monkeypatch.setattr(device_client, "PROBES_WINDOW_MS", 1)
    monkeypatch.setattr(probe, "PROBE_EVERY_S", 0.0)
    monkeypatch.setattr("tests.sdk.build.UNTIL_S", 60)

    entries, order, (liar, slow), probed, counted, passages = asyncio.run(found_out(tmp_path))

    assert len(probed) < PROBES_MAX
    assert {event.candidate for event in probed if event.verdict is QaVerdict.WRONG} == {liar}
    assert slow in {event.candidate for event in probed if event.verdict is QaVerdict.SLOW}
    assert {url for url, entry in entries.items() if entry.standing.state is State.BLACKLISTED} == {liar}
    assert order[-2:] == [slow, liar]
    assert_nobody_was_told(counted, passages)


def assert_nobody_was_told(counted, passages):
    """No relay was reported a verdict, and no byte of any connection holds one."""
    reports = [
        extension_wire.decode_qa_report(payload)
        for passage in passages
        for kind, payload in passage.frames["client"]
        if kind == FrameType.QA_REPORT
    ]
    raw = [bytes(passage.bytes[side]) for passage in passages for side in ("client", "relay")]

    assert sum(probes["asked"] for probes in counted) > 0
    assert not any(probes[verdict.name.lower()] for probes in counted for verdict in QaVerdict if verdict)
    assert {(report.verdict, report.latency_us) for report in reports} <= {(QaVerdict.REFUSED, 0)}
    for data in raw:
        for tail in data.split(REPORT_HEADER)[1:]:
            assert tail[4:9] == bytes(5)
