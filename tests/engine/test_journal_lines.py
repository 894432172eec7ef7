"""The journal's lines, byte for byte: every kind of fact, recorded under fixed keys and times."""

import random
from pathlib import Path

from waystation.core import facts
from waystation.core.facts import Outcome
from waystation.core.instant import Instant
from waystation.engine.admission import AdmissionRefusal
from waystation.engine.connections import Connection, Traffic
from waystation.engine.recorder import Recorder
from waystation.journal import events
from waystation.journal.segment import encode_lines

LINES = Path(__file__).parents[1] / "vectors" / "journal_lines.jsonl"
WALL_US = 1_780_056_000_000_000
SECOND_US = 1_000_000
ALICE, BOB, RELAY = b"a" * 32, b"b" * 32, b"r" * 32
GROUP, MESSAGE = b"g" * 32, b"m" * 32


class Journal:
    """A recorder, a clock that each fact moves by one microsecond, and the events that were written."""

    def __init__(self):
        self.events = []
        self.now = 0
        self.recorder = Recorder(self.events.append, random.Random(7))
        self.recorder.set_wall(Instant(0), WALL_US)
        self.recorder.use_key(b"k" * 32)

    def note(self, *told):
        """Record facts, one after the other."""
        for fact in told:
            self.now += 1
            self.recorder.note(fact, Instant(self.now))

    def wake_after(self, passed_us):
        """Let time pass, then wake the recorder."""
        self.now += passed_us
        self.recorder.wake(Instant(self.now))


def packet(verdict="accepted", **fields):
    """Return the fact of a packet."""
    return facts.PacketJudged(
        **{
            "protocol": "strata",
            "verdict": verdict,
            "detail": None,
            "author": b"did:strata:alice",
            "relay": None,
            "source": "peer" if "relay" in fields else "client",
            "size_bytes": 512,
            "packet_id": b"i" * 32,
            "content_type": "POST",
            "packet_ts": 1_780_000_000,
            "received_at": 1_780_056_000,
            "store_seq": 9,
            "latency_us": 70,
            **fields,
        }
    )


def work(kind, verdict, worker=ALICE):
    """Return the fact of work that was judged."""
    return facts.WorkJudged("lprp", worker=worker, work=kind, bits=20, verdict=verdict, latency_us=550_000)


def stored(source, state, dependencies=()):
    """Return the fact of a message that became durable."""
    return facts.MessageStored(
        protocol="bsp",
        group=GROUP,
        message_id=MESSAGE,
        source=source,
        state=state,
        dependencies=dependencies,
        created_ms=1_780_055_999_000,
        size_bytes=1_000,
        order=3,
    )


def changed(state, reason, order):
    """Return the fact of a message that became something else."""
    return facts.MessageChanged(
        protocol="bsp", group=GROUP, message_id=MESSAGE, state=state, reason=reason, order=order
    )


def held(*ago):
    """Return the fact of a peer that holds a message."""
    offered_us, requested_us, sent_us = ago
    return facts.MessageHeld(
        protocol="bsp",
        group=GROUP,
        message_id=MESSAGE,
        peer=BOB,
        copies=2,
        offered_us=offered_us,
        requested_us=requested_us,
        sent_us=sent_us,
    )


def link_ended(*, dialled):
    """Return the fact of a link to another node that is over."""
    return facts.MeshLinkEnded(
        protocol="merk",
        node=RELAY,
        relay=RELAY,
        dialled=int(dialled),
        duration_us=60_000_000,
        frames_out=5,
        frames_in=6,
        bytes_out=700,
        bytes_in=800,
    )


def looked_up(target, result, latency_us, times=1):
    """Return the fact of a look-up."""
    return facts.MeshLookup(
        protocol="merk",
        target=target,
        asked_count=3 * times,
        found_count=1,
        latency_us=latency_us,
        result=result,
        times=times,
    )


def connections(journal):
    """Identified and anonymous connections, and what they subscribed to."""
    for peer in range(4):
        traffic = Traffic()
        traffic.bytes_in, traffic.bytes_out = 12 + peer, 34 + peer
        journal.recorder.connected(Connection("strata", peer, traffic, Instant(journal.now)))
    journal.note(
        facts.PeerIdentified("strata", 1, ALICE),
        facts.SubscriptionOpened("strata", 1, 1),
        facts.SubscriptionOpened("strata", 2, 0),
        facts.SubscriptionOpened("strata", 2, 1),
        facts.SubscriptionEnded("strata", 1, 30, 4, 1, 60_000_000),
        facts.SubscriptionEnded("strata", 2, 3, 2, 0, 5_000),
        facts.SubscriptionOpened("strata", 3, 0),
        facts.SubscriptionEnded("strata", 3, 1, 1, 0, 7_000),
        facts.PeerLeft("strata", 1, ALICE, "idle_timeout"),
        facts.PeerLeft("strata", 2, None, "closed"),
    )


