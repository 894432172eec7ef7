"""Laws of engine.recorder: what is written down, and what never is."""

import random

import pytest

from tests.engine.build import KEY, SECOND, WALL, Rig
from tests.protocols.bhumi.build import KEYS, commit, i_am, preimage, raw, send
from waystation.core import facts
from waystation.core.facts import Outcome
from waystation.core.instant import Instant
from waystation.crypto.hashing import keyed_reference
from waystation.engine import recorder as module
from waystation.engine import references
from waystation.engine.admission import AdmissionRefusal
from waystation.engine.connections import Connection, Traffic
from waystation.engine.recorder import Recorder
from waystation.journal import events
from waystation.journal.contract import kind_of
from waystation.journal.segment import encode_lines
from waystation.protocols.bhumi import messages, wire

ALICE = KEYS[0].public


def make(**options):
    """Return a recorder and the list it writes to."""
    written = []
    recorder = Recorder(written.append, random.Random(options.get("seed", 1)))
    recorder.set_wall(Instant(0), WALL)
    recorder.use_key(options.get("key", KEY))
    return recorder, written


# One fact, one event


def test_delivery_becomes_two_events_with_one_reference():
    """Accepted and finished share an attempt, name the recipient by reference, and tell sizes and latency."""
    recorder, written = make()
    recorder.note(facts.DeliveryAccepted("bhumi", 7, ALICE, 120), Instant(10))
    recorder.note(facts.DeliveryFinished("bhumi", 7, ALICE, Outcome.OK, 75, 33, 2), Instant(85))
    accepted, finished = written

    assert accepted == events.DeliveryAccepted(
        WALL + 10, "bhumi", accepted.attempt_ref, keyed_reference(KEY, ALICE), 120
    )
    assert finished == events.DeliveryFinished(
        WALL + 85, "bhumi", accepted.attempt_ref, accepted.peer_ref, Outcome.OK, 75, 33, 2
    )
    assert len(accepted.attempt_ref) == 16


def test_immediate_outcome_has_no_latency():
    """What was never under way took no time that means anything."""
    recorder, written = make()
    recorder.note(facts.DeliveryFinished("bhumi", 1, ALICE, Outcome.OFFLINE, None, 0, 1), Instant(9))

    assert written[0].latency_us is None


def test_identified_connection_has_a_beginning_and_an_end():
    """Both events share a connection reference that is drawn, and the end counts the bytes."""
    recorder, written = make()
    traffic = Traffic()
    recorder.connected(Connection("bhumi", 4, traffic, Instant(0)))
    recorder.note(facts.PeerIdentified("bhumi", 4, ALICE), Instant(1))
    traffic.bytes_in, traffic.bytes_out = 100, 200
    recorder.note(facts.PeerLeft("bhumi", 4, ALICE, "replaced"), Instant(2))
    came, left = written

    assert came.conn_ref == left.conn_ref
    assert len(came.conn_ref) == 8
    assert left == events.PeerLeft(WALL + 2, "bhumi", came.conn_ref, came.peer_ref, "replaced", 100, 200)
    assert not recorder.connections
    assert not recorder._references.is_identified(4)


def test_anonymous_connections_are_counted_by_the_minute():
    """One row a minute, whatever came and went; no row for a minute in which nothing did."""
    recorder, written = make()
    for peer in range(5):
        recorder.connected(Connection("bhumi", peer, Traffic(), Instant(3)))
    for peer in range(2):
        recorder.note(facts.PeerLeft("bhumi", peer, None, "disconnected"), Instant(4))
    due = recorder.deadline()
    recorder.wake(Instant(due - 1))
    early = list(written)
    recorder.wake(due)
    recorder.wake(Instant(due + 120 * SECOND))

    assert due == 60 * SECOND + 3
    assert early == []
    assert written == [events.AnonymousCounted(WALL + 3, "bhumi", 5, 2)]


