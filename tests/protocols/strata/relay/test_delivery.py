"""Laws of protocols.strata.delivery; rows 8, 9, 12 and 27 of the requirements try filters, order and modes."""

from tests.protocols.strata.build import ALICE, BOB, NOW, did, key, packet, post
from tests.protocols.strata.drive import Drive
from waystation.core.effects import Send
from waystation.core.instant import Instant
from waystation.protocols.strata.relay.delivery import PAGES_PER_TURN_MAX
from waystation.protocols.strata.relay.subscription import PAGE_ROWS_MAX


def count_of(drive, peer):
    """Return how many EVENTs a peer got per subscription."""
    events = [got["subscription_id"] for got in drive.got[peer] if got["type"] == "EVENT"]
    return {name: events.count(name) for name in sorted(set(events))}


def test_each_subscription_gets_its_own_event():
    """A packet wanted by several subscriptions of a connection is sent once for each, under its id."""
    drive = Drive()
    peer = drive.connect()
    drive.subscribe(peer, "all")
    drive.subscribe(peer, "author", authors=[did(ALICE), did(BOB)])
    drive.subscribe(peer, "type", types=["POST", "PROFILE"])
    drive.subscribe(peer, "both", authors=[did(ALICE)], types=["POST"])
    drive.subscribe(peer, "other", authors=[did(ALICE)], types=["PROFILE"])
    drive.subscribe(peer, "later", since=NOW + 1)
    drive.fill(1)

    assert count_of(drive, peer) == {"all": 1, "author": 1, "both": 1, "type": 1}


def test_packets_are_found_by_id():
    """History has those that are stored, page by page, and what comes later is live (STRATA-IDS)."""
    drive = Drive(rate_limits=False)
    posts, later = drive.fill(5), packet({"type": "POST", "text": "later"})
    peer = drive.connect()
    wanted = [each.body["packet_id"] for each in (posts[3], posts[1], later)]
    first = drive.subscribe(peer, ids=wanted, limit=1)
    assert [each["type"] for each in first] == ["EVENT", "EOSE"]
    rest = drive.subscribe(peer, ids=wanted, cursor=first[-1]["cursor"])
    drive.publish(drive.connect(), later)
    drive.publish(drive.connect(), post("other"))

    assert len(rest) == 2
    assert [event["packet"]["packet_id"] for event in drive.events(peer)] == [wanted[1], wanted[0], wanted[2]]
    foreign = drive.subscribe(peer, ids=wanted[:1], cursor=first[-1]["cursor"])
    assert foreign[-1]["code"] == "invalid_cursor"


def test_misspelt_filter_is_refused_where_it_is_asked_for():
    """The subscription is not made, and the answer names it."""
    drive = Drive()
    peer = drive.connect()
    message = {"type": "SUBSCRIBE", "subscription_id": "s", "strict": True, "filters": {"id": ["x"]}}
    (answer,) = drive.send(peer, message)

    assert (answer["code"], answer["detail"], answer["subscription_id"]) == ("invalid_schema", "unknown_filter", "s")
    assert drive.relay.sizes()["subscriptions"] == 0


def test_replacing_a_subscription_leaves_nothing_of_the_old_filter():
    """After a SUBSCRIBE of the same id only the new filter holds."""
    drive = Drive()
    peer = drive.connect()
    drive.subscribe(peer, authors=[did(ALICE)], limit=0)
    drive.subscribe(peer, types=["PROFILE"], limit=0)
    drive.subscribe(peer, authors=[did(BOB)], limit=0)
    drive.publish(drive.connect(), post())
    drive.publish(drive.connect(), packet({"type": "PROFILE"}))
    drive.publish(drive.connect(), post("bob", BOB))

    assert [event["packet"]["author_id"] for event in drive.events(peer)] == [did(BOB)]
    assert drive.relay.sizes()["subscriptions"] == 1


