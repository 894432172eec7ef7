"""Laws of engine.node."""

import random

import pytest

from tests.engine.build import KEY, SECOND, WALL, Rig
from tests.protocols.bhumi.build import ALICE, i_am, raw, send
from waystation.core.effects import Close, Commit, Dial, Hold, Peer, Send, SendMany, SignatureCheck, Verify
from waystation.core.facts import PeerLeft, Refused
from waystation.core.machine import AsksNothing
from waystation.crypto.hashing import keyed_reference
from waystation.engine.admission import Admission, AdmissionLimits
from waystation.engine.bans import Ban, BanList
from waystation.engine.node import Node
from waystation.engine.recorder import Recorder
from waystation.protocols.bhumi import wire
from waystation.protocols.bhumi.refusals import Refusal
from waystation.rules.policy import Action, Mode, PolicyRule, PolicyTable
from waystation.store.memory import MemoryStore


def nonce_of(hello):
    """Return the nonce in a HELLO frame."""
    return int.from_bytes(hello[7:11], "big")


def identify(rig, peer, commits=()):
    """Let a peer become Alice."""
    rig.say(peer, wire.encode(i_am(ALICE, nonce_of(rig.hear(peer)), commits)))


def test_numbers_are_never_used_twice():
    """A number names one connection for as long as the node runs."""
    rig = Rig()
    peers = []
    for _ in range(5):
        peers.append(rig.connect())
        rig.node.disconnect(peers[-1], rig.now)

    assert len(set(peers)) == 5


def test_input_reaches_the_relay_and_its_effects_come_back():
    """HELLO on connect, an echo on KEEPALIVE: the node adds nothing and takes nothing away."""
    rig = Rig()
    peer = rig.connect()
    hello = rig.hear(peer)
    rig.say(peer, raw(6))

    assert hello[:6] == raw(1, bytes(9))[:6]
    assert rig.hear(peer) == raw(6)


def test_facts_never_leave_the_engine():
    """What the server sees is Send, Close and Hold alone."""
    rig = Rig()
    peer = rig.connect()
    identify(rig, peer, [1])
    rig.node.receive(peer, wire.encode(send(ALICE, 1)) + raw(9), rig.now)

    assert {type(effect) for effect in rig.settle()} <= {Send, Close, Hold}
    assert "PeerIdentified" in rig.kinds()


@pytest.mark.parametrize("how", ["disconnect", "relay closes", "close, then disconnect", "disconnect before take"])
def test_every_end_releases_the_address_exactly_once(how):
    """Whoever ends a connection, and however often its end is told, it is counted out once."""
    rig = Rig()
    other, peer = rig.connect(), rig.connect()
    if "close" in how:
        rig.say(peer, raw(9))
    if how == "disconnect before take":
        rig.node.receive(peer, raw(9), rig.now)
    if "disconnect" in how:
        rig.node.disconnect(peer, rig.now)
        rig.node.disconnect(peer, rig.now)
    rig.settle()

    assert rig.admission.total == 1
    assert rig.node.sizes()["bhumi"]["connections"] == 1
    rig.node.disconnect(other, rig.now)
    assert rig.admission.total == 0


def test_opened_but_never_connected_is_released_by_name():
    """A TLS handshake that fails gives its place back."""
    rig = Rig()
    rig.node.open("bhumi", "192.0.2.1", WALL, rig.now)
    before = rig.admission.total
    rig.node.release("192.0.2.1")

    assert (before, rig.admission.total) == (1, 0)


def test_door_refuses_what_is_over_the_ceiling_and_says_so():
    """The 65th of one address, be it written as IPv4 or mapped; it is counted and recorded as a reason."""
    rig = Rig()
    for number in range(64):
        rig.connect("192.0.2.1" if number % 2 else "::ffff:192.0.2.1")
    admitted = rig.node.open("bhumi", "192.0.2.1", WALL, rig.now)
    rig.pass_ms(1_000)

    assert not admitted
    assert rig.recorder.totals()["refusals"] == {("bhumi", "address_full"): 1}
    assert [event.reason for event in rig.events if type(event).__name__ == "Refused"] == ["address_full"]


