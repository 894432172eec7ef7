"""What the people of a MERK world share: the nodes, the plan, who is where, and every frame ever made."""

from collections import Counter, deque
from collections.abc import Callable
from itertools import islice
from typing import Any, Final, Protocol

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.crypto.hashing import sha256
from waystation.protocols.merk.client import MerkClient
from waystation.protocols.merk.messages import HASH_BYTES, HEADER_BYTES, KEY_BYTES
from waystation.protocols.merk.wire import frame_hash
from waystation.sim.link import End, Port
from waystation.sim.merk_plan import MerkPlan
from waystation.sim.merk_whereabouts import Whereabouts
from waystation.sim.schedule import Schedule
from waystation.sim.world import WALL_START_US, World

__all__ = ["MARGIN_US", "PINGS_US", "PROTOCOL", "MakeClient", "MerkCommons", "Site", "address_of"]

PROTOCOL: Final = "merk"
MARGIN_US: Final = 12 * MICROSECONDS_PER_SECOND  # a look-up of 5 s, a wrong location, and the look-up behind it
PINGS_US: Final = 40 * MICROSECONDS_PER_SECOND  # a WebSocket that answers no ping ends (specs/merk.md 8)
CROWD_US: Final = 6 * MICROSECONDS_PER_SECOND
CROWD_FRAMES: Final = 48  # a little less than the 64 frames and 256 KiB that may wait for one target
CROWD_BYTES: Final = 65_536
RECENT_FRAMES: Final = 8
_SENDER_AT: Final = 24

MakeClient = Callable[..., MerkClient]
"""``MerkClient`` itself, or a broken one in tests of the invariants."""


def address_of(node: int) -> str:
    """Return the address of a node, a name that counts as public."""
    return f"ws://node-{node}.sim"


class Site(Protocol):
    """Something that can be dialled."""

    @property
    def number(self) -> int | None:
        """Which node it is; None for a hostile one."""

    @property
    def is_thief(self) -> bool:
        """Whether it says that it has clients that it has not."""

    def is_there(self, caller: int) -> bool:
        """Return whether a connection from node ``caller`` gets through."""

    def reach(self, caller: int, end: End) -> Port:
        """Return the port of a new connection from node ``caller``."""


class MerkCommons:
    """Shared by all actors of one world."""

    def __init__(
        self, schedule: Schedule, plan: MerkPlan, observe: Callable[[Any], None], make_client: MakeClient
    ) -> None:
        """Put it together; nodes are added by whoever builds them.

        Args:
            schedule: The clock.
            plan: What this seed does.
            observe: Gets every observation.
            make_client: Makes the clients' machines.
        """
        self.schedule = schedule
        self.plan = plan
        self.observe = observe
        self.make_client = make_client
        self.worlds: list[World] = []
        self.node_keys: list[bytes] = []
        self.sites: dict[str, Site] = {}
        """Who answers at which address."""
        self.where = Whereabouts(schedule)
        self.troubled = True
        """False once the faults have ended: nobody misbehaves any more."""
        self.agreement_keys: dict[bytes, bytes] = {}
        """X25519 keys of clients."""
        self.bystanders: list[bytes] = []
        """Keys of hostile clients, to write to."""
        self.named_by_clients: set[str] = set()
        """Addresses that hostile clients, and nobody else, have named."""
        self.hopes: dict[tuple[bytes, bytes], str] = {}
        """What must come true after the faults: complaints by frame, or asker, and key."""
        self.denied: Counter[bytes] = Counter()
        """How often hostile nodes were sent a frame and said that they cannot deliver it."""
        self._made: dict[bytes, str] = {}
        self._authored: set[tuple[bytes, bytes]] = set()
        self._sent: dict[bytes, deque[tuple[Instant, int]]] = {}
        self._lines = 0

    @property
    def wall_ms(self) -> int:
        """Unix milliseconds now, the same for everybody."""
        return (WALL_START_US + self.schedule.now) // 1_000

    @property
    def targets_count(self) -> int:
        """How many keys have been written to, or are somebody's."""
        return len(self._sent.keys() | self.agreement_keys.keys())

    def add_node(self, world: World, key: bytes, site: Site) -> None:
        """Note a node; its number is how many there were before."""
        self.sites[address_of(len(self.worlds))] = site
        self.worlds.append(world)
        self.node_keys.append(key)

    def next_line(self) -> int:
        """Return a number for a connection, never used before."""
        self._lines += 1
        return self._lines

    def make(self, frame: bytes, origin: str = "honest") -> bytes:
        """Note a frame that somebody made, and return its name; ``origin`` as in ``Arrived``."""
        name = frame_hash(frame)
        self._made.setdefault(name, origin)
        if origin == "honest":
            self._authored.add((frame[_SENDER_AT : _SENDER_AT + KEY_BYTES], sha256(frame[HEADER_BYTES:])))
        return name

    def origin_of(self, name: bytes) -> str:
        """Return who made a frame that arrived."""
        return self._made.get(name, "nobody")

    def recent_frames(self) -> list[bytes]:
        """Return the names of the last frames, and one that nobody has made."""
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
