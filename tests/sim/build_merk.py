"""Worlds of MERK for the tests of the simulator."""

import random
from dataclasses import replace
from functools import partial

from waystation.core.instant import Instant
from waystation.crypto.signing import KeyPair
from waystation.protocols.merk.client import MerkClient
from waystation.protocols.merk.relay import MerkRelay
from waystation.protocols.merk.settings import MerkSettings
from waystation.sim import merk_observations as seen
from waystation.sim.link import LinkSettings
from waystation.sim.merk import MerkTown
from waystation.sim.merk_client import Client
from waystation.sim.merk_commons import MerkCommons, address_of
from waystation.sim.merk_node import House
from waystation.sim.merk_plan import ClientHabits, MerkFaults, MerkPlan
from waystation.sim.run import SimResult, run_seed
from waystation.sim.schedule import Schedule
from waystation.sim.trace import Named, Trace
from waystation.sim.world import WorldSettings

HOURS = 0.03

LINK = LinkSettings(latency_us=1_000, jitter_us=0, framed=True)

QUIET = MerkPlan(
    nodes=3,
    topology="line",
    hidden=(),
    closed=(),
    allows_private=True,
    clients=5,
    frames_per_hour=10_000.0,
    text_bytes_max=40,
    max_frame_bytes=65_536,
    link=LINK,
    trunk=LINK,
    host=WorldSettings(),
    bunches=False,
    rate_limits=True,
    client=ClientHabits(asks=0.0),
    faults=MerkFaults(),
    hostiles=(),
    hostile_nodes=(),
)
"""A world where nothing goes wrong; tests replace what they are about."""

ROAMING = replace(QUIET, client=ClientHabits(moves=150.0, away_us=2_000_000, writes_to_nobody=0.1))
"""Clients that move between nodes; mostly they are where a frame was sent to."""

AGAIN = replace(QUIET, client=ClientHabits(says_again=0.3))
"""Clients that say the same thing twice."""

BURSTS = replace(QUIET, bunches=True, client=ClientHabits(extended=0.4, bursts=0.3, leaves_mid_flight=0.05))
"""Many frames at once, which relays get together."""

BROKEN = replace(QUIET, nodes=4, topology="ring", faults=MerkFaults(link_breaks=200.0, crashes=60.0, link_cuts=60.0))
"""Links and nodes that fail."""

MEDDLED = replace(QUIET, hostiles=("impostor", "meddler", "searcher", "squatter"))
"""Clients that forge and search."""

BESET = replace(QUIET, hostile_nodes=("forger", "replayer"))
"""Nodes that forge and replay."""

TANGLED = replace(ROAMING, nodes=5, hostile_nodes=("replayer", "replayer"))
"""Clients that move among nodes that lie about them."""

NAMED = replace(QUIET, nodes=2, allows_private=False, hostile_nodes=("advertiser", "advertiser"))
"""Nodes that name addresses of no use."""

DEAF = replace(
    QUIET,
    nodes=1,
    frames_per_hour=60_000.0,
    text_bytes_max=60_000,
    client=ClientHabits(writes_to_nobody=0.9),
    hostiles=("deaf", "deaf", "deaf"),
)
"""Large frames to clients that never read."""

STILL = replace(QUIET, nodes=1, client=ClientHabits(writes_to_nobody=0.3), hostiles=("deaf",))
"""Small frames to a client that never reads."""

WORLDS = (QUIET, ROAMING, AGAIN, BURSTS, BROKEN, MEDDLED, BESET, TANGLED, NAMED, DEAF, STILL)


def run_with(kind: type | None, seed: int, plan: MerkPlan | None = None, hours: float = HOURS, sink=None) -> SimResult:
    """Run one seed of a world whose relays, or whose clients, are of this class; None for the right ones."""
    options = {"plan": plan}
    if kind is not None:
        options["make_client" if issubclass(kind, MerkClient) else "make_relay"] = kind
    return run_seed("merk", seed, hours, sink=sink, make=partial(MerkTown, **options))


def first_failure(kind: type, seeds: range, plan: MerkPlan | None = None) -> str | None:
    """Return which law the first failing seed names, or None."""
    for seed in seeds:
        failure = run_with(kind, seed, plan).failure
        if failure is not None:
            return failure.invariant
    return None


FRAME, OTHER_FRAME = bytes(16), bytes([1]) * 16
ME, HIM = bytes([7]) * 32, bytes([8]) * 32


def sent(frame=FRAME, line=1):
    """Return that somebody sent a frame on a connection."""
    return seen.Sent(line, frame, ME, 200)


def arrived(frame=FRAME, *, target=ME, origin="honest"):
    """Return that a frame came over a connection of ``ME``."""
    return seen.Arrived(2, ME, frame, target, origin)


def taken(*, auth="bound", is_theirs=True, is_plain=False):
    """Return that ``ME`` handed a message on."""
    return seen.Taken(ME, FRAME, auth, is_theirs, is_plain)


def told(code=0, line=1, **options):
    """Return that a sender was told an outcome; nothing excuses a failure unless said otherwise."""
    facts = {"is_target_known": True, "is_silence_likely": False, "is_target_shaky": False, "is_crowded": False}
    return seen.Told(line, FRAME, code, **{**facts, **options})


def dialled(**options):
    """Return that a node dials an address that it has learnt from a peer, guarded."""
    facts = {"only_public": True, "is_configured": False, "is_private_allowed": False, "is_from_client": False}
    return seen.Dialled(0, 1, "ws://node-1.sim", **{**facts, **options})


SIZES = {
    "connections": 1,
    "clients": 1,
    "nodes": 0,
    "original_relays": 0,
    "addresses": 0,
    "lookups": 0,
    "lookup_bytes": 0,
    "places": 0,
    "forwards": 0,
    "seen_forwards": 0,
    "buffered_bytes": 0,
    "adverts": 0,
    "key_questions": 0,
    "slow_readers": 0,
}


def sized(peak=0, *, settled=False, **sizes):
    """Return how much there is at a node where one client is connected."""
    return seen.Sized(0, {**SIZES, **sizes}, peak, 65_536, 0, 5, settled)


class Quarter:
    """Some real nodes and what is seen of them, without a town around them."""

    def __init__(self, plan: MerkPlan = QUIET, seed: int = 1, make_relay=MerkRelay):
        self.schedule, self.seen, self.rng, self.lines = Schedule(), [], random.Random(seed), []
        self.commons = MerkCommons(self.schedule, plan, self.seen.append, MerkClient)
        self.houses = []
        for node in range(plan.nodes):
            peers = [address_of(node - 1)] if node else []
            settings = MerkSettings(peers=peers, allow_private_peers=True, public_url=address_of(node))
            trace = Named(Trace(self.lines.append), f"n{node}")
            house = House(self.commons, random.Random(node), trace, node, settings, make_relay, lambda _event: None)
            self.houses.append(house)
            self.commons.add_node(house.world, house.key_pair.public, house)

    def client(self, *, has_extensions=True):
        number = len(self.commons.agreement_keys)
        return Client(self.commons, random.Random(50 + number), f"10.1.0.{number}", has_extensions=has_extensions)

    def run(self, seconds: float):
        self.schedule.run(Instant(self.schedule.now + int(seconds * 1_000_000)))

    def kinds(self, kind: type):
        return [observation for observation in self.seen if isinstance(observation, kind)]

    def sizes(self, node: int = 0):
        return self.houses[node].world.sizes()["merk"]


def stranger(number: int = 1) -> bytes:
    """Return a key that nobody in town has."""
    return KeyPair.from_seed(bytes([number]) * 32).public
