"""The requirements of specs/strata.md 21 that a relay shows by itself, one test per row, each named after its row.

Rows 20, 36, 38, 40 to 43, 46 and 47 are about clients or whole nodes and are tried there.
"""

import base64

import pytest

from tests.protocols.strata.build import (
    ALICE,
    BOB,
    NOW,
    RELAY,
    VECTORS,
    context_of,
    did,
    packet,
    packet_of,
    post,
    sign_bytes,
    vector,
    vectors,
)
from tests.protocols.strata.drive import Drive
from waystation.core.facts import PacketJudged
from waystation.protocols.strata.relay.directory import StaticKey

DAY = 86_400


def drive_for(entry, **fields):
    """Return a relay that knows what a vector's context says."""
    pinned = {
        author: [
            StaticKey(bytes.fromhex(each["pub"]), each["valid_from"], recovery=each.get("usage") == "recovery")
            for each in keys
        ]
        for author, keys in context_of(entry)["static_keys"].items()
    }
    return Drive(static_dids=pinned, **fields)


def verdict_of(entry):
    """Return what a relay answers to a vector."""
    drive = drive_for(entry)
    return drive.publish(drive.connect(), entry["packet"])


def texts(events):
    """Return the texts of the posts in EVENTs."""
    return [event["packet"]["content"]["text"] for event in events if event["type"] == "EVENT"]


def test_row_01_valid_packets_are_accepted():
    """A valid packet gets OK with its id."""
    entry = vector("ok-ascii")

    assert verdict_of(entry) == {"type": "OK", "packet_id": entry["packet"]["packet_id"], "status": "ACCEPTED"}


@pytest.mark.parametrize("name", ["ok-unicode", "ok-numbers", "ok-expiry-nonce"])
def test_row_02_packets_are_not_modified(name):
    """What is served hashes to the id it came with, strange fields included."""
    body = vector(name)["packet"]
    drive = Drive()
    drive.publish(drive.connect(), body)
    drive.subscribe(drive.connect())

    served = drive.events(2)[0]["packet"]
    assert packet_of(served).id_matches
    assert served == body


def test_row_02_spelling_does_not_matter():
    """Numbers in another spelling are the same packet."""
    entry = vector("ok-numbers")
    drive = Drive()
    frame = b'{"type":"PUBLISH","packet":%b}' % entry["raw_wire_variant"].encode()
    answer = drive.send(drive.connect(), frame)[0]

    assert (answer["type"], answer["packet_id"]) == ("OK", entry["packet"]["packet_id"])


@pytest.mark.parametrize("body", [vector("err-tamper-reid")["packet"], vector("err-wrong-key")["packet"]])
def test_row_03_signature_is_verified(body):
    """A wrong signature is refused, and nothing is stored."""
    drive = Drive()
    answer = drive.publish(drive.connect(), body)

    assert (answer["code"], answer["packet_id"]) == ("invalid_signature", body["packet_id"])
    assert drive.rows() == []


def test_row_03_tampered_text_is_refused():
    """A text that the id does not cover is refused before its signature is looked at."""
    drive = Drive()
    body = post().body
    answer = drive.publish(drive.connect(), body | {"content": {"type": "POST", "text": "other"}})

    assert (answer["code"], answer["detail"]) == ("invalid_signature", "packet_id_mismatch")
    assert drive.rows() == []


@pytest.mark.parametrize("name", vectors("packet"))
def test_row_04_vectors_are_judged_as_listed(name):
    """Every packet vector gets the verdict, detail and downgrade that stand beside it."""
    entry = vector(name)
    answer = verdict_of(entry)

    expect = entry["expect"]
    assert answer["type"] == expect["result"]
    assert {field: answer[field] for field in ("status", "code", "detail", "max_bytes") if field in expect} == {
        field: value for field, value in expect.items() if field not in {"result", "downgrade"}
    }
    assert answer.get("provenance_downgrade") == expect.get("downgrade")