def test_one_ipv6_site_is_one_address():
    """A household's 2**64 addresses have 64 connections together."""
    rig = Rig()
    for number in range(64):
        rig.connect(f"2001:db8::{number:x}")

    assert not rig.node.open("bhumi", "2001:db8::ffff", WALL, rig.now)
    assert rig.node.open("bhumi", "2001:db8:0:1::1", WALL, rig.now)


def test_banned_address_stays_out_until_its_ban_ends():
    """The door looks at the wall clock it is given."""
    rig = Rig()
    rig.bans.add(Ban("address:192.0.2.1", "abuse", WALL, WALL + SECOND))

    assert not rig.node.open("bhumi", "192.0.2.1", WALL, rig.now)
    assert rig.node.open("bhumi", "192.0.2.1", WALL + SECOND, rig.now)
    assert rig.recorder.totals()["refusals"] == {("bhumi", "address_banned"): 1}


def test_published_rule_is_asked_at_the_door():
    """Bans come first; whom a rule refuses is counted under it, with the network, and takes no place."""
    rig = Rig()
    rule = PolicyRule(
        "source",
        keyed_reference(KEY, b"net:192.0.2.0/24"),
        Action.RATE,
        1,
        "burst",
        WALL,
        WALL + SECOND,
        "1",
        Mode.ENFORCE,
    )
    rig.policy.use(PolicyTable([rule], WALL + SECOND), {})
    rig.bans.add(Ban("address:192.0.2.9", "abuse", WALL, None))
    answers = [rig.node.open("bhumi", host, WALL, rig.now) for host in ("192.0.2.9", "192.0.2.1", "192.0.2.2")]
    strangers = rig.node.open("bhumi", "198.51.100.1", WALL, rig.now)

    assert (answers, strangers) == ([False, True, False], True)
    assert rig.admission.total == 2
    assert rig.recorder.totals()["refusals"] == {("bhumi", "address_banned"): 1, ("bhumi", "policy_rate"): 1}


def test_retiring_node_admits_nobody_and_settles():
    """No new connection, no new work; settled once nothing is under way."""
    rig = Rig()
    peer = rig.connect()
    identify(rig, peer, [1])
    rig.say(peer, wire.encode(send(ALICE, 1)))
    rig.node.retire()
    busy = rig.node.settled()
    rig.node.disconnect(peer, rig.now)

    assert not rig.node.open("bhumi", "192.0.2.1", WALL, rig.now)
    assert (busy, rig.node.settled()) == (False, True)


def test_shut_closes_and_releases_everybody():
    """After it, no connection and no count is left."""
    rig = Rig()
    peers = [rig.connect() for _ in range(3)]
    rig.node.shut(rig.now)
    rig.settle()

    assert rig.closed == dict.fromkeys(peers, Refusal.SHUTDOWN)
    assert rig.admission.total == 0


def test_expel_reaches_the_relay():
    """An identity banned while it is here goes."""
    rig = Rig()
    peer = rig.connect()
    identify(rig, peer)
    rig.node.expel(ALICE.public, rig.now)
    rig.settle()

    assert rig.closed == {peer: Refusal.IDENTITY_BANNED}


def test_unknown_numbers_are_ignored():
    """An input for a connection that is gone does nothing."""
    rig = Rig()
    rig.node.receive(Peer(99), b"x", rig.now)
    for call in (rig.node.disconnect, rig.node.congested, rig.node.drained):
        call(Peer(99), rig.now)

    assert rig.settle() == []