def test_refusals_of_a_second_are_one_row_each_kind():
    """A flood is a number, not a file."""
    recorder, written = make()
    for _ in range(10_000):
        recorder.note(facts.Refused("bhumi", None, "oversize"), Instant(5))
    recorder.note(facts.Refused("bhumi", ALICE, "unknown_extension", 7), Instant(6))
    recorder.refused_by_admission("bhumi", AdmissionRefusal.FULL, Instant(7))
    nothing_yet = list(written)
    recorder.wake(Instant(SECOND + 5))

    assert nothing_yet == []
    assert [(event.reason, event.times, event.peer_ref) for event in written] == [
        ("oversize", 10_000, None),
        ("unknown_extension", 7, keyed_reference(KEY, ALICE)),
        ("connections_full", 1, None),
    ]
    assert recorder.deadline() is None


def test_refusals_of_too_many_identities_lose_the_identity_and_not_the_count(monkeypatch):
    """What is gathered in a second is bounded whoever is refused."""
    monkeypatch.setattr(module, "REFUSAL_KEYS_MAX", 3)
    recorder, written = make()
    for pair in KEYS[:8]:
        recorder.note(facts.Refused("bhumi", pair.public, "unsolicited_ack"), Instant(1))
    recorder.wake(Instant(2 * SECOND))

    assert [event.times for event in written] == [1, 1, 1, 5]
    assert written[-1].peer_ref is None
    assert recorder.totals()["refusals"] == {("bhumi", "unsolicited_ack"): 8}


def test_who_is_turned_away_at_the_door_leaves_the_network():
    """Refusals of one network are one row under its keyed hash; without an address there is none."""
    recorder, written = make()
    for address in ("203.0.113.7", "203.0.113.8", "2001:db8:7:1::/64", "2001:db8:7:2::/64", ""):
        recorder.refused_by_admission("bhumi", AdmissionRefusal.ADDRESS_FULL, Instant(1), address)
    recorder.note(facts.Refused("bhumi", ALICE, "address_full"), Instant(1))
    recorder.wake(Instant(2 * SECOND))
    v4, v6 = (keyed_reference(KEY, name) for name in (b"net:203.0.113.0/24", b"net:2001:db8:7::/48"))

    assert [(event.source_ref, event.times) for event in written] == [(v4, 2), (v6, 2), (None, 1), (None, 1)]
    assert [event.peer_ref for event in written] == [None, None, None, keyed_reference(KEY, ALICE)]


def test_refusals_of_too_many_networks_lose_the_network_and_not_the_count(monkeypatch):
    """What is gathered in a second is bounded wherever they come from."""
    monkeypatch.setattr(module, "REFUSAL_KEYS_MAX", 3)
    recorder, written = make()
    for number in range(8):
        recorder.refused_by_admission("merk", AdmissionRefusal.FULL, Instant(1), f"10.0.{number}.1")
    recorder.wake(Instant(2 * SECOND))

    assert [(event.times, event.source_ref is None) for event in written] == [(1, False)] * 3 + [(5, True)]


def test_no_address_is_in_a_line_about_the_door():
    """Neither an address nor its network is written, and after a new key nobody can join the rows."""
    lines = []
    for key in (KEY, b"other" * 6):
        recorder, written = make(key=key)
        recorder.refused_by_admission("bhumi", AdmissionRefusal.FULL, Instant(1), "203.0.113.7")
        recorder.wake(Instant(2 * SECOND))
        lines.append(encode_lines(written, 0))

    assert lines[0] != lines[1]
    for address in (b"203.0.113", b"203-0-113", b"203_0_113"):
        assert address not in lines[0] + lines[1]


def test_refused_get_is_counted_and_not_written():
    """A public page belongs to no protocol, so its refusals are in the totals and in memory, and in no row."""
    recorder, written = make()
    for host in ("203.0.113.7", "203.0.113.8", ""):
        recorder.refused_get(AdmissionRefusal.GETS_RATE, Instant(1), host)
    recorder.wake(Instant(2 * SECOND))

    assert recorder.totals()["refusals"] == {("web", "gets_rate"): 3}
    assert recorder.refused_peers.of("web", "gets_rate") == [("net:203.0.113.0/24", 2, Instant(1))]
    assert (written, recorder.deadline()) == ([], None)


