"""What a stranger may cost: bytes are paid for before they are read, and no one message or request stalls the relay."""

import orjson
import pytest

from tests.protocols.strata.build import (
    ALICE,
    BOB,
    MEDIA_HASH,
    NOW,
    claim,
    did,
    key,
    packet,
    packet_of,
    photo,
    post,
    signed,
    unsigned,
)
from tests.protocols.strata.drive import Drive
from waystation.core.dids import encode_key_multibase
from waystation.core.effects import Peer
from waystation.protocols.strata.limits import StrataLimits
from waystation.store.memory import MemoryStore

MIB = 1_048_576


def padded(kind, size_bytes, **fields):
    """Return a small message with a large member that nobody knows."""
    return orjson.dumps({"type": kind, "padding": "x" * size_bytes} | fields)


@pytest.mark.parametrize("kind", ["UNSUBSCRIBE", "SUBSCRIBE", "AUTH", "NONSENSE"])
def test_every_frame_is_paid_for(kind):
    """A flood of large frames of any type ends in rate_limited, unparsed, and at last in a close."""
    drive = Drive()
    peer = drive.connect("192.0.2.7")
    frame = padded(kind, 2 * MIB - 200, subscription_id="s")
    for _ in range(4):
        drive.relay.receive(Peer(peer), frame, drive.now)

    answers = drive.send(peer, b"[" * MIB)
    assert (answers[-1]["code"], answers[-1]["detail"]) == ("rate_limited", "bytes")
    assert answers[-1]["retry_after"] >= 1
    for _ in range(100):
        drive.relay.receive(Peer(peer), frame, drive.now)
    drive.settle()
    assert peer in drive.closed


def test_a_short_message_is_read_when_bytes_are_spent():
    """Whoever has no bytes left still gets answers with its own client_msg_id."""
    drive = Drive()
    peer = drive.connect("192.0.2.7")
    for _ in range(4):
        drive.send(peer, padded("UNSUBSCRIBE", 2 * MIB - 200, subscription_id="s"))
    drive.send(peer, padded("UNSUBSCRIBE", 2 * MIB - 200, subscription_id="s"))
    drive.send(peer, padded("UNSUBSCRIBE", 500, subscription_id="s"))

    answer = drive.publish(peer, post("x" * 500), "mine")
    assert (answer["code"], answer["client_msg_id"]) == ("rate_limited", "mine")


@pytest.mark.parametrize("member", ["[]", "{}", "1e-7", '""'])
def test_a_frame_of_too_many_values_is_not_parsed(member, monkeypatch):
    """What cannot have a canonical form small enough is too large before it becomes objects."""
    drive = Drive()
    parsed = []
    monkeypatch.setattr("waystation.protocols.strata.relay.machine.parse", lambda *given: parsed.append(given))
    values = ",".join([member] * 300_000).encode()

    answers = drive.send(drive.connect(), b'{"type":"PUBLISH","packet":{"content":[%b]}}' % values)
    assert [(answer["code"], answer["max_bytes"]) for answer in answers] == [("packet_too_large", 262_144)]
    assert parsed == []


def test_a_largest_packet_of_marks_alone_is_taken():
    """A packet of the greatest size passes, however many of its bytes are commas and brackets."""
    drive = Drive()
    empty = packet({"type": "POST", "text": ""})
    text = ",:{}[]" * 50_000
    largest = packet({"type": "POST", "text": text[: 262_144 - len(empty.canonical)]})
    assert len(largest.canonical) == 262_144

    assert drive.publish(drive.connect(), largest)["type"] == "OK"


def test_the_filters_of_one_connection_are_bounded_together():
    """Many subscriptions of a thousand authors each end in too_many_subscriptions; replacing one needs no more room."""
    drive = Drive(rate_limits=False)
    peer = drive.connect()
    authors = [f"did:strata:{number}" for number in range(1_000)]
    for number in range(8):
        assert drive.subscribe(peer, f"s{number}", authors=authors)[-1]["type"] == "EOSE"

    answers = drive.subscribe(peer, "one more", types=["POST"])
    assert [(answer["code"], answer["limit"]) for answer in answers] == [("too_many_subscriptions", 8_000)]
    assert drive.subscribe(peer, "s3", authors=authors)[-1]["type"] == "EOSE"
    drive.send(peer, {"type": "UNSUBSCRIBE", "subscription_id": "s4"})
    assert drive.subscribe(peer, "one more", types=["POST"])[-1]["type"] == "EOSE"


def test_a_key_event_is_short():
    """Key events stay for ever and are read together, so a padded one is refused, and one of nearly 8 KiB is not."""
    drive = Drive()
    peer = drive.connect()
    content = {"type": "KEY_EVENT", "event": "REVOKE", "key_id": f"{did(ALICE)}#none", "revoked_at": NOW}
    short = packet(content | {"reason": "x" * 7_000})
    long = packet(content | {"reason": "x" * 8_000})

    assert drive.publish(peer, short)["type"] == "OK"
    answer = drive.publish(peer, long)
    assert (answer["code"], answer["max_bytes"]) == ("packet_too_large", 8_192)