def test_deadline_is_the_earliest_of_all():
    """The recorder's minute and the relay's timers share one deadline, and waking serves both."""
    rig = Rig()
    rig.connect()

    assert rig.node.deadline() == rig.now + 60 * SECOND
    rig.pass_ms(60_000)
    assert rig.kinds() == ["AnonymousCounted"]


def test_congestion_reaches_the_relay():
    """A peer for whom bytes wait is cut after 10 s, unless they leave."""
    rig = Rig()
    slow, fast = rig.connect(), rig.connect()
    rig.node.congested(slow, rig.now)
    rig.node.congested(fast, rig.now)
    rig.node.drained(fast, rig.now)
    rig.pass_ms(10_000)

    assert rig.closed == {slow: Refusal.WRITE_TIMEOUT}


def test_traffic_is_counted_per_connection():
    """The bytes of an identified connection stand in its last event."""
    rig = Rig()
    peer = rig.connect()
    identify(rig, peer)
    rig.say(peer, raw(6) * 3)
    rig.node.disconnect(peer, rig.now)
    rig.settle()

    assert (rig.events[-1].bytes_in, rig.events[-1].bytes_out) == (6 + 100 + 18, 15 + 18)


@pytest.mark.parametrize("seed", range(8))
def test_no_place_is_lost_in_any_script(seed):
    """Random connects, ends and bad bytes leave the count where the connections are."""
    rng, rig, alive = random.Random(seed), Rig(), []
    for _ in range(200):
        what = rng.randrange(4)
        if what == 0 and len(alive) < 60:
            alive.append(rig.connect(rng.choice(["192.0.2.1", "2001:db8::1", ""])))
        elif what == 1 and alive:
            rig.node.disconnect(alive.pop(rng.randrange(len(alive))), rig.now)
        elif what == 2 and alive:
            rig.say(alive.pop(), raw(9))
        rig.settle()
        assert rig.admission.total == len(alive) == rig.relay.sizes()["connections"]


def test_silent_newcomers_are_refused_by_name_and_counted():
    """The 17th that does not finish its handshake is closed at the door, and the reason is in the totals."""
    rig = Rig()
    opened = [rig.node.open("bhumi", "192.0.2.9", WALL, rig.now) for _ in range(17)]
    before = rig.node.sizes()["node"]
    for _ in range(16):
        rig.node.release("192.0.2.9")

    assert opened == [True] * 16 + [False]
    assert (before["handshakes"], before["connections"]) == (16, 16)
    assert rig.node.sizes()["node"] == {"connections": 0, "handshakes": 0, "bans": 0}
    assert rig.recorder.totals()["refusals"] == {("bhumi", "address_handshakes_full"): 1}


def test_connection_without_a_handshake_counts_none():
    """A bare listener establishes connections at once, however many come in one turn (NODE-HANDSHAKES)."""
    rig = Rig()
    opened = [rig.node.open("bhumi", "192.0.2.9", WALL, rig.now, has_handshake=False) for _ in range(20)]
    counted = rig.node.sizes()["node"]
    rig.node.connect("bhumi", "192.0.2.9", rig.now, has_handshake=False)
    for _ in range(19):
        rig.node.release("192.0.2.9", has_handshake=False)

    assert opened == [True] * 20
    assert (counted["handshakes"], counted["connections"]) == (0, 20)
    assert (rig.node.sizes()["node"]["handshakes"], rig.node.sizes()["node"]["connections"]) == (0, 1)


def test_displaced_handshake_is_named_once_and_counted():
    """The server learns whose connection to close; the operator sees that it gave way."""
    rig = Rig()
    for number in range(193):
        assert rig.node.open("bhumi", f"10.{number}.0.1", WALL, rig.now)

    assert (rig.node.displaced(), rig.node.displaced()) == (["10.0.0.1"], [])
    assert rig.recorder.totals()["refusals"] == {("bhumi", "handshake_displaced"): 1}