def deliveries(journal):
    """Deliveries with every outcome."""
    journal.note(facts.DeliveryAccepted("bhumi", 1, BOB, 256))
    for attempt, outcome in enumerate(Outcome, 1):
        journal.note(facts.DeliveryFinished("bhumi", attempt, BOB, outcome, 900 * attempt, 128, attempt))
    journal.note(facts.DeliveryFinished("merk", 1 << 40, ALICE, Outcome.OFFLINE, None, 0, 17))


def packets(journal):
    """Packets of every verdict, alone and together, with more authors than a second may name."""
    journal.note(
        packet(),
        packet(content_type="WHATEVER", relay=b"did:strata:relay", origin="AI_MODEL", expires_at=1_790_000_000),
        packet(downgrade="no_chain", origin="AI_MODEL", store_seq=None),
        packet("duplicate"),
        packet("invalid_timestamp", detail="too_old", store_seq=None),
        packet("invalid_timestamp", detail="too_old", store_seq=None, size_bytes=88),
        packet("duplicate", relay=b"did:strata:relay", content_type="hostile phrase"),
        *[packet("rate_limited", author=b"did:strata:%d" % n, store_seq=None, size_bytes=n) for n in range(70)],
    )
    journal.wake_after(SECOND_US)


def leases(journal):
    """Leases, and work of every kind and verdict, with more workers than a second may name."""
    journal.note(
        *[facts.LeaseChanged("lprp", BOB, change, 7) for change in ("granted", "renewed", "expired", "forgotten")],
        *[work(kind, "accepted") for kind in ("relay", "lease", "whitelist")],
        *[work(kind, verdict) for kind in ("relay", "lease") for verdict in ("too_few_bits", "challenge_expired")],
        *[work("lease", "too_few_bits") for _ in range(3)],
        *[work("whitelist", "too_few_bits", bytes([n]) * 32) for n in range(70)],
    )
    journal.wake_after(SECOND_US)


def graphs(journal):
    """Messages of groups."""
    journal.note(
        stored(None, "delivered"),
        stored(BOB, "waiting", (b"d" * 32, b"e" * 32)),
        changed("invalid", "invalid_dependency", 0),
        held(300, 200, 100),
        held(None, None, 1),
    )


def mesh(journal):
    """Look-ups and links of a mesh, and what was seen of other relays."""
    journal.note(
        looked_up(ALICE, "found", 900),
        looked_up(None, "absent", None, 300),
        link_ended(dialled=True),
        link_ended(dialled=False),
        facts.RelayObserved("merk", RELAY, "connect", "ok"),
        facts.RelayObserved("strata", "did:strata:relay", "blob", "ok", None, 5, 6, 7),
        *[facts.RelayObserved("strata", RELAY, "validity", "failed", "bad_signature", times=n) for n in (1, 2, 3)],
        *[facts.RelayObserved("strata", RELAY, "limited", "failed", duration_us=n) for n in (10, 20)],
    )
    journal.wake_after(SECOND_US)
    journal.note(facts.RelayObserved("strata", RELAY, "validity", "failed", "bad_signature"))
    journal.wake_after(2 * SECOND_US)


def refusals(journal):
    """Refusals of peers, of anonymous connections, and of networks that admission rejects."""
    journal.note(
        facts.Refused("bhumi", None, "truncated"),
        facts.Refused("bhumi", ALICE, "oversize", 4),
        facts.Refused("bhumi", ALICE, "oversize"),
        facts.Refused("bhumi", None, "no word of ours"),
    )
    for address in ("203.0.113.7", "203.0.113.8", "2001:db8:7::1", ""):
        journal.recorder.refused_by_admission("merk", AdmissionRefusal.ADDRESS_FULL, Instant(journal.now), address)
    journal.wake_after(SECOND_US)


def record_everything():
    """Return the lines of a journal in which every kind of event occurs."""
    journal = Journal()
    journal.recorder.node_started(Instant(0), "0.1.0")
    for chapter in (connections, deliveries, packets, leases, graphs, mesh, refusals):
        chapter(journal)
    journal.wake_after(60 * SECOND_US)
    journal.recorder.use_key(b"l" * 32)
    for chapter in (deliveries, packets, graphs):
        chapter(journal)
    journal.note(packet("duplicate"), work("lease", "too_few_bits"), facts.Refused("bhumi", BOB, "truncated"))
    journal.recorder.connected(Connection("bhumi", 9, Traffic(), Instant(journal.now)))
    journal.recorder.node_stopped(Instant(journal.now + 1), "signal")
    others = [
        events.SegmentOpened(WALL_US, "1", "00112233445566ff", "00112233445566ff-1780056000000000-1"),
        events.NodeSampled(WALL_US + 18, 12, 3_456, 7_890, 1_234, 5_600_000, 78_000_000, 9_000_000, 1_200_000),
        events.SegmentSealed(WALL_US + 19, 1_000),
    ]
    return encode_lines([*journal.events, *others], 0)


def test_lines_are_what_they_were() -> None:
    """What every kind of fact leaves in the journal is, byte for byte, what the last version left."""
    assert record_everything() == LINES.read_bytes()
