"""Laws of protocols.bsp.machine: who gets in, on either side of a handshake."""

import pytest

from tests.protocols.bsp.build_machine import Bench, Pair
from tests.protocols.bsp.build_streams import (
    CERTIFICATE,
    FRIEND,
    OTHER_CERTIFICATE,
    STRANGER,
    US,
    changed,
    hello_of,
    proof_of,
    verdict_of,
)
from waystation.core.facts import PeerIdentified, PeerLeft, Refused
from waystation.protocols.bsp.limits import DEFAULT_LIMITS, BspLimits
from waystation.protocols.bsp.messages import Ack
from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.stream import handshake
from waystation.protocols.bsp.stream.machine import PeerDown, PeerUp

URL = "bsp+tls://friend.example:7443"


def dialling_bench(url=URL, **how):
    bench = Bench(dials={FRIEND.public: url}, **how)
    bench.pass_ms(0)
    return bench


def status_of(bench, client, hello=None, **how):
    """Let a client prove itself; return its connection and the status that it was told, None for none."""
    peer = bench.come()
    bench.say(peer, proof_of(client, bench.take_sent(peer), **how))
    verdict = bench.take_sent(peer)
    return peer, verdict[64] if len(verdict) == 65 else None


# The handshake, as a server


def test_connection_gets_our_hello():
    """Whoever comes through TLS is told who we are, with a nonce of its own, and nothing else."""
    bench = Bench()

    hellos = [bench.take_sent(bench.come()) for _ in range(2)]

    assert all(handshake.decode_hello(hello).key == US.public for hello in hellos)
    assert hellos[0] != hellos[1]


def test_connection_without_a_door_is_one_through_tls():
    """Whoever drives one listener only need not name it."""
    bench = Bench()
    peer = bench.new_peer()

    bench.machine.connect(peer, bench.now, "192.0.2.1")
    bench.settle()

    assert handshake.decode_hello(bench.take_sent(peer)).key == US.public


def test_known_client_is_let_in():
    """A peer that proves itself is told so by our signature, and counts as connected."""
    bench = Bench()
    peer = bench.come()
    hello = bench.take_sent(peer)
    proof = proof_of(FRIEND, hello)

    bench.say(peer, proof)

    assert bench.take_sent(peer) == verdict_of(US, proof, nonce=handshake.decode_hello(hello).nonce)
    assert bench.machine.connected() == {FRIEND.public: "tls"}
    assert bench.events == [PeerUp(FRIEND.public, "tls")]
    assert bench.facts == [PeerIdentified("bsp", peer, FRIEND.public)]


def test_unknown_client_is_told_and_closed():
    """A key outside the table of peers gets status 1, and a fact with its name."""
    bench = Bench()

    peer, status = status_of(bench, STRANGER)

    assert (status, bench.reason_of(peer)) == (1, Refusal.UNKNOWN_PEER)
    assert bench.facts[0] == Refused("bsp", STRANGER.public, "unknown_peer")


def test_known_client_that_comes_too_often_is_told_that_we_are_busy():
    """Beyond the burst a key gets in so often a second and no more (BSP-ARRIVALS)."""
    bench = Bench()

    statuses = [status_of(bench, FRIEND)[1] for _ in range(DEFAULT_LIMITS.arrivals_burst + 1)]
    bench.pass_ms(1_000)
    later = [status_of(bench, FRIEND)[1] for _ in range(DEFAULT_LIMITS.arrivals_per_second + 1)]

    assert statuses == [0] * DEFAULT_LIMITS.arrivals_burst + [2]
    assert later == [0] * DEFAULT_LIMITS.arrivals_per_second + [2]


def test_arrivals_of_as_many_keys_are_counted_as_may_be_connected():
    """The key that came first is forgotten for the next one, so that memory has a bound."""
    bench = Bench(peers=(FRIEND, STRANGER), limits=BspLimits(arrivals_burst=1, connected=1))

    def told(client):
        peer, status = status_of(bench, client)
        bench.machine.disconnect(peer, bench.now)
        return status

    statuses = [told(client) for client in (FRIEND, FRIEND, STRANGER, FRIEND)]

    assert statuses == [0, 2, 0, 0]


def test_rate_of_arrivals_can_be_lifted():
    """Load tests lift it."""
    bench = Bench(rate_limits=False)

    statuses = {status_of(bench, FRIEND)[1] for _ in range(DEFAULT_LIMITS.arrivals_burst + 1)}

    assert statuses == {0}


def test_exempt_key_arrives_as_often_as_it_likes():
    """NODE-ACCESS: the rate of others stays."""
    bench = Bench(peers=(FRIEND, STRANGER), is_unlimited=lambda key: key == FRIEND.public)
    exempt, other = (
        {status_of(bench, who)[1] for _ in range(DEFAULT_LIMITS.arrivals_burst + 1)} for who in (FRIEND, STRANGER)
    )

    assert (exempt, other) == ({0}, {0, 2})


