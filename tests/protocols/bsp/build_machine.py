"""A machine on a bench: its connections are lists of bytes, its disk is memory, its clock is a number."""

import random

from tests.protocols.bsp.build import GROUPS
from tests.protocols.bsp.build_streams import CERTIFICATE, FRIEND, US, changed, proof_of
from tests.protocols.refusing import commit_to
from waystation.core.effects import Close, Commit, Dial, Hold, Peer, Send
from waystation.core.facts import PeerIdentified, PeerLeft, Refused
from waystation.core.instant import Instant, after_ms
from waystation.core.settings import InForce
from waystation.protocols.bsp.device.links import Mode
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.limits import DEFAULT_LIMITS
from waystation.protocols.bsp.messages import Message
from waystation.protocols.bsp.profile import SEED
from waystation.protocols.bsp.stream.machine import BspMachine
from waystation.protocols.bsp.wire import encode, read_all
from waystation.store.memory import MemoryStore

__all__ = ["Bench", "Pair", "changed"]

WALL_US = 1_767_225_600_000_000


class Bench:
    """One machine and what it wants done."""

    def __init__(
        self,
        us=US,
        *,
        peers=(FRIEND,),
        profile=SEED,
        mode=Mode.BATCH,
        saves=True,
        limits=DEFAULT_LIMITS,
        store=None,
        **how,
    ):
        self.us = us
        self.profile = profile
        self.group = GROUPS[profile.name]
        self.store = store if store is not None else MemoryStore()
        self.device = BspDevice(profile, self.store, mode=mode)
        self.now = Instant(5_000_000)
        self.device.set_wall(self.now, WALL_US)
        self.device.join(self.group, self.now)
        for peer in peers:
            self.device.meet(peer.public)
            self.device.share(self.group.group_id, peer.public, self.now)
        self.limits = InForce(limits)
        self.machine = BspMachine(self.device, us, random.Random(7), limits=self.limits, **how)
        self.machine.use_certificate(CERTIFICATE)
        self.saves = saves
        """Whether commits reach the disk at once; else ``save`` lets them."""
        self.commits = []
        self.sends = []
        self.closes = {}
        self.holds = []
        self.dials = []
        self.facts = []
        self.events = []
        self._peers = 0

    def use_limits(self, limits):
        """Replace the limits in force."""
        self.limits.now = limits
        self.machine.adapt_to_limits()

    def settle(self):
        """Carry out effects until none is left."""
        while effects := self.machine.take():
            for effect in effects:
                self._carry_out(effect)
        self.events += self.machine.take_events()

    def _carry_out(self, effect):
        if isinstance(effect, Send):
            assert effect.peer not in self.closes
            self.sends.append(effect)
        elif isinstance(effect, Close):
            assert effect.peer not in self.closes
            self.closes[effect.peer] = effect
        elif isinstance(effect, Hold):
            self.holds.append(effect)
        elif isinstance(effect, Dial):
            self.dials.append(effect)
        elif isinstance(effect, Commit):
            self.commits.append(effect)
            if self.saves:
                self.save()
        else:
            assert isinstance(effect, PeerIdentified | PeerLeft | Refused)
            self.facts.append(effect)

    def save(self):
        """Let the commit that waits reach the disk."""
        commit = self.commits.pop()
        commit_to(self.store, self.machine, commit, self.now)

    def new_peer(self):
        self._peers += 1
        return Peer(self._peers)

    def come(self, door=""):
        """Let somebody connect."""
        peer = self.new_peer()
        self.machine.connect_by(peer, door, self.now, "192.0.2.1")
        self.settle()
        return peer

    def dialled(self, key, certificate=CERTIFICATE):
        """Let what was dialled stand."""
        peer = self.new_peer()
        self.machine.connect_upstream(peer, key.public.hex(), self.now, certificate)
        self.settle()
        return peer

    def say(self, peer, *chunks):
        """Let bytes arrive."""
        for chunk in chunks:
            self.machine.receive(peer, chunk, self.now)
        self.settle()

    def enter(self, client=FRIEND):
        """Let a client connect through TLS and prove itself; forget what was said until then."""
        peer = self.come()
        self.say(peer, proof_of(client, self.take_sent(peer)))
        self.take_sent(peer)
        return peer

    def pass_ms(self, ms):
        """Let time pass, and every deadline on the way ring."""
        until = after_ms(self.now, ms)
        while (due := self.machine.deadline()) is not None and due <= until:
            self.now = max(self.now, due)
            self.machine.wake(self.now)
            self.settle()
        self.now = until
        self.machine.wake(self.now)
        self.settle()

    def take_sent(self, peer):
        """Return and forget the bytes that were sent to somebody."""
        data = b"".join(send.data for send in self.sends if send.peer == peer)
        self.sends = [send for send in self.sends if send.peer != peer]
        return data

    def take_records(self, peer):
        """Return and forget the records that were sent to somebody."""
        return read_all(self.profile, self.take_sent(peer))

    def reason_of(self, peer):
        """Return why somebody was closed, None for who was not."""
        close = self.closes.get(peer)
        return None if close is None else close.reason

    def message(self, body=b"hello", timestamp=1):
        """Return a message of the group, not stored."""
        return Message(self.group.group_id, timestamp, body)

    def encoded(self, *records):
        return b"".join(encode(self.profile, record) for record in records)

    def id_of(self, message):
        return self.profile.message_id(*message)

    def add(self, body=b"hello", timestamp=1):
        """Create a message of our own."""
        message_id = self.device.add(self.group.group_id, timestamp, body, self.now)
        self.machine.wake(self.now)
        self.settle()
        return message_id

    def has(self, message):
        """Return whether a message is on disk and delivered."""
        vertex = self.device.vertex(self.group.group_id, self.id_of(message))
        return vertex is not None and bool(vertex.order)


class Pair:
    """Two machines, and the bytes between them, in chunks of any size."""

    def __init__(self, left, right, chunk_bytes=1 << 20):
        self.left, self.right = left, right
        self._chunk_bytes = chunk_bytes
        self._lines = []

    def line(self, left_peer, right_peer):
        """Connect a connection of the left with one of the right."""
        self._lines.append((left_peer, right_peer))

    def run(self):
        """Carry bytes and ends until nothing moves."""
        while sum(self._carry(*ends) for ends in self._lines):
            continue

    def _carry(self, left_peer, right_peer):
        moved = False
        for here, peer, there, other in (
            (self.left, left_peer, self.right, right_peer),
            (self.right, right_peer, self.left, left_peer),
        ):
            data = here.take_sent(peer)
            moved |= bool(data)
            chunks = [data[at : at + self._chunk_bytes] for at in range(0, len(data), self._chunk_bytes)]
            there.say(other, *chunks)
            if peer in here.closes and other not in there.closes:
                there.machine.disconnect(other, there.now)
                there.settle()
        return moved
