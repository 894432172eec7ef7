"""A session for carriers without a device behind it: what is given to it goes out once, what arrives is noted."""

import asyncio
import random
from collections import defaultdict, deque

from waystation.core.errors import HostError
from waystation.crypto.agreement import SECRET_BYTES
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.bundle import bundle_room, open_bundle, seal_bundle
from waystation.protocols.bsp.messages import BODY_BYTES_MAX, HEADER_BYTES, MESSAGE_HEAD_BYTES, Message
from waystation.protocols.bsp.profile import SEED
from waystation.protocols.bsp.refusals import MalformedError
from waystation.protocols.bsp.wire import encode

A, B, M, STRANGER = (KeyPair.from_seed(bytes([each]) * 32) for each in (0xA1, 0xB2, 0x33, 0x55))
FULL = b"\x5a" * BODY_BYTES_MAX
"""The body of the longest message there is."""
GROUP = bytes([0x47]) * 32


class CarrierSession:
    """Seals and opens real bundles for one key; it knows no groups and repeats nothing."""

    def __init__(self, key_pair, *peers):
        self.key_pair = key_pair
        self.known = [peer.public for peer in peers]
        self.due = defaultdict(deque)
        self.taken = []
        """(sender, body) of each message that came."""
        self.refused_count = 0
        self.reached_peers = []
        self.made_count = 0
        """How often a bundle was asked for, whether there was one or not."""
        self.full = False
        """Whether the disk is full."""
        self.gate = asyncio.Event()
        """While it is cleared, nothing gets to the disk."""
        self.gate.set()
        self._changed = asyncio.Event()
        self._numbers = 0

    def seal(self, peer, *bodies):
        """Return a bundle of messages for a peer."""
        records = [encode(SEED, Message(GROUP, 1, body)) for body in bodies]
        self._numbers += 1
        secret = random.Random(self._numbers).randbytes(SECRET_BYTES)
        return seal_bundle(records, self.key_pair, peer, self._numbers, secret)

    async def take(self, bundle):
        try:
            opened = open_bundle(bundle, self.key_pair, SEED, lambda key: key in self.known)
        except MalformedError:
            self.refused_count += 1
            self._changed.set()
            return None
        await self.gate.wait()
        if self.full:
            raise HostError("the disk is full")
        self.taken += [(opened.sender, record.body) for record in opened.records]
        self._changed.set()
        return opened.sender

    async def make(self, peer, bytes_max):
        self.made_count += 1
        bodies, room = [], bundle_room(bytes_max)
        while self.due[peer] and (room := room - _size(self.due[peer][0])) >= 0:
            bodies.append(self.due[peer].popleft())
        return self.seal(peer, *bodies) if bodies else None

    def reached(self, peer):
        self.reached_peers.append(peer)
        self._changed.set()

    def peers(self):
        return list(self.known)

    def bodies(self):
        """Return the bodies that came."""
        return [body for _, body in self.taken]

    async def until(self, holds):
        """Wait until something holds of this session."""
        async with asyncio.timeout(25):
            while not holds(self):
                self._changed.clear()
                await self._changed.wait()

    async def until_reached(self, peer, count=1):
        """Wait until the carrier has said so often that a peer can be reached."""
        await self.until(lambda session: session.reached_peers.count(peer.public) >= count)

    async def until_taken(self, count=1):
        """Wait for so many messages, and return their bodies."""
        await self.until(lambda session: len(session.taken) >= count)
        return self.bodies()


def _size(body):
    return HEADER_BYTES + MESSAGE_HEAD_BYTES + len(body)


def run(scenario, timeout_s=60):
    """Run a scenario, give up on one that hangs, and see that it leaves no task behind."""

    async def bounded():
        async with asyncio.timeout(timeout_s):
            result = await scenario()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.sleep(0)
        assert {task for task in left if not task.done()} == set()
        return result

    return asyncio.run(bounded())
