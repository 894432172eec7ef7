"""Tests that a BSP node's memory stays bounded and flat under each flood, and that honest devices are then served.

Each flood is sent by a known or an unknown peer. The floods are: offers of unknown identifiers, messages of unknown
groups, messages with missing dependencies, repeated requests for everything (read and unread), unfinished handshakes,
and short connections.
"""

import random
import socket
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from soak.bsp.device import GROUP
from soak.bsp.nodes import BspNode
from soak.bsp.raw import TIMEOUT_S, RawPeer
from soak.invariants import ROUNDS, ended_well, flat_under_floods
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.graph.formats import deps_v1_body
from waystation.protocols.bsp.messages import Ack, Message, Offer, Request
from waystation.protocols.bsp.profile import SEED
from waystation.protocols.bsp.refusals import Refusal

DRIFT_KIB: Final = 8 * 1_024
GROWN_MAX_KIB: Final = 192 * 1_024
"""100,000 messages that wait are about 120 MiB with the identifiers that they wait for."""
GROWING: Final = ("pending", "half-open")
"""What waits grows until 100,000 wait; what a broken TLS handshake leaves waits for the garbage collector."""
IDS_PER_OFFER: Final = 2_000
HONEST: Final = 20
HALF_OPEN: Final = 200
BODY_BYTES: Final = 32
ALICE, BOB, MALLORY, UNKNOWN = (KeyPair.from_seed(bytes([number]) * 32) for number in range(1, 5))


def check(folder: Path, seed: int, messages: int = 120_000, connections: int = 2_000) -> str:
    """Say so many messages or identifiers of each kind, and make so many connections; return figures."""
    clients = _Clients(folder, seed)
    with ended_well(clients.node):
        clients.node.start()
        clients.serve_honest()
        portion, visits = messages // ROUNDS, connections // ROUNDS
        floods: dict[str, Callable[[], None]] = {
            "offers": lambda: clients.offer(portion * 10),
            "unknown groups": lambda: clients.send(portion, pending=False),
            "pending": lambda: clients.send(portion, pending=True),
            "requests": lambda: clients.request(portion * 10, reads=True),
            "requests unread": lambda: clients.request(portion * 10, reads=False),
            "half-open": lambda: clients.half_open(min(HALF_OPEN, visits)),
            "visits": lambda: clients.visit(visits),
        }
        return flat_under_floods(clients.node, floods, clients.serve_honest, GROWN_MAX_KIB, DRIFT_KIB, GROWING)


class _Clients:
    """A node that knows three devices, one of which is an adversary."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._rng = random.Random(seed)
        self.node = BspNode(folder / "home", [each.public for each in (ALICE, BOB, MALLORY)])
        self._honest_count = 0
        self._shared: list[bytes] = []

    def serve_honest(self) -> None:
        """Let Alice send something and Bob receive it."""
        with closing(self._enter(ALICE)) as alice, closing(self._enter(BOB)) as bob:
            sent = [self._message(GROUP.group_id, ()) for _ in range(HONEST)]
            alice.send(*sent)
            owed = {_id_of(each) for each in sent}
            self._shared += owed
            ends_at = time.monotonic() + TIMEOUT_S
            while owed:
                assert time.monotonic() < ends_at, f"Bob lacks {len(owed)}"
                for record in bob.read():
                    if isinstance(record, Offer):
                        bob.send(Request(record.ids))
                    elif isinstance(record, Message):
                        bob.send(Ack((_id_of(record),)))
                        owed.discard(_id_of(record))

    def offer(self, count: int) -> None:
        """Offer unknown identifiers; the node asks for them, and gets nothing."""
        with closing(self._enter(MALLORY)) as mallory:
            for _ in range(0, count, IDS_PER_OFFER):
                mallory.send(Offer(tuple(self._rng.randbytes(32) for _ in range(IDS_PER_OFFER))))
                mallory.read_ready()
            self._be_heard(mallory)

    def send(self, count: int, *, pending: bool) -> None:
        """Send messages of unknown groups, or of ours that wait for what never comes."""
        with closing(self._enter(MALLORY)) as mallory:
            for at in range(0, count, 500):
                many = [
                    self._message(
                        GROUP.group_id if pending else self._rng.randbytes(32),
                        (self._rng.randbytes(32),) if pending else (),
                    )
                    for _ in range(min(500, count - at))
                ]
                mallory.send(*many)
                mallory.read_ready()
            self._be_heard(mallory)

    def request(self, count: int, *, reads: bool) -> None:
        """Ask again and again for everything that there is, and for as much that there is not."""
        with closing(self._enter(MALLORY)) as mallory:
            for _ in range(0, count, IDS_PER_OFFER):
                held = self._rng.choices(self._shared, k=IDS_PER_OFFER // 2)
                unknown = [self._rng.randbytes(32) for _ in range(IDS_PER_OFFER // 2)]
                mallory.send(Request((*held, *unknown)))
                if reads:
                    mallory.read_ready()
            if reads:
                self._be_heard(mallory)

    def half_open(self, count: int) -> None:
        """Connect with TLS and without, send half of a proof or nothing, and close after a while."""
        connected = [RawPeer(self.node.port) for _ in range(count // 2)]
        bare = [socket.create_connection(("127.0.0.1", self.node.port)) for _ in range(count // 2)]
        for peer in connected[::2]:
            peer.send_bytes(b"BSPH\x01\0\0\0" + bytes(40))
        self.serve_honest()
        for peer in connected:
            peer.close()
        for each in bare:
            each.close()

    def visit(self, count: int) -> None:
        """Connect and close: unknown keys, known ones, and peers that send nothing."""
        for number in range(count):
            with closing(RawPeer(self.node.port)) as peer:
                if number % 3 == 0:
                    assert peer.shake_hands(UNKNOWN, self.node.key) is Refusal.REFUSED_BY_PEER
                elif number % 3 == 1:
                    assert peer.shake_hands(MALLORY, self.node.key) is None

    def _enter(self, key: KeyPair) -> RawPeer:
        peer = RawPeer(self.node.port)
        refusal = peer.shake_hands(key, self.node.key)
        assert refusal is None, refusal
        return peer

    def _be_heard(self, mallory: RawPeer) -> None:
        """Return once the node has taken all that was sent: it acknowledges a last message, which is like any other."""
        last = self._message(GROUP.group_id, ())
        mallory.send(last)
        ends_at = time.monotonic() + TIMEOUT_S
        wanted = _id_of(last)
        while not any(isinstance(record, Ack) and wanted in record.ids for record in mallory.read()):
            assert time.monotonic() < ends_at, "the node did not answer"

    def _message(self, group_id: bytes, dependencies: tuple[bytes, ...]) -> Message:
        self._honest_count += 1
        body = deps_v1_body(dependencies, self._rng.randbytes(BODY_BYTES))
        return Message(group_id, self._honest_count, body)


def _id_of(message: Message) -> bytes:
    return SEED.message_id(*message)