def test_review_closes_whom_the_operator_refuses_now():
    """Others stay."""
    refused = set()
    bench = Bench(peers=(FRIEND, STRANGER), admits=lambda key: key not in refused)
    gone, stays = (status_of(bench, who)[0] for who in (FRIEND, STRANGER))
    refused.add(FRIEND.public)
    bench.machine.review(bench.now)
    bench.settle()

    assert bench.reason_of(gone) is Refusal.IDENTITY_BANNED
    assert stays in bench.machine._sessions.by_peer


@pytest.mark.parametrize("client", [FRIEND, STRANGER])
def test_bad_signature_is_told_nothing(client):
    """Who does not hold its key learns not even whether we know it."""
    bench = Bench()

    peer, status = status_of(bench, client, certificate=OTHER_CERTIFICATE)

    assert (status, bench.reason_of(peer)) == (None, Refusal.BAD_SIGNATURE)
    assert bench.facts == [Refused("bsp", None, "bad_signature"), PeerLeft("bsp", peer, None, "bad_signature")]


def test_banned_identity_is_told_that_it_is_unknown():
    """A ban looks to its bearer as if we had never heard of it."""
    bench = Bench(admits=lambda key: key != FRIEND.public)

    peer, status = status_of(bench, FRIEND)

    assert (status, bench.reason_of(peer)) == (1, Refusal.IDENTITY_BANNED)


def test_draining_node_is_busy():
    """Who comes while we are leaving is told to come again."""
    bench = Bench()
    bench.machine.retire()

    peer, status = status_of(bench, FRIEND)

    assert (status, bench.reason_of(peer)) == (2, Refusal.DRAINING)


def test_too_many_peers_are_busy():
    """Above the bound of peers a new one is told to come again, and one that is here may come anew."""
    bench = Bench(peers=[FRIEND, STRANGER], limits=BspLimits(connected=1))
    bench.enter(FRIEND)

    peer, status = status_of(bench, STRANGER)

    assert (status, bench.reason_of(peer)) == (2, Refusal.BUSY)
    assert status_of(bench, FRIEND)[1] == 0


def test_handshake_takes_ten_seconds_at_most():
    """A connection that does not prove itself in time is closed, and not before."""
    bench = Bench()
    peer = bench.come()
    bench.say(peer, proof_of(FRIEND, bench.take_sent(peer))[:-1])

    bench.pass_ms(9_999)
    assert bench.reason_of(peer) is None
    bench.pass_ms(1)

    assert bench.reason_of(peer) is Refusal.HANDSHAKE_TIMEOUT


def test_another_protocol_is_closed_at_its_first_byte():
    """Nobody waits for 136 bytes of somebody who talks HTTP."""
    bench = Bench()
    peer = bench.come()

    bench.say(peer, b"GET / HTTP/1.1\r\n")

    assert bench.reason_of(peer) is Refusal.HANDSHAKE


def test_unproved_connections_are_bounded():
    """The oldest connection without a proof makes room for the newest; who proved itself stays."""
    bench = Bench()
    friend = bench.enter()
    oldest = bench.come()
    others = [bench.come() for _ in range(255)]
    assert not bench.closes

    newest = bench.come()

    assert {oldest: Refusal.BUSY} == {peer: close.reason for peer, close in bench.closes.items()}
    assert bench.machine.sizes()["handshakes"] == 256
    assert bench.machine.sizes()["connections"] == 257
    assert newest not in bench.closes
    assert not {friend, *others} & set(bench.closes)


def test_door_without_certificate_is_closed():
    """Without the hash of what clients see no handshake can bind them: nobody gets in."""
    bench = Bench()
    bench.machine.use_certificate(None)

    assert bench.reason_of(bench.come()) is Refusal.HANDSHAKE
    assert bench.reason_of(bench.come("wss_merk")) is Refusal.HANDSHAKE


def test_each_door_has_its_certificate():
    """A WebSocket door stands behind the certificate that it was told, and counts as wss."""
    bench = Bench()
    bench.machine.use_certificate(OTHER_CERTIFICATE, "wss_merk")
    peer = bench.come("wss_merk")

    bench.say(peer, proof_of(FRIEND, bench.take_sent(peer), certificate=OTHER_CERTIFICATE))

    assert bench.machine.connected() == {FRIEND.public: "wss"}


def test_new_certificate_holds_for_new_connections():
    """A connection that came under the old certificate ends its handshake under it."""
    bench = Bench()
    older = bench.come()
    hello = bench.take_sent(older)
    bench.machine.use_certificate(OTHER_CERTIFICATE)

    bench.say(older, proof_of(FRIEND, hello))
    _, status = status_of(bench, FRIEND, certificate=OTHER_CERTIFICATE)

    assert FRIEND.public in bench.machine.connected()
    assert status == 0


def test_records_right_behind_the_proof_are_heard():
    """What stands behind the proof in the same chunk is a record, heard after the verdict."""
    bench = Bench()
    peer = bench.come()
    message = bench.message()

    bench.say(peer, proof_of(FRIEND, bench.take_sent(peer)) + bench.encoded(message))

    assert bench.has(message)
    assert bench.take_sent(peer)[65:] == bench.encoded(Ack((bench.id_of(message),)))


