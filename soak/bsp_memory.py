"""Memory of a node is bounded in each flood, and flat over its rounds, and honest devices are served after each.

The floods, each by a peer that the node knows, or by somebody whom it does not: offers of unknown identifiers, messages
of unknown groups, messages that wait for what never comes, requests for everything again and again, read and unread,
handshakes that nobody finishes, and connections that end at once.
"""

import random
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

from soak.bsp_device import GROUP
from soak.bsp_nodes import BspNode
from soak.bsp_raw import PATIENCE_S, RawPeer
from soak.nodes import rss_kib
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.formats import deps_v1_body
from waystation.protocols.bsp.messages import Ack, Message, Offer, Request
from waystation.protocols.bsp.profile import SEED
from waystation.protocols.bsp.refusals import Refusal

ROUNDS: Final = 4
DRIFT_KIB: Final = 8 * 1_024
GROWN_MAX_KIB: Final = 192 * 1_024
"""100,000 messages that wait are about 120 MiB with the identifiers that they wait for."""
GROWING: Final = ("pending", "half-open")
"""What waits grows until 100,000 wait; what a broken TLS handshake leaves waits for the garbage collector."""
IDS_PER_OFFER: Final = 2_000
HONEST: Final = 20
HALF_OPEN: Final = 200
BODY_BYTES: Final = 32
ALICE, BOB, MALLORY, STRANGER = (KeyPair.from_seed(bytes([number]) * 32) for number in range(1, 5))


def law(folder: Path, seed: int, messages: int = 120_000, connections: int = 2_000) -> str:
    """Say so many messages or identifiers of each kind, and make so many connections; return figures."""
    world = _World(folder, seed)
    with ExitStack() as stack:
        node = stack.enter_context(world.node)
        node.start()
        world.serve_honest()
        portion, visits = messages // ROUNDS, connections // ROUNDS
        floods: dict[str, Callable[[], None]] = {
            "offers": lambda: world.offer(portion * 10),
            "unknown groups": lambda: world.send(portion, pending=False),
            "pending": lambda: world.send(portion, pending=True),
            "requests": lambda: world.request(portion * 10, reads=True),
            "requests unread": lambda: world.request(portion * 10, reads=False),
            "half-open": lambda: world.half_open(min(HALF_OPEN, visits)),
            "visits": lambda: world.visit(visits),
        }
        told = [_rounds(name, world, make) for name, make in floods.items()]
        node.stop()
        assert "Traceback" not in node.log(), node.log()[-4_000:]
    return "; ".join(told)


def _rounds(name: str, world: "_World", make: Callable[[], None]) -> str:
    """Let a flood come several times; see that memory is bounded and flat, and that others are served after each."""
    before, after = rss_kib(world.node.pid), []
    for _ in range(ROUNDS):
        make()
        world.serve_honest()
        after.append(rss_kib(world.node.pid))
    shown = f"{name}: MiB before and after each round {before >> 10}: " + " ".join(f"{each >> 10}" for each in after)
    print(shown, flush=True)
    *first, last = after
    assert max(after) - before <= GROWN_MAX_KIB, shown
    if name not in GROWING:
        assert last <= max(first) + DRIFT_KIB, shown
    return shown