def test_an_answer_about_snapshots_is_bounded():
    """However large and many CONFIG packets are, one GET reads and returns a few megabytes, newest first."""
    drive = Drive(rate_limits=False)
    peer = drive.connect()
    content = {"type": "CONFIG", "scope": "BOOTSTRAP_SNAPSHOT", "source_id": did(ALICE), "pad": "x" * 250_000}
    for number in range(16):
        assert drive.publish(peer, packet(content | {"number": number}))["type"] == "OK"

    _, newest = drive.get("/.well-known/strata/bootstrap-snapshot")
    answer = drive.relay.answer("/.well-known/strata/bootstrap-snapshots", "192.0.2.1", drive.now)
    numbers = [entry["packet"]["content"]["number"] for entry in orjson.loads(answer.body)]
    assert newest["packet"]["content"]["number"] == 15
    assert numbers == list(range(15, 15 - len(numbers), -1))
    assert 4 <= len(numbers) <= 10
    assert len(answer.body) < 3 * MIB


def test_a_client_without_a_name_is_not_looked_up(monkeypatch):
    """A client_id that is no DID, such as 200 kB of text, is unknown without a look-up that would remember it."""
    drive = Drive()
    asked = []
    monkeypatch.setattr(
        "waystation.protocols.strata.relay.software_keys.ClientKeys.valid", lambda *given: asked.append(given)
    )
    attestation = {"client_id": "c" * 200_000, "client_version": "1.0.0", "client_signature": "0x" + "0" * 128}
    header = claim("SOFTWARE", MEDIA_HASH, client_attestation=attestation)

    answer = drive.publish(drive.connect(), signed(photo(header)))
    assert answer["provenance_downgrade"]["reason"] == "unknown_client"
    assert asked == []


def publish_with_forty_revoked_keys(drive, peer):
    """Publish posts of an author who has revoked forty keys before them; return the key that signs now."""
    last = ALICE
    drive.publish(peer, post("before them"))
    for number in range(41):
        fresh = key(1_000 + number)
        added = {"public_key_multibase": encode_key_multibase(fresh.public), "valid_from": NOW - 100}
        contents = [{"event": "ADD", "key_id": f"{did(ALICE)}#k{number}"} | added]
        if number:
            contents.append({"event": "REVOKE", "key_id": f"{did(ALICE)}#k{number - 1}", "revoked_at": NOW})
        for content in contents:
            what = packet_of(signed(unsigned({"type": "KEY_EVENT"} | content), last))
            assert drive.publish(peer, what)["type"] == "OK"
            last = fresh
    drive.pass_time(1_000)
    for number in range(40):
        what = packet_of(signed(unsigned({"type": "POST", "text": str(number)}), last))
        assert drive.publish(peer, what)["type"] == "OK"
    return last


def test_a_step_of_hiding_tries_few_signatures(monkeypatch):
    """However many keys an author has revoked, one step after a REVOKE tries about as many signatures as ever."""
    tried = []
    monkeypatch.setattr(
        "waystation.protocols.strata.relay.retention.verify_any", lambda keys, *_: tried.append(len(keys)) or -1
    )
    drive = Drive(rate_limits=False)
    peer = drive.connect()
    last = publish_with_forty_revoked_keys(drive, peer)
    tried.clear()
    content = {"type": "KEY_EVENT", "event": "REVOKE", "key_id": f"{did(ALICE)}#none", "revoked_at": NOW}
    drive.publish(peer, packet_of(signed(unsigned(content), last)))
    steps = []
    for _ in range(300):
        before = sum(tried)
        drive.wall_s += 1
        drive.relay.wake(drive.now)
        drive.settle()
        steps.append(sum(tried) - before)

    assert len(tried) >= 40
    assert max(steps) == 40


def test_a_cursor_of_a_time_the_store_forgot_is_refused():
    """After the store was put back to an earlier time, cursors from the lost time are invalid and hide nothing."""
    drive = Drive()
    drive.fill(3)
    cursor = drive.subscribe(drive.connect())[-1]["cursor"]
    put_back = MemoryStore()
    put_back.packets._epoch = drive.store.packets.epoch()
    earlier = Drive(put_back)
    earlier.fill(1)

    answers = earlier.subscribe(earlier.connect(), cursor=cursor)
    assert [answer["code"] for answer in answers] == ["invalid_cursor"]


class CountingReader:
    """A packet reader that counts pages."""

    def __init__(self, packets):
        self._packets = packets
        self.pages = 0

    def entries(self, query):
        """Count a page."""
        self.pages += 1
        return self._packets.entries(query)


