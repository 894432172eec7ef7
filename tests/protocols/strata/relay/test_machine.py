"""Laws of protocols.strata.relay; test_requirements and test_abuse try what it says to clients."""

import random
from types import SimpleNamespace

from tests.protocols.strata.build import ALICE, BOB, NOW, did, key, packet, post
from tests.protocols.strata.drive import Drive
from waystation.core.effects import Peer
from waystation.core.facts import PeerIdentified, PeerLeft, Refused, SubscriptionEnded, SubscriptionOpened
from waystation.core.instant import Instant
from waystation.protocols.strata.refusals import End
from waystation.protocols.strata.relay.directory import StaticKey


def facts_of(drive, kind):
    """Return the facts of one kind."""
    return [fact for fact in drive.facts if isinstance(fact, kind)]


def test_a_connections_life_in_facts():
    """Identified, subscribed, refused, left: each told once."""
    drive = Drive()
    peer = drive.connect()
    drive.auth(peer)
    drive.fill(2)
    drive.subscribe(peer)
    drive.send(peer, b"x")
    drive.publish(peer, post("live"))
    drive.wall_s += 3
    drive.send(peer, {"type": "UNSUBSCRIBE", "subscription_id": "s"})
    drive.drop(peer)

    assert facts_of(drive, PeerIdentified) == [PeerIdentified("strata", peer, ALICE.public)]
    assert facts_of(drive, SubscriptionOpened) == [SubscriptionOpened("strata", peer, replicates=0)]
    assert facts_of(drive, SubscriptionEnded) == [SubscriptionEnded("strata", peer, 2, 1, 0, 3_000_000)]
    assert facts_of(drive, Refused) == [Refused("strata", ALICE.public, "invalid_schema")]
    assert facts_of(drive, PeerLeft) == [PeerLeft("strata", peer, ALICE.public, "ended")]


def test_named_identities_are_counted_by_name():
    """A DID that is no key is counted under its text."""
    drive = Drive(static_dids={"did:strata:zero_cool": [StaticKey(BOB.public)]})
    drive.auth(drive.connect(), BOB, author_id="did:strata:zero_cool")

    assert facts_of(drive, PeerIdentified)[0].identity == b"did:strata:zero_cool"


def test_authenticated_clients_have_their_own_allowance():
    """It is the identity's on all its connections, and larger than the address's."""
    drive = Drive()
    first, second = drive.connect("a"), drive.connect("b")
    drive.auth(first)
    drive.auth(second)
    answers = [drive.publish(first if n % 2 else second, post(f"{n}", key(n % 5)))["type"] for n in range(601)]

    assert answers == ["OK"] * 600 + ["ERROR"]


def operator_of(**changed):
    """Return an operator's lists that leave everybody alone, but for these."""
    answers = {"demands_identity": False, "admits_did": lambda _did: True, "is_unlimited": lambda _identity: False}
    return SimpleNamespace(**answers | changed)


def test_exempt_identity_has_no_allowance():
    """NODE-ACCESS: neither its own nor its address's is spent; others of the address keep theirs."""
    drive = Drive(access=operator_of(is_unlimited=lambda identity: identity == ALICE.public))
    exempt, other = drive.connect("a"), drive.connect("a")
    drive.auth(exempt)
    answers = [drive.publish(exempt, post(f"{n}", key(n % 5)))["type"] for n in range(605)]

    assert answers == ["OK"] * 605
    assert drive.publish(other, post("x"))["type"] == "OK"


def test_relay_for_friends_demands_auth():
    """NODE-ACCESS: before it nothing is allowed, whatever ``anonymous`` says, and packets are not served by HTTP."""
    drive = Drive(access=operator_of(demands_identity=True))
    peer = drive.connect()
    before = drive.publish(peer, post("x"))
    drive.auth(peer)
    after = drive.publish(peer, post("x"))
    page = drive.relay.answer(f"/strata/packets/{after['packet_id']}", "a", drive.now)
    about = drive.relay.answer("/.well-known/strata-relay.json", "a", drive.now)

    assert (before["code"], before["detail"]) == ("unauthenticated", "missing_capability")
    assert after["type"] == "OK"
    assert (page.status, about.status) == (403, 200)


def test_review_ends_readers_who_may_not_stay():
    """An anonymous subscription does not go on when the operator begins to demand an identity."""
    operator = operator_of()
    drive = Drive(access=operator, admits=lambda identity: identity != BOB.public or not operator.demands_identity)
    reader, alice, bob = drive.connect(), drive.connect(), drive.connect()
    drive.subscribe(reader)
    drive.auth(alice)
    drive.auth(bob, BOB)
    operator.demands_identity = True
    drive.relay.review(drive.now)
    drive.settle()

    assert {peer: close.reason for peer, close in drive.closed.items()} == dict.fromkeys(
        (reader, bob), End.IDENTITY_BANNED
    )


