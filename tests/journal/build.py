"""Events and segments that journal and pipeline tests share."""

import random

from waystation.core.facts import Outcome
from waystation.journal.contract import FORMAT_VERSION
from waystation.journal.events import (
    AnonymousCounted,
    DeliveryAccepted,
    DeliveryFinished,
    Event,
    LeaseChanged,
    MeshLinkEnded,
    MeshLookup,
    MessageChanged,
    MessageHeld,
    MessageStored,
    NodeSampled,
    NodeStarted,
    NodeStopped,
    PacketJudged,
    PeerIdentified,
    PeerLeft,
    Refused,
    RelayObserved,
    SegmentOpened,
    SegmentSealed,
    SubscriptionEnded,
    SubscriptionOpened,
    WorkJudged,
)
from waystation.journal.segment import SegmentName, encode_lines

NODE_ID = "00112233445566ff"
NOON_US = 1_780_056_000_000_000
"""2026-05-29 12:00 UTC."""
DAY_US = 86_400_000_000

ONE_OF_EACH: tuple[Event, ...] = (
    NodeStarted(NOON_US, "0.1.0"),
    PeerIdentified(NOON_US + 1, "bhumi", b"c" * 8, b"p" * 16),
    PeerLeft(NOON_US + 2, "bhumi", b"c" * 8, b"p" * 16, "idle_timeout", 12, 34),
    DeliveryAccepted(NOON_US + 3, "bhumi", b"a" * 16, b"p" * 16, 256),
    DeliveryFinished(NOON_US + 4, "bhumi", b"a" * 16, b"p" * 16, Outcome.OK, 1, 128, 2),
    AnonymousCounted(NOON_US, "bhumi", 3, 2),
    Refused(NOON_US + 5, "bhumi", None, "truncated", 4),
    NodeStopped(NOON_US + 6, "signal"),
    PacketJudged(
        NOON_US + 7,
        "strata",
        "invalid_timestamp",
        "too_old",
        b"u" * 16,
        b"r" * 16,
        "peer",
        512,
        1,
        b"i" * 16,
        "POST",
        1_780_000_000,
        1_780_056_000,
        1_790_000_000,
        9,
        "AI_MODEL",
        "no_chain",
        70,
    ),
    SubscriptionOpened(NOON_US + 8, "strata", b"c" * 8, 1),
    SubscriptionEnded(NOON_US + 9, "strata", b"c" * 8, 30, 4, 1, 60_000_000),
    MeshLookup(NOON_US + 10, "merk", b"p" * 16, 3, 1, 900, "found"),
    MeshLinkEnded(NOON_US + 11, "merk", b"n" * 16, "6e6e6e6e6e6e6e6e", 1, 60_000_000, 5, 6, 700, 800),
    LeaseChanged(NOON_US + 12, "lprp", b"t" * 16, "expired", 7),
    WorkJudged(NOON_US + 13, "lprp", b"w" * 16, "lease", "accepted", 20, 550_000),
    MessageStored(
        *(NOON_US + 14, "bsp", b"p" * 16, "delivered", 1_000, b"g" * 16, b"m" * 16),
        *(b"d" * 16 + b"e" * 16, 1_780_055_999_000, 3),
    ),
    MessageChanged(NOON_US + 15, "bsp", "invalid", "invalid_dependency", b"g" * 16, b"m" * 16, 0),
    MessageHeld(NOON_US + 16, "bsp", b"p" * 16, b"g" * 16, b"m" * 16, 2, 300, 200, 100),
    RelayObserved(NOON_US + 17, "strata", "6e6e6e6e6e6e6e6e", "validity", "failed", "bad_signature", 5, 6, 7, 2),
    NodeSampled(NOON_US + 18, 12, 3_456, 7_890, 1_234, 5_600_000, 78_000_000, 9_000_000, 1_200_000),
    Refused(NOON_US + 19, "node", None, "address_full", 9, b"s" * 16),
)


def name_at(start_us: int = NOON_US, number: int = 1) -> SegmentName:
    """Return the name of a segment of the one test node."""
    return SegmentName(NODE_ID, start_us, number)


def segment_bytes(name: SegmentName, events: tuple[Event, ...] | list[Event], *, sealed: bool = True) -> bytes:
    """Return the whole file of a segment."""
    rows: list[Event] = [SegmentOpened(name.start_us, FORMAT_VERSION, name.node_id, name.text), *events]
    if sealed:
        rows.append(SegmentSealed(name.start_us, len(rows) + 1))
    return encode_lines(rows, 0)


def accepted(ts_us: int, rng: random.Random) -> PacketJudged:
    """Return an accepted packet's event as a client's publication gives it."""
    seconds = ts_us // 1_000_000
    return PacketJudged(
        ts_us,
        "strata",
        "accepted",
        None,
        rng.randbytes(16),
        None,
        "client",
        rng.randrange(300, 900),
        1,
        rng.randbytes(16),
        "POST",
        seconds - 1,
        seconds,
        None,
        rng.randrange(10**6),
        None,
        None,
        rng.randrange(10**5),
    )


def traffic(seed: int, start_us: int, attempts: int) -> list[Event]:
    """Return what a node may record in a few hours: every fifth attempt unfinished, some connections left open."""
    rng = random.Random(seed)
    events: list[Event] = [NodeStarted(start_us, "0.1.0")]
    for index in range(attempts):
        at = start_us + index * 60_000_000
        attempt, peer, conn = rng.randbytes(16), rng.randbytes(16), rng.randbytes(8)
        if index % 4 == 0:
            events.append(PeerIdentified(at, "bhumi", conn, peer))
        if index % 8 == 0:
            events.append(PeerLeft(at + 5, "bhumi", conn, peer, "replaced", index, None))
        outcome = rng.choice(list(Outcome))
        if outcome in {Outcome.OK, Outcome.TIMEOUT}:
            latency_us = int(rng.lognormvariate(7, 2))
            events.append(DeliveryAccepted(at, "bhumi", attempt, peer, 256))
            if index % 5:
                events.append(DeliveryFinished(at + latency_us, "bhumi", attempt, peer, outcome, latency_us, 64))
        else:
            events.append(DeliveryFinished(at, "bhumi", attempt, peer, outcome, None, 0))
        if index % 3 == 0:
            events.append(accepted(at, rng))
        if index % 7 == 0:
            events.append(PacketJudged(at, "strata", "rate_limited", "publish", peer, None, "client", 900, 3))
        if index % 10 == 0:
            events += [AnonymousCounted(at, "bhumi", index, 1), Refused(at, "bhumi", None, "oversize", 2)]
    return events
