"""Worlds of LPRP for the tests of the simulator."""

from dataclasses import replace

from tests.sim.runs import Runs
from waystation.crypto.signing import KeyPair
from waystation.protocols.lprp.client.machine import LprpClient
from waystation.protocols.lprp.relay.machine import LprpRelay
from waystation.sim.lprp import observations as seen
from waystation.sim.lprp.packets import Seen, make_packet, read_packet
from waystation.sim.lprp.plan import LEASE_LONG_MS, ClientBehaviour, LprpFaults, LprpPlan
from waystation.sim.lprp.scenario import LprpScenario
from waystation.sim.net.datagram import DatagramSettings
from waystation.sim.world import WorldSettings

HOURS = 0.01

QUIET = LprpPlan(
    hosts=2,
    tenants=2,
    senders=1,
    mail_per_hour=4_000.0,
    payload_bytes_max=364,
    whitelisted=0.5,
    net=DatagramSettings(latency_us=1_000, jitter_us=0),
    host=WorldSettings(),
    gather_us=0,
    rate_limits=False,
    adaptive=False,
    base_bits=4,
    solve_us=1_000,
    lease_ms=LEASE_LONG_MS,
    heartbeat_ms=5_000,
    retry_ms=500,
    retries=3,
    rebind_on_relay=False,
    byte_order="big",
    client=ClientBehaviour(),
    faults=LprpFaults(),
    hostiles=(),
)
"""A world where nothing goes wrong; tests replace what they are about."""

LOSSY = replace(QUIET, net=replace(QUIET.net, loss=0.2, duplicate=0.1, reorder=0.2))
"""A bad network."""

FRAGILE = replace(
    QUIET,
    host=WorldSettings(commit_delay_us=400_000),
    faults=LprpFaults(crashes=600.0),
    client=ClientBehaviour(edits=300.0, sleeps=300.0),
    hostiles=("replayer",),
)
"""A disk that takes its time, hosts that die, and somebody who repeats what he has seen."""

RESTLESS = replace(
    QUIET,
    client=ClientBehaviour(
        restarts=400.0, sleeps=200.0, edits=400.0, keep_us=500_000, hands_back=0.2, away_us=1_000_000
    ),
)
"""People who restart in the middle of everything."""

MOVING = replace(QUIET, client=ClientBehaviour(rebinds=400.0), hostiles=("replayer", "replayer"))
"""People whose addresses change, and somebody who would like to have their mail."""

SPOOFED = replace(QUIET, hostiles=("spoofer", "bad_tenant", "farmer"), payload_bytes_max=63)
"""Forged sources, a tenant who aims its mail at others, and somebody who gathers challenges."""

LIED_TO = replace(LOSSY, hostiles=("false_host", "false_host", "garbage"))
"""Clients that are told things which no host has sent."""

SHORT = replace(QUIET, lease_ms=20_000)
"""Leases that end soon."""

LONG_GONE = replace(QUIET, tenants=3, retries=100, client=ClientBehaviour(sleeps=60.0, away_us=400_000_000))
"""People who are away for minutes."""


UNHEARD = replace(QUIET, net=replace(QUIET.net, loss=0.95))
"""A network that carries next to nothing."""

FULL = replace(QUIET, mail_per_hour=1_000.0)
"""So little mail that a queue which nobody empties does not overflow."""

AIMED = replace(QUIET, senders=0, hostiles=("bad_tenant",) * 3)
"""Tenants who aim their mail at others, of whom some have an address that is proved."""


RUNS = Runs("lprp", LprpScenario, HOURS, {LprpClient: "make_client", LprpRelay: "make_relay"})
run_with, first_failure, lines_of = RUNS.run_with, RUNS.first_failure, RUNS.lines_of


HOST, ALICE, BOB, MALLORY = (KeyPair.from_seed(bytes([number]) * 32) for number in range(1, 5))
HERE, THERE, NOWHERE = ("10.1.0.1", 2_000), ("10.2.0.1", 2_000), ("203.0.113.1", 9)
WALL_MS = 1_700_000_000_000


def packet(
    key: KeyPair, command: int, payload: bytes = b"", time_ms: int = WALL_MS, recipient: bytes = HOST.public
) -> Seen:
    """Return a packet as it stands on a wire."""
    read = read_packet(make_packet(key, recipient, command, payload, time_ms))
    assert read is not None
    return read


def received(
    what: Seen | None, address=HERE, *, size: int | None = None, is_signed: bool = True, wall_ms: int = WALL_MS
):
    """Return that host 0 was handed a packet."""
    length = size if size is not None else len(what.data)
    return seen.Received(0, address, length, what, is_signed, wall_ms)


def sent(what: Seen, address=HERE, *, is_signed: bool = True, is_stored: bool = True, wall_ms: int = WALL_MS):
    """Return that host 0 sent a packet."""
    return seen.Sent(0, address, what, len(what.data), is_signed, is_stored, wall_ms)


def answer(command: int, to: Seen, time_ms: int = WALL_MS) -> Seen:
    """Return what host 0 answers to a packet."""
    payload = b"" if command == 0x200 else to.signature
    return packet(HOST, command, payload, time_ms, to.sender)


def measured(views: dict | None = None, phase: str = "faults", wall_ms: int = WALL_MS, **sizes: int):
    """Return what host 0 shows."""
    empty = dict.fromkeys(
        ("tenants", "leases_kept", "packets", "challenges", "answers", "seen", "deliveries", "under_way"), 0
    )
    return seen.Measured(0, wall_ms, {**empty, "sources": 0, "prefixes": 0, **sizes}, views or {}, phase)


def view(queue: int = 0, whitelist: int = 0, address: str = "", lease_ms_left: int = 0) -> dict:
    """Return what a host shows of one tenant."""
    return {"queue": queue, "whitelist": whitelist, "address": address, "lease_ms_left": lease_ms_left}


KEY = ALICE.public
MAIL = packet(BOB, 0x102, bytes(64), recipient=KEY)
GRANT = sent(packet(HOST, 0x204, bytes(64), recipient=KEY))
"""Mail for a tenant, and the answer that makes it one."""