def test_new_limits_hold_from_now_on():
    """Connections that stand stay, and a further one meets the new ceiling."""
    rig = Rig()
    opened = [rig.node.open("bhumi", "192.0.2.9", WALL, rig.now) for _ in range(3)]
    rig.node.use_limits(AdmissionLimits(connections_per_address=3))

    assert opened == [True] * 3
    assert not rig.node.open("bhumi", "192.0.2.9", WALL, rig.now)


class Asker:
    """A relay that dials out, asks questions, and notes everything it is told."""

    def __init__(self):
        self.told = []
        self.effects = []

    def connect(self, peer, now, address=""):
        self.told.append(("connect", peer, address))

    def connect_upstream(self, peer, name, now):
        self.told.append(("upstream", peer, name))

    def upstream_failed(self, name, now):
        self.told.append(("failed", name, now))

    def connect_by(self, peer, door, now, address=""):
        self.told.append(("by", peer, door, address))

    def receive(self, peer, data, now):
        self.told.append(("receive", peer, data))

    def disconnect(self, peer, now):
        self.effects.append(PeerLeft("asker", peer, None, "gone"))

    def committed(self, ticket, now):
        self.told.append(("committed", ticket, now))

    def not_committed(self, ticket, now):
        self.told.append(("not_committed", ticket, now))

    def verified(self, ticket, answers, now):
        self.told.append(("verified", ticket, answers, now))

    def take(self):
        effects, self.effects = self.effects, []
        return effects


def asking_node():
    """Return a node with two askers, and its admission."""
    askers, admission, events = {"a": Asker(), "b": Asker()}, Admission(), []
    recorder = Recorder(events.append, random.Random(1))
    recorder.set_wall(0, WALL)
    recorder.use_key(b"k" * 32)
    return Node(askers, admission, BanList(MemoryStore()), recorder), askers, admission


def test_relay_hears_the_address_it_is_counted_under():
    """A mapped IPv4 address is the IPv4 one, an IPv6 address its site: what admission counts is what the relay gets."""
    node, askers, _ = asking_node()
    for host in ("::ffff:192.0.2.1", "2001:db8::1", ""):
        assert node.open("a", host, WALL, SECOND)
        node.connect("a", host, SECOND)

    assert [address for _, _, address in askers["a"].told] == ["192.0.2.1", "2001:db8::/64", ""]


def test_answers_go_to_the_protocol_that_asked():
    """The same ticket of another protocol is another question."""
    node, askers, _ = asking_node()
    node.committed("a", 1, SECOND)
    node.verified("b", 1, [0, -1], SECOND)

    assert askers["a"].told == [("committed", 1, SECOND)]
    assert askers["b"].told == [("verified", 1, [0, -1], SECOND)]


def test_questions_pass_the_engine_as_they_are():
    """Commit, Verify and Dial reach the server in their place among the effects; facts do not."""
    node, askers, _ = asking_node()
    wanted = [Commit(1, ()), Send(Peer(9), b"x"), Verify(2, (SignatureCheck((), b"", b""),)), Hold(Peer(9), True)]
    wanted.append(Dial("name", "ws://192.0.2.1", only_public=True))
    askers["b"].effects = [*wanted[:2], Refused("b", None, "why"), *wanted[2:]]

    assert list(node.take(SECOND)) == [("b", wanted)]


def test_many_messages_are_counted_as_bytes_of_their_peer():
    """What goes out in one effect is the same traffic as message by message."""
    node, askers, _ = asking_node()
    assert node.open("a", "192.0.2.1", WALL, SECOND)
    peer = node.connect("a", "192.0.2.1", SECOND)
    askers["a"].effects = [SendMany(peer, [b"abc", b"de"]), Send(peer, b"f"), SendMany(Peer(99), [b"nobody"])]
    kept = [effect for _, effects in node.take(SECOND) for effect in effects]

    assert len(kept) == 3
    assert node._links[peer].traffic.bytes_out == 6


