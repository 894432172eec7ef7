"""Laws of engine.recorder: what is written of packets and subscriptions, and what never is."""

import random

import pytest

from tests.engine.build import KEY, SECOND, WALL
from waystation.core import facts
from waystation.core.instant import Instant
from waystation.crypto.hashing import keyed_reference
from waystation.engine import recorder as module
from waystation.engine.connections import Connection, Traffic
from waystation.engine.recorder import Recorder
from waystation.engine.references import KNOWN_CONTENT_TYPES, REFERENCES_CACHED_MAX
from waystation.journal import events
from waystation.journal.archive import ArchivedPacket
from waystation.journal.segment import encode_lines, read_rows

ALICE = b"did:strata:alice"
PACKET_ID = b"i" * 32


class Book:
    """A recorder with a journal and an archive in memory."""

    def __init__(self, *, journal: bool = True) -> None:
        self.written: list = []
        self.archived: list = []
        append = self.written.append if journal else None
        self.recorder = Recorder(append, random.Random(1), self.archived.append)
        self.recorder.set_wall(Instant(0), WALL)
        self.recorder.use_key(KEY)

    def note(self, fact, now: int = 5) -> None:
        """Tell one fact."""
        self.recorder.note(fact, Instant(now))

    def after(self, now: int) -> list:
        """Return everything written once ``now`` has come."""
        self.recorder.wake(Instant(now))
        return self.written


def judged(verdict: str = "accepted", **fields) -> facts.PacketJudged:
    """Return the fact of one packet; fields override."""
    fact = facts.PacketJudged(
        protocol="strata",
        verdict=verdict,
        detail=None,
        author=ALICE,
        relay=None,
        source="client",
        size_bytes=400,
        packet_id=PACKET_ID,
        content_type="POST",
        packet_ts=1_700_000_000,
        received_at=1_700_000_001,
        store_seq=9 if verdict == "accepted" else None,
        latency_us=70,
    )
    return fact._replace(**fields)


def test_accepted_packet_is_one_event_at_once() -> None:
    """It tells sizes, times and place, and names author and packet by keyed hash."""
    book = Book()
    book.note(judged(expires_at=1_800_000_000, origin="AI_MODEL", downgrade="no_chain"))

    assert book.written == [
        events.PacketJudged(
            ts_us=WALL + 5,
            protocol="strata",
            verdict="accepted",
            detail=None,
            author_ref=keyed_reference(KEY, ALICE),
            relay_ref=None,
            source="client",
            size_bytes=400,
            times=1,
            packet_ref=keyed_reference(KEY, PACKET_ID),
            content_type="POST",
            packet_ts=1_700_000_000,
            received_at=1_700_000_001,
            expires_at=1_800_000_000,
            store_seq=9,
            origin="AI_MODEL",
            downgrade="no_chain",
            latency_us=70,
        )
    ]


def test_packet_of_a_relay_says_so() -> None:
    """A replicated packet has the reference of the relay that brought it."""
    book = Book()
    book.note(judged(relay=b"did:strata:relay", source="peer"))

    assert (book.written[0].source, book.written[0].relay_ref) == ("peer", keyed_reference(KEY, b"did:strata:relay"))


@pytest.mark.parametrize("content_type", ["alices.secret.word", "post", "a" * 64, "POST\n", "other "])
def test_unknown_type_is_other(content_type: str) -> None:
    """A stranger's word is no column value."""
    book = Book()
    book.note(judged(content_type=content_type))

    assert book.written[0].content_type == "other"


def test_every_known_type_can_be_written() -> None:
    """The journal takes each known type as the word it is."""
    book = Book()
    for content_type in sorted(KNOWN_CONTENT_TYPES):
        book.note(judged(content_type=content_type))
    found = [row["attrs"]["content_type"] for row in read_rows(encode_lines(book.written, 0))]

    assert found == sorted(KNOWN_CONTENT_TYPES)


@pytest.mark.parametrize("verdict", ["duplicate", "rate_limited"])
def test_flood_of_packets_is_one_row_a_second(verdict: str) -> None:
    """Known and refused packets of one author and verdict are a number, and only what they share is told."""
    book = Book()
    for number in range(10_000):
        book.note(judged(verdict, packet_id=number.to_bytes(32, "big"), detail="publish"))
    due, early = book.recorder.deadline(), list(book.after(SECOND + 4))
    (event,) = book.after(SECOND + 5)

    assert (due, early) == (SECOND + 5, [])
    assert (event.verdict, event.detail, event.times, event.size_bytes) == (verdict, "publish", 10_000, 4_000_000)
    assert event.author_ref == keyed_reference(KEY, ALICE)
    assert set(event[9:]) == {None}
    assert book.recorder.deadline() is None


def test_single_refusal_is_told_whole() -> None:
    """A packet that was alone in its second keeps what is known of it."""
    book = Book()
    book.note(judged("invalid_timestamp", detail="too_old"))
    (event,) = book.after(2 * SECOND)

    assert (event.packet_ref, event.content_type, event.latency_us, event.times) == (
        keyed_reference(KEY, PACKET_ID),
        "POST",
        70,
        1,
    )
    assert event.store_seq is None


