"""STRATA-BAD: a relay that serves damaged packets, and what its readers still get."""

from tests.protocols.strata.build import NOW, post
from tests.protocols.strata.build_client import EVERYTHING, Talk, event
from waystation.protocols.strata.client.bad_packets import BAD_PACKETS_MAX, BadPackets
from waystation.protocols.strata.client.events import PacketArrived, Violation


def rotten(packet):
    """Return the body of a packet with one changed letter."""
    content = packet.body["content"]
    return packet.body | {"content": content | {"text": content["text"] + "x"}}


def read_all(talk, served):
    """Serve packets from the place that the client asks for until it stays; return its events and its connections."""
    told, connections = [], 0
    while True:
        connections += 1
        talk.take()
        [asked] = [each for each in talk.sent if each["type"] == "SUBSCRIBE"]
        cursor = asked["filters"].get("cursor")
        for number in range(int(cursor) + 1 if cursor else 0, len(served)):
            talk.hear(event(served[number], cursor=str(number)))
        told += talk.take()
        if not talk.closes:
            return told, connections
        talk.open()


def subscribed():
    """Return a client that has just sent its SUBSCRIBE."""
    talk = Talk()
    talk.client.subscribe("s", EVERYTHING, talk.now)
    return talk


def test_reader_gets_all_that_is_whole_of_a_damaged_history():
    """Of 60 packets with 10 damaged ones a reader gets 50; each bad one is told once, and the relay left once."""
    packets = [post(f"{number}") for number in range(60)]
    served = [rotten(each) if number % 6 == 2 else each.body for number, each in enumerate(packets)]
    told, connections = read_all(subscribed(), served)

    arrived = [each.packet.packet_id for each in told if isinstance(each, PacketArrived)]
    assert arrived == [each.packet_id for number, each in enumerate(packets) if number % 6 != 2]
    assert [type(each) for each in told].count(Violation) == 10
    assert connections == 2


def test_bad_packet_is_blamed_once_however_often_it_comes():
    """Without a cursor it comes again on every connection; that is one fault of the relay."""
    bad, good = post("bad"), post("good")
    talk = Talk().subscribe()
    told = talk.hear(event(rotten(bad))).take()
    talk.drop()
    for _ in range(3):
        talk.drop().open()
        told += talk.hear(event(rotten(bad))).take()
        assert talk.closes == []
    told += talk.hear(event(good)).take()

    assert [type(each) for each in told] == [Violation, PacketArrived]


def test_bad_packet_in_place_of_a_good_one_does_not_hide_it():
    """What is remembered are the bytes, not the identifier that they claim."""
    good = post()
    talk = Talk().subscribe()
    talk.hear(event(rotten(good)))
    talk.open()
    talk.take()

    assert [type(each) for each in talk.hear(event(good)).take()] == [PacketArrived]


def test_relay_that_goes_on_with_new_bad_packets_is_left_again():
    """Twenty on one connection are too many, also for a reader that stayed after the first."""
    talk = Talk().subscribe()
    talk.hear(event(rotten(post("first"))))
    talk.open()
    talk.take()
    for number in range(BAD_PACKETS_MAX - 1):
        talk.hear(event(rotten(post(str(number)))))
    talk.take()
    before = talk.closes
    talk.hear(event(rotten(post("last"))))
    talk.take()

    assert (before, [close.status for close in talk.closes]) == ([], [1008])


def test_each_kind_of_rubbish_is_told_apart():
    """Whatever stands for a packet is remembered as what it is."""
    bad = BadPackets()
    rubbish = [None, [], "x", 1, {"a": NOW}, {"a": "\ud800"}]

    assert [bad.is_new(each) for each in rubbish * 2] == [True] * 6 + [False] * 6
