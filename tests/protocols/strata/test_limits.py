"""Laws of protocols.strata.limits: the defaults are the wire reference's, and what an operator sets is what holds."""

import dataclasses

import orjson
import pytest

from tests.protocols.strata.build import ALICE, key, packet, post
from tests.protocols.strata.drive import Drive
from waystation.core.dids import encode_did, identity_of
from waystation.core.facts import Refused
from waystation.protocols.strata.limits import DEFAULT_LIMITS, StrataLimits
from waystation.protocols.strata.refusals import Code, End

MIB = 1_048_576


def refused_by(drive, reason):
    """Return whom a relay has named in its refusals for one reason."""
    return [fact.identity for fact in drive.facts if isinstance(fact, Refused) and fact.reason == reason.value]


def subscribe(name):
    """Return a SUBSCRIBE."""
    return {"type": "SUBSCRIBE", "subscription_id": name, "filters": {}}


def test_defaults_are_those_of_the_wire_reference():
    """What specs/strata.md 8, 10 and 12 to 14 promise holds where the operator sets nothing."""
    promised = StrataLimits(
        publish_per_minute_anonymous=30,
        publish_per_minute=600,
        publish_per_minute_replicating=6_000,
        subscribe_per_minute_anonymous=30,
        subscribe_per_minute=120,
        subscribe_per_minute_replicating=60,
        auth_per_minute=20,
        bytes_per_minute_anonymous=8 * MIB,
        bytes_per_minute=160 * MIB,
        bytes_per_minute_replicating=1_600 * MIB,
        auth_failures=5,
        malformed=20,
        limits_ignored=100,
        subscriptions=32,
        filter_texts=8_000,
        pending_packets=512,
        pending_bytes=8 * MIB,
        key_event_bytes=8_192,
        trust_edges_strong=20,
        trust_edges_weak=100,
    )

    assert promised == DEFAULT_LIMITS


def test_every_use_is_a_size_of_the_relay():
    """What is listed beside a limit is counted."""
    assert {field.metadata["use"] for field in dataclasses.fields(StrataLimits)} - {""} <= Drive().relay.sizes().keys()


def test_packets_that_an_operator_allows_are_those_that_pass():
    """The refusal names the limit in force; a new one holds for addresses that are counted already."""
    drive = Drive(limits=StrataLimits(publish_per_minute_anonymous=2))
    peer = drive.connect("192.0.2.1")
    first = [drive.publish(peer, post(f"{number}")) for number in range(3)]
    drive.relay.use_limits(StrataLimits(publish_per_minute_anonymous=600))
    drive.wall_s += 1
    second = [drive.publish(peer, post(f"again {number}"))["type"] for number in range(10)]

    assert [answer["type"] for answer in first] == ["OK", "OK", "ERROR"]
    assert (first[-1]["code"], first[-1]["limit"]) == ("rate_limited", 2)
    assert second == ["OK"] * 10


def test_identities_have_limits_of_their_own():
    """What an identity is refused for is told with its name."""
    drive = Drive(limits=StrataLimits(publish_per_minute=1))
    peer = drive.connect()
    drive.auth(peer, ALICE)
    drive.publish(peer, post("one"))
    drive.publish(peer, post("two"))

    assert refused_by(drive, Code.RATE_LIMITED) == [identity_of(encode_did(ALICE.public))]


def test_manifest_names_the_limits_in_force():
    """The page that clients read shows what the operator has set, after a reload as well."""
    drive = Drive(limits=StrataLimits(publish_per_minute=7))

    def told():
        answer = drive.relay.answer("/.well-known/strata-relay.json", "192.0.2.1", drive.now)
        return orjson.loads(answer.body)["limits"]["publish_per_minute"]

    before = told()
    drive.relay.use_limits(StrataLimits(publish_per_minute_anonymous=3))

    assert before == {"anonymous": 30, "authenticated": 7, "replicating": 6_000}
    assert told() == {"anonymous": 3, "authenticated": 600, "replicating": 6_000}


def test_pages_that_an_operator_allows_are_those_that_are_shown():
    """The next GET of the address gets 429."""
    drive = Drive(limits=StrataLimits(http_per_minute=1))
    answers = [drive.relay.answer("/strata/descriptor", "192.0.2.1", drive.now).status for _ in range(2)]

    assert answers == [404, 429]


@pytest.mark.parametrize(
    ("limits", "offend", "end"),
    [
        ({"malformed": 2}, lambda drive, peer: drive.send(peer, b"{"), End.MALFORMED),
        ({"auth_failures": 2}, lambda drive, peer: drive.auth(peer, author_id="did:a:b"), End.AUTH_FAILURES),
        (
            {"limits_ignored": 2, "subscribe_per_minute_anonymous": 1},
            lambda drive, peer: drive.send(peer, subscribe("s")),
            End.LIMIT_IGNORED,
        ),
    ],
)
def test_offences_that_an_operator_allows_are_those_that_close(limits, offend, end):
    """The end is counted under its reason, and not before its time."""
    drive = Drive(limits=StrataLimits(**limits))
    peer = drive.connect()
    while peer not in drive.closed:
        offend(drive, peer)

    assert drive.closed[peer].reason is end
    assert refused_by(drive, end) == [None]


def test_subscriptions_that_an_operator_allows_are_those_that_stand():
    """A raised limit takes the next one on the same connection."""
    drive = Drive(limits=StrataLimits(subscriptions=1))
    peer = drive.connect()
    drive.send(peer, subscribe("a"))
    refused = drive.send(peer, subscribe("b"))[-1]
    drive.relay.use_limits(StrataLimits(subscriptions=2))
    drive.send(peer, subscribe("b"))

    assert (refused["code"], refused["limit"]) == ("too_many_subscriptions", 1)
    assert drive.relay.sizes()["subscriptions"] == 2
    assert refused_by(drive, Code.TOO_MANY_SUBSCRIPTIONS) == [None]


def test_trust_edges_that_an_operator_allows_are_those_that_are_stored():
    """The refusal names the limit in force."""
    drive = Drive(limits=StrataLimits(trust_edges_strong=1))
    peer = drive.connect()
    answers = [
        drive.publish(
            peer,
            packet({"type": "TRUST_EDGE", "from": encode_did(ALICE.public), "to": f"did:a:{number}", "strength": 1}),
        )
        for number in range(2)
    ]

    assert [answer["type"] for answer in answers] == ["OK", "ERROR"]
    assert answers[1]["limit"] == 1
    assert drive.relay.sizes()["trust_authors"] == 1


def test_keys_in_memory_are_as_many_as_an_operator_allows():
    """A lowered limit makes room with the next authors, two for each."""
    drive = Drive()
    peer = drive.connect()
    for number in range(5):
        drive.publish(peer, post("hello", key(number)))
    before = drive.relay.sizes()["key_rings"]
    drive.relay.use_limits(StrataLimits(key_rings=2))
    after = []
    for number in (7, 8, 9):
        drive.publish(peer, post("hello", key(number)))
        after.append(drive.relay.sizes()["key_rings"])

    assert (before, after) == (5, [4, 3, 2])
