"""Bad input, floods and readers that do not read.

Each has one documented answer and a bounded cost, and nobody else notices.
"""

import orjson
import pytest

from tests.protocols.strata.build import (
    ALICE,
    ALICE_RECOVERY,
    BOB,
    MEDIA_HASH,
    NOW,
    RELAY,
    certified,
    claim,
    client_attested,
    did,
    key,
    photo,
    post,
    sign_value,
    signed,
    unsigned,
)
from tests.protocols.strata.drive import Drive
from waystation.core.effects import Peer
from waystation.protocols.strata.refusals import Code, End
from waystation.protocols.strata.relay.directory import StaticKey
from waystation.protocols.strata.relay.policy import Policy

PUBLISH = b'{"type":"PUBLISH","packet":%b}'
GOOD = orjson.dumps(post("good").body)


def error_of(drive, message, peer=None):
    """Return the one ERROR that a message gets."""
    answers = drive.send(peer or drive.connect(), message)
    assert [answer["type"] for answer in answers] == ["ERROR"]
    return answers[0]


def publishing(body):
    """Return a PUBLISH of a body."""
    return {"type": "PUBLISH", "packet": body}


def subscribing(subscription_id="s", **filters):
    """Return a SUBSCRIBE."""
    return {"type": "SUBSCRIBE", "subscription_id": subscription_id, "filters": filters}


ROOT, LEAF = key(1), key(2)
CHAIN = [certified("did:model:m", "did:root:r", LEAF, ROOT)]
MODEL = claim("AI_MODEL", MEDIA_HASH, issuer_chain=CHAIN, issuer_signature=sign_value(LEAF, 1))
PROOF = {"device_id": "did:model:m", "genesis_media_hash": MEDIA_HASH, "origin_type": "HARDWARE_SECURE_ENCLAVE"}
DEVICE = claim(
    "HARDWARE_SECURE_ENCLAVE",
    device_id="did:model:m",
    device_signature=sign_value(LEAF, PROOF),
    issuer_chain=CHAIN,
    attestation_evidence={},
)
PINNED = {
    "did:strata:old": [StaticKey(ALICE.public, valid_until=NOW - 400)],
    "did:strata:bad": [StaticKey(ALICE.public, revoked_at=NOW - 400)],
    "did:strata:new": [StaticKey(ALICE.public, valid_from=NOW + 400)],
    "did:strata:rec": [StaticKey(ALICE_RECOVERY.public, recovery=True)],
}
POLICY = Policy([did(key(9))], [post("unwanted").body["packet_id"]], ["0x" + "ab" * 32])


def by(author, pair=ALICE):
    """Return a post of a pinned DID."""
    return publishing(signed(unsigned(author_id=author), pair))


ERRORS = {
    "invalid_signature/packet_id_mismatch": (publishing(post().body | {"nonce": "n"}), {"packet_id"}),
    "invalid_signature/bad_signature": (publishing(signed(unsigned(), BOB)), {"packet_id"}),
    "invalid_signature/unresolved_author": (by("did:strata:zero_cool"), {"packet_id"}),
    "invalid_signature/recovery_key_not_allowed": (by("did:strata:rec", ALICE_RECOVERY), {"packet_id"}),
    "invalid_schema/version": (publishing(signed(unsigned(version=2))), set()),
    "packet_too_large/canonical_size": (publishing(signed(unsigned(pad="x" * 262_144))), {"max_bytes"}),
    "blocked_author/": (publishing(post("x", key(9)).body), {"packet_id"}),
    "blocked_content/packet_id": (publishing(post("unwanted").body), {"packet_id"}),
    "blocked_content/media_hash": (
        publishing(signed(photo(claim("UNKNOWN", None), "0x" + "ab" * 32))),
        {"packet_id"},
    ),
    "unauthenticated/missing_capability": (
        subscribing() | {"replication_profile": "FULL_ARCHIVE"},
        {"subscription_id"},
    ),
    "missing_proof/issuer_chain": (publishing(signed(client_attested(photo(claim("AI_MODEL"))))), {"packet_id"}),
    "invalid_issuer_chain/unknown_root": (
        publishing(signed(client_attested(photo(MODEL | {"issuer_chain": [certified("a", "did:x", LEAF, ROOT)]})))),
        {"packet_id"},
    ),
    "invalid_provenance/issuer_signature": (publishing(signed(client_attested(photo(MODEL)))), {"packet_id"}),
    "invalid_attestation/unsupported_format": (publishing(signed(client_attested(photo(DEVICE)))), {"packet_id"}),
    "invalid_cursor/unreadable": (subscribing(cursor="?"), {"subscription_id"}),
    "invalid_cursor/too_long": (subscribing(cursor="A" * 513), {"subscription_id"}),
    "key_expired/": (by("did:strata:old"), {"packet_id"}),
    "key_revoked/": (by("did:strata:bad"), {"packet_id"}),
    "key_not_yet_valid/": (by("did:strata:new"), {"packet_id"}),
    "invalid_timestamp/future": (publishing(post(timestamp=NOW + 301).body), {"packet_id", "server_time"}),
    "invalid_timestamp/expired": (publishing(post(expires_at=NOW).body), {"packet_id", "server_time"}),
}