def test_forged_authors_do_not_multiply_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit the author is left out, whoever claims to have written."""
    monkeypatch.setattr(module, "PACKET_KEYS_MAX", 3)
    book = Book()
    for number in range(1_000):
        book.note(judged("invalid_signature", author=b"did:strata:%d" % number, detail="bad_signature"))
    written = book.after(2 * SECOND)

    assert [(event.times, event.author_ref is None) for event in written] == [(1, False)] * 3 + [(997, True)]
    assert written[-1].packet_ref is None
    assert book.recorder.totals()["packets"] == {("strata", "invalid_signature"): 1_000}


def test_single_packet_over_the_limit_has_no_author(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was gathered without its author stays without, also when it is alone."""
    monkeypatch.setattr(module, "PACKET_KEYS_MAX", 1)
    book = Book()
    book.note(judged("duplicate"))
    book.note(judged("duplicate", author=b"did:strata:bob"))

    assert [event.author_ref is None for event in book.after(2 * SECOND)] == [False, True]


def test_verdicts_are_counted_without_a_journal() -> None:
    """Metrics do not depend on whether anything is written, and nothing is gathered for nobody."""
    book = Book(journal=False)
    for verdict in ("accepted", "accepted", "duplicate", "key_expired"):
        book.note(judged(verdict))
    book.note(facts.SubscriptionOpened("strata", 1, False))
    book.note(facts.SubscriptionEnded("strata", 1, 1, 1, 0, 5))

    assert book.recorder.totals()["packets"] == {
        ("strata", "accepted"): 2,
        ("strata", "duplicate"): 1,
        ("strata", "key_expired"): 1,
    }
    assert book.recorder.deadline() is None


def test_packet_references_are_not_remembered() -> None:
    """Packets are endless; the cache of references holds only who comes again."""
    book = Book()
    for number in range(50):
        book.note(judged(packet_id=number.to_bytes(32, "big")))

    assert list(book.recorder._references._cache) == [ALICE]
    assert len({event.packet_ref for event in book.written}) == 50
    assert REFERENCES_CACHED_MAX > 50


def test_stored_packet_goes_to_the_archive_only() -> None:
    """It is archived as it was signed, with the node's time, and leaves no event."""
    book = Book()
    book.note(
        facts.PacketStored("strata", PACKET_ID, 7, "did:strata:a", "MESSAGE", 6, None, b"k" * 32, b"{signed}"), 40
    )

    assert book.archived == [
        ArchivedPacket(WALL + 40, "strata", PACKET_ID, 7, "did:strata:a", "MESSAGE", 6, None, b"k" * 32, b"{signed}")
    ]
    assert book.written == []


def test_node_without_an_archive_keeps_no_packet() -> None:
    """Without an archive a stored packet is no concern of the recorder."""
    written: list = []
    recorder = Recorder(written.append, random.Random(1))
    recorder.note(facts.PacketStored("strata", PACKET_ID, 7, "d", "POST", 6, None, b"k" * 32, b"{}"), Instant(1))

    assert written == []


def test_subscription_of_a_known_peer_is_told() -> None:
    """Beginning and end share the connection's reference and say how much was read, not what."""
    book = Book()
    book.recorder.connected(Connection("strata", 4, Traffic(), Instant(0)))
    book.note(facts.PeerIdentified("strata", 4, b"p" * 32))
    book.note(facts.SubscriptionOpened("strata", 4, True), 6)
    book.note(facts.SubscriptionEnded("strata", 4, 100, 20, 2, 900), 7)
    came, opened, ended = book.written

    assert opened == events.SubscriptionOpened(WALL + 6, "strata", came.conn_ref, 1, 1)
    assert ended == events.SubscriptionEnded(WALL + 7, "strata", came.conn_ref, 100, 20, 2, 900, 1)


def test_subscriptions_of_unknown_peers_are_summed_up_by_the_minute() -> None:
    """Connections that nobody knows leave sums, in one row for beginnings and one for ends."""
    book = Book()
    for peer in range(1_000):
        book.note(facts.SubscriptionOpened("strata", peer, peer % 4 == 0))
        book.note(facts.SubscriptionEnded("strata", peer, 2, 3, 1, 10))
    due, early = book.recorder.deadline(), list(book.after(60 * SECOND + 4))

    assert (due, early) == (60 * SECOND + 5, [])
    assert book.after(due) == [
        events.SubscriptionOpened(WALL + due, "strata", None, 250, 1_000),
        events.SubscriptionEnded(WALL + due, "strata", None, 2_000, 3_000, 1_000, 10_000, 1_000),
    ]


def test_end_of_the_node_writes_what_was_gathered() -> None:
    """Nothing that was counted is lost in a good end."""
    book = Book()
    book.note(judged("duplicate"))
    book.note(facts.SubscriptionOpened("strata", 1, False))
    book.recorder.node_stopped(Instant(6))

    assert [type(event).__name__ for event in book.written] == ["PacketJudged", "SubscriptionOpened", "NodeStopped"]


def test_journal_lines_hold_no_identity() -> None:
    """Whatever facts say of who and which, the lines hold neither DIDs nor ids, raw or in hexadecimal."""
    book, rng = Book(), random.Random(3)
    secrets = [ALICE, b"did:strata:relay", b"type-of-a-stranger"]
    for number in range(200):
        packet_id = rng.randbytes(32)
        secrets.append(packet_id)
        author = rng.choice([ALICE, b"did:strata:%d-author" % number])
        secrets.append(author)
        verdict = rng.choice(["accepted", "duplicate", "invalid_schema"])
        content_type = rng.choice(["POST", "type-of-a-stranger"])
        relay = rng.choice([b"", b"did:strata:relay"])
        book.note(judged(verdict, packet_id=packet_id, author=author, relay=relay, content_type=content_type))
    lines = encode_lines(book.after(2 * SECOND), 0)

    assert len(lines) > 1_000
    assert not [secret for secret in secrets if secret in lines or secret.hex().encode() in lines]
