"""LPRP hosts and networks for SDK tests: the node's own machine on a UDP port, and a way to it that loses datagrams."""

import asyncio
import contextlib
import random
import time

from waystation.core.effects import Commit, SendTo, Verify
from waystation.core.instant import Instant
from waystation.crypto.signing import KeyPair, verify_any
from waystation.protocols.lprp.relay.machine import LprpRelay
from waystation.protocols.lprp.settings import LprpSettings
from waystation.sdk.lprp import ClientSettings, HostUrl
from waystation.store.memory import MemoryStore
from waystation.transport.datagrams.udp import UdpSocket

HOST = KeyPair.from_seed(bytes([0x40]) * 32)
NOBODY = HostUrl(HOST.public, "127.0.0.1", 9)
EASY = {"pow_base_bits_relay": 4, "pow_base_bits_lease": 4, "pow_base_bits_whitelist": 4, "pow_adaptive": False}
QUICK = ClientSettings(retry_ms=50, work_first_bits=4, heartbeat_ms=1_000)
"""A client that does not wait long."""
STUBBORN = ClientSettings(retry_ms=5, tries=16, work_first_bits=4, heartbeat_ms=500)
"""One for a ``LossyNetwork``, where a third of the requests get no answer: of 8 tries none is answered once in 3,500
requests, of 16 once in 12 million."""


class HostServer:
    """The real host on a loopback port; ``async with`` again takes the same port, its store and its key."""

    def __init__(self, store=None, key=HOST, **settings):
        self._store = store or MemoryStore()
        self._key = key
        self._settings = LprpSettings(**(EASY | {"retry_ms": 100} | settings))
        self._port = 0
        self._timer = None
        self.heard = []
        """Every datagram that came in."""

    async def __aenter__(self):
        self.relay = LprpRelay(self._settings, self._key, self._store, rate_limits=False)
        self.relay.set_wall(self.now, time.time_ns() // 1_000)
        self._socket = UdpSocket(self._on_datagrams)
        await self._socket.open("127.0.0.1", self._port)
        self._port = self._socket.port
        return self

    async def __aexit__(self, *_):
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._socket.close()

    @property
    def host(self):
        """Where clients find it."""
        return HostUrl(self._key.public, "127.0.0.1", self._port)

    @property
    def url(self):
        """As people write it."""
        return str(self.host)

    @property
    def now(self):
        """The monotonic clock."""
        return Instant(time.monotonic_ns() // 1_000)

    def tenant(self, key):
        """Return what the host tells of a tenant, or None."""
        views = {view["key"]: view for view in self.relay.tenants(self.now)}
        return views.get(key.hex())

    def queue(self, key):
        """Return how many packets wait for a tenant."""
        return self.tenant(key)["queue"]

    def _on_datagrams(self, datagrams):
        self.heard += [data for data, _ in datagrams]
        self.relay.receive_datagrams(datagrams, self.now)
        self._settle()

    def _settle(self):
        relay = self.relay
        while effects := relay.take():
            for effect in effects:
                if isinstance(effect, SendTo):
                    self._socket.send([(effect.data, effect.address)])
                elif isinstance(effect, Verify):
                    relay.verified(effect.ticket, [verify_any(*check) for check in effect.checks], self.now)
                elif isinstance(effect, Commit):
                    self._store.commit(effect.changes)
                    relay.committed(effect.ticket, self.now)
        if self._timer is not None:
            self._timer.cancel()
        due = relay.deadline()
        wait_s = None if due is None else max(0.0, (due - self.now) / 1e6)
        self._timer = None if wait_s is None else asyncio.get_running_loop().call_later(wait_s, self._wake)

    def _wake(self):
        self.relay.wake(self.now)
        self._settle()


class LossyNetwork:
    """A way to a host that loses, doubles and reorders datagrams in both directions, as a seed says.

    It stands before the host's port; each client that comes gets a port of its own towards the host.
    """

    def __init__(self, host, *, seed=1, loss=0.2, duplication=0.1, delay_s=0.01):
        self._host = host
        self._rng = random.Random(seed)
        self._loss = loss
        self._duplication = duplication
        self._delay_s = delay_s
        self._ways = {}
        self.lost = 0
        self.doubled = 0

    async def __aenter__(self):
        self._front = UdpSocket(self._on_front)
        await self._front.open("127.0.0.1", 0)
        return self

    async def __aexit__(self, *_):
        self._front.close()
        for way in self._ways.values():
            (await way).close()

    @property
    def host(self):
        """Where clients find the host now."""
        return HostUrl(self._host.key, "127.0.0.1", self._front.port)

    def _on_front(self, datagrams):
        for data, client in datagrams:
            if client not in self._ways:
                self._ways[client] = asyncio.ensure_future(self._open_way(client))
            self._pass(lambda data=data, client=client: self._send_in(data, client))

    async def _open_way(self, client):
        way = UdpSocket(
            lambda datagrams: [
                self._pass(lambda data=data: self._front.send([(data, client)])) for data, _ in datagrams
            ]
        )
        await way.open("127.0.0.1", 0)
        return way

    def _send_in(self, data, client):
        self._ways[client].add_done_callback(
            lambda way: way.result().send([(data, (self._host.host, self._host.port))])
        )

    def _pass(self, send):
        if self._rng.random() < self._loss:
            self.lost += 1
            return
        copies = 1 + (self._rng.random() < self._duplication)
        self.doubled += copies - 1
        for _ in range(copies):
            # Each copy takes as long as it likes: later ones overtake earlier ones.
            asyncio.get_running_loop().call_later(self._rng.random() * self._delay_s, send)


class Events(list):
    """Collects what a client tells; ``until`` waits for one of a type."""

    def __init__(self):
        super().__init__()
        self._changed = asyncio.Event()

    def __call__(self, event):
        self.append(event)
        self._changed.set()

    def of_type(self, *kinds):
        """Return those of some types."""
        return [event for event in self if isinstance(event, kinds)]

    async def until(self, *kinds, count=1):
        """Wait for so many of some types, and return them."""
        async with asyncio.timeout(20):
            while len(self.of_type(*kinds)) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.of_type(*kinds)


async def until(holds):
    """Wait until something holds of what another process, or the other end of a socket, does."""
    async with asyncio.timeout(20):
        while not holds():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), 0.005)


async def take(tenant, count=1):
    """Return the next messages of a tenant, done."""
    found = []
    async with asyncio.timeout(20):
        async with contextlib.aclosing(tenant.messages()) as messages:
            async for message in messages:
                await message.done()
                found.append(message)
                if len(found) == count:
                    break
    return found


def run(scenario, timeout_s=30):
    """Run a scenario, and give up on one that hangs."""

    async def bounded():
        async with asyncio.timeout(timeout_s):
            return await scenario()

    return asyncio.run(bounded())