def test_dialled_connection_is_not_counted():
    """An upstream has a number of its own, is heard, and neither takes a place at the door nor gives one back."""
    node, askers, admission = asking_node()
    out = node.connect_out("a", "did:key:upstream", SECOND)
    assert node.open("a", "192.0.2.1", WALL, SECOND)
    other = node.connect("a", "192.0.2.1", SECOND)
    counted = admission.total
    node.receive(out, b"hello", SECOND)
    node.disconnect(out, SECOND)
    node.receive(out, b"late", SECOND)

    assert out != other
    assert (counted, admission.total) == (1, 1)
    assert askers["a"].told == [
        ("upstream", out, "did:key:upstream"),
        ("connect", other, "192.0.2.1"),
        ("receive", out, b"hello"),
    ]


def test_dial_that_failed_is_told_to_who_asked():
    """The relay of that protocol hears the name, and no other relay does."""
    node, askers, _ = asking_node()
    node.dial_failed("b", "ws://192.0.2.1", SECOND)

    assert askers["a"].told == []
    assert askers["b"].told == [("failed", "ws://192.0.2.1", SECOND)]


def test_door_is_told_to_the_relay():
    """Who comes through a door of its own is introduced with it, counted as anybody else, and heard."""
    node, askers, admission = asking_node()
    assert node.open("a", "192.0.2.1", WALL, SECOND)
    peer = node.connect("a", "192.0.2.1", SECOND, "mesh")
    node.receive(peer, b"hello", SECOND)

    assert askers["a"].told == [("by", peer, "mesh", "192.0.2.1"), ("receive", peer, b"hello")]
    assert admission.total == 1


def test_relay_without_upstreams_cannot_dial():
    """Dialling for a protocol that has no upstreams is a bug of ours, and so is a door that it has not got."""
    rig = Rig()
    assert rig.node.open("bhumi", "192.0.2.1", WALL, rig.now)

    with pytest.raises(AssertionError):
        rig.node.connect_out("bhumi", "somebody", rig.now)
    with pytest.raises(AssertionError):
        rig.node.dial_failed("bhumi", "somebody", rig.now)
    with pytest.raises(AssertionError):
        rig.node.connect("bhumi", "192.0.2.1", rig.now, "mesh")


def test_bhumi_asks_nothing():
    """An answer for a relay that never asks is a bug of ours, not something to swallow."""
    rig = Rig()

    assert isinstance(rig.relay, AsksNothing)
    with pytest.raises(AssertionError):
        rig.node.committed("bhumi", 1, rig.now)


class Seeing(Asker):
    """One that is told certificates, and hears of the end of one half."""

    def connect_upstream(self, peer, name, now, certificate=b""):
        self.told.append(("upstream", peer, name, certificate))

    def half_closed(self, peer, now):
        self.told.append(("half", peer, now))


def test_certificate_is_told_where_one_was_seen():
    """A relay gets the hash with the connection; where nothing was seen it is called as any other."""
    node, askers, _ = asking_node()
    askers["a"].__class__ = Seeing
    first = node.connect_out("a", "name", SECOND, b"c" * 32)
    second = node.connect_out("a", "name", SECOND)

    assert askers["a"].told == [("upstream", first, "name", b"c" * 32), ("upstream", second, "name", b"")]


def test_end_of_one_half_is_told_to_who_hears_of_it():
    """Such a relay goes on writing; for any other, and for a connection that is over, there is nothing to stay for."""
    node, askers, _ = asking_node()
    askers["a"].__class__ = Seeing
    for protocol in ("a", "b"):
        assert node.open(protocol, "192.0.2.1", WALL, SECOND)
    patient, other = (node.connect(protocol, "192.0.2.1", SECOND) for protocol in ("a", "b"))
    stays = [node.half_closed(peer, SECOND) for peer in (patient, other, Peer(99))]

    assert stays == [True, False, False]
    assert ("half", patient, SECOND) in askers["a"].told