def test_bytes_carried_outlive_their_connections():
    """Connections that stand and those that are over count alike."""
    recorder, _ = make()
    for peer, traffic in ((1, Traffic()), (2, Traffic()), (3, Traffic())):
        recorder.connected(Connection("bhumi", peer, traffic, Instant(0)))
        traffic.bytes_in, traffic.bytes_out = peer, 10 * peer
    recorder.note(facts.PeerIdentified("bhumi", 1, ALICE), Instant(1))
    before = recorder.carried()
    recorder.note(facts.PeerLeft("bhumi", 1, ALICE, "gone"), Instant(1))
    recorder.note(facts.PeerLeft("bhumi", 2, None, "gone"), Instant(1))

    assert before == recorder.carried() == (6, 60)


def test_totals_count_what_is_noted_even_without_a_journal():
    """Metrics do not depend on whether anything is written."""
    recorder = Recorder(None, random.Random(1))
    for outcome in (Outcome.OK, Outcome.OK, Outcome.TIMEOUT):
        recorder.note(facts.DeliveryFinished("bhumi", 1, ALICE, outcome, 1, 0, 1), Instant(1))
    recorder.note(facts.DeliveryAccepted("bhumi", 1, ALICE, 1), Instant(1))
    recorder.refused_by_admission("bhumi", AdmissionRefusal.FULL, Instant(1))

    assert recorder.totals() == {
        "deliveries": {("bhumi", "ok"): 2, ("bhumi", "timeout"): 1},
        "refusals": {("bhumi", "connections_full"): 1},
        "packets": {},
        "lookups": {},
        "leases": {},
        "work": {},
        "messages": {},
    }


def test_total_counts_every_frame_that_an_outcome_stands_for():
    """Outcomes told without a latency stand for as many attempts as they say; one with a latency is one attempt."""
    recorder, written = make()
    recorder.note(facts.DeliveryFinished("merk", 1, ALICE, Outcome.OK, None, 25_600, 100), Instant(1))
    recorder.note(facts.DeliveryFinished("bhumi", 2, ALICE, Outcome.OK, 7, 0, 3), Instant(1))

    assert recorder.totals()["deliveries"] == {("merk", "ok"): 100, ("bhumi", "ok"): 1}
    assert [(event.carried_bytes, event.tries) for event in written] == [(25_600, 100), (0, 3)]


def test_end_of_the_node_writes_what_was_gathered_first():
    """Nothing that was counted is lost in a good end."""
    recorder, written = make()
    recorder.node_started(Instant(0), "0.1.0")
    recorder.connected(Connection("bhumi", 1, Traffic(), Instant(1)))
    recorder.note(facts.Refused("bhumi", None, "oversize"), Instant(1))
    recorder.node_stopped(Instant(5))

    assert [type(event).__name__ for event in written] == ["NodeStarted", "Refused", "AnonymousCounted", "NodeStopped"]


def test_references_change_with_the_key():
    """After a new key, nobody can join a peer's rows with those before it."""
    recorder, written = make()
    for key in (KEY, b"other" * 6, KEY):
        recorder.use_key(key)
        recorder.note(facts.DeliveryAccepted("bhumi", 1, ALICE, 1), Instant(1))
    first, second, third = (event.peer_ref for event in written)

    assert first != second
    assert first == third


def test_references_of_two_boots_differ():
    """Attempt references of one boot say nothing about another's."""
    refs = []
    for seed in (1, 2):
        recorder, written = make(seed=seed)
        recorder.note(facts.DeliveryAccepted("bhumi", 1, ALICE, 1), Instant(1))
        refs.append(written[0].attempt_ref)

    assert refs[0] != refs[1]


def test_cached_references_are_bounded(monkeypatch):
    """Whoever is named in a flood of SENDs does not stay in memory."""
    monkeypatch.setattr(references, "REFERENCES_CACHED_MAX", 4)
    recorder, written = make()
    for number in range(100):
        recorder.note(facts.DeliveryAccepted("bhumi", 1, number.to_bytes(32, "big"), 1), Instant(1))

    assert len(recorder._references._cache) <= 4
    assert len({event.peer_ref for event in written}) == 100


# Nothing that joins a sender to a delivery


