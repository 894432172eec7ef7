"""Worlds of Bhumi in the open, and parts of them, for the tests of the simulator."""

import random
from dataclasses import replace
from functools import partial

from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.device_client import DeviceClient
from waystation.protocols.bhumi.extension_wire import encode_record
from waystation.protocols.bhumi.relay import BhumiRelay
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.protocols.bhumi.signed_records import sign_advert, sign_presence
from waystation.sim import bhumi_open_observations as seen
from waystation.sim import bhumi_open_records as records
from waystation.sim.bhumi_open import OpenTown
from waystation.sim.bhumi_open_commons import OpenCommons, address_of
from waystation.sim.bhumi_open_device import OpenDevice
from waystation.sim.bhumi_open_house import House
from waystation.sim.bhumi_open_laws import open_invariants
from waystation.sim.bhumi_open_plan import OpenDeviceHabits, OpenFaults, OpenPlan
from waystation.sim.invariants import ViolationError, Watch
from waystation.sim.link import LinkSettings
from waystation.sim.run import SimResult, run_seed
from waystation.sim.schedule import Schedule
from waystation.sim.trace import Named, Trace
from waystation.sim.world import WALL_START_US, WorldSettings

HOURS = 0.02

NOW_S = WALL_START_US // 1_000_000
"""Unix seconds when a simulation begins."""

LINK = LinkSettings(latency_us=5_000, jitter_us=0)

QUIET = OpenPlan(
    relays=4,
    topology="line",
    hidden=(),
    devices=8,
    senders=2,
    asks_per_hour=1_500.0,
    lookups_per_hour=6_000.0,
    clocks_off_ms=1_500,
    dials_private=False,
    requires_binding=False,
    link=LINK,
    trunk=LINK,
    host=WorldSettings(),
    device=OpenDeviceHabits(moves=60.0),
    faults=OpenFaults(),
    hostiles=(),
    hostile_relays=(),
)
"""A world where nothing goes wrong; tests replace what they are about."""

SKEWED = replace(QUIET, clocks_off_ms=60_000, hidden=(2,))
"""Clocks that differ by two minutes, and a relay that tells nobody its address."""

BOUND = replace(QUIET, requires_binding=True)
"""Relays that want to be told that it is they who are meant."""

SLOW = replace(QUIET, asks_per_hour=6_000.0, device=OpenDeviceHabits(moves=240.0, think_us=12_000_000))
"""Devices that answer late, and are elsewhere by then."""

BROKEN = replace(
    QUIET,
    relays=5,
    topology="ring",
    device=OpenDeviceHabits(moves=60.0, vanishes=60.0),
    faults=OpenFaults(breaks=240.0, link_breaks=120.0, link_cuts=60.0, partitions=60.0, crashes=60.0, stops=30.0),
)
"""Links and relays that fail."""

SHORT = replace(QUIET, device=OpenDeviceHabits(moves=0.0, vanishes=200.0, away_us=20_000_000, ttl_s=20))
"""Devices whose word lasts for seconds, and who are away for longer than that."""

LIED_TO = replace(QUIET, hostiles=("impostor", "carrier", "prophet", "rover", "whisperer"))
"""Clients that say what is not so."""

CARRIED = replace(
    LIED_TO, hostiles=("carrier",) * 6, faults=OpenFaults(link_cuts=200.0, partitions=120.0, crashes=300.0)
)
"""Clients that bring relays with empty memory what others have signed."""

ROVED = replace(QUIET, hostiles=("rover",) * 4)
"""Clients that say to be everywhere."""

NOSY = replace(QUIET, hostiles=("nosy", "eager"))
"""Clients that ask too much, or without asking whether they may."""

BESET = replace(QUIET, hostile_relays=("alterer", "resigner", "prolonger"))
"""Relays that change what they pass on."""

FLOODED = replace(QUIET, hostile_relays=("replayer", "flooder", "asker", "babbler"))
"""Relays that say too much."""

NAMED = replace(QUIET, hostile_relays=("advertiser", "advertiser", "mute"))
"""Relays that name addresses of no use."""

WORLDS = (QUIET, SKEWED, BOUND, SLOW, BROKEN, SHORT, LIED_TO, CARRIED, ROVED, NOSY, BESET, FLOODED, NAMED)


def run_with(kind: type | None, seed: int, plan: OpenPlan | None = None, hours: float = HOURS, sink=None) -> SimResult:
    """Run one seed of a world whose relays, devices or devices' machines are of this class; None for the right ones."""
    options = {"plan": plan}
    if kind is not None and issubclass(kind, OpenDevice):
        options["device_kind"] = kind
    elif kind is not None:
        options["make_device" if issubclass(kind, DeviceClient) else "make_relay"] = kind
    return run_seed("bhumi-open", seed, hours, sink=sink, make=partial(OpenTown, **options))


