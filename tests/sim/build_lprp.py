"""Worlds of LPRP for the tests of the simulator."""

import random
from dataclasses import replace
from functools import partial

from waystation.core.instant import Instant
from waystation.crypto.signing import KeyPair
from waystation.protocols.lprp.client import LprpClient
from waystation.protocols.lprp.relay import LprpRelay
from waystation.sim import lprp_observations as seen
from waystation.sim.datagram import DatagramSettings
from waystation.sim.lprp import LprpTown
from waystation.sim.lprp_commons import LprpCommons
from waystation.sim.lprp_house import House
from waystation.sim.lprp_packets import Seen, make_packet, read_packet
from waystation.sim.lprp_plan import LEASE_LONG_MS, LprpFaults, LprpPlan, PersonHabits
from waystation.sim.run import SimResult, run_seed
from waystation.sim.schedule import Schedule
from waystation.sim.trace import Trace
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
    person=PersonHabits(),
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
    person=PersonHabits(edits=300.0, sleeps=300.0),
    hostiles=("replayer",),
)
"""A disk that takes its time, hosts that die, and somebody who repeats what he has seen."""

RESTLESS = replace(
    QUIET,
    person=PersonHabits(restarts=400.0, sleeps=200.0, edits=400.0, keep_us=500_000, hands_back=0.2, away_us=1_000_000),
)
"""People who restart in the middle of everything."""

MOVING = replace(QUIET, person=PersonHabits(rebinds=400.0), hostiles=("replayer", "replayer"))
"""People whose addresses change, and somebody who would like to have their mail."""

SPOOFED = replace(QUIET, hostiles=("spoofer", "bad_tenant", "farmer"), payload_bytes_max=63)
"""Forged sources, a tenant who aims its mail at others, and somebody who gathers challenges."""

LIED_TO = replace(LOSSY, hostiles=("liar", "liar", "garbage"))
"""Clients that are told things which no host has said."""

SHORT = replace(QUIET, lease_ms=20_000)
"""Leases that end soon."""

LONG_GONE = replace(QUIET, tenants=3, retries=100, person=PersonHabits(sleeps=60.0, away_us=400_000_000))
"""People who are away for minutes."""


UNHEARD = replace(QUIET, net=replace(QUIET.net, loss=0.95))
"""A network that carries next to nothing."""

FULL = replace(QUIET, mail_per_hour=1_000.0)
"""So little mail that a queue which nobody empties does not overflow."""

AIMED = replace(QUIET, senders=0, hostiles=("bad_tenant",) * 3)
"""Tenants who aim their mail at others, of whom some have an address that is proved."""


def run_with(kind: type | None, seed: int, plan: LprpPlan | None = None, hours: float = HOURS) -> SimResult:
    """Run one seed of a world whose hosts, or whose clients, are of this class; None for the right ones."""
    options = {"plan": plan}
    if kind is not None:
        options["make_client" if issubclass(kind, LprpClient) else "make_relay"] = kind
    return run_seed("lprp", seed, hours, make=partial(LprpTown, **options))


def first_failure(kind: type, seeds: range, plan: LprpPlan | None = None, hours: float = HOURS) -> str | None:
    """Return which law the first failing seed names, or None."""
    for seed in seeds:
        failure = run_with(kind, seed, plan, hours).failure
        if failure is not None:
            return failure.invariant
    return None


def lines_of(plan: LprpPlan, hours: float = HOURS, seed: int = 1) -> list[str]:
    """Return the trace of a run that breaks no law."""
    lines: list[str] = []
    result = run_seed("lprp", seed, hours, sink=lines.append, make=partial(LprpTown, plan=plan))
    assert result.failure is None
    return lines


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


def heard(what: Seen | None, address=HERE, *, size: int | None = None, is_signed: bool = True, wall_ms: int = WALL_MS):
    """Return that host 0 was handed a packet."""
    length = size if size is not None else len(what.data)
    return seen.Heard(0, address, length, what, is_signed, wall_ms)


def said(what: Seen, address=HERE, *, is_signed: bool = True, is_stored: bool = True, wall_ms: int = WALL_MS):
    """Return that host 0 sent a packet."""
    return seen.Said(0, address, what, len(what.data), is_signed, is_stored, wall_ms)


def answer(command: int, to: Seen, time_ms: int = WALL_MS) -> Seen:
    """Return what host 0 answers to a packet."""
    payload = b"" if command == 0x200 else to.signature
    return packet(HOST, command, payload, time_ms, to.sender)


def measured(views: dict | None = None, phase: str = "trouble", wall_ms: int = WALL_MS, **sizes: int):
    """Return what host 0 shows."""
    empty = dict.fromkeys(
        ("tenants", "leases_kept", "packets", "challenges", "answers", "seen", "deliveries", "under_way"), 0
    )
    return seen.Measured(0, wall_ms, {**empty, "sources": 0, "prefixes": 0, **sizes}, views or {}, phase)


def view(queue: int = 0, whitelist: int = 0, address: str = "", lease_ms_left: int = 0) -> dict:
    """Return what a host shows of one tenant."""
    return {"queue": queue, "whitelist": whitelist, "address": address, "lease_ms_left": lease_ms_left}


class Quarter:
    """One real host and what is seen of it, without a town around it."""

    def __init__(self, plan: LprpPlan = QUIET, make_relay=LprpRelay):
        self.schedule, self.seen = Schedule(), []
        self.commons = LprpCommons(self.schedule, random.Random(1), plan, self.seen.append, LprpClient)
        self.houses = [
            House(self.commons, random.Random(2 + host), Trace(), host, make_relay, lambda _event: None)
            for host in range(plan.hosts)
        ]

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.schedule.run(Instant(self.schedule.now + int(seconds * 1_000_000)))

    def of(self, kind: type) -> list:
        """Return what was observed of one kind."""
        return [each for each in self.seen if isinstance(each, kind)]
