"""Laws of protocols.strata.wire."""

import json

import pytest

from tests.protocols.strata.build import ALICE, BOB, did, refused
from waystation.protocols.strata.canonical import parse
from waystation.protocols.strata.messages import Auth, Filters, Publish, Subscribe, Unsubscribe
from waystation.protocols.strata.refusals import Code, Refusal
from waystation.protocols.strata.wire import (
    IDS_MAX,
    LIMIT_DEFAULT,
    client_msg_id_of,
    encode_auth_ok,
    encode_challenge,
    encode_end_of_history,
    encode_error,
    encode_ok,
    encode_subscription_tail,
    read_message,
    splice_event,
    subscription_id_of,
)

ID = bytes(range(32))
ID_TEXT = "0x" + ID.hex()


def read(message):
    """Return the message that a JSON value is once it has been on the wire."""
    return read_message(parse(json.dumps(message).encode()))


def subscribe(**filters):
    """Return what a SUBSCRIBE with these filters is read as."""
    return read({"type": "SUBSCRIBE", "subscription_id": "s", "filters": filters})


def test_the_smallest_subscribe():
    """Everything but the id may be absent, or null, which is the same."""
    expected = Subscribe("s", Filters(), LIMIT_DEFAULT, None, None, want_eose=False, client_msg_id=None)
    nulls = dict.fromkeys(["authors", "types", "since", "until", "limit", "cursor", "order", "other"])

    assert read({"type": "SUBSCRIBE", "subscription_id": "s"}) == expected
    assert read({"type": "SUBSCRIBE", "subscription_id": "s", "filters": None, "replication_profile": None}) == expected
    assert subscribe(**nulls) == expected


def test_the_largest_subscribe():
    """Each field is read; lists become sorted sets."""
    filters = {
        "authors": ["b", "a", "b"],
        "types": ["X"],
        "since": 1,
        "until": 2,
        "limit": 3,
        "cursor": "c",
        "order": "desc",
    }
    message = {
        "type": "SUBSCRIBE",
        "subscription_id": "x" * 128,
        "filters": filters,
        "replication_profile": "P",
        "want_eose": True,
        "client_msg_id": "m",
    }

    assert read(message) == Subscribe(
        "x" * 128, Filters(("a", "b"), ("X",), 1, 2, descending=True), 3, "c", "P", want_eose=True, client_msg_id="m"
    )


def test_unknown_filter_is_an_error_to_who_asks_for_it():
    """With ``strict`` a misspelt filter is refused by name; without it is ignored, and null is none (STRATA-IDS)."""
    message = {"type": "SUBSCRIBE", "subscription_id": "s", "filters": {"author": ["a"], "limit": 1}}

    assert read(message).filters == Filters()
    assert read(message | {"strict": "yes"}).filters == Filters()
    with refused(Code.INVALID_SCHEMA, "unknown_filter") as caught:
        read(message | {"strict": True})
    assert "'author'" in caught.value.refusal.reason
    assert read(message | {"strict": True, "filters": {"author": None, "ids": []}}).filters == Filters()


def test_ids_are_packet_ids():
    """They become sorted bytes; what is no packet id is refused."""
    one, two = (f"0x{digit * 64}" for digit in "12")

    assert subscribe(ids=[two, one, two]).filters.ids == (b"\x11" * 32, b"\x22" * 32)
    for wrong in ("0x12", one.upper(), 7):
        with refused(Code.INVALID_SCHEMA, "ids"):
            subscribe(ids=[wrong])
    with refused(Code.INVALID_SCHEMA, "ids"):
        subscribe(ids=[f"0x{number:064x}" for number in range(IDS_MAX + 1)])


@pytest.mark.parametrize(("given", "limit"), [(0, 0), (1, 1), (500, 500), (501, 500), (10**12, 500), (None, 100)])
def test_limits_are_capped(given, limit):
    """100 without a wish, 500 at most, and 0 is live only."""
    assert subscribe(limit=given).limit == limit


@pytest.mark.parametrize("text", [b"1700000000", b"1.7e9", b"1700000000.0", b"17e8"])
def test_integers_in_any_spelling(text):
    """A number is judged by its value (clarification 2)."""
    frame = b'{"type":"SUBSCRIBE","subscription_id":"s","filters":{"since":%b}}' % text

    assert read_message(parse(frame)).filters.since == 1_700_000_000


@pytest.mark.parametrize("text", [b"1.5", b"1e400", b"1e300", b"9007199254740993", b"true", b'"1"', b"[]", b"{}"])
def test_what_is_no_integer(text):
    """Fractions, infinities, unsafe integers and other types are refused, not rounded."""
    frame = b'{"type":"SUBSCRIBE","subscription_id":"s","filters":{"until":%b}}' % text

    with refused(Code.INVALID_SCHEMA, "until"):
        read_message(parse(frame))


def test_negative_bounds_are_legal():
    """Only a negative limit makes no sense."""
    assert (subscribe(since=-1).filters.since, subscribe(until=-5).filters.until) == (-1, -5)
    with refused(Code.INVALID_SCHEMA, "limit"):
        subscribe(limit=-1)


@pytest.mark.parametrize("order", ["asc", "DESC", "random", 1, [], None])
def test_other_orders_are_asc(order):
    """An unknown word is no error (RFC-0000 7)."""
    assert subscribe(order=order).filters.descending is False


