"""What all actors (simulated participants) of a Strata run share: relays, author keys, and all packets made.

``StrataScenario`` makes one. Readers verify packets with the keys in it, and the invariants ask who made a packet.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from waystation.core.dids import encode_did
from waystation.crypto.signing import KeyPair
from waystation.protocols.strata.client.machine import StrataClient
from waystation.protocols.strata.packet import Packet, make_packet
from waystation.sim.context import Context
from waystation.sim.schedule import Schedule
from waystation.sim.strata.observations import Made
from waystation.sim.strata.plan import StrataPlan

__all__ = ["PROTOCOL", "TYPES", "Author", "StrataContext"]

PROTOCOL: Final = "strata"
TYPES: Final = ("POST", "REPLY", "REACTION", "STATUS")


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


class StrataContext(Context[StrataPlan]):
    """Shared by all actors of one scenario."""

    protocol = PROTOCOL

    def __init__(
        self, schedule: Schedule, plan: StrataPlan, observe: Callable[[Any], None], make_client: type[StrataClient]
    ) -> None:
        """Put it together; see ``Context``. ``make_client`` makes the clients of publishers and readers."""
        super().__init__(schedule, plan, observe)
        self.make_client = make_client
        self.oks: list[list[bytes]] = []
        """Ids that were promised, by relay, in the order of the OKs."""
        self.relay_ids: list[str] = []
        self.made: dict[bytes, Packet] = {}
        self._keys: dict[str, tuple[bytes, ...]] = {}

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
