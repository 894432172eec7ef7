"""Worlds of MERK for the tests of the simulator."""

import random
from dataclasses import replace

from tests.sim.runs import Runs
from waystation.crypto.signing import KeyPair
from waystation.protocols.merk.client.awaited_reads import AwaitedReads
from waystation.protocols.merk.client.machine import MerkClient
from waystation.protocols.merk.relay.machine import MerkRelay
from waystation.protocols.merk.settings import MerkSettings
from waystation.sim.merk import observations as seen
from waystation.sim.merk.plan import LIES, ClientBehaviour, MerkFaults, MerkPlan
from waystation.sim.merk.scenario import MerkScenario
from waystation.sim.net.link import LinkSettings
from waystation.sim.observations import Sized
from waystation.store.memory import MemoryStore

HOURS = 0.03

LINK = LinkSettings(latency_us=1_000, jitter_us=0, framed=True)

QUIET = MerkPlan(
    nodes=3,
    topology="line",
    allows_private=True,
    clients=5,
    frames_per_hour=10_000.0,
    text_bytes_max=40,
    max_frame_bytes=65_536,
    link=LINK,
    trunk=LINK,
    rate_limits=True,
    client=ClientBehaviour(asks=0.0),
)
"""A world where nothing goes wrong; tests replace what they are about."""

ROAMING = replace(QUIET, client=ClientBehaviour(moves=150.0, away_us=2_000_000, writes_to_nobody=0.1))
"""Clients that move between nodes; mostly they are where a frame was sent to."""

AGAIN = replace(QUIET, client=ClientBehaviour(says_again=0.3))
"""Clients that say the same thing twice."""

BURSTS = replace(QUIET, batches=True, client=ClientBehaviour(extended=0.4, bursts=0.3, leaves_mid_flight=0.05))
"""Many frames at once, which relays get together."""

BROKEN = replace(QUIET, nodes=4, topology="ring", faults=MerkFaults(link_breaks=200.0, crashes=60.0, link_cuts=60.0))
"""Links and nodes that fail."""

MEDDLED = replace(QUIET, hostiles=("impostor", "meddler", "searcher", "squatter"))
"""Clients that forge and search."""

RELAYED = replace(QUIET, client=ClientBehaviour(extended=1.0), hostiles=("relayer", "relayer"))
"""Logins by challenges that were passed on."""

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
    client=ClientBehaviour(writes_to_nobody=0.9),
    hostiles=("deaf", "deaf", "deaf"),
)
"""Large frames to clients that never read."""

STILL = replace(QUIET, nodes=1, client=ClientBehaviour(writes_to_nobody=0.3), hostiles=("deaf",))
"""Small frames to a client that never reads."""

MAILED = replace(QUIET, nodes=2, mailboxes=2, faults=MerkFaults(crashes=300.0))
"""Owners of mailboxes who are away, at nodes that crash."""

LIED = replace(MAILED, lies=LIES)
"""Owners of mailboxes, and those who write to them, whose relay lies."""

RESIGNED = replace(QUIET, hostile_nodes=("resigner", "resigner"))
"""Nodes that sign what others have written."""

WORLDS = (
    LIED,
    RESIGNED,
    MAILED,
    QUIET,
    ROAMING,
    AGAIN,
    BURSTS,
    BROKEN,
    MEDDLED,
    RELAYED,
    BESET,
    TANGLED,
    NAMED,
    DEAF,
    STILL,
)


RUNS = Runs(
    "merk", MerkScenario, HOURS, {AwaitedReads: "make_reads", MerkClient: "make_client", MerkRelay: "make_relay"}
)
run_with, first_failure, lines_of = RUNS.run_with, RUNS.first_failure, RUNS.lines_of

FRAME, OTHER_FRAME = bytes(16), bytes([1]) * 16
ME, HIM = bytes([7]) * 32, bytes([8]) * 32


def sent(frame=FRAME, line=1):
    """Return that somebody sent a frame on a connection."""
    return seen.Sent(line, frame, ME, 200)


def arrived(frame=FRAME, *, target=ME, origin="honest"):
    """Return that a frame came over a connection of ``ME``."""
    return seen.Arrived(2, ME, frame, target, origin)


def taken(*, auth="bound", is_theirs=True, is_plain=False, is_aimed=True):
    """Return that ``ME`` handed a message on."""
    return seen.Taken(ME, FRAME, auth, is_theirs, is_plain, is_aimed)


def told(code=0, line=1, **options):
    """Return that a sender was told an outcome; nothing excuses a failure unless said otherwise."""
    facts = {"is_target_known": True, "is_silence_likely": False, "is_target_shaky": False, "is_crowded": False}
    return seen.Reported(line, FRAME, code, **{**facts, **options})


def dialled(**options):
    """Return that a node dials an address that it has learnt from a peer, guarded."""
    facts = {"only_public": True, "is_configured": False, "is_private_allowed": False, "is_from_client": False}
    return seen.Dialled(0, 1, "ws://node-1.sim", **{**facts, **options})


def forwarded(hop=1, *, is_own=True, is_invited=True, is_shown=True):
    """Return that a node forwards a frame to a hostile one."""
    return seen.Forwarded(0, FRAME, hop, is_own, is_invited, is_shown)


SIZES = MerkRelay(MerkSettings(), KeyPair.from_seed(ME), MemoryStore(bytes(8)), random.Random(0)).sizes()
"""Everything that a relay counts; of a new one, nothing."""


def sized(peak=0, *, settled=False, **sizes):
    """Return how much there is at a node where one client is connected."""
    facts = {"unsent_bytes_peak": peak, "max_frame_bytes": 65_536, "peers_count": 0, "targets_count": 5}
    return Sized(0, {**SIZES, "connections": 1, "clients": 1, **sizes}, facts, settled)