# The handshake, as a client


def test_client_answers_and_is_let_in():
    """Hello, proof, verdict, and the peer is connected."""
    bench = dialling_bench()
    peer = bench.dialled(FRIEND)

    bench.say(peer, hello_of(FRIEND))
    proof = bench.take_sent(peer)
    bench.say(peer, verdict_of(FRIEND, proof))

    assert handshake.decode_proof(proof).key == US.public
    assert bench.events == [PeerUp(FRIEND.public, "tls")]


def test_client_refuses_another_key():
    """A server with another key does not learn who we are."""
    bench = dialling_bench()
    peer = bench.dialled(FRIEND)

    bench.say(peer, hello_of(STRANGER))

    assert bench.take_sent(peer) == b""
    assert bench.reason_of(peer) is Refusal.WRONG_PEER
    assert bench.facts == [Refused("bsp", None, "wrong_peer"), PeerLeft("bsp", peer, None, "wrong_peer")]
    assert bench.events == [PeerDown(FRIEND.public, "wrong_peer")]


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (lambda proof: verdict_of(FRIEND, proof, 1), Refusal.REFUSED_BY_PEER),
        (lambda proof: verdict_of(FRIEND, proof, 2), Refusal.BUSY),
        (lambda proof: verdict_of(FRIEND, proof, 9), Refusal.HANDSHAKE),
        (lambda proof: changed(verdict_of(FRIEND, proof), 0), Refusal.BAD_SIGNATURE),
        (lambda proof: verdict_of(FRIEND, proof, certificate=OTHER_CERTIFICATE), Refusal.BAD_SIGNATURE),
        (lambda proof: bytes(64) + b"\x01", Refusal.BAD_SIGNATURE),
    ],
)
def test_client_closes_after_a_bad_verdict(verdict, reason):
    """Whatever is not a signed welcome ends the connection, and the peer is dialled again later."""
    bench = dialling_bench()
    peer = bench.dialled(FRIEND)
    bench.say(peer, hello_of(FRIEND))

    bench.say(peer, verdict(bench.take_sent(peer)))
    bench.pass_ms(1_000)

    assert bench.reason_of(peer) is reason
    assert bench.events == [PeerDown(FRIEND.public, reason.value)]
    assert len(bench.dials) == 2


def test_dialled_connection_without_certificate_is_closed():
    """TLS that does not tell what it saw binds nobody: nothing is said over it, and the next dial may be better."""
    bench = dialling_bench()

    peer = bench.dialled(FRIEND, certificate=b"")
    bench.pass_ms(1_000)

    assert bench.reason_of(peer) is Refusal.HANDSHAKE
    assert not bench.sends
    assert len(bench.dials) == 2


def test_dialled_peer_must_be_known():
    """Somebody outside the table of peers is not talked to even if its address is dialled."""
    bench = dialling_bench(peers=())

    assert bench.reason_of(bench.dialled(FRIEND)) is Refusal.UNKNOWN_PEER


def test_peer_that_is_parted_from_during_the_handshake():
    """What was true when we dialled is asked again when the verdict comes."""
    bench = dialling_bench()
    peer = bench.dialled(FRIEND)
    bench.say(peer, hello_of(FRIEND))
    bench.device.part(FRIEND.public)

    bench.say(peer, verdict_of(FRIEND, bench.take_sent(peer)))

    assert bench.reason_of(peer) is Refusal.UNKNOWN_PEER


# Both sides


def pair_over_tls(chunk_bytes=1 << 20, *, seen=CERTIFICATE):
    server, client = Bench(US), Bench(FRIEND, peers=[US], dials={US.public: "bsp+wss://us.example/bsp"})
    client.pass_ms(0)
    pair = Pair(server, client, chunk_bytes)
    pair.line(server.come(), client.dialled(US, seen))
    return server, client, pair


@pytest.mark.parametrize("chunk_bytes", [1, 7, 64, 136, 1 << 20])
def test_two_machines_sync_in_any_chunking(chunk_bytes):
    """Handshake and records come to the same whatever the chunks are."""
    server, client, pair = pair_over_tls(chunk_bytes)
    server.add(b"from the server", 1)
    client.add(b"from the client", 2)

    pair.run()

    for bench in (server, client):
        assert bench.has(bench.message(b"from the server", 1))
        assert bench.has(bench.message(b"from the client", 2))
        assert not bench.closes
        assert bench.device.owes(server.us.public if bench is client else client.us.public) == 0


def test_certificate_swapped_between_ends_both_sides():
    """Somebody who ends TLS in the middle with another certificate relays a handshake that fails."""
    server, client, pair = pair_over_tls(seen=OTHER_CERTIFICATE)

    pair.run()

    assert [close.reason for close in server.closes.values()] == [Refusal.BAD_SIGNATURE]
    assert not server.machine.connected()
    assert not client.machine.connected()
