"""What all actors (simulated participants) of a MERK run share: nodes, client connections, and all frames made.

``MerkScenario`` makes one. The invariants ask who made a frame, since a relay may pass a client's frame on but never
make one.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.crypto.hashing import sha256
from waystation.protocols.merk.client.awaited_reads import AwaitedReads
from waystation.protocols.merk.client.machine import MerkClient
from waystation.protocols.merk.messages import HASH_BYTES, HEADER_BYTES, KEY_BYTES, MessageType
from waystation.protocols.merk.wire import frame_hash, is_frame_signed
from waystation.sim.context import Context, Dialable
from waystation.sim.merk.plan import MerkPlan
from waystation.sim.merk.presences import Presences
from waystation.sim.schedule import Schedule
from waystation.sim.world import World

__all__ = ["CARRIED", "MARGIN_US", "PROTOCOL", "MerkContext", "address_of"]

PROTOCOL: Final = "merk"
MARGIN_US: Final = 12 * MICROSECONDS_PER_SECOND  # a look-up of 5 s, a wrong location, and the look-up after it
CROWD_US: Final = 6 * MICROSECONDS_PER_SECOND
CROWD_FRAMES: Final = 48  # a little less than the 64 frames and 256 KiB that may wait for one target
CROWD_BYTES: Final = 24_576  # and of a quarter of twice the smallest largest frame, which one sender may fill
RECENT_FRAMES: Final = 8
CARRIED: Final = frozenset({MessageType.DATA, MessageType.SIGNED_DATA, MessageType.ENCRYPTED_DATA})
RECOGNISED_US: Final = 35 * MICROSECONDS_PER_SECOND  # the longest wait between two dials of a configured address
_SENDER_AT: Final = 24
_CIPHER_AT: Final = HEADER_BYTES + KEY_BYTES  # behind the target


def address_of(node: int) -> str:
    """Return the address of a node, a name that counts as public."""
    return f"ws://node-{node}.sim"


class MerkContext(Context[MerkPlan]):
    """Shared by all actors of one scenario."""

    protocol = PROTOCOL

    def __init__(
        self,
        schedule: Schedule,
        plan: MerkPlan,
        observe: Callable[[Any], None],
        make_client: type[MerkClient],
        make_reads: type[AwaitedReads],
    ) -> None:
        """Put it together; see ``Context``. The last two make the clients' machines, and what matches receipts."""
        super().__init__(schedule, plan, observe)
        self.make_client = make_client
        self.make_reads = make_reads
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
        self.named: defaultdict[int, set[int]] = defaultdict(set)
        """Numbers of the nodes that each node's operator has named."""
        self.signers: dict[bytes, Callable[[bytes], bytes]] = {}
        """How clients with extensions sign the challenge of a hostile relay, by key; they also prove themselves."""
        self.lives: dict[int, Instant] = {}
        """When the present life of each node began."""
        self.overheard: deque[bytes] = deque(maxlen=RECENT_FRAMES)
        """Frames of honest clients that hostile nodes have seen on the wire."""
        self.receipts: deque[bytes] = deque(maxlen=RECENT_FRAMES)
        """The last frames that carry a receipt, of all owners of mailboxes."""
        self.message_ids: deque[bytes] = deque(maxlen=RECENT_FRAMES)
        """Ids of the last messages to them."""
        self._aimed: dict[bytes, bytes] = {}
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
            self.overheard.append(frame)
            self._aimed[sha256(frame[_CIPHER_AT:])] = frame[HEADER_BYTES:_CIPHER_AT]
            self._authored.add((frame[_SENDER_AT : _SENDER_AT + KEY_BYTES], sha256(frame[HEADER_BYTES:])))
        return name

    def origin_of(self, name: bytes) -> str:
        """Return who made a frame that arrived."""
        return self._made.get(name, "nobody")

    def target_of_secret(self, frame: bytes) -> bytes | None:
        """Return for whom what a frame carries was made, whoever it is aimed at now; None for what no client made."""
        return self._aimed.get(sha256(frame[_CIPHER_AT:]))

    def crosses(self, frame: bytes, target: bytes, node: int, other: int, since: Instant) -> bool:
        """Return whether ``other`` must take a frame of ``node`` for a client of its own (MERK-PRESENCE, MERK-UNNAMED).

        The client signs its presence, or ``node`` has named ``other``; the sender has signed, or ``other`` has named
        ``node``. A named node is known as such once a dial was answered, which may take half a minute.
        """
        if node == other:
            return True
        long_linked = self.presences.is_linked(node, other, Instant(since - RECOGNISED_US))
        if target not in self.signers and not (long_linked and other in self.named[node]):
            return False
        return is_frame_signed(frame) or (long_linked and node in self.named[other])

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