@pytest.mark.parametrize("name", vectors("raw_packet"))
def test_row_04_raw_vectors_are_refused(name):
    """Bytes that are no I-JSON are invalid_schema, or end the connection when a text frame may not hold them."""
    entry = vector(name)
    drive = Drive()
    frame = b'{"type":"PUBLISH","packet":%b}' % base64.b64decode(entry["raw_base64"])
    answers = drive.send(drive.connect(), frame)

    assert drive.rows() == []
    if name == "raw-bad-utf8":  # clarification 12
        assert (answers, drive.closed[1].status) == ([], 1007)
        return
    assert (answers[0]["code"], answers[0]["detail"]) == (entry["expect"]["code"], entry["expect"]["detail"])
    assert drive.closed == {}


def test_row_05_size_is_enforced():
    """The largest packet passes, one byte more is refused with the limit."""
    drive = Drive()
    peer = drive.connect()

    assert drive.publish(peer, vector("size-262144")["packet"])["type"] == "OK"
    answer = drive.publish(peer, vector("size-262145")["packet"])
    assert (answer["code"], answer["max_bytes"]) == ("packet_too_large", VECTORS["default_context"]["max_bytes"])


def test_row_06_success_stores_forwards_and_answers():
    """A subscriber gets one EVENT, the publisher one OK, and HTTP has the packet."""
    drive = Drive()
    publisher, reader = drive.connect(), drive.connect()
    drive.subscribe(reader)
    sent = post()
    answer = drive.publish(publisher, sent)

    assert answer["status"] == "ACCEPTED"
    assert [event["packet"] for event in drive.events(reader)] == [sent.body]
    assert drive.get(f"/strata/packets/{answer['packet_id']}") == (200, {"packet": sent.body, "received_at": NOW})


def test_row_07_client_msg_id_is_echoed():
    """The echo is exact, and its absence is fine."""
    drive = Drive()
    peer = drive.connect()

    assert drive.publish(peer, post("1"), "ü 1")["client_msg_id"] == "ü 1"
    assert "client_msg_id" not in drive.publish(peer, post("2"))
    assert drive.publish(peer, post("3").body | {"version": 2}, "e")["client_msg_id"] == "e"


@pytest.mark.parametrize("authors", [[], [did(ALICE)], [did(BOB)], [did(ALICE), did(BOB)]])
@pytest.mark.parametrize("types", [None, ["POST"], ["POST", "PROFILE"]])
@pytest.mark.parametrize(("since", "until"), [(None, None), (NOW - 20, None), (None, NOW - 20), (NOW - 30, NOW - 30)])
def test_row_08_filters(authors, types, since, until):
    """History and live deliver what a plain comparison picks."""
    drive = Drive(rate_limits=False)
    publisher, reader = drive.connect(), drive.connect()
    mixed = [
        packet({"type": kind, "text": ""}, pair, timestamp=at)
        for pair in (ALICE, BOB)
        for kind in ("POST", "PROFILE")
        for at in (NOW - 30, NOW - 20, NOW - 10)
    ]
    for each in mixed[::2]:
        drive.publish(publisher, each)
    drive.subscribe(reader, authors=authors, types=types, since=since, until=until)
    for each in mixed[1::2]:
        drive.publish(publisher, each)

    wanted = [
        each.body["packet_id"]
        for each in (*mixed[::2], *mixed[1::2])
        if (not authors or each.author_id in authors)
        and (not types or each.content_type in types)
        and (since is None or each.timestamp >= since)
        and (until is None or each.timestamp <= until)
    ]
    assert [event["packet"]["packet_id"] for event in drive.events(reader)] == wanted


@pytest.mark.parametrize("order", ["asc", "desc", "sideways"])
def test_row_09_history_is_ordered_by_received_at(order):
    """Ties go by arrival, a replica stands where it was first received, and an unknown order is asc."""
    drive = Drive()
    peer = drive.connect()
    for text in "ab":
        drive.publish(peer, post(text))
    drive.pass_time(5)
    drive.publish(peer, post("c"))
    drive.replicate(post("early"), NOW - 50)
    drive.subscribe(peer, order=order)

    expected = ["early", "a", "b", "c"]
    assert texts(drive.events(peer)) == (expected[::-1] if order == "desc" else expected)