def test_pages_that_look_at_thousands_come_one_a_turn(monkeypatch):
    """Readers with rare filters get one page a turn between them, so that nobody waits for eight long searches."""
    monkeypatch.setattr("waystation.store.memory_packets.ROWS_LOOKED_AT_MAX", 4)
    drive = Drive(rate_limits=False)
    drive.fill(40, key=BOB)
    reader = drive.relay._delivery._packets = CountingReader(drive.store.packets)
    message = {"type": "SUBSCRIBE", "subscription_id": "s", "filters": {"authors": [did(BOB)], "types": ["NONE"]}}
    for peer in [drive.connect() for _ in range(6)]:
        drive.relay.receive(Peer(peer), orjson.dumps(message), drive.now)
    counts = []
    while drive.relay._delivery.has_readers:
        before = reader.pages
        drive.relay.take()
        counts.append(reader.pages - before)

    assert sum(counts) >= 60
    assert set(counts[:40]) == {1}


def test_a_publisher_is_not_blamed_for_the_shutdown():
    """While the relay drains, packets that still come are refused, and their connection lives to get the others' OK."""
    drive = Drive(rate_limits=False)
    peer = drive.connect()
    drive.relay.retire()
    for number in range(120):
        assert drive.publish(peer, post(str(number)))["code"] == "internal_error"

    assert peer not in drive.closed


def test_fractions_cost_more_of_the_allowance():
    """What the slow canonical form makes expensive is paid for: large packets of fractions are few.

    Small ones, such as a strength of 0.7, and large ones without fractions are as cheap as ever.
    """
    drive = Drive(limits=StrataLimits(bytes_per_minute_anonymous=MIB))
    dear, plain, small = (drive.connect(f"192.0.2.{number}") for number in range(3))

    assert drive.publish(dear, packet({"type": "POST", "x": [0.25] * 6_000}))["type"] == "OK"
    assert drive.publish(dear, post("x" * 60_000))["detail"] == "bytes"
    for number in range(12):
        assert drive.publish(plain, post(f"{number}" + "x" * 60_000))["type"] == "OK"
        assert drive.publish(small, packet({"type": "POST", "x": 0.25 + number}))["type"] == "OK"


def test_new_identities_bring_no_new_bytes():
    """All identities behind one address share one allowance of bytes; those of another address keep theirs."""
    drive = Drive(limits=StrataLimits(bytes_per_minute=MIB))
    frame = padded("UNSUBSCRIBE", MIB // 8 - 100, subscription_id="s")
    passed = 0
    for number in range(3):
        peer = drive.connect("192.0.2.7")
        assert drive.auth(peer, key(number))[-1]["type"] == "AUTH_OK"
        for _ in range(5):
            passed += drive.send(peer, frame) == []
    elsewhere = drive.connect("192.0.2.8")
    drive.auth(elsewhere, key(9))

    assert passed == 8
    assert drive.send(elsewhere, frame) == []


def test_a_replica_pays_alone():
    """A relay that may replicate is not held to what others at its address have spent."""
    drive = Drive(replicate_allow=[did(BOB)], limits=StrataLimits(bytes_per_minute=MIB))
    frame = padded("UNSUBSCRIBE", MIB // 8 - 100, subscription_id="s")
    neighbour, replica = drive.connect("192.0.2.7"), drive.connect("192.0.2.7")
    drive.auth(neighbour, ALICE)
    drive.auth(replica, BOB, capabilities=["subscribe", "replicate"])
    answers = [drive.send(neighbour, frame) for _ in range(10)]

    assert answers[-1][-1]["detail"] == "bytes"
    assert drive.send(replica, frame) == []


def test_packets_that_wait_keep_no_objects():
    """A large packet that waits for its signature or the disk is kept as bytes, whatever objects it was parsed into."""
    drive = Drive(rate_limits=False)
    drive.hold_commits = True
    peer = drive.connect()
    wide = packet({"type": "POST", "x": [{} for _ in range(40_000)]})
    attestation = {"attestation_id": "a", "pad": "x" * 20_000}
    content = {"type": "ATTESTATION", "target_packet": "t", "attestation": attestation}
    first, again = packet(content), packet(content, nonce="again")
    header = claim("SOFTWARE", MEDIA_HASH, client_attestation=None, pad="x" * 20_000)
    for what in (wide.body, first.body, again.body, signed(photo(header))):
        drive.send(peer, {"type": "PUBLISH", "packet": what})

    waiting = [candidate for batch in drive.relay._intake._committing.values() for candidate, _ in batch]
    assert len(waiting) == 4
    assert {len(orjson.dumps(candidate.packet.body)) < 100 for candidate in waiting} == {True}
    assert {candidate.body for candidate in waiting} == {None}
    drive.commit_held()
    oks = [got for got in drive.got[peer] if got["type"] == "OK"]
    assert len(oks) == 4
    assert oks[2]["duplicate_of"] == first.body["packet_id"]
    assert oks[3]["provenance_downgrade"]["claimed"] == "SOFTWARE"