def test_the_other_messages():
    """PUBLISH keeps the packet as it is, UNSUBSCRIBE its id, AUTH all it needs."""
    auth = {"type": "AUTH", "author_id": did(ALICE), "challenge": "c", "signature": "0x" + "aB" * 64}

    assert read({"type": "PUBLISH", "packet": {"a": None}}) == Publish({"a": None}, None)
    assert read({"type": "UNSUBSCRIBE", "subscription_id": "s", "x": 1}) == Unsubscribe("s")
    assert read(auth) == Auth(did(ALICE), "c", b"\xab" * 64, None, None)
    assert read(auth | {"capabilities": ["b", "a", "a"], "client_msg_id": ""}) == Auth(
        did(ALICE), "c", b"\xab" * 64, ("a", "b"), ""
    )


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"author_id": None}, "author_id"),
        ({"author_id": "x" * 300}, "author_id"),
        ({"author_id": "did:UPPER:x"}, "author_id"),
        ({"challenge": ""}, "challenge"),
        ({"challenge": "x" * 173}, "challenge"),
        ({"signature": "0x" + "ab" * 63}, "signature"),
        ({"signature": "ab" * 65}, "signature"),
        ({"signature": "0x" + "gg" * 64}, "signature"),
        ({"capabilities": "publish"}, "capabilities"),
        ({"capabilities": [1]}, "capabilities"),
        ({"capabilities": [f"{n}" for n in range(33)]}, "capabilities"),
        ({"client_msg_id": 1}, "client_msg_id"),
    ],
)
def test_bad_auth(change, detail):
    """Each field of an AUTH has its form, and the refusal names it."""
    auth = {"type": "AUTH", "author_id": did(ALICE), "challenge": "c", "signature": "0x" + "ab" * 64}

    with refused(Code.INVALID_SCHEMA, detail):
        read(auth | change)


def test_what_is_echoed_of_a_broken_message():
    """Only a text that could have been an id comes back; the subscription only of a SUBSCRIBE."""
    broken = {"type": "SUBSCRIBE", "subscription_id": "s", "client_msg_id": "m", "filters": 1}

    assert (client_msg_id_of(broken), subscription_id_of(broken)) == ("m", "s")
    assert subscription_id_of(broken | {"type": "PUBLISH"}) is None
    assert client_msg_id_of({"client_msg_id": "x" * 129}) is None
    assert client_msg_id_of({"client_msg_id": 1}) is client_msg_id_of([]) is subscription_id_of(None) is None


def test_ok():
    """An OK has id and status, and the rest only when there is something to say."""
    assert json.loads(encode_ok(ID, None)) == {"type": "OK", "packet_id": ID_TEXT, "status": "ACCEPTED"}
    assert json.loads(encode_ok(ID, 'ü"', duplicate=True, duplicate_of=ID, downgrade=b'{"a":1}')) == {
        "type": "OK",
        "packet_id": ID_TEXT,
        "status": "ACCEPTED",
        "client_msg_id": 'ü"',
        "duplicate": True,
        "duplicate_of": ID_TEXT,
        "provenance_downgrade": {"a": 1},
    }


@pytest.mark.parametrize("code", Code)
def test_every_error_has_a_reason(code):
    """RFC-0004 3.5 demands code and reason; ours is a sentence for people."""
    body = json.loads(encode_error(Refusal(code)))

    assert body.keys() == {"type", "code", "reason"}
    assert (body["type"], body["code"]) == ("ERROR", code.value)
    assert len(body["reason"]) > 10


def test_error_fields():
    """Detail, extra fields and ids stand beside the code."""
    refusal = Refusal(Code.PACKET_TOO_LARGE, "d", "r", (("max_bytes", 9),))

    assert json.loads(encode_error(refusal, client_msg_id="m", subscription_id="s", packet_id=ID)) == {
        "type": "ERROR",
        "code": "packet_too_large",
        "reason": "r",
        "detail": "d",
        "max_bytes": 9,
        "client_msg_id": "m",
        "subscription_id": "s",
        "packet_id": ID_TEXT,
    }


def test_auth_messages():
    """The challenge, and what is granted."""
    challenge = {"type": "AUTH_CHALLENGE", "challenge": "c", "server_id": did(BOB), "expires_at": 7}
    granted = {"type": "AUTH_OK", "author_id": did(ALICE), "capabilities": ["publish"]}

    assert json.loads(encode_challenge("c", did(BOB), 7)) == challenge
    assert json.loads(encode_auth_ok(did(ALICE), ("publish",), None)) == granted
    assert json.loads(encode_auth_ok(did(ALICE), ("publish",), "m")) == granted | {"client_msg_id": "m"}


def test_end_of_history():
    """Where the reader stands, and whether there is more."""
    assert json.loads(encode_end_of_history("s", "c", has_more=True)) == {
        "type": "EOSE",
        "subscription_id": "s",
        "cursor": "c",
        "has_more": True,
    }


@pytest.mark.parametrize("cursor", [b"", b"abc_-"])
@pytest.mark.parametrize("downgrade", [b"", b'{"claimed":"X"}'])
def test_events_are_spliced(cursor, downgrade):
    """The packet's bytes stand in the EVENT as they are, with whatever the id of the subscription is."""
    packet = '{"text":"ü \\" %d \u2028"}'.encode()
    event = splice_event(packet, 5, cursor, downgrade, encode_subscription_tail('s"\\ü%d'))

    expected = {"type": "EVENT", "packet": json.loads(packet), "received_at": 5, "subscription_id": 's"\\ü%d'}
    expected |= {"cursor": cursor.decode()} if cursor else {}
    expected |= {"provenance_downgrade": {"claimed": "X"}} if downgrade else {}
    assert packet in event
    assert json.loads(event) == expected
