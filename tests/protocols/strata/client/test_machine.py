"""Rows of specs/strata.md section 21 stand in the names of the tests that prove them."""

import random

import orjson
import pytest

from tests.protocols.strata.build import (
    ALICE,
    BOB,
    NOW,
    RELAY,
    claim,
    client_attested,
    did,
    packet_of,
    photo,
    post,
    sign_bytes,
    signed,
    unsigned,
)
from tests.protocols.strata.build_client import CHALLENGE, Pair, Talk, authenticating, event
from tests.protocols.strata.drive import Drive
from waystation.protocols.strata.client.events import (
    Authenticated,
    HistoryEnded,
    PacketArrived,
    PacketDropped,
    ProtocolFault,
    Published,
    Violation,
)
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.provenance import Downgrade, mutated


def test_packet_arrives_once_with_everything_known_of_it():
    """A good EVENT becomes one event; the same packet again is left out."""
    talk = Talk().subscribe()
    good = post()
    talk.hear(event(good, cursor="c1"), event(good, cursor="c2"))

    [arrived] = talk.take()
    assert arrived == PacketArrived("s", good, NOW, "c1", "UNKNOWN", None, verified=True)


def tampered():
    """Return packets that are not what their author signed, and the reason that must be given."""
    text = signed(unsigned()) | {"content": {"type": "POST", "text": "other"}}
    other_key = signed(unsigned(), BOB)
    return [
        (text, "packet_id"),
        (other_key, "signature"),
        (signed(unsigned()) | {"signature": "0x" + "00" * 64}, "signature"),
        (signed(unsigned()) | {"signature": "0x00"}, "malformed_packet"),
        (signed(unsigned()) | {"packet_id": "0x1e20" + "00" * 32}, "malformed_packet"),
        (signed(unsigned(expires_at=NOW - 301)), "expired"),
        (signed(unsigned(timestamp=NOW - 5_000)), "outside_filter"),
        (signed(unsigned(version=2)), "malformed_packet"),
        ({}, "malformed_packet"),
    ]


@pytest.mark.parametrize(("body", "reason"), tampered())
def test_row_43_client_drops_tampered_event(body, reason):
    """The packet is not delivered, the violation is told, and the connection is to end."""
    talk = Talk().subscribe(Filters(since=NOW - 1_000))
    talk.hear(event(body))

    [violation] = talk.take()
    assert (type(violation), violation.reason) == (Violation, reason)
    [close] = talk.closes
    assert (close.status, close.reason.value) == (1008, f"the relay passed on a bad packet: {reason}")
    talk.hear(event(post()))
    assert talk.take() == []


def test_relay_clock_a_little_behind_is_no_violation():
    """A packet that has just expired is left out without blame."""
    talk = Talk().subscribe()
    talk.hear(event(signed(unsigned(expires_at=NOW - 5))))

    assert talk.take() == []


def test_null_in_place_of_a_packet_is_a_violation():
    """Whatever stands for the packet is judged, and nothing raises."""
    for packet in (None, [], "x", 1, True):
        talk = Talk().subscribe()
        talk.hear({"type": "EVENT", "subscription_id": "s", "packet": packet, "received_at": NOW})

        assert talk.take()[0].reason == "malformed_packet"


def test_downgrade_as_annotated_shows_unknown():
    """The claim is in the packet, but what is believed is UNKNOWN."""
    claimed = packet_of(signed(client_attested(photo(claim("SOFTWARE")))))
    note = {"claimed": "SOFTWARE", "origin_type": "UNKNOWN", "reason": "unknown_client"}
    talk = Talk().subscribe()
    talk.hear(event(claimed, provenance_downgrade=note))

    [arrived] = talk.take()
    assert (arrived.origin_type, arrived.downgrade, arrived.packet) == ("UNKNOWN", note, claimed)


def test_downgrade_as_mutated_is_undone_before_it_is_judged():
    """The relay changed the packet by the letter of RFC-0002 10.2; the client sees what was signed."""
    claimed = packet_of(signed(client_attested(photo(claim("SOFTWARE")))))
    shown, header = mutated(claimed.body, Downgrade("SOFTWARE", "unknown_client"))
    note = {"claimed": "SOFTWARE", "origin_type": "UNKNOWN", "reason": "unknown_client"}
    served = event(orjson.loads(shown), provenance_downgrade=note | {"original_provenance_header": header})
    talk = Talk().subscribe()
    talk.hear(served)

    [arrived] = talk.take()
    assert arrived.packet.canonical == claimed.canonical
    assert (arrived.origin_type, arrived.downgrade, arrived.verified) == ("UNKNOWN", note, True)


def test_mutation_that_says_nothing_of_the_original_is_a_violation():
    """Without the signed header nobody can tell a downgrade from a forgery."""
    claimed = packet_of(signed(client_attested(photo(claim("SOFTWARE")))))
    shown, _ = mutated(claimed.body, Downgrade("SOFTWARE", "unknown_client"))
    talk = Talk().subscribe()
    talk.hear(event(orjson.loads(shown)))

    assert talk.take()[0].reason == "packet_id"


def test_author_nobody_knows_is_no_violation():
    """A named author is left out, or delivered unverified to whoever asked for that."""
    named = signed(unsigned(author_id="did:strata:somebody"))
    strict, lax = Talk().subscribe(), Talk(deliver_unverified=True).subscribe()
    strict.hear(event(named))
    lax.hear(event(named))

    assert strict.take() == [PacketDropped("s", packet_of(named).packet_id, "unknown_author")]
    assert [(each.packet.author_id, each.verified) for each in lax.take()] == [("did:strata:somebody", False)]


