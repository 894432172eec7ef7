"""What the people of a simulated Bhumi town share: the world, the plan, and how requests and answers look.

Every answer is a function of recipient and preimage, so that a result that belongs to another request is recognised.
"""

import random
from collections.abc import Callable
from typing import Final

from waystation.core.ids import PublicKey
from waystation.crypto.hashing import sha256
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.envelope import hint_of, open_envelope, seal
from waystation.sim.observations import Observation
from waystation.sim.plan import Plan
from waystation.sim.world import World

__all__ = ["PROTOCOL", "Commons"]

PROTOCOL: Final = "bhumi"
_TAG_BYTES: Final = 16  # enough that two answers never look alike


class Commons:
    """Shared by all actors of one town."""

    def __init__(self, world: World, plan: Plan, rng: random.Random, observe: Callable[[Observation], None]) -> None:
        """Put it together.

        Args:
            world: The node and its network.
            plan: What this seed does.
            rng: Source of seals and fillers.
            observe: Gets every observation.
        """
        self.world = world
        self.plan = plan
        self.observe = observe
        self.troubled = True
        """False once the faults have ended: nobody misbehaves any more."""
        self._rng = rng
        self._connections = 0

    def next_connection(self) -> int:
        """Return a number for a connection, never used before."""
        self._connections += 1
        return self._connections

    def body_bytes(self, preimage: bytes) -> int:
        """Return how long the bodies of a request and its answer are."""
        least, most = self.plan.payload_bytes
        return least + int.from_bytes(preimage[:4], "big") % (most - least + 1)

    def write_request(self, recipient: bytes, preimage: bytes) -> bytes:
        """Return a request as it goes on the wire: it begins with the hint of its preimage."""
        body = self._rng.randbytes(self.body_bytes(preimage))
        if self.plan.envelope:
            return seal(recipient, preimage, body, self._rng)
        return hint_of(preimage) + body

    def answer_of(self, recipient: bytes, preimage: bytes) -> bytes:
        """Return what ``recipient`` answers to ``preimage``."""
        return sha256(b"answer" + recipient + preimage)[:_TAG_BYTES] + bytes(self.body_bytes(preimage))

    def write_answer(self, recipient: bytes, preimage: bytes, sender: bytes) -> bytes:
        """Return the answer as it goes on the wire; sealed only when the device knows for whom."""
        answer = self.answer_of(recipient, preimage)
        return seal(sender, preimage, answer, self._rng) if self.plan.envelope and sender else answer

    def read_answer(self, key_pair: KeyPair, payload: bytes) -> bytes:
        """Return the answer in a result's payload, or nothing when it cannot be opened."""
        if not self.plan.envelope or not payload:
            return payload
        return open_envelope(key_pair, payload) or b""

    def stranger(self) -> PublicKey:
        """Return an identity that nobody in town has."""
        return KeyPair.from_seed(self._rng.randbytes(32)).public
