"""What the people of an open Bhumi world share: relays, clocks, who is where, and every record that was ever signed."""

import random
from collections.abc import Callable
from typing import Any, Final, Protocol

from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_MS, MICROSECONDS_PER_SECOND, Instant
from waystation.crypto.hashing import sha256
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.envelope import hint_of
from waystation.protocols.bhumi.extension_messages import Presence
from waystation.protocols.bhumi.extension_wire import encode_record
from waystation.protocols.bhumi.signed_records import sign_presence
from waystation.sim import bhumi_open_observations as seen
from waystation.sim.bhumi_open_plan import OpenPlan
from waystation.sim.link import End, Port
from waystation.sim.schedule import Schedule
from waystation.sim.world import WALL_START_US, World

__all__ = ["PROTOCOL", "ROUND_US", "Clock", "OpenCommons", "Place", "Site", "address_of", "node_of"]

PROTOCOL: Final = "bhumi"
ROUND_US: Final = 33 * MICROSECONDS_PER_SECOND  # the longest round of gossip, BHUMI-GOSSIP
_PORT: Final = 4819
_TAG_BYTES: Final = 16
_BODY_BYTES: Final = 24


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


class Clock:
    """Somebody's wall clock: it runs as fast as everybody's, and is off by as much as the plan lets it."""

    def __init__(self, schedule: Schedule, rng: random.Random, off_ms: int) -> None:
        """Set a clock wrong by up to ``off_ms`` milliseconds."""
        self._schedule = schedule
        self.offset_us = WALL_START_US + rng.randint(-off_ms, off_ms) * MICROSECONDS_PER_MS
        """What it shows less the simulated instant, microseconds."""

    @property
    def unix_s(self) -> int:
        """Unix seconds as this clock has them."""
        return (self._schedule.now + self.offset_us) // MICROSECONDS_PER_SECOND


class Place:
    """Where a device is: the truth that look-ups are compared with."""

    def __init__(self) -> None:
        self.node: int | None = None
        """The relay that has its presence; None while it has no relay."""
        self.since = Instant(0)
        """When that relay was told."""

    def arrive(self, node: int, now: Instant) -> None:
        """The relay has read a presence; only the first one there is a move."""
        if node != self.node:
            self.node, self.since = node, now

    def depart(self) -> None:
        """The device has no relay."""
        self.node = None


class Site(Protocol):
    """Something that relays can dial."""

    @property
    def is_honest(self) -> bool:
        """Whether it keeps to the protocol."""

    def is_there(self, caller: int) -> bool:
        """Return whether a connection from relay ``caller`` gets through."""

    def reach(self, caller: int, end: End) -> Port:
        """Return the port of a new connection from relay ``caller``."""


class OpenCommons:
    """Shared by all actors of one world."""

    def __init__(self, schedule: Schedule, plan: OpenPlan, rng: random.Random, observe: Callable[[Any], None]) -> None:
        """Put it together; relays are added by whoever builds them.

        Args:
            schedule: The clock.
            plan: What this seed does.
            rng: Source of fillers.
            observe: Gets every observation.
        """
        self.schedule = schedule
        self.plan = plan
        self.observe = observe
        self.worlds: list[World] = []
        self.keys: list[PublicKey] = []
        """Of relays, by number."""
        self.sites: dict[str, Site] = {}
        """Who answers at which address."""
        self.places: dict[bytes, Place] = {}
        """Where each honest device is."""
        self.suspects: list[PublicKey] = []
        """Identities of hostile clients."""
        self.troubled = True
        """False once the faults have ended: nobody misbehaves any more."""
        self.far_side: frozenset[int] = frozenset()
        """Relays that cannot be reached by those that are not among them, nor reach them."""
        self.hopes: dict[int, str] = {}
        """What must come true after the faults: complaints by number."""
        self._rng = rng
        self._connections = 0
        self._hopes = 0

    @property
    def open_nodes(self) -> list[int]:
        """Relays that tell their address."""
        return [node for node in range(self.plan.relays) if node not in self.plan.hidden]

    def add_relay(self, world: World, key: PublicKey, site: Site) -> None:
        """Note a relay; its number is how many there were before."""
        self.sites[address_of(len(self.worlds))] = site
        self.worlds.append(world)
        self.keys.append(key)

    def is_honest(self, host_or_url: str) -> bool:
        """Return whether an honest peer has this IP address, or is dialled by this address."""
        site = self.sites.get(host_or_url)
        return site.is_honest if site is not None else host_or_url.startswith(("10.1.", "10.2.", "10.9."))

    def are_parted(self, one: int, other: int) -> bool:
        """Return whether two relays cannot reach each other now."""
        return (one in self.far_side) is not (other in self.far_side)

    def next_connection(self) -> int:
        """Return a number for a connection, never used before."""
        self._connections += 1
        return self._connections

    def hope(self, what: str) -> int:
        """Note that something must come true; return a number for ``fulfil``."""
        self._hopes += 1
        self.hopes[self._hopes] = what
        return self._hopes

    def fulfil(self, number: int) -> None:
        """It came true; what did before is fine."""
        self.hopes.pop(number, None)

    def sign(
        self, key_pair: KeyPair, relay: PublicKey, issued_at_s: int, ttl_s: int, *, is_honest: bool = True
    ) -> Presence:
        """Sign a presence in the name of its owner, and let the laws know of it."""
        presence = sign_presence(key_pair, relay, issued_at_s, ttl_s)
        self.observe(seen.Made(encode_record(presence), is_honest))
        return presence

    def is_due(self, identity: bytes, node: int) -> bool:
        """Return whether a relay must know where a device is: a round of gossip has passed since both are there."""
        place = self.places[identity]
        return place.node is not None and self.schedule.now - place.since > ROUND_US and self.worlds[node].is_up

    def request(self, preimage: bytes) -> bytes:
        """Return a request: it begins with the hint of its preimage."""
        return hint_of(preimage) + self._rng.randbytes(_BODY_BYTES)

    def answer_of(self, recipient: bytes, preimage: bytes) -> bytes:
        """Return what ``recipient`` answers to ``preimage``."""
        return sha256(b"answer" + recipient + preimage)[:_TAG_BYTES]