class Life:
    """Devices and senders on a whole node, as a seed says, with everything that must stay out of the journal."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.rig = Rig(seed=seed)
        self.devices = {}
        self.senders = {}
        self.secrets = [pair.public for pair in KEYS]

    def live(self):
        """Pair two devices with many senders for a while, then write everything."""
        for pair in KEYS[:2]:
            peer = self.rig.connect(f"198.51.100.{10 + KEYS.index(pair)}")
            nonce = int.from_bytes(self.rig.hear(peer)[7:11], "big")
            carried = [(90, b"carried-secret-answer")]
            self.rig.say(peer, wire.encode(i_am(pair, nonce, range(40), carried)))
            self.devices[peer] = pair
        for turn in range(60):
            self.step(turn)
        self.rig.pass_ms(120_000)
        self.rig.recorder.node_stopped(self.rig.now)
        return self.rig.events

    def step(self, turn):
        """Let one sender come, ask and perhaps go, and let the devices answer."""
        address = f"203.0.113.{turn}"
        peer = self.rig.connect(address)
        payload = b"payload-%d-" % turn + self.rng.randbytes(12)
        number = self.rng.randrange(45)
        self.secrets += [address.encode(), payload, preimage(number), commit(number)]
        self.senders[peer] = address
        bad = raw(0x50, b"") if self.rng.random() < 0.3 else b""
        ask = wire.encode(send(self.rng.choice(KEYS[:3]), number, payload))
        self.rig.say(peer, ask + bad)
        for device in self.devices:
            self.answer(device, self.rig.hear(device))
        if self.rng.random() < 0.5:
            self.rig.node.disconnect(peer, self.rig.now)
        self.rig.pass_ms(self.rng.choice([1, 20, 400]))

    def answer(self, device, data):
        """Acknowledge the deliveries among what a device was sent, with an answer that nobody may see."""
        frames = wire.FrameBuffer(wire.client_frame_limits(65_536))
        frames.feed(data)
        while (frame := frames.next_frame()) is not None:
            if frame[0] == messages.FrameType.DELIVER:
                deliver = wire.decode_deliver(frame[1], with_preimage=False)
                secret = b"answer-" + self.rng.randbytes(12)
                self.secrets.append(secret)
                self.rig.say(device, wire.encode(messages.Ack(deliver.message_id, secret)))


@pytest.mark.parametrize("seed", range(6))
def test_no_secret_is_in_any_event(seed):
    """Neither identities nor addresses, preimages, commits, payloads or answers appear, raw, in hex or as numbers."""
    life = Life(seed)
    written = life.live()
    fields = [field for event in written for field in event]
    blob = b"\x00".join(field for field in fields if isinstance(field, bytes))
    text = " ".join(str(field) for field in fields) + " " + blob.hex()

    assert {"DeliveryFinished", "Refused"} <= set(life.rig.kinds())
    for secret in [*life.secrets, b"carried-secret-answer"]:
        assert secret not in blob
        assert secret.hex() not in text
        assert secret.decode("latin-1") not in text


@pytest.mark.parametrize("seed", range(6))
def test_no_event_names_an_anonymous_peer(seed):
    """Events that name somebody name devices only; of the others there are counts, no references."""
    life = Life(seed)
    written = life.live()
    devices = {keyed_reference(KEY, pair.public) for pair in KEYS[:3]}
    connections = {event.conn_ref for event in written if isinstance(event, events.PeerIdentified)}

    assert len(connections) == 2
    for event in written:
        assert getattr(event, "peer_ref", None) in devices | {None}
        assert getattr(event, "conn_ref", None) in connections | {None}
        assert not hasattr(event, "peer")
        if isinstance(event, events.Refused) and event.reason == "unknown_extension":
            assert event.peer_ref is None


@pytest.mark.parametrize("seed", range(3))
def test_deliveries_tell_nothing_of_who_sent_them(seed):
    """The same story with its senders' connections swapped leaves the same deliveries, field for field."""
    told = []
    for extra in (0, 5):
        life = Life(seed)
        for _ in range(extra):
            life.rig.connect("192.0.2.250")
        written = life.live()
        kinds = (events.DeliveryAccepted, events.DeliveryFinished)
        told.append([event[3:] for event in written if isinstance(event, kinds)])

    assert told[0] == told[1]


@pytest.mark.parametrize("seed", range(2))
def test_every_event_of_a_life_can_be_written(seed):
    """What the recorder makes, the segment takes: every kind is declared in the journal's contract."""
    assert all(kind_of(event) for event in Life(seed).live())