def test_auth_does_not_change_what_others_are_allowed():
    """The anonymous of the same address keep their own."""
    drive = Drive()
    known, unknown = drive.connect("a"), drive.connect("a")
    drive.auth(known)
    for number in range(40):
        drive.publish(known, post(f"{number}"))

    assert drive.publish(unknown, post("x"))["type"] == "OK"


def test_publishing_for_others_is_legal():
    """The identity of a session need not be the author of what it publishes (specs/strata.md 12)."""
    drive = Drive()
    peer = drive.connect()
    drive.auth(peer, BOB)

    assert drive.publish(peer, post())["type"] == "OK"


def test_anonymous_may_be_forbidden_everything():
    """Then AUTH is what is left."""
    drive = Drive(anonymous=[])
    peer = drive.connect()
    refused = drive.publish(peer, post())["detail"], drive.subscribe(peer)[0]["detail"]
    drive.auth(peer)

    assert refused == ("missing_capability", "missing_capability")
    assert drive.publish(peer, post())["type"] == "OK"


def test_shutdown():
    """Everybody is told with 1001, and nothing remains."""
    drive = Drive()
    peers = [drive.connect() for _ in range(3)]
    drive.subscribe(peers[0])
    drive.relay.shut(drive.now)
    drive.settle()

    assert {(drive.closed[peer].reason, drive.closed[peer].status) for peer in peers} == {(End.SHUTDOWN, 1001)}
    assert (drive.relay.sizes()["connections"], drive.relay.sizes()["subscriptions"]) == (0, 0)


def test_a_retired_relay_takes_no_new_packets():
    """What is under way gets its verdict, what comes after is asked to come again, and it settles."""
    drive = Drive()
    peer = drive.connect()
    drive.hold_commits = True
    drive.send(peer, {"type": "PUBLISH", "packet": post("before").body})
    drive.relay.retire()
    late = drive.publish(peer, post("after"))
    assert not drive.relay.settled()
    drive.commit_held()

    assert (late["code"], late["detail"]) == ("internal_error", "shutting_down")
    assert drive.got[peer][-1]["type"] == "OK"
    assert drive.relay.settled()
    assert len(drive.rows()) == 1


def test_expelled_identities():
    """All connections of a banned key are closed, nobody else's."""
    drive = Drive()
    first, second, other, anonymous = (drive.connect() for _ in range(4))
    drive.auth(first)
    drive.auth(second)
    drive.auth(other, BOB)
    drive.relay.expel(ALICE.public, drive.now)
    drive.settle()

    assert set(drive.closed) == {first, second}
    assert drive.closed[first].reason is End.IDENTITY_BANNED
    assert drive.relay.sizes()["connections"] == 2
    assert anonymous not in drive.closed


def test_verdicts_of_those_who_left_go_nowhere():
    """A publisher that disconnects while its packet is on its way to the disk gets nothing; the packet is stored."""
    drive = Drive()
    peer = drive.connect()
    drive.hold_commits = True
    drive.send(peer, {"type": "PUBLISH", "packet": post().body})
    drive.drop(peer)
    drive.commit_held()

    assert [got["type"] for got in drive.got[peer]] == ["AUTH_CHALLENGE"]
    assert len(drive.rows()) == 1


def test_inputs_of_strangers_are_ignored():
    """A peer that was never connected, or has gone, moves nothing."""
    drive = Drive()
    stranger = Peer(99)
    drive.relay.receive(stranger, b"{}", drive.now)
    drive.relay.drained(stranger, drive.now)
    drive.relay.congested(stranger, drive.now)
    drive.relay.disconnect(stranger, drive.now)

    assert drive.relay.take() == []


def test_the_wall_clock_may_be_tied_anew():
    """Times on the wire follow the wall clock, not the monotonic one."""
    drive = Drive()
    drive.relay.set_wall(drive.now, (NOW + 50) * 1_000_000)
    drive.fill(1)

    assert drive.rows()[0].received_at == NOW + 50


def test_sizes_name_what_is_bounded():
    """Each number is there to be watched."""
    drive = Drive()
    peer = drive.connect()
    drive.subscribe(peer)
    drive.relay.congested(Peer(peer), Instant(0))

    sizes = drive.relay.sizes()
    assert (sizes["connections"], sizes["subscriptions"], sizes["packets_under_way"]) == (1, 1, 0)
    assert (sizes["scopes"], sizes["slow_readers"]) == (1, 1)


def test_the_same_inputs_give_the_same_effects():
    """Two relays in the same play say the same, byte for byte."""

    def play():
        rng, drive = random.Random(3), Drive()
        peers = [drive.connect() for _ in range(5)]
        for number in range(60):
            peer = rng.choice(peers)
            move = rng.randrange(4)
            if move == 0:
                drive.subscribe(peer, rng.choice("ab"), authors=rng.sample([did(key(n)) for n in range(3)], 2))
            elif move == 1:
                drive.publish(peer, packet({"type": "POST", "n": number}, key(rng.randrange(3))))
            elif move == 2:
                drive.send(peer, {"type": "UNSUBSCRIBE", "subscription_id": "a"})
            else:
                drive.wall_s += 1
        return drive.got

    assert play() == play()
