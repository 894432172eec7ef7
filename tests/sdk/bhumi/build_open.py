"""Relays that know each other, for SDK tests: the real machine with a key, its links included, on loopback ports."""

import asyncio
import contextlib
import random
import time

from tests.sdk.build import LoopbackRelay
from waystation.core.effects import Close, Dial, Peer, Send
from waystation.core.errors import HostError
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.messages import FrameType
from waystation.protocols.bhumi.relay.machine import BhumiRelay
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.transport.dial import dial

FIRST_LINK = 1_000_000
"""Numbers from here on are connections that a relay dialled."""


class OpenRelay(LoopbackRelay):
    """A relay with a key that gossips with ``peers`` and advertises its own port."""

    def __init__(self, number, peers=(), **settings):
        super().__init__()
        self.key_pair = KeyPair.from_seed(bytes([number]) * 32)
        self._peers = list(peers)
        self._more = settings
        self._links = 0
        self._tasks = set()
        self._is_over = False
        self._changed = asyncio.Event()
        self.clock = time.time

    async def __aenter__(self):
        await super().__aenter__()
        settings = {"advertise": self.url, "peers": self._peers, "dials_private": True} | self._more
        rng = random.Random(int.from_bytes(self.key_pair.public[:4], "big"))
        self._machine = BhumiRelay(BhumiSettings(**settings), rng, rate_limits=False, key_pair=self.key_pair)
        self._machine.set_wall(self._now(), int(self.clock() * 1_000_000))
        self._wake()
        return self

    def stop(self):
        """End as a process does: nothing is dialled, sent or awaited any more."""
        self._is_over = True
        super().stop()

    async def __aexit__(self, *_):
        self.stop()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def set_clock(self, clock):
        """Let the relay's wall clock be another one."""
        self.clock = clock
        self._machine.set_wall(self._now(), int(clock() * 1_000_000))

    async def until(self, holds):
        """Wait until ``holds`` is true of what the relay says of itself."""
        async with asyncio.timeout(10):
            while not holds(self._machine.view(self._now())):
                self._changed.clear()
                await self._changed.wait()

    async def knows_devices(self, count=1):
        """Wait until the relay knows where so many devices are."""
        await self.until(lambda view: view["devices"] >= count)

    async def knows_relays(self, count=1):
        """Wait until the relay has the adverts of so many others."""
        await self.until(lambda view: len(view["neighbours"]) >= count)

    async def until_left(self, identity):
        """Wait until no connection stands that has said I_AM as this identity."""
        async with asyncio.timeout(10):
            while self.connections_of(identity):
                self._changed.clear()
                await self._changed.wait()

    def connections_of(self, identity):
        """Return the connections that stand and have said I_AM as this identity."""
        said = {peer for peer, payload in self.of_type(FrameType.I_AM) if payload[:32] == identity}
        return said & set(self.pipes)

    def received_by_machine(self, pipe, data):
        """Give bytes of a client to the relay."""
        self._machine.receive(Peer(pipe.peer), data, self._now())
        self._pump()

    def _pump(self):
        if self._is_over:
            return
        for effect in self._machine.take():
            if isinstance(effect, Dial):
                task = asyncio.get_running_loop().create_task(self._dial(effect))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                continue
            pipe = self.pipes.get(getattr(effect, "peer", None))
            if isinstance(effect, Send) and pipe is not None:
                pipe.write([effect.data])
                if effect.receipt:
                    asyncio.get_running_loop().call_soon(self._drained, effect.peer)
            elif isinstance(effect, Close) and pipe is not None:
                pipe.close()
        due = self._machine.deadline()
        if self._timer is not None:
            self._timer.cancel()
        if due is not None:
            self._timer = asyncio.get_running_loop().call_at(due / 1_000_000, self._wake)
        self._changed.set()

    async def _dial(self, effect):
        self._links += 1
        try:
            await dial(effect.url, _Outgoing(self, FIRST_LINK + self._links, effect.name), None, 5)
        except HostError:
            self._machine.upstream_failed(effect.name, self._now())
            self._pump()


class _Outgoing:
    """The sink of a connection that a relay dialled."""

    def __init__(self, relay, number, name):
        self._relay = relay
        self._number = number
        self._name = name

    def connected(self, pipe):
        pipe.peer = self._number
        self._relay.pipes[self._number] = pipe
        self._relay._machine.connect_upstream(Peer(self._number), self._name, self._relay._now())
        self._relay._pump()

    def received(self, pipe, data):
        self._relay._machine.receive(Peer(self._number), data, self._relay._now())
        self._relay._pump()

    def congested(self, pipe):
        pass

    def drained(self, pipe):
        pass

    def lost(self, pipe, _error):
        self._relay.pipes.pop(self._number, None)
        self._relay._machine.disconnect(Peer(self._number), self._relay._now())
        self._relay._pump()


@contextlib.asynccontextmanager
async def two_relays(**settings):
    """Give two relays that know each other."""
    async with OpenRelay(1, **settings) as old, OpenRelay(2, peers=[old.url], **settings) as new:
        await old.knows_relays()
        await new.knows_relays()
        yield old, new