class _World:
    """A node that knows three devices, one of whom means no good."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._rng = random.Random(seed)
        self.node = BspNode(folder / "home", [each.public for each in (ALICE, BOB, MALLORY)])
        self._honest_count = 0
        self._shared: list[bytes] = []

    def serve_honest(self) -> None:
        """Let Alice say something and Bob get it."""
        with closing(self._enter(ALICE)) as alice, closing(self._enter(BOB)) as bob:
            said = [self._message(GROUP.group_id, ()) for _ in range(HONEST)]
            alice.say(*said)
            owed = {_id_of(each) for each in said}
            self._shared += owed
            ends_at = time.monotonic() + PATIENCE_S
            while owed:
                assert time.monotonic() < ends_at, f"Bob lacks {len(owed)}"
                for record in bob.read():
                    if isinstance(record, Offer):
                        bob.say(Request(record.ids))
                    elif isinstance(record, Message):
                        bob.say(Ack((_id_of(record),)))
                        owed.discard(_id_of(record))

    def offer(self, count: int) -> None:
        """Offer identifiers that nobody has; the node asks for them, and gets nothing."""
        with closing(self._enter(MALLORY)) as mallory:
            for _ in range(0, count, IDS_PER_OFFER):
                mallory.say(Offer(tuple(self._rng.randbytes(32) for _ in range(IDS_PER_OFFER))))
                mallory.read_ready()
            self._be_heard(mallory)

    def send(self, count: int, *, pending: bool) -> None:
        """Send messages of groups that nobody knows, or of ours that wait for what never comes."""
        with closing(self._enter(MALLORY)) as mallory:
            for at in range(0, count, 500):
                many = [
                    self._message(
                        GROUP.group_id if pending else self._rng.randbytes(32),
                        (self._rng.randbytes(32),) if pending else (),
                    )
                    for _ in range(min(500, count - at))
                ]
                mallory.say(*many)
                mallory.read_ready()
            self._be_heard(mallory)

    def request(self, count: int, *, reads: bool) -> None:
        """Ask again and again for everything that there is, and for as much that there is not."""
        with closing(self._enter(MALLORY)) as mallory:
            for _ in range(0, count, IDS_PER_OFFER):
                held = self._rng.choices(self._shared, k=IDS_PER_OFFER // 2)
                unknown = [self._rng.randbytes(32) for _ in range(IDS_PER_OFFER // 2)]
                mallory.say(Request((*held, *unknown)))
                if reads:
                    mallory.read_ready()
            if reads:
                self._be_heard(mallory)

    def half_open(self, count: int) -> None:
        """Stand at the door with TLS and without, say half of a proof or nothing, and go after a while."""
        standing = [RawPeer(self.node.port) for _ in range(count // 2)]
        bare = [socket.create_connection(("127.0.0.1", self.node.port)) for _ in range(count // 2)]
        for peer in standing[::2]:
            peer.say_bytes(b"BSPH\x01\0\0\0" + bytes(40))
        self.serve_honest()
        for peer in standing:
            peer.close()
        for stranger in bare:
            stranger.close()

    def visit(self, count: int) -> None:
        """Come and go: unknown keys, known ones, and such as say nothing."""
        for number in range(count):
            with closing(RawPeer(self.node.port)) as peer:
                if number % 3 == 0:
                    assert peer.shake_hands(STRANGER, self.node.key.public) is Refusal.REFUSED_BY_PEER
                elif number % 3 == 1:
                    assert peer.shake_hands(MALLORY, self.node.key.public) is None

    def _enter(self, key: KeyPair) -> RawPeer:
        peer = RawPeer(self.node.port)
        refusal = peer.shake_hands(key, self.node.key.public)
        assert refusal is None, refusal
        return peer

    def _be_heard(self, mallory: RawPeer) -> None:
        """Return once the node has taken all that was said: it acknowledges a last message, which is like any other."""
        last = self._message(GROUP.group_id, ())
        mallory.say(last)
        ends_at = time.monotonic() + PATIENCE_S
        wanted = _id_of(last)
        while not any(isinstance(record, Ack) and wanted in record.ids for record in mallory.read()):
            assert time.monotonic() < ends_at, "the node did not answer"

    def _message(self, group_id: bytes, dependencies: tuple[bytes, ...]) -> Message:
        self._honest_count += 1
        body = deps_v1_body(dependencies, self._rng.randbytes(BODY_BYTES))
        return Message(group_id, self._honest_count, body)


def _id_of(message: Message) -> bytes:
    return SEED.message_id(*message)
