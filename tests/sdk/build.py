"""Relays for SDK tests: the real machine on a loopback port, and one that says only what the test tells it to."""

import asyncio
import contextlib
import random

from tests.server.build import eventually
from waystation.core.effects import Close, Peer, Send
from waystation.core.instant import Instant
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.messages import FrameType
from waystation.protocols.bhumi.payload.contents import HandshakeInit
from waystation.protocols.bhumi.payload.invite import encode_invite
from waystation.protocols.bhumi.payload.suites import SharedSecrets
from waystation.protocols.bhumi.relay.machine import BhumiRelay
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.sdk.bhumi import Backoff, BhumiState, Device, Dialect, Listening, Sender, Timeouts
from waystation.sdk.bhumi.dialect import write_request
from waystation.sdk.bhumi.state import HandshakeFacts
from waystation.transport.listen import Listener

UNTIL_S = 10
"""How long to wait for what is bound to come."""
LIMITS = wire.relay_frame_limits(65_536)
ALICE = KeyPair.from_seed(bytes([0xA1]) * 32)
PREIMAGE = bytes([0x10]) * 32
BOB = KeyPair.from_seed(bytes([0xB2]) * 32)
BACK = bytes([0x77]) * 32
QUICK = Timeouts(doubt_s=3.0, settle_s=0.0)


class _Relay:
    """What both relays share: a port, pipes, and a log of every frame that came in."""

    def __init__(self):
        self.frames = []
        """(peer, type, payload) of every frame received."""
        self.identified = set()
        self.pipes = {}
        self._buffers = {}
        self._numbers = 0
        self._arrived = asyncio.Event()
        self.url = ""

    async def __aenter__(self):
        self._listener = Listener(self, lambda _: True, lambda _: None, None)
        await self._listener.open("127.0.0.1", 0)
        self.url = f"tcp://127.0.0.1:{self._listener.port}"
        return self

    async def __aexit__(self, *_):
        self.stop()

    def stop(self):
        """Listen no more and cut everybody."""
        self._listener.close()
        for peer in tuple(self.pipes):
            self.cut(peer)

    def cut(self, peer):
        """Break one connection."""
        self.pipes[peer].abort()

    def cut_senders(self):
        """Break every connection that never said who it is."""
        for peer in tuple(self.pipes):
            if peer not in self.identified:
                self.cut(peer)

    def connected(self, pipe):
        self._numbers += 1
        pipe.peer = self._numbers
        self.pipes[pipe.peer] = pipe
        self._buffers[pipe.peer] = wire.FrameBuffer(LIMITS)

    def received(self, pipe, data):
        buffer = self._buffers[pipe.peer]
        buffer.feed(data)
        while (frame := buffer.next_frame()) is not None:
            self.frames.append((pipe.peer, *frame))
            if frame[0] == FrameType.I_AM:
                self.identified.add(pipe.peer)
        self._arrived.set()

    def congested(self, pipe):
        pass

    def drained(self, pipe):
        pass

    def lost(self, pipe, _error):
        self.pipes.pop(pipe.peer, None)

    def of_type(self, frame_type):
        """Return (peer, payload) of every frame of a type."""
        return [(peer, payload) for peer, kind, payload in self.frames if kind == frame_type]

    async def wait_for(self, frame_type, count=1):
        """Wait until so many frames of a type have come, and return them."""
        async with asyncio.timeout(20):
            while len(self.of_type(frame_type)) < count:
                self._arrived.clear()
                await self._arrived.wait()
        return self.of_type(frame_type)


class LoopbackRelay(_Relay):
    """The real relay machine."""

    def __init__(self, settings=None):
        super().__init__()
        self._machine = BhumiRelay(settings or BhumiSettings(), random.Random(1), rate_limits=False)
        self._timer = None
        self.on_frames = lambda: None
        """Called after frames were logged and before the relay sees them."""

    def connected(self, pipe):
        super().connected(pipe)
        self._machine.connect(Peer(pipe.peer), self._now())
        self._pump()

    def received(self, pipe, data):
        super().received(pipe, data)
        self.on_frames()
        self._machine.receive(Peer(pipe.peer), data, self._now())
        self._pump()

    def lost(self, pipe, error):
        super().lost(pipe, error)
        self._machine.disconnect(Peer(pipe.peer), self._now())
        self._pump()

    def stop(self):
        super().stop()
        if self._timer is not None:
            self._timer.cancel()

    def _now(self):
        return Instant(int(asyncio.get_running_loop().time() * 1_000_000))

    def _pump(self):
        for effect in self._machine.take():
            pipe = self.pipes.get(getattr(effect, "peer", None))
            if isinstance(effect, Send) and pipe is not None:
                pipe.write([effect.data])
                if effect.receipt:
                    asyncio.get_running_loop().call_soon(self._drained, effect.peer)
            elif isinstance(effect, Close) and pipe is not None:
                pipe.close()
        self._arm()

    def _arm(self):
        due = self._machine.deadline()
        if self._timer is not None:
            self._timer.cancel()
        if due is not None:
            self._timer = asyncio.get_running_loop().call_at(due / 1_000_000, self._wake)

    def _drained(self, peer):
        self._machine.drained(peer, self._now())
        self._pump()

    def _wake(self):
        self._machine.wake(self._now())
        self._pump()


