"""A node in one hand: engine, recorder and a Bhumi relay, with what it recorded."""

import random
from typing import Any

from waystation.core.effects import Close, Peer, Send
from waystation.core.instant import Instant
from waystation.engine.admission import Admission
from waystation.engine.bans import BanList
from waystation.engine.node import Node
from waystation.engine.policy import Policy, Stance
from waystation.engine.recorder import Recorder
from waystation.protocols.bhumi.relay.machine import BhumiRelay
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.store.memory import MemoryStore

SECOND = 1_000_000
WALL = 1_700_000_000 * SECOND
KEY = b"k" * 32


class Rig:
    """A node with a clock; bytes that it sends are kept per peer."""

    def __init__(self, *, seed: int = 1, per_address: bool = True) -> None:
        self.now = Instant(50 * SECOND)
        self.events: list[Any] = []
        self.recorder = Recorder(self.events.append, random.Random(seed))
        self.recorder.set_wall(self.now, WALL)
        self.recorder.use_key(KEY)
        self.bans = BanList(MemoryStore())
        self.admission = Admission(per_address=per_address)
        self.policy = Policy(Stance.ENFORCE)
        self.policy.set_wall(self.now, WALL)
        self.policy.use_key(KEY)
        self.relay = BhumiRelay(BhumiSettings(), random.Random(seed))
        self.node = Node({"bhumi": self.relay}, self.admission, self.bans, self.recorder, self.policy)
        self.sent: dict[int, bytes] = {}
        self.closed: dict[int, Any] = {}

    def connect(self, host: str = "192.0.2.1") -> Peer:
        """Open and connect one peer."""
        assert self.node.open("bhumi", host, WALL, self.now)
        peer = self.node.connect("bhumi", host, self.now)
        self.settle()
        return peer

    def say(self, peer: Peer, data: bytes) -> None:
        """Let bytes of a peer arrive."""
        self.node.receive(peer, data, self.now)
        self.settle()

    def hear(self, peer: Peer) -> bytes:
        """Return and forget what was sent to a peer."""
        return self.sent.pop(peer, b"")

    def settle(self) -> list[Any]:
        """Carry out what the node asks for and return it."""
        done = []
        for _protocol, effects in self.node.take(self.now):
            done += effects
        for effect in done:
            if isinstance(effect, Send):
                self.sent[effect.peer] = self.sent.get(effect.peer, b"") + effect.data
            elif isinstance(effect, Close):
                self.closed[effect.peer] = effect.reason
        return done

    def pass_ms(self, duration_ms: int) -> None:
        """Let time pass, waking the node at each of its deadlines."""
        until, wakes = Instant(self.now + duration_ms * 1_000), 0
        while (deadline := self.node.deadline()) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            wakes += 1
            assert wakes < 20_000, "woken without end"
            self.node.wake(self.now)
            self.settle()
        self.now = until

    def kinds(self) -> list[str]:
        """Return the names of all events recorded."""
        return [type(event).__name__ for event in self.events]