def test_row_10_historical_events_carry_cursors():
    """Pages of 7 joined by their cursors are the whole, each packet once."""
    drive = Drive(rate_limits=False)
    posts = drive.fill(100)
    peer, cursor, found = drive.connect(), None, []
    for _ in range(15):
        page = drive.subscribe(peer, limit=7, cursor=cursor)
        cursor = page[-1]["cursor"]
        assert all("cursor" in got for got in page)
        found += [event["packet"]["packet_id"] for event in page[:-1]]

    assert found == [each.body["packet_id"] for each in posts]


def test_row_11_no_gap_at_the_boundary():
    """Fifty clients that subscribe while packets come, some still on their way to the disk, miss none."""
    drive = Drive(rate_limits=False)
    publisher, readers = drive.connect(), [drive.connect() for _ in range(50)]
    sent = [post(f"{number}") for number in range(50)]
    for number, (reader, each) in enumerate(zip(readers, sent, strict=True)):
        drive.hold_commits = number % 3 == 0
        drive.send(publisher, {"type": "PUBLISH", "packet": each.body})
        drive.subscribe(reader)
        if number % 3 == 2:
            drive.commit_held()
    drive.commit_held()

    for reader in readers:
        found = [event["packet"]["packet_id"] for event in drive.events(reader)]
        assert sorted(found) == sorted(each.body["packet_id"] for each in sent)


def test_row_12_new_matches_are_sent():
    """Behind history comes what is new, under the subscription's id."""
    drive = Drive()
    drive.fill(1)
    reader = drive.connect()
    drive.subscribe(reader, "mine")
    drive.fill(1, BOB)

    assert [event["packet"]["author_id"] for event in drive.events(reader, "mine")] == [did(ALICE), did(BOB)]


def test_row_13_received_at_is_in_every_event():
    """It is our clock at first acceptance, and the same in history, live and by id."""
    drive = Drive()
    live, late = drive.connect(), drive.connect()
    drive.subscribe(live)
    drive.pass_time(3)
    sent = drive.fill(1)[0]
    drive.pass_time(9)
    drive.subscribe(late)

    path = f"/strata/packets/{sent.body['packet_id']}"
    served = [drive.events(live)[0], drive.events(late)[0], drive.get(path)[1]]
    assert [each["received_at"] for each in served] == [NOW + 3] * 3


def test_row_14_unsubscribe_stops():
    """Nothing comes after it, nobody answers it, and its place is free."""
    drive = Drive()
    reader = drive.connect()
    drive.subscribe(reader)
    assert drive.send(reader, {"type": "UNSUBSCRIBE", "subscription_id": "s"}) == []
    drive.fill(1)

    assert drive.events(reader) == []
    assert drive.relay.sizes()["subscriptions"] == 0


def test_row_15_challenge_on_connect():
    """The first frame is a challenge of 32 random bytes, for 60 to 600 seconds."""
    drive = Drive()
    challenge = drive.got[drive.connect()][0]

    assert challenge["type"] == "AUTH_CHALLENGE"
    assert len(base64.b64decode(challenge["challenge"], validate=True)) == 32
    assert (challenge["server_id"], challenge["expires_at"]) == (did(RELAY), NOW + 120)


def test_row_16_auth_is_answered():
    """The right signature gets AUTH_OK with capabilities and echo; a near miss gets its ERROR and a new challenge."""
    drive = Drive()
    good, wrong, short = (drive.connect() for _ in range(3))
    challenge = drive.got[short][0]["challenge"]

    assert drive.auth(good, client_msg_id="a") == [
        {"type": "AUTH_OK", "author_id": did(ALICE), "capabilities": ["publish", "subscribe"], "client_msg_id": "a"}
    ]
    for answers in (
        drive.auth(wrong, BOB, author_id=did(ALICE), client_msg_id="a"),
        drive.auth(short, signature=sign_bytes(ALICE, challenge.encode()), client_msg_id="a"),
    ):
        assert [got["type"] for got in answers] == ["ERROR", "AUTH_CHALLENGE"]
        assert (answers[0]["code"], answers[0]["client_msg_id"]) == ("invalid_signature", "a")


