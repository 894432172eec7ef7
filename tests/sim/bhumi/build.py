"""Plans, runs and histories for the tests of the Bhumi simulator."""

import random
from dataclasses import replace

from tests.sim.runs import Runs
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.client.device import DeviceClient
from waystation.protocols.bhumi.extension_wire import encode_record
from waystation.protocols.bhumi.relay.machine import BhumiRelay
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.protocols.bhumi.signed_records import sign_advert, sign_presence
from waystation.sim.bhumi import codec
from waystation.sim.bhumi import observations as seen
from waystation.sim.bhumi.device import Device
from waystation.sim.bhumi.invariants import bhumi_invariants
from waystation.sim.bhumi.plan import BhumiPlan, DeviceBehaviour, FaultRates
from waystation.sim.invariants import ViolationError, Watch
from waystation.sim.net.link import LinkSettings
from waystation.sim.observations import Sized
from waystation.sim.run import SCENARIOS
from waystation.sim.world import WALL_START_US

HOURS = 0.02

NOW_S = WALL_START_US // 1_000_000
"""Unix seconds when a simulation begins."""

LINK = LinkSettings(latency_us=5_000, jitter_us=0)

QUIET = BhumiPlan(
    relays=4,
    topology="line",
    devices=8,
    senders=2,
    asks_per_hour=1_500.0,
    lookups_per_hour=6_000.0,
    clocks_off_ms=1_500,
    link=LINK,
    trunk=LINK,
    device=DeviceBehaviour(moves=60.0),
)
"""A plan without faults; tests replace what they are about."""

SKEWED = replace(QUIET, clocks_off_ms=60_000, hidden=(2,))
"""Clocks that differ by two minutes, and a relay that advertises no address."""

BOUND = replace(QUIET, requires_binding=True)
"""Relays that demand a proof of identity bound to them."""

SLOW = replace(QUIET, asks_per_hour=6_000.0, device=DeviceBehaviour(moves=240.0, think_us=12_000_000))
"""Devices that answer late, and are elsewhere by then."""

BROKEN = replace(
    QUIET,
    relays=5,
    topology="ring",
    device=DeviceBehaviour(moves=60.0, vanishes=60.0),
    faults=FaultRates(breaks=240.0, link_breaks=120.0, link_cuts=60.0, partitions=60.0, crashes=60.0, stops=30.0),
)
"""Links and relays that fail."""

SHORT = replace(QUIET, device=DeviceBehaviour(moves=0.0, vanishes=200.0, away_us=20_000_000, ttl_s=20))
"""Devices whose presence lasts for seconds, and who are away for longer than that."""

DECEIVED = replace(QUIET, hostiles=("impostor", "carrier", "prophet", "rover", "whisperer"))
"""Clients that assert what is not so."""

CARRIED = replace(
    DECEIVED, hostiles=("carrier",) * 6, faults=FaultRates(link_cuts=200.0, partitions=120.0, crashes=300.0)
)
"""Clients that bring relays with empty memory what others have signed."""

ROVED = replace(QUIET, hostiles=("rover",) * 4)
"""Clients that claim to be at every relay."""

NOSY = replace(QUIET, hostiles=("nosy", "eager"))
"""Clients that ask too much, or without asking whether they may."""

BESET = replace(QUIET, hostile_relays=("alterer", "resigner", "prolonger"))
"""Relays that change what they pass on."""

FLOODED = replace(QUIET, hostile_relays=("replayer", "flooder", "asker", "babbler"))
"""Relays that send too much."""

NAMED = replace(QUIET, hostile_relays=("advertiser", "advertiser", "mute"))
"""Relays that name addresses of no use."""

PLANS = (QUIET, SKEWED, BOUND, SLOW, BROKEN, SHORT, DECEIVED, CARRIED, ROVED, NOSY, BESET, FLOODED, NAMED)


_KINDS = {Device: "device_kind", DeviceClient: "make_device", BhumiRelay: "make_relay"}
_OPEN = Runs("bhumi-open", SCENARIOS["bhumi-open"], HOURS, _KINDS)
run_with, first_failure = _OPEN.run_with, _OPEN.first_failure
CORE = Runs("bhumi", SCENARIOS["bhumi"], 0.1, _KINDS)
"""Relays without extensions."""


def pair(number: int) -> KeyPair:
    """Return a key pair of its own for each number."""
    return KeyPair.from_seed(bytes([number]) * 32)


RELAY, OTHER_RELAY = PublicKey(bytes([1]) * 32), PublicKey(bytes([2]) * 32)
"""Keys that are named in records; no table looks whether a relay has them."""
DEVICE = pair(9)


def presence(at=0, ttl_s=600, relay=RELAY, by=DEVICE):
    """Return a presence as it stands on the wire, issued so many seconds after the start."""
    return codec.read_presence(encode_record(sign_presence(by, relay, NOW_S + at, ttl_s)))


def advert(address="tcp://relay-1.sim:4819", by=DEVICE, at=0, ttl_s=3_600):
    """Return an advert as it stands on the wire."""
    return codec.read_advert(encode_record(sign_advert(by, address, NOW_S + at, ttl_s)))


def made(record, *, is_honest=True):
    """Return that a presence was signed."""
    return seen.Made(record.data, is_honest)


def received(record, peer=1, *, at=0, is_gossip=False, is_owner=True, is_sure=True):
    """Return that relay 0 received a record, from its owner unless the arguments differ."""
    return seen.RecordReceived(0, peer, record, NOW_S + at, is_gossip, is_owner, is_sure)


def sent(record, peer=2, *, at=0, is_news=False):
    """Return that relay 0 sent a record."""
    return seen.RecordSent(0, peer, record, NOW_S + at, is_news)


def answered(*records, at=0, identity=DEVICE.public, peer=2):
    """Return that relay 0 answered where a device is."""
    return seen.QueryAnswered(0, peer, identity, records, NOW_S + at)


def began(node=0, key=RELAY, *, dials_private=False):
    """Return that a relay started."""
    return seen.RelayBegan(node, key, dials_private)


SIZES = BhumiRelay(BhumiSettings(), random.Random(0), key_pair=DEVICE).sizes()
"""Everything that a relay counts; of a new one, nothing."""


def sized(*, settled=False, **sizes):
    """Return how much there is at a relay with two configured peers and two connections."""
    return Sized(0, {**SIZES, "connections": 2, **sizes}, {"peers": 2}, settled)


def broken(*history, invariant=None):
    """Return which invariant a history breaks, or None; a number in it is the second that what follows happens at."""
    watch, now = Watch([invariant] if invariant is not None else bhumi_invariants(300_000)), Instant(0)
    try:
        for each in history:
            if isinstance(each, int):
                now = Instant(each * 1_000_000)
            else:
                watch.observe(each, now)
    except ViolationError as violation:
        return violation.invariant
    return None