class ScriptedRelay(_Relay):
    """Says HELLO, and then only what the test sends."""

    def __init__(self, max_payload_bytes=65_536, answer=None):
        super().__init__()
        self._max_payload_bytes = max_payload_bytes
        self._answer = answer

    def connected(self, pipe):
        super().connected(pipe)
        pipe.write([wire.encode(messages.Hello(1, self._max_payload_bytes))])

    def received(self, pipe, data):
        before = len(self.frames)
        super().received(pipe, data)
        for peer, frame_type, payload in self.frames[before:]:
            if frame_type == FrameType.SEND and self._answer is not None:
                status, answer = self._answer(wire.decode_send(payload))
                self.send(peer, messages.SendResult(status, answer))

    def send(self, peer, message):
        """Send a message to one connection."""
        self.pipes[peer].write([wire.encode(message)])


class RunningDevice:
    """A device in a task, with its events kept."""

    def __init__(self, home, relays, handler, **options):
        self.state = BhumiState(home)
        self.events = []
        self._changed = asyncio.Event()
        options.setdefault("backoff", Backoff(random.Random(1), first_s=0.01, cap_s=0.02))
        options.setdefault("poll_s", 0.01)
        self.device = Device(self.state, relays, handler, on_event=self._note, **options)

    def _note(self, event):
        self.events.append(event)
        self._changed.set()

    async def __aenter__(self):
        self.task = asyncio.create_task(self.device.run())
        return self

    async def __aexit__(self, *_):
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task
        self.state.close()

    async def until(self, kind, count=1):
        """Wait until so many events of a kind have come, and return them."""
        async with asyncio.timeout(UNTIL_S):
            while len(found := [event for event in self.events if isinstance(event, kind)]) < count:
                self._changed.clear()
                await self._changed.wait()
        return found

    async def listening(self, count=1):
        """Wait until the relay has taken the registration so many times."""
        return await self.until(Listening, count)

    def token(self, alias="bob", *, legacy=False, **facts):
        """Return a new invite to this device; ``legacy`` for one without a secret."""
        suite = {"suite": None} if legacy else {}
        return encode_invite(self.state.make_invite(alias, **suite, **facts))


async def echo(request):
    """Answer with what was asked."""
    return request.content


@contextlib.asynccontextmanager
async def paired(tmp_path, relay, handler=echo, timeouts=QUICK, **options):
    """Give a listening device "alice", and a sender "bob" that has accepted its invite."""
    async with RunningDevice(tmp_path / "alice", relay.url, handler, **options) as alice:
        token = alice.token(legacy="dialect" in options)
        await alice.listening()
        state = BhumiState(tmp_path / "bob")
        dialect = {"dialect": options["dialect"]} if "dialect" in options else {}
        async with Sender(state, relay.url, timeouts=timeouts, **dialect) as bob:
            await bob.accept(token, alias="alice")
            await eventually(lambda: state.find_peer("alice").rights == 3, "spares")
            yield alice, bob, state
        state.close()


@contextlib.asynccontextmanager
async def sender(tmp_path, relays, **options):
    """Give a sender with its own state, patient for a moment only."""
    state = BhumiState(tmp_path / "bob")
    options.setdefault("timeouts", QUICK)
    async with Sender(state, relays, **options) as opened:
        yield opened, state
    state.close()


def know_alice(state, *preimages):
    """Make Alice a peer that can be reached with these preimages."""
    state.finish(bytes([0xEE]) * 32, ALICE.public, preimages, HandshakeFacts("alice", ""))


def issue(state, peer, preimages):
    """Let a peer reach the owner of a state with these preimages."""
    for preimage in preimages:
        state.begin_handshake(bytes(32), peer, b"", "", preimage)
        state.finish(bytes(32), peer, ())


def handshake(device, preimage):
    """Return the sealed handshake of Bob with an invite's preimage."""
    request = HandshakeInit(BOB.public, BACK, "tcp://bob:1")
    return write_request(Dialect.E2E, SharedSecrets(BOB), device.state.identity, preimage, request, random.Random(1))


async def introduced(relay):
    """Return the device's connection at a scripted relay, with deliveries carrying preimages from now on."""
    ((peer, _),) = await relay.wait_for(FrameType.I_AM)
    relay.send(peer, messages.Options(messages.Feature.DELIVER_WITH_PREIMAGE))
    relay.send(peer, messages.Keepalive())
    return peer


def sends(relay):
    """Return every SEND a relay has seen."""
    return [wire.decode_send(payload) for _, payload in relay.of_type(FrameType.SEND)]