def test_indexes_are_empty_when_everybody_has_gone():
    """Subscriptions leave nothing behind, however they end."""
    drive = Drive(rate_limits=False)
    peers = [drive.connect() for _ in range(3)]
    for peer in peers:
        for number in range(10):
            drive.subscribe(peer, f"{number}", authors=[did(key(number))])
            drive.subscribe(peer, f"t{number}", types=[f"T{number}"])
        drive.subscribe(peer, "all")
    for number in range(10):
        drive.send(peers[0], {"type": "UNSUBSCRIBE", "subscription_id": f"{number}"})
    for peer in peers:
        drive.drop(peer)

    delivery = drive.relay._delivery
    assert not delivery._by_author
    assert not delivery._by_type
    assert not delivery._of_all
    assert not delivery._readers
    assert delivery.count == 0


def test_one_turn_reads_a_bounded_number_of_pages():
    """However many readers there are, the loop gets its turn after a few pages, and every reader one of them."""
    drive = Drive(rate_limits=False)
    drive.fill(20)
    peers = [drive.connect() for _ in range(2 * PAGES_PER_TURN_MAX)]
    for peer in peers:
        drive.relay.receive(peer, b'{"type":"SUBSCRIBE","subscription_id":"s"}', drive.now)
    turns = []
    while drive.relay._delivery.has_readers:
        assert drive.relay.deadline() == Instant(0)
        turns.append({effect.peer for effect in drive.relay.take() if isinstance(effect, Send)})

    assert turns == [set(peers[:PAGES_PER_TURN_MAX]), set(peers[PAGES_PER_TURN_MAX:])]


def test_a_reader_has_one_page_on_its_way():
    """The next page waits until the one before has left, whatever the limit."""
    drive = Drive(rate_limits=False)
    drive.fill(PAGE_ROWS_MAX + 50)
    peer = drive.connect()
    drive.stall(peer)
    drive.subscribe(peer, limit=500)
    first = len(drive.events(peer))
    drive.drain(peer)

    assert (first, len(drive.events(peer))) == (PAGE_ROWS_MAX, PAGE_ROWS_MAX + 50)


def test_a_rare_filter_gets_on(monkeypatch):
    """Pages that find nothing send nothing and lead on all the same, to the end of history."""
    monkeypatch.setattr("waystation.store.memory_packets.ROWS_LOOKED_AT_MAX", 5)
    drive = Drive(rate_limits=False)
    drive.fill(30)
    drive.publish(drive.connect(), post("rare", timestamp=NOW - 50))
    drive.fill(30, BOB)
    peer = drive.connect()
    got = drive.subscribe(peer, until=NOW - 40, limit=5)

    assert [each["type"] for each in got] == ["EVENT", "EOSE"]
    assert got[-1]["has_more"] is False


def test_nothing_reaches_a_connection_after_it_ended():
    """Neither history nor a live packet is sent to who has gone."""
    drive = Drive()
    drive.fill(3)
    peer = drive.connect()
    drive.stall(peer)
    drive.subscribe(peer, limit=500)
    drive.drop(peer)
    before = len(drive.got[peer])
    drive.fill(1, BOB)

    assert len(drive.got[peer]) == before


def test_what_expires_on_its_way_to_the_disk_is_not_delivered():
    """Expiry is looked at again when a packet is given out live."""
    drive = Drive()
    publisher, reader = drive.connect(), drive.connect()
    drive.subscribe(reader)
    drive.hold_commits = True
    for text, life in (("brief", 1), ("long", 2)):
        drive.send(publisher, {"type": "PUBLISH", "packet": post(text, expires_at=NOW + life).body})
    drive.wall_s += 2
    drive.commit_held()

    assert [event["packet"]["content"]["text"] for event in drive.events(reader)] == ["long"]


def test_blocked_packets_do_not_use_up_the_limit():
    """A reader without the end-of-history signal takes fewer packets than its limit for the end."""
    drive = Drive(rate_limits=False)
    posts = drive.fill(6, ALICE), drive.fill(3, BOB)
    drive = drive.restarted(rate_limits=False, blocked_authors=[did(ALICE)])
    peer = drive.connect()

    got = drive.subscribe(peer, limit=2)

    assert [event["packet"]["packet_id"] for event in got[:-1]] == [
        f"0x{each.packet_id.hex()}" for each in posts[1][:2]
    ]
    assert got[-1]["has_more"]