@pytest.mark.parametrize(
    ("static", "code", "detail"),
    [
        (StaticKey(ALICE.public, 0, recovery=True), "invalid_signature", "recovery_key_not_allowed"),
        (StaticKey(ALICE.public, 0, revoked_at=NOW - 1_000), "key_revoked", None),
        (StaticKey(ALICE.public, 0, valid_until=NOW - 1_000), "key_expired", None),
        (StaticKey(ALICE.public, NOW + 1_000), "key_not_yet_valid", None),
    ],
)
def test_row_17_auth_needs_an_active_key(static, code, detail):
    """A key outside its window, or a recovery key, opens no session."""
    drive = Drive(static_dids={did(ALICE): [static]})
    answer = drive.auth(drive.connect())[0]

    assert (answer["code"], answer.get("detail")) == (code, detail)


def test_row_18_capabilities_are_authoritative():
    """Only what policy gives is granted, and what is not granted is refused."""
    drive = Drive(auth_grants=["subscribe"], replicate_allow=[did(BOB)])
    alice, bob = drive.connect(), drive.connect()
    wanted = ["publish", "subscribe", "replicate", "foo"]

    assert drive.auth(alice, capabilities=wanted)[0]["capabilities"] == ["subscribe"]
    assert drive.auth(bob, BOB, capabilities=wanted)[0]["capabilities"] == ["subscribe", "replicate"]
    answer = drive.publish(alice, post())
    assert (answer["code"], answer["detail"]) == ("unauthenticated", "missing_capability")
    nothing = drive.auth(drive.connect(), capabilities=["publish"])[0]
    assert (nothing["code"], nothing["detail"]) == ("unauthenticated", "no_capability")


def test_row_19_challenges_are_single_use_and_expire():
    """A spent or an old challenge is refused, and a fresh one follows."""
    drive = Drive()
    peer = drive.connect()
    first = drive.got[peer][0]["challenge"]
    drive.auth(peer, BOB, author_id=did(ALICE))
    again = drive.auth(peer, challenge=first)
    drive.pass_time(121)
    late = drive.auth(peer)

    assert [got.get("detail") for got in again] == ["challenge_unknown", None]
    assert [got.get("detail") for got in late] == ["challenge_expired", None]
    assert late[1]["type"] == "AUTH_CHALLENGE"
    assert drive.auth(peer)[0]["type"] == "AUTH_OK"
    assert drive.auth(peer)[0]["detail"] == "already_authenticated"


def test_row_21_limits_say_when_to_come_back():
    """A flood gets rate_limited with whole seconds, and after so many it works."""
    drive = Drive()
    peer = drive.connect()
    answers = [drive.publish(peer, post(f"{number}")) for number in range(31)]
    limited = answers[-1]
    drive.pass_time(limited["retry_after"])

    assert [answer["type"] for answer in answers[:30]] == ["OK"] * 30
    assert limited["code"] == "rate_limited"
    assert (limited["retry_after"], limited["limit"], limited["remaining"], limited["window_seconds"]) == (2, 30, 0, 60)
    assert drive.publish(peer, post("later"))["type"] == "OK"


def requests_of(drive, kind):
    """Return what makes one request of a kind and returns its answer; the host is always the same."""
    peer = drive.connect("host")
    large = post().body | {"content": {"type": "POST", "text": "x" * 2_000_000}}
    return {
        "subscribe": lambda: drive.subscribe(peer)[-1],
        "auth": lambda: drive.auth(drive.connect("host"), BOB, author_id=did(ALICE))[0],
        "bytes": lambda: drive.publish(peer, large),
        "http": lambda: drive.get("/strata/descriptor")[1],
    }[kind]


def is_limited(answer):
    """Return whether an ERROR, or an HTTP answer, is about an allowance."""
    return "rate_limited" in (answer.get("code"), answer.get("error"))