@pytest.mark.parametrize("name", ERRORS)
def test_error_table(name):
    """Each row of the table has its code, detail and extra fields; nothing is stored and the connection goes on."""
    message, extra = ERRORS[name]
    drive = Drive(static_dids=PINNED, roots=[f"did:root:r={ROOT.public.hex()}"])
    drive.relay.use_policy(POLICY)
    peer = drive.connect()
    answer = error_of(drive, message | {"client_msg_id": "m"}, peer)

    code, _, detail = name.partition("/")
    assert (answer["code"], answer.get("detail", "")) == (code, detail)
    assert answer.keys() - {"type", "code", "reason", "detail", "client_msg_id"} == extra
    assert answer["client_msg_id"] == "m"
    assert answer["reason"]
    assert drive.rows() == []
    assert drive.publish(peer, post("good"))["type"] == "OK"


def test_error_table_is_complete():
    """Every code is tried here or has a test below; the machine itself has no use for internal_error."""
    tried = {name.partition("/")[0] for name in ERRORS}

    below = {Code.RATE_LIMITED, Code.TOO_MANY_SUBSCRIPTIONS, Code.UNSUPPORTED_PROFILE, Code.INTERNAL_ERROR}
    assert tried | {code.value for code in below} == {code.value for code in Code}


MALFORMED = {
    "empty": (b"", "bad_json"),
    "text": (b"hello", "bad_json"),
    "cut": (PUBLISH[:20], "bad_json"),
    "trailing": (PUBLISH % GOOD + b"{}", "bad_json"),
    "comment": (b'{"type":"PUBLISH" /* x */}', "bad_json"),
    "byte_order_mark": (b"\xef\xbb\xbf{}", "bad_json"),
    "array": (b"[]", "not_an_object"),
    "null": (b"null", "not_an_object"),
    "number": (b"1", "not_an_object"),
    "no_type": (b"{}", "type"),
    "type_null": (b'{"type":null}', "type"),
    "type_number": (b'{"type":7}', "type"),
    "unknown_type": (b'{"type":"EVENT"}', "unknown_message_type"),
    "lower_case": (b'{"type":"publish"}', "unknown_message_type"),
    "twice": (b'{"type":"PUBLISH","type":"AUTH"}', "duplicate_key"),
    "twice_inside": (PUBLISH % b'{"content":{"a":1,"a":2}}', "duplicate_key"),
    "twice_escaped": (b'{"a":1,"\\u0061":2}', "duplicate_key"),
    "nan": (PUBLISH % b'{"a":NaN}', "bad_json"),
    "infinity": (PUBLISH % b'{"a":-Infinity}', "bad_json"),
    "lone_surrogate": (PUBLISH % b'{"a":"\\ud800"}', "not_ijson"),
    "depth_65": (PUBLISH % (b'{"a":' + b"[" * 64 + b"]" * 64 + b"}"), "too_deep"),
    "depth_500": (b"[" * 500 + b"]" * 500, "too_deep"),
    "depth_100000": (b'{"a":' * 100_000, "too_deep"),
    "packet_missing": (b'{"type":"PUBLISH"}', "packet"),
    "packet_list": (PUBLISH % b"[]", "packet"),
    "msg_id_number": (b'{"type":"PUBLISH","client_msg_id":1,"packet":{}}', "client_msg_id"),
    "msg_id_long": (orjson.dumps({"type": "PUBLISH", "client_msg_id": "x" * 129, "packet": {}}), "client_msg_id"),
    "filters_list": (b'{"type":"SUBSCRIBE","subscription_id":"s","filters":[]}', "filters"),
    "id_missing": (b'{"type":"SUBSCRIBE"}', "subscription_id"),
    "id_empty": (b'{"type":"UNSUBSCRIBE","subscription_id":""}', "subscription_id"),
    "id_long": (orjson.dumps({"type": "SUBSCRIBE", "subscription_id": "x" * 129}), "subscription_id"),
    "authors_text": (orjson.dumps(subscribing(authors="did:strata:a")), "authors"),
    "authors_numbers": (orjson.dumps(subscribing(authors=[1])), "authors"),
    "authors_many": (orjson.dumps(subscribing(authors=[f"did:a:{n}" for n in range(1_001)])), "authors"),
    "authors_huge": (orjson.dumps(subscribing(authors=["x" * 1_000_000])), "authors"),
    "types_many": (orjson.dumps(subscribing(types=[f"{n}" for n in range(101)])), "types"),
    "types_huge": (orjson.dumps(subscribing(types=["x" * 1_000])), "types"),
    "limit_negative": (orjson.dumps(subscribing(limit=-1)), "limit"),
    "limit_text": (orjson.dumps(subscribing(limit="7")), "limit"),
    "limit_fraction": (orjson.dumps(subscribing(limit=1.5)), "limit"),
    "limit_bool": (orjson.dumps(subscribing(limit=True)), "limit"),
    "since_huge": (b'{"type":"SUBSCRIBE","subscription_id":"s","filters":{"since":1e400}}', "since"),
    "until_30_digits": (b'{"type":"SUBSCRIBE","subscription_id":"s","filters":{"until":%b}}' % (b"9" * 30), "until"),
    "cursor_number": (orjson.dumps(subscribing(cursor=1)), "cursor"),
    "auth_no_did": (b'{"type":"AUTH","author_id":"me","challenge":"x","signature":"0x"}', "author_id"),
    "auth_signature": (
        orjson.dumps({"type": "AUTH", "author_id": did(ALICE), "challenge": "x", "signature": "0x12"}),
        "signature",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_frames_are_invalid_schema(name):
    """What is no message gets invalid_schema with the reason, and the connection stays open."""
    frame, detail = MALFORMED[name]
    drive = Drive()
    peer = drive.connect()
    answer = error_of(drive, frame, peer)

    assert (answer["code"], answer["detail"]) == ("invalid_schema", detail)
    assert drive.publish(peer, post("good"))["type"] == "OK"


@pytest.mark.parametrize("number", [b"1e400", b"-1e400", b"9" * 30, b"9007199254740993", b"9007199254740992"])
def test_numbers_that_are_no_doubles_are_refused(number):
    """A number that overflows, or an integer that no double holds, is no I-JSON wherever it stands in a packet."""
    drive = Drive()
    answer = error_of(drive, PUBLISH % (GOOD[:-1] + b',"x":' + number + b"}"))

    assert (answer["code"], answer["detail"]) == ("invalid_schema", "not_ijson")


def test_text_that_is_no_utf8_closes_with_1007():
    """RFC 6455 8.1: such a frame fails the connection."""
    drive = Drive()
    peer = drive.connect()
    drive.send(peer, b'{"type":"\xff"}')

    assert (drive.closed[peer].reason, drive.closed[peer].status) == (End.INVALID_TEXT, 1007)


def test_twenty_malformed_frames_in_a_row_close_with_1008():
    """Nineteen are forgiven by one good message, twenty are not."""
    drive = Drive()
    patient, hostile = drive.connect(), drive.connect()
    for _ in range(3):
        for _ in range(19):
            error_of(drive, b"x", patient)
        drive.send(patient, {"type": "UNSUBSCRIBE", "subscription_id": "none"})
    for _ in range(20):
        assert hostile not in drive.closed
        error_of(drive, b"x", hostile)

    assert patient not in drive.closed
    assert (drive.closed[hostile].reason, drive.closed[hostile].status) == (End.MALFORMED, 1008)
    assert drive.send(hostile, publishing(post().body)) == []


def test_five_failed_auths_close_with_1008():
    """Each failure is answered, the fifth without a new challenge."""
    drive = Drive()
    peer = drive.connect()
    answers = [drive.auth(peer, BOB, author_id=did(ALICE)) for _ in range(5)]

    assert [len(each) for each in answers] == [2, 2, 2, 2, 1]
    assert (drive.closed[peer].reason, drive.closed[peer].status) == (End.AUTH_FAILURES, 1008)


def test_auth_is_limited_per_address():
    """The 21st AUTH of a minute from one address is rate_limited, on whichever connection."""
    drive = Drive()
    for _ in range(5):
        peer = drive.connect("192.0.2.1")
        for _ in range(4):
            drive.auth(peer, BOB, author_id=did(ALICE))
    answer = drive.auth(drive.connect("192.0.2.1"))[0]

    assert (answer["code"], answer["retry_after"]) == ("rate_limited", 3)
    assert drive.auth(drive.connect("192.0.2.2"))[0]["type"] == "AUTH_OK"


def test_banned_identities_get_an_answer_before_the_close():
    """RFC-0004 3.7: an AUTH is always answered, also when its identity is not let in."""
    drive = Drive(admits=lambda _identity: False)
    peer = drive.connect()
    answers = drive.auth(peer, client_msg_id="m")

    assert [(got["code"], got["detail"], got["client_msg_id"]) for got in answers] == [
        ("unauthenticated", "banned", "m")
    ]
    assert drive.closed[peer].reason is End.IDENTITY_BANNED


@pytest.mark.parametrize("flood", [publishing(post().body), subscribing()])
def test_floods_are_refused_and_closed_after_a_hundred(flood):
    """A limit never closes by itself; who ignores it a hundred times in a row is closed."""
    drive = Drive()
    peer, other = drive.connect("a"), drive.connect("b")
    for _ in range(30 + 99):
        drive.send(peer, flood)
    assert peer not in drive.closed
    drive.send(peer, flood)

    limited = [got for got in drive.got[peer] if got.get("code") == "rate_limited"]
    assert len(limited) == 100
    assert all(got["retry_after"] >= 1 for got in limited)
    assert (drive.closed[peer].reason, drive.closed[peer].status) == (End.LIMIT_IGNORED, 1008)
    assert drive.publish(other, post("other"))["type"] == "OK"


@pytest.mark.parametrize("flood", [publishing(post().body), subscribing()])
def test_who_waits_in_between_is_not_closed(flood):
    """Only a hundred in a row count: one request in its time forgives those before it."""
    drive = Drive()
    peer = drive.connect()
    for _ in range(3):
        for _ in range(30 + 99):
            drive.send(peer, flood)
        drive.pass_time(60)
        drive.send(peer, flood)
        drive.pass_time(60)

    assert peer not in drive.closed


def test_bytes_are_limited_too():
    """Large packets use up a minute's bytes before its packets."""
    drive = Drive(max_packet_bytes=1_048_576)
    peer = drive.connect()
    answers = [drive.publish(peer, signed(unsigned(n=n, x="x" * 1_000_000))) for n in range(9)]

    assert [answer["type"] for answer in answers] == ["OK"] * 8 + ["ERROR"]
    assert (answers[-1]["code"], answers[-1]["detail"]) == ("rate_limited", "bytes")


def test_subscriptions_by_the_thousand():
    """A connection has 32, the rest is refused with the limit, and all are gone with the connection."""
    drive = Drive(rate_limits=False)
    peer = drive.connect()
    answers = [drive.send(peer, subscribing(f"{number}")) for number in range(100)]

    assert answers[:32] == [[]] * 32
    assert {(each[0]["code"], each[0]["limit"]) for each in answers[32:]} == {("too_many_subscriptions", 32)}
    assert answers[50][0]["subscription_id"] == "50"
    assert drive.relay.sizes()["subscriptions"] == 32
    for _ in range(1_000):
        drive.send(peer, subscribing("7", authors=[did(BOB)]))
    assert drive.relay.sizes()["subscriptions"] == 32
    drive.drop(peer)
    assert drive.relay.sizes()["subscriptions"] == 0


def test_thousands_of_readers_get_one_packet_each():
    """A thousand connections with thousands of filters get exactly what they asked for."""
    drive = Drive(rate_limits=False)
    peers = [drive.connect() for _ in range(1_000)]
    for number, peer in enumerate(peers):
        drive.send(peer, subscribing(authors=[did(key(number % 7))], limit=0))
    drive.publish(drive.connect(), post("x", key(3)))

    assert [len(drive.events(peer)) for peer in peers] == [int(number % 7 == 3) for number in range(1_000)]


def test_a_publisher_that_never_reads_its_answers_is_held():
    """At 256 unread answers it is not read any more; once it has read them it is."""
    drive = Drive(rate_limits=False)
    peer = drive.connect()
    drive.stall(peer)
    drive.publish(peer, post())
    for _ in range(255):
        drive.publish(peer, post())
    assert peer not in drive.held
    drive.publish(peer, post())
    assert drive.held[peer] is True
    drive.drain(peer)

    assert drive.held[peer] is False


@pytest.mark.parametrize(("count", "size"), [(512, 0), (42, 200_000)])
def test_a_publisher_faster_than_the_disk_is_held(count, size):
    """With 512 packets or 8 MiB on their way it is not read any more, until half of them are on the disk."""
    drive = Drive(rate_limits=False)
    peer = drive.connect()
    drive.hold_commits = True
    for number in range(count):
        assert peer not in drive.held
        drive.send(peer, publishing(signed(unsigned(n=number, x="x" * size))))
    assert drive.held[peer] is True
    drive.commit_held()

    assert drive.held[peer] is False
    assert len(drive.rows()) == count


def test_a_reader_that_takes_nothing_for_a_minute_is_closed():
    """1013 at 60 s without progress; with progress it may take as long as it likes."""
    drive = Drive()
    dead, slow = drive.connect(), drive.connect()
    for peer in (dead, slow):
        drive.stall(peer)
        drive.subscribe(peer)
        drive.publish(drive.connect(f"{peer}"), post(f"{peer}"))
    for _ in range(3):
        drive.pass_time(30)
        drive.relay.congested(Peer(slow), drive.now)

    assert (drive.closed[dead].reason, drive.closed[dead].status, drive.closed[dead].abort) == (
        End.NOT_READING,
        1013,
        False,
    )
    assert slow not in drive.closed


def test_slow_readers_in_the_middle_of_history():
    """One that stops in mid-history holds nobody up, and goes on where it was."""
    drive = Drive(rate_limits=False)
    posts = drive.fill(300)
    slow, quick = drive.connect(), drive.connect()
    drive.stall(slow)
    drive.subscribe(slow, limit=500)
    drive.subscribe(quick, limit=500)
    part = len(drive.events(slow))
    more = drive.fill(10, BOB)
    drive.drain(slow)

    wanted = [each.body["packet_id"] for each in (*posts, *more)]
    assert part == 256
    for peer in (slow, quick):
        assert [event["packet"]["packet_id"] for event in drive.events(peer)] == wanted


def test_a_stalled_subscription_does_not_starve_the_others_of_its_connection():
    """Pages go round the subscriptions of a connection, and each of them ends."""
    drive = Drive(rate_limits=False)
    drive.fill(300)
    peer = drive.connect()
    for name in "abc":
        drive.send(peer, subscribing(name, limit=500))

    assert [len(drive.events(peer, name)) for name in "abc"] == [300, 300, 300]


@pytest.mark.slow
def test_a_reader_that_never_reads_while_10_000_packets_go_by():
    """What waits for it stays below one credit, others get everything at once, and in the end it has everything."""
    drive = Drive(rate_limits=False)
    never, other = drive.connect(), drive.connect()
    drive.subscribe(never, limit=0)
    drive.subscribe(other, limit=0)
    drive.stall(never)
    posts = drive.fill(10_000)
    waiting = sum(len(orjson.dumps(event)) for event in drive.events(never))
    drive.drain(never)

    wanted = [each.body["packet_id"] for each in posts]
    assert waiting <= 262_144
    assert [event["packet"]["packet_id"] for event in drive.events(other)] == wanted
    assert [event["packet"]["packet_id"] for event in drive.events(never)] == wanted


def test_challenges_of_others_do_not_open_this_connection():
    """A challenge belongs to its connection, and a signature for another server does not count here."""
    drive = Drive()
    mine, other = drive.connect(), drive.connect()
    stolen = drive.got[other][0]["challenge"]

    assert drive.auth(mine, challenge=stolen)[0]["detail"] == "challenge_unknown"
    elsewhere = Drive(key=BOB)
    foreign = elsewhere.connect()
    signature = elsewhere.got[foreign][0]["challenge"]
    assert elsewhere.got[foreign][0]["server_id"] == did(BOB) != did(RELAY)
    assert drive.auth(mine, challenge=signature)[0]["code"] == "unauthenticated"
