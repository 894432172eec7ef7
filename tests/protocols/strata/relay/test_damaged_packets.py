"""NODE-ROT in the relay: damaged packets are sent to nobody, and a publisher that repeats one mends it."""

import sqlite3
from contextlib import closing

import pytest

from tests.protocols.strata.build import ALICE, ALICE_KEY_2, NOW, did, post, signed, unsigned
from tests.protocols.strata.drive import Drive
from tests.store.build_rot import PAGE_BYTES, flip_column
from waystation.core.dids import encode_key_multibase
from waystation.core.errors import StoreFault, StoreFaultKind
from waystation.core.packets import PacketQuery
from waystation.store.memory import MemoryStore
from waystation.store.sqlite import SqliteStore

COUNT, BAD = 60, range(3, 60, 6)


@pytest.fixture
def path(tmp_path):
    """Where the store is."""
    return tmp_path / "store.sqlite"


def publish(path, bodies):
    """Have a relay store packets, and end."""
    with closing(SqliteStore(path, ids_in_memory=True)) as store:
        drive = Drive(store, rate_limits=False)
        peer = drive.connect()
        assert [drive.publish(peer, body)["type"] for body in bodies] == ["OK"] * len(bodies)


def rot(path, seqs):
    """Damage the packets of these numbers on the disk."""
    for seq in seqs:
        flip_column(path, "packets", seq, "canonical", 8 * 200)


def ids_of(messages):
    """Return the packets of EVENTs."""
    return [message["packet"]["packet_id"] for message in messages if message["type"] == "EVENT"]


@pytest.mark.parametrize("limit", [7, 500])
def test_readers_get_all_that_is_whole(path, limit):
    """Of 60 packets with 10 damaged ones, every reader gets 50, page by page, and comes to the end."""
    bodies = [post(f"{number}").body for number in range(COUNT)]
    publish(path, bodies)
    rot(path, BAD)
    with closing(SqliteStore(path, ids_in_memory=True)) as store:
        drive = Drive(store, rate_limits=False)
        peer, cursor, found = drive.connect(), None, []
        while True:
            filters = {"cursor": cursor} if cursor else {}
            message = {
                "type": "SUBSCRIBE",
                "subscription_id": "s",
                "filters": filters,
                "limit": limit,
                "want_eose": True,
            }
            got = drive.send(peer, message)
            found += ids_of(got)
            end = next(each for each in got if each["type"] == "EOSE")
            if not end["has_more"]:
                break
            cursor = end["cursor"]
        counted = store.damage.totals()

    assert found == [body["packet_id"] for seq, body in enumerate(bodies, 1) if seq not in BAD]
    assert counted == {"packets": len(BAD)}


def test_packet_that_is_published_again_is_mended(path):
    """The answer is that of a new packet, readers get it, and after that it is a duplicate."""
    body = post("mend").body
    publish(path, [body])
    rot(path, [1])
    with closing(SqliteStore(path, ids_in_memory=True)) as store:
        drive = Drive(store, rate_limits=False)
        peer = drive.connect()
        gone = drive.rows()
        first, second = drive.publish(peer, body), drive.publish(peer, body)

        assert gone == []
        assert ("duplicate" in first, second["duplicate"]) == (False, True)
        assert [f"0x{row.packet_id.hex()}" for row in drive.rows()] == [body["packet_id"]]
        assert store.damage.counts() == {}


def key_event(**fields):
    """Return a KEY_EVENT about Alice's second key."""
    return signed(unsigned({"type": "KEY_EVENT", "key_id": f"{did(ALICE)}#two"} | fields), ALICE)


def test_lost_revocation_makes_no_key_good(path):
    """STRATA-LOST: nothing of its author is taken until the event is stored again, and then it holds as before."""
    public = encode_key_multibase(ALICE_KEY_2.public)
    add = key_event(event="ADD", public_key_multibase=public, valid_from=NOW - 100)
    revoke = key_event(event="REVOKE", revoked_at=NOW - 400)
    publish(path, [add, revoke])
    rot(path, [2])
    with closing(SqliteStore(path, ids_in_memory=True)) as store:
        drive = Drive(store, rate_limits=False)
        peer = drive.connect()
        by_revoked, by_first = signed(post("two").body, ALICE_KEY_2), post("one").body
        before = [drive.publish(peer, body)["detail"] for body in (by_revoked, by_first)]
        mended = drive.publish(peer, revoke)["type"]
        after = [drive.publish(peer, body) for body in (by_revoked, by_first)]

    assert before == ["unresolved_author"] * 2
    assert mended == "OK"
    assert (after[0]["code"], after[1]["type"]) == ("key_revoked", "OK")


def spoil_index(path, name):
    """Overwrite with zeros the head of the first page of an index."""
    with closing(sqlite3.connect(path)) as connection:
        [(page,)] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchall()
    data = path.read_bytes()
    at = (page - 1) * PAGE_BYTES
    path.write_bytes(data[:at] + bytes(8) + data[at + 8 :])


def test_history_that_cannot_be_read_keeps_nobody_from_what_is_new(path):
    """STRATA-UNREAD: the reader is told that there is more, stays subscribed, and gets new packets; so do others."""
    publish(path, [post(f"{number}").body for number in range(20)])
    with closing(SqliteStore(path, ids_in_memory=True)) as store:
        drive = Drive(store, rate_limits=False)
        spoil_index(path, "packets_by_type")
        reader, other = drive.connect("a"), drive.connect("b")
        [end] = drive.subscribe(reader, types=["POST"])
        history = ids_of(drive.subscribe(other))
        subscription = drive.relay._delivery._found(store.packets.page(PacketQuery()).rows[0])
        live = [entry.live for _, entry, _ in subscription]

    assert (end["type"], end["has_more"]) == ("EOSE", True)
    assert len(history) == 20
    assert live == [True, True]


class FailingReads:
    """The packets of a store whose disk fails so many reads of pages."""

    def __init__(self, packets, failures):
        self._packets = packets
        self.failures = failures

    def __getattr__(self, name):
        return getattr(self._packets, name)

    def entries(self, query):
        if self.failures:
            self.failures -= 1
            raise StoreFault("the disk failed", StoreFaultKind.IO)
        return self._packets.entries(query)


class FailingStore(MemoryStore):
    """A store in memory whose first reads of pages fail."""

    def __init__(self, failures):
        super().__init__()
        self._failing = FailingReads(super().packets, failures)

    @property
    def packets(self):
        return self._failing


def test_readers_rest_while_the_disk_fails_and_lose_no_place():
    """STRATA-UNREAD: three failed reads are three seconds, and then history is whole."""
    store = FailingStore(0)
    drive = Drive(store, rate_limits=False)
    bodies = [each.body for each in drive.fill(5)]
    peers = [drive.connect(name) for name in "ab"]
    store.packets.failures = 3
    early = [drive.subscribe(peer) for peer in peers]
    for _ in range(4):
        drive.pass_time(1)

    assert [ids_of(messages) for messages in early] == [[], []]
    for peer in peers:
        assert ids_of(drive.got[peer]) == [body["packet_id"] for body in bodies]
        assert [each["has_more"] for each in drive.got[peer] if each["type"] == "EOSE"] == [False]
