"""What all actors (simulated participants) of a Bhumi run share: relays, clocks, true device locations, contents.

``BhumiScenario`` makes one and gives it to every device, sender and relay. An answer is a function of the recipient and
the preimage (the 32-byte secret that permits one request). A result that belongs to another request is therefore
recognised.
"""

import random
from collections.abc import Callable
from typing import Any, Final, TypeVar

from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_MS, MICROSECONDS_PER_SECOND, Instant
from waystation.core.machine import Machine
from waystation.crypto.hashing import sha256
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.extension_messages import Presence
from waystation.protocols.bhumi.extension_wire import encode_record
from waystation.protocols.bhumi.payload.envelope import hint_of, open_envelope, seal
from waystation.protocols.bhumi.signed_records import sign_presence
from waystation.sim.bhumi import observations as seen
from waystation.sim.bhumi.plan import BhumiPlan
from waystation.sim.context import Context, Dialable
from waystation.sim.driver import Driver
from waystation.sim.schedule import Schedule
from waystation.sim.world import WALL_START_US, World

__all__ = ["PROTOCOL", "ROUND_US", "BhumiContext", "Clock", "Location", "address_of", "node_of"]

PROTOCOL: Final = "bhumi"
ROUND_US: Final = 33 * MICROSECONDS_PER_SECOND  # the longest round of gossip, BHUMI-GOSSIP
_PORT: Final = 4819
_TAG_BYTES: Final = 16  # enough that two answers never look alike


def address_of(node: int) -> str:
    """Return the address of a relay, a name that counts as public."""
    return f"tcp://relay-{node}.sim:{_PORT}"


def node_of(address: str) -> int | None:
    """Return which relay has an address; None for everything else."""
    prefix, suffix = address_of(0).split("0", 1)
    if address.startswith(prefix) and address.endswith(suffix):
        number = address[len(prefix) : len(address) - len(suffix)]
        return int(number) if number.isdecimal() else None
    return None


M = TypeVar("M", bound=Machine)


class Clock:
    """A wall clock: it runs as fast as every other, and is off by as much as the plan lets it."""

    def __init__(self, schedule: Schedule, rng: random.Random, off_ms: int) -> None:
        """Set a clock wrong by up to ``off_ms`` milliseconds."""
        self._schedule = schedule
        self.offset_us = WALL_START_US + rng.randint(-off_ms, off_ms) * MICROSECONDS_PER_MS
        """What it shows less the simulated instant, microseconds."""

    @property
    def unix_s(self) -> int:
        """Unix seconds as this clock has them."""
        return (self._schedule.now + self.offset_us) // MICROSECONDS_PER_SECOND


class Location:
    """Where a device is: the truth that look-ups are compared with."""

    def __init__(self) -> None:
        self.node: int | None = None
        """The relay that has its presence; None while it has no relay."""
        self.since = Instant(0)
        """When that relay read it."""

    def arrive(self, node: int, now: Instant) -> None:
        """The relay has read a presence; only the first one there is a move."""
        if node != self.node:
            self.node, self.since = node, now

    def depart(self) -> None:
        """The device has no relay."""
        self.node = None


class BhumiContext(Context[BhumiPlan]):
    """Shared by all actors of one scenario."""

    protocol = PROTOCOL

    def __init__(self, schedule: Schedule, plan: BhumiPlan, rng: random.Random, observe: Callable[[Any], None]) -> None:
        """Begin without relays; see ``Context``. ``rng`` draws seals and fillers."""
        super().__init__(schedule, plan, observe)
        self.keys: list[PublicKey] = []
        """Of relays, by number."""
        self.locations: dict[bytes, Location] = {}
        """Where each honest device is."""
        self.suspects: list[PublicKey] = []
        """Identities of hostile clients."""
        self.far_side: frozenset[int] = frozenset()
        """Relays that cannot be reached by those that are not among them, nor reach them."""
        self._rng = rng

    @property
    def open_nodes(self) -> list[int]:
        """Relays that advertise their address."""
        return [node for node in range(self.plan.relays) if node not in self.plan.hidden]

    def add_relay(self, world: World, key: PublicKey, site: Dialable) -> None:
        """Note a relay; its number is how many there were before."""
        self.sites[address_of(len(self.worlds))] = site
        self.worlds.append(world)
        self.keys.append(key)

    def dial(
        self, node: int, host: str, machine: M, on_turn: Callable[[], None], on_end: Callable[[str], None]
    ) -> Driver[M]:
        """Connect a client's machine to a relay; see ``Driver``."""
        return Driver(self.worlds[node], PROTOCOL, host, machine, self.plan.link, on_turn, on_end)

    def is_honest(self, host_or_url: str) -> bool:
        """Return whether an honest peer has this IP address, or is dialled by this address."""
        site = self.sites.get(host_or_url)
        return site.number is not None if site else host_or_url.startswith(("10.1.", "10.2.", "10.9."))

    def are_parted(self, one: int, other: int) -> bool:
        """Return whether two relays cannot reach each other now."""
        return (one in self.far_side) is not (other in self.far_side)

    def sign(
        self, key_pair: KeyPair, relay: PublicKey, issued_at_s: int, ttl_s: int, *, is_honest: bool = True
    ) -> Presence:
        """Sign a presence with its owner's key, and let the invariants know of it."""
        presence = sign_presence(key_pair, relay, issued_at_s, ttl_s)
        self.observe(seen.Made(encode_record(presence), is_honest))
        return presence

    def is_due(self, identity: bytes, node: int) -> bool:
        """Return whether a relay must know where a device is: a round of gossip has passed since both are there."""
        location = self.locations[identity]
        return location.node is not None and self.schedule.now - location.since > ROUND_US and self.worlds[node].is_up

    def request(self, recipient: bytes, preimage: bytes) -> bytes:
        """Return a request as it goes on the wire: it begins with the hint of its preimage."""
        body = self._rng.randbytes(_length(self.plan.request_bytes, preimage))
        return seal(recipient, preimage, body, self._rng) if self.plan.envelope else hint_of(preimage) + body

    def answer_of(self, recipient: bytes, preimage: bytes) -> bytes:
        """Return what ``recipient`` answers to ``preimage``."""
        tag = sha256(b"answer" + recipient + preimage)[:_TAG_BYTES]
        return tag + bytes(_length(self.plan.answer_bytes, preimage))

    def write_answer(self, recipient: bytes, preimage: bytes, sender: bytes) -> bytes:
        """Return the answer as it goes on the wire; sealed only when the device knows for whom."""
        answer = self.answer_of(recipient, preimage)
        return seal(sender, preimage, answer, self._rng) if self.plan.envelope and sender else answer

    def read_answer(self, key_pair: KeyPair, payload: bytes) -> bytes:
        """Return the answer in a result's payload, or nothing when it cannot be opened."""
        return (open_envelope(key_pair, payload) or b"") if self.plan.envelope and payload else payload


def _length(limits: tuple[int, int], preimage: bytes) -> int:
    """Return a length within ``limits`` that depends on the preimage only."""
    least, most = limits
    return least + int.from_bytes(preimage[:4], "big") % (most - least + 1)