def first_failure(kind: type, seeds: range, plan: OpenPlan | None = None, hours: float = HOURS) -> str | None:
    """Return which law the first failing seed names, or None."""
    for seed in seeds:
        failure = run_with(kind, seed, plan, hours).failure
        if failure is not None:
            return failure.invariant
    return None


def pair(number: int) -> KeyPair:
    """Return a key pair of its own for each number."""
    return KeyPair.from_seed(bytes([number]) * 32)


RELAY, OTHER_RELAY = PublicKey(bytes([1]) * 32), PublicKey(bytes([2]) * 32)
"""Keys that are named in records; no table looks whether anybody has them."""
DEVICE = pair(9)


def presence(at=0, ttl_s=600, relay=RELAY, by=DEVICE):
    """Return a presence as it stands on the wire, issued so many seconds after the start."""
    return records.read_presence(encode_record(sign_presence(by, relay, NOW_S + at, ttl_s)))


def advert(address="tcp://relay-1.sim:4819", by=DEVICE, at=0, ttl_s=3_600):
    """Return an advert as it stands on the wire."""
    return records.read_advert(encode_record(sign_advert(by, address, NOW_S + at, ttl_s)))


def made(slip, *, is_honest=True):
    """Return that somebody signed a presence."""
    return seen.Made(slip.data, is_honest)


def took(slip, peer=1, *, at=0, is_gossip=False, is_owner=True, is_sure=True):
    """Return that relay 0 was given a record, by its owner unless said otherwise."""
    return seen.Took(0, peer, slip, NOW_S + at, is_gossip, is_owner, is_sure)


def gave(slip, peer=2, *, at=0, is_news=False):
    """Return that relay 0 gave a record away."""
    return seen.Gave(0, peer, slip, NOW_S + at, is_news)


def answered(*slips, at=0, identity=DEVICE.public, peer=2):
    """Return that relay 0 said where somebody is."""
    return seen.Answered(0, peer, identity, slips, NOW_S + at)


def began(node=0, key=RELAY, *, dials_private=False):
    """Return that a relay started."""
    return seen.RelayBegan(node, key, dials_private)


SIZES = dict.fromkeys(
    (
        "connections",
        "identities",
        "commits",
        "exchanges",
        "alarms",
        "presences",
        "neighbours",
        "links",
        "contacts",
        "addresses",
        "probes_open",
        "probed_devices",
    ),
    0,
)


def sized(*, settled=False, **sizes):
    """Return how much there is at a relay with two configured peers and two connections."""
    return seen.Sized(0, {**SIZES, "connections": 2, **sizes}, 2, settled)


def broken(*history, law=None):
    """Return which law a history breaks, or None; a number in it is the second that what follows happens at."""
    watch, now = Watch([law] if law is not None else open_invariants()), Instant(0)
    try:
        for each in history:
            if isinstance(each, int):
                now = Instant(each * 1_000_000)
            else:
                watch.observe(each, now)
    except ViolationError as violation:
        return violation.invariant
    return None


class Quarter:
    """Some real relays and what is seen of them, without a town around them."""

    def __init__(self, plan: OpenPlan = QUIET, seed: int = 1, make_relay=BhumiRelay, on_event=lambda _event: None):
        self.schedule, self.seen, self.rng, self.lines = Schedule(), [], random.Random(seed), []
        self.commons = OpenCommons(self.schedule, plan, random.Random(seed), self.seen.append)
        self.houses = []
        for node in range(plan.relays):
            peers = [address_of(node - 1)] if node else []
            settings = BhumiSettings(peers=peers, advertise="" if node in plan.hidden else address_of(node))
            trace = Named(Trace(self.lines.append), f"r{node}")
            house = House(self.commons, random.Random(node), trace, node, settings, make_relay, on_event)
            self.houses.append(house)
            self.commons.add_relay(house.world, house.key_pair.public, house)

    def device(self, kind=OpenDevice):
        number = len(self.commons.places)
        return kind(self.commons, random.Random(50 + number), f"10.1.0.{number}", DeviceClient)

    def run(self, seconds: float):
        self.schedule.run(Instant(self.schedule.now + int(seconds * 1_000_000)))

    def kinds(self, kind: type):
        return [observation for observation in self.seen if isinstance(observation, kind)]

    def sizes(self, node: int = 0):
        return self.houses[node].world.sizes()["bhumi"]
