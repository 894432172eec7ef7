"""What the people of a Strata world share: the relays, the plan, the clock on the wall, and every packet ever made."""

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from waystation.core.dids import encode_did
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.crypto.signing import KeyPair
from waystation.protocols.strata.client import StrataClient
from waystation.protocols.strata.packet import Packet, make_packet
from waystation.sim.schedule import Schedule
from waystation.sim.strata_observations import Made
from waystation.sim.strata_plan import StrataPlan
from waystation.sim.world import WALL_START_US, World

__all__ = ["PROTOCOL", "TYPES", "Author", "MakeClient", "StrataCommons"]

PROTOCOL: Final = "strata"
TYPES: Final = ("POST", "REPLY", "REACTION", "STATUS")

MakeClient = Callable[..., StrataClient]
"""``StrataClient`` itself, or a broken one in tests of the invariants."""


class Author:
    """An identity and the keys it has had, the one in use last."""

    def __init__(self, rng: random.Random) -> None:
        """Make one with a fresh key."""
        self._rng = rng
        self.keys = [KeyPair.from_seed(rng.randbytes(32))]
        self.did = encode_did(self.keys[0].public)
        self.rotated = False
        """Whether an old key has been replaced."""

    @property
    def key(self) -> KeyPair:
        """The key in use."""
        return self.keys[-1]

    def next_key(self) -> KeyPair:
        """Return a key that is not in use yet."""
        return KeyPair.from_seed(self._rng.randbytes(32))


class StrataCommons:
    """Shared by all actors of one world."""

    def __init__(
        self,
        schedule: Schedule,
        plan: StrataPlan,
        observe: Callable[[Any], None],
        make_client: MakeClient,
    ) -> None:
        """Put it together; relays are added by whoever builds them.

        Args:
            schedule: The clock.
            plan: What this seed does.
            observe: Gets every observation.
            make_client: Makes the clients of publishers and readers.
        """
        self.schedule = schedule
        self.plan = plan
        self.observe = observe
        self.make_client = make_client
        self.worlds: list[World] = []
        self.oks: list[list[bytes]] = []
        """Ids that were promised, by relay, in the order of the OKs."""
        self.relay_ids: list[str] = []
        self.made: dict[bytes, Packet] = {}
        self.troubled = True
        """False once the faults have ended: nobody misbehaves any more."""
        self._keys: dict[str, tuple[bytes, ...]] = {}
        self._lines = 0

    @property
    def wall_s(self) -> int:
        """Unix seconds now, the same for everybody."""
        return (WALL_START_US + self.schedule.now) // MICROSECONDS_PER_SECOND

    def next_line(self) -> int:
        """Return a number for a connection, never used before."""
        self._lines += 1
        return self._lines

    def know_key(self, did: str, key: KeyPair) -> None:
        """Let readers know one more key of an author."""
        self._keys[did] = (*self._keys.get(did, ()), key.public)

    def keys_of(self, did: str, received_at: int) -> tuple[bytes, ...] | None:  # noqa: ARG002 - the shape of KeysOf
        """Return every key that an author of this world ever had; what a client's ``keys_of`` has to be."""
        return self._keys.get(did)

    def make(self, author: Author, content: Mapping[str, Any], timestamp: int, expires_at: int | None = None) -> Packet:
        """Return a packet that every relay must take."""
        packet = make_packet(
            author.key,
            content,
            timestamp=timestamp,
            author_id=author.did,
            expires_at=expires_at,
            nonce=str(len(self.made)),
        )
        self.add(packet)
        return packet

    def add(self, packet: Packet) -> None:
        """Note a packet that somebody made."""
        self.made[packet.packet_id] = packet
        self.observe(
            Made(
                packet.packet_id,
                packet.author_id,
                packet.content_type,
                packet.timestamp,
                packet.expires_at,
                packet.canonical,
            )
        )

    def is_genuine(self, packet_id: bytes, author_id: str, data: bytes) -> bool:
        """Return whether ``data`` holds a packet as it was made; relays may have made their descriptors themselves."""
        packet = self.made.get(packet_id)
        if packet is None:
            return author_id in self.relay_ids
        return packet.canonical in data
