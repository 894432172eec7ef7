from tests.protocols.strata.build import ALICE, BOB, NOW, did, packet_of, post, signed, unsigned
from tests.protocols.strata.client.test_key_book import event as key_event
from waystation.protocols.strata.client.arrivals import Arrival, Arrivals
from waystation.protocols.strata.client.events import ClientEnd, PacketArrived, PacketDropped, Violation
from waystation.protocols.strata.client.key_book import KeyBook


def arrivals(book=None, **options):
    """Return what judges for one relay, its events, and why it asked to close."""
    told, closes = [], []
    chosen = {"deliver_unverified": False, "close_on_violation": True, "keys_of": (book or KeyBook()).keys_of} | options
    judge = Arrivals(told, closes.append, book=book, **chosen)
    judge.begin()
    return judge, told, closes


def of(packet, received_at=NOW):
    """Return a packet as it comes for no subscription in particular."""
    return Arrival.of({"packet": packet.body}, None, received_at, None, NOW)


def settle(judge, arrival, *, blames_keys=True):
    return judge.settle(arrival, judge.inspect(arrival), blames_keys=blames_keys)


def test_a_packet_is_new_once():
    """The second time nothing is reported."""
    judge, told, _ = arrivals()

    assert settle(judge, of(post()))
    assert not settle(judge, of(post()))
    assert [type(each) for each in told] == [PacketArrived]


def test_a_key_event_counts_for_the_packet_right_behind_it():
    """Nobody has to look at the events in between."""
    book = KeyBook()
    judge, told, _ = arrivals(book)
    late = packet_of(signed(unsigned(), BOB))
    before = judge.lacks_keys(judge.inspect(of(late)))
    settle(judge, of(key_event("ADD", public=BOB.public)))
    settle(judge, of(late))

    assert before
    assert [each.packet for each in told] == [key_event("ADD", public=BOB.public), late]


def test_a_key_that_did_not_count_delivers_nothing():
    """The signature is the author's, and the key was revoked by then."""
    book = KeyBook()
    book.learn(key_event("ADD", public=BOB.public), NOW)
    book.learn(key_event("REVOKE", revoked_at=NOW + 10), NOW + 10)
    judge, told, closes = arrivals(book)
    settle(judge, of(packet_of(signed(unsigned(), BOB)), NOW + 1_000))

    assert (told, closes) == ([], [])


def test_a_signature_is_blamed_only_when_the_keys_were_there():
    """Without them the packet is dropped, and that is all."""
    judge, told, closes = arrivals()
    forged = of(packet_of(signed(unsigned(author_id=did(ALICE)), BOB)))
    settle(judge, forged, blames_keys=False)
    dropped = told.pop()
    settle(judge, forged)

    assert dropped == PacketDropped(None, forged_id := packet_of(forged.body["packet"]).packet_id, "signature")
    assert [(type(each), each.packet_id) for each in told] == [(Violation, forged_id)]
    assert closes == [ClientEnd.SIGNATURE]


def test_nothing_lacks_keys_without_a_book():
    """Whoever brings the keys by itself has brought all of them."""
    judge, _, _ = arrivals(keys_of=lambda _did, _at: (BOB.public,))

    assert not judge.lacks_keys(judge.inspect(of(post())))