@pytest.mark.parametrize(("kind", "limit"), [("subscribe", 30), ("auth", 20), ("bytes", 8 * 2**20), ("http", 600)])
def test_row_21_every_allowance_says_when_to_come_back(kind, limit):
    """Whichever allowance is spent, the answer has whole seconds of at least 1, and after so many it works."""
    drive = Drive()
    ask = requests_of(drive, kind)
    answer = next(each for each in (ask() for _ in range(700)) if is_limited(each))
    drive.pass_time(answer["retry_after"])

    assert (answer["limit"], answer["window_seconds"]) == (limit, 60)
    assert type(answer["retry_after"]) is int
    assert 1 <= answer["retry_after"] <= 60
    assert not is_limited(ask())


def test_row_22_the_unknown_is_no_reason_to_close():
    """Fields nobody knows are ignored, a type nobody knows is an error, and the connection goes on."""
    drive = Drive()
    peer = drive.connect()
    answer = drive.send(peer, {"type": "SHOUT", "client_msg_id": "m"})[0]
    end = drive.send(
        peer, {"type": "SUBSCRIBE", "subscription_id": "s", "want_eose": True, "x": 1, "filters": {"y": 2}}
    )

    assert (answer["code"], answer["detail"]) == ("invalid_schema", "unknown_message_type")
    assert answer["client_msg_id"] == "m"
    assert end[0]["type"] == "EOSE"
    assert drive.publish(peer, post(strange={"a": None}))["type"] == "OK"


def test_row_23_duplicates_are_dropped():
    """A packet twice is one EVENT and one row, and the second OK says so."""
    drive = Drive()
    peer = drive.connect()
    drive.subscribe(peer)
    first, second = drive.publish(peer, post()), drive.publish(peer, post())

    assert "duplicate" not in first
    assert second["duplicate"] is True
    assert len(drive.events(peer)) == len(drive.rows()) == 1


def test_row_23_expiry_is_honoured():
    """Past its last second a packet is in no history, not sent to one who was behind, and gone by id."""
    drive = Drive()
    publisher, behind, later = (drive.connect() for _ in range(3))
    drive.subscribe(behind)
    drive.stall(behind)
    drive.fill(2)
    sent = post("brief", expires_at=NOW + 10)
    drive.publish(publisher, sent)
    path = f"/strata/packets/{sent.body['packet_id']}"
    drive.pass_time(10)
    assert drive.get(path)[0] == 200
    drive.pass_time(1)
    drive.drain(behind)
    drive.subscribe(later)

    assert "brief" not in texts(drive.events(behind)) + texts(drive.events(later))
    assert len(drive.events(behind)) == 2
    assert drive.get(path)[0] == 410


def test_row_24_freshness():
    """300 s ahead and a day behind are accepted, one second more is not, and a packet must not be dead on arrival."""
    drive = Drive()
    peer = drive.connect()
    ahead, behind = drive.publish(peer, post(timestamp=NOW + 301)), drive.publish(peer, post(timestamp=NOW - DAY - 1))
    dead = drive.publish(peer, post(expires_at=NOW))

    for answer, detail in ((ahead, "future"), (behind, "too_old"), (dead, "expired")):
        assert (answer["code"], answer["detail"], answer["server_time"]) == ("invalid_timestamp", detail, NOW)
    assert drive.publish(peer, post(timestamp=NOW + 300))["type"] == "OK"
    assert drive.publish(peer, post(timestamp=NOW - DAY))["type"] == "OK"


def test_row_25_dropped_packets_are_remembered():
    """What retention dropped is still a duplicate six days later, when another relay offers it."""
    drive = Drive(retention_mib=1)
    first = drive.fill(1)[0]
    for each in range(5):
        drive.publish(drive.connect(f"{each}"), post("x" * 230_000 + f"{each}"))
    drive.pass_time(60)
    assert first.packet_id not in {row.packet_id for row in drive.rows()}
    drive.pass_time(6 * DAY)
    drive.fill(1, BOB, timestamp=drive.wall_s)
    drive.replicate(first, NOW)

    verdict = [fact for fact in drive.facts if isinstance(fact, PacketJudged)][-1]
    assert (verdict.packet_id, verdict.verdict) == (first.packet_id, "duplicate")
    assert first.packet_id not in {row.packet_id for row in drive.rows()}