def test_replica_checks_signatures_itself():
    """Without keys_of every packet with the right id is handed on unverified; a wrong id still is a violation."""
    talk = Talk(keys_of=None).subscribe(profile="FULL_ARCHIVE", limit=500)
    foreign = signed(unsigned(), BOB)
    talk.hear(event(foreign))

    [arrived] = talk.take()
    assert (arrived.packet.body, arrived.verified) == (foreign, False)
    talk.hear(event(signed(unsigned()) | {"version": 1, "extra": 1}))
    assert talk.take()[0].reason == "packet_id"


def test_unsolicited_event_is_ignored_unless_opted_in():
    """D29: what nobody asked for is not delivered."""
    unasked = {"type": "EVENT", "packet": post().body, "received_at": NOW}
    closed, opted = Talk().subscribe(), Talk(unsolicited=True)
    closed.hear(unasked, event(post()) | {"subscription_id": "other"})
    opted.hear(unasked, event(post()) | {"subscription_id": "other"})

    assert closed.take() == []
    assert [each.subscription_id for each in opted.take()] == [None]


def test_nothing_arrives_behind_an_unsubscribe():
    """What was under way is ignored, and the relay is told."""
    talk = Talk().subscribe()
    talk.client.unsubscribe("s")
    talk.hear(event(post()))

    assert talk.take() == []
    assert talk.sent == [{"type": "UNSUBSCRIBE", "subscription_id": "s"}]


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b"\xff\xfe",
        b'{"type":"EVENT","type":"OK"}',
        b'{"type":7}',
        b'{"type":"NEW_WORD"}',
        b"[" * 300 + b"]" * 300,
    ],
)
def test_frame_that_is_no_message_is_ignored(frame):
    """It is told as a fault, and the connection goes on."""
    talk = Talk().hear(frame)

    [told] = talk.take()
    assert isinstance(told, ProtocolFault)
    talk.subscribe().hear(event(post()))
    assert [type(each) for each in talk.take()] == [PacketArrived]


def test_relay_that_never_makes_sense_is_left():
    """Twenty frames in a row that are no messages end the connection, once."""
    talk = Talk().hear(*[b"nonsense"] * 40)

    told = talk.take()
    assert len([each for each in told if isinstance(each, ProtocolFault)]) == 20
    assert [close.status for close in talk.closes] == [1008]


FIELDS = b"""["subscription_id", "packet", "received_at", "cursor", "client_msg_id", "packet_id", "status", "code",
    "detail", "reason", "retry_after", "challenge", "server_id", "expires_at", "author_id", "capabilities", "has_more",
    "duplicate_of", "provenance_downgrade"]"""


def values(rng):
    """Return a random JSON value of a kind that a field may be confused by."""
    ids = ["s", "p3", "p4", "s3", "a1", "p" + "9" * 120, "pⅧ", "", "0x" + "11" * 32, CHALLENGE, did(RELAY), did(ALICE)]
    return rng.choice([None, True, -1, 0, 1.5, 1e300, 2**53 - 1, [], {}, [[]], {"a": 1}, "ACCEPTED", *ids, post().body])


def test_no_word_of_a_relay_raises():
    """A hundred random messages with every field of every kind end in events or in nothing."""
    fields = orjson.loads(FIELDS)
    kinds = ("EVENT", "EOSE", "OK", "ERROR", "AUTH_CHALLENGE", "AUTH_OK")
    rng = random.Random(46)
    for _ in range(6):
        talk = Talk(key_pair=ALICE, close_on_violation=False, unsolicited=True)
        talk.client.subscribe("s", Filters(), talk.now)
        talk.client.publish(post(), talk.now)
        for _ in range(20):
            chosen = rng.sample(fields, rng.randrange(len(fields)))
            talk.hear({"type": rng.choice(kinds)} | {name: values(rng) for name in chosen}).wait(rng.random())
            talk.take()

        assert talk.client.unanswered <= 1


def test_our_relay_authenticates_our_client():
    """Both halves of AUTH agree about the signed bytes."""
    pair = Pair(Drive(), key_pair=ALICE).open()

    assert [each.capabilities for each in pair.told if isinstance(each, Authenticated)] == [("publish", "subscribe")]


def test_our_relay_gives_our_client_everything_over_many_pages_and_connections():
    """Pages of seven, a lost connection and packets published meanwhile: the union is complete, nothing is twice."""
    drive = Drive(rate_limits=False)
    first = drive.fill(30)
    pair = Pair(drive).open()
    pair.client.subscribe("s", Filters(), drive.now, limit=7)
    pair.run()
    pair.close()
    second = drive.fill(10, key=BOB)
    pair.open()

    ids = [packet.packet_id for packet in pair.packets()]
    assert ids == [packet.packet_id for packet in first + second]
    assert [each.has_more for each in pair.told if isinstance(each, HistoryEnded)] == [False, False]


def test_published_packet_comes_back_as_signed():
    """Publish, then read: the same canonical bytes."""
    drive = Drive()
    pair = Pair(drive).open()
    pair.client.subscribe("s", Filters(), drive.now)
    pair.client.publish(post(), drive.now)
    pair.run()

    assert [packet.canonical for packet in pair.packets()] == [post().canonical]
    assert [each.duplicate for each in pair.told if isinstance(each, Published)] == [False]


def test_signature_of_auth_is_the_oracles():
    """What the client signs is what a foreign library signs."""
    talk = authenticating()

    assert talk.sent[0]["signature"] == sign_bytes(ALICE, (CHALLENGE + did(RELAY)).encode())
