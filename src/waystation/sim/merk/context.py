"""What all actors (simulated participants) of a MERK run share: nodes, client connections, and all frames made.

``MerkScenario`` makes one. The invariants ask who made a frame, since a relay may pass a client's frame on but never
make one.
"""

from collections import Counter, deque
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.crypto.hashing import sha256
from waystation.protocols.merk.client.machine import MerkClient
from waystation.protocols.merk.messages import HASH_BYTES, HEADER_BYTES, KEY_BYTES
from waystation.protocols.merk.wire import frame_hash
from waystation.sim.context import Context, Dialable
from waystation.sim.merk.plan import MerkPlan
from waystation.sim.merk.presences import Presences
from waystation.sim.schedule import Schedule
from waystation.sim.world import World

__all__ = ["MARGIN_US", "PROTOCOL", "MerkContext", "address_of"]

PROTOCOL: Final = "merk"
MARGIN_US: Final = 12 * MICROSECONDS_PER_SECOND  # a look-up of 5 s, a wrong location, and the look-up after it
CROWD_US: Final = 6 * MICROSECONDS_PER_SECOND
CROWD_FRAMES: Final = 48  # a little less than the 64 frames and 256 KiB that may wait for one target
CROWD_BYTES: Final = 65_536
RECENT_FRAMES: Final = 8
_SENDER_AT: Final = 24


def address_of(node: int) -> str:
    """Return the address of a node, a name that counts as public."""
    return f"ws://node-{node}.sim"


class MerkContext(Context[MerkPlan]):
    """Shared by all actors of one scenario."""

    protocol = PROTOCOL

    def __init__(
        self, schedule: Schedule, plan: MerkPlan, observe: Callable[[Any], None], make_client: type[MerkClient]
    ) -> None:
        """Put it together; see ``Context``. ``make_client`` makes the clients' machines."""
        super().__init__(schedule, plan, observe)
        self.make_client = make_client
        self.node_keys: list[bytes] = []
        self.presences = Presences(schedule)
        self.agreement_keys: dict[bytes, bytes] = {}
        """X25519 keys of clients."""
        self.hostile_keys: list[bytes] = []
        """Keys of hostile clients, to write to."""
        self.named_by_clients: set[str] = set()
        """Addresses that hostile clients, and no other peer, have named."""
        self.thieves: set[str] = set()
        """Addresses of hostile nodes that claim to have every client."""
        self.denied: Counter[bytes] = Counter()
        """How often hostile nodes were sent a frame and said that they cannot deliver it."""
        self._made: dict[bytes, str] = {}
        self._authored: set[tuple[bytes, bytes]] = set()
        self._sent: dict[bytes, deque[tuple[Instant, int]]] = {}

    @property
    def targets_count(self) -> int:
        """How many keys have been written to, or belong to a client."""
        return len(self._sent.keys() | self.agreement_keys.keys())

    def add_node(self, world: World, key: bytes, site: Dialable) -> None:
        """Note a node; its number is how many there were before."""
        self.sites[address_of(len(self.worlds))] = site
        self.worlds.append(world)
        self.node_keys.append(key)

    def make(self, frame: bytes, origin: str = "honest") -> bytes:
        """Note a frame that an actor made, and return its name; ``origin`` as in ``Arrived``."""
        name = frame_hash(frame)
        self._made.setdefault(name, origin)
        if origin == "honest":
            self._authored.add((frame[_SENDER_AT : _SENDER_AT + KEY_BYTES], sha256(frame[HEADER_BYTES:])))
        return name

    def origin_of(self, name: bytes) -> str:
        """Return who made a frame that arrived."""
        return self._made.get(name, "nobody")

    def recent_frames(self) -> list[bytes]:
        """Return the names of the last frames, and one that no actor has made."""
        return [*islice(reversed(self._made), RECENT_FRAMES), bytes(HASH_BYTES)]

    def is_authored(self, fingerprint: tuple[bytes, bytes]) -> bool:
        """Return whether a sender has made a message with this hash."""
        return fingerprint in self._authored

    def note_sent(self, target: bytes, size_bytes: int) -> None:
        """Count a frame for a target, whoever sends it."""
        self._sent.setdefault(target, deque(maxlen=4 * CROWD_FRAMES)).append((self.schedule.now, size_bytes))

    def is_crowded(self, target: bytes, around: Instant) -> bool:
        """Return whether enough was sent to a target around an instant to fill a queue."""
        sizes = [size for at, size in self._sent.get(target, ()) if abs(at - around) < CROWD_US]
        return len(sizes) >= CROWD_FRAMES or sum(sizes) >= CROWD_BYTES
