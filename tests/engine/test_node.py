"""Laws of engine.node."""

import random

import pytest

from tests.engine.build import SECOND, WALL, Rig
from tests.protocols.bhumi.build import ALICE, i_am, raw, send
from waystation.core.effects import Append, Close, Hold, Peer, Send
from waystation.engine.bans import Ban
from waystation.protocols.bhumi import wire
from waystation.protocols.bhumi.refusals import Refusal


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
    """What the server sees is Append, Send, Close and Hold alone."""
    rig = Rig()
    peer = rig.connect()
    identify(rig, peer, [1])
    rig.node.receive(peer, wire.encode(send(ALICE, 1)) + raw(9), rig.now)

    assert {type(effect) for effect in rig.settle()} <= {Append, Send, Close, Hold}
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
