"""Laws of protocols.bsp.speaking: what is said at one opportunity, in which order, and how much of it."""

import pytest

from tests.protocols.bsp.build import id_at, ids
from tests.protocols.bsp.build_device import KEPT, Bench, Flags, P, audit, only, told
from waystation.protocols.bsp.device.links import LinkTerms, Mode, stream_terms
from waystation.protocols.bsp.messages import Ack, Offer, Request

MEASURED = stream_terms("plain")
MODES = (Mode.INTERACTIVE, Mode.BATCH)


def kinds(records):
    """Return the names of records in their order."""
    return [kind for kind, _ in told(records)]


# Selections, both modes


@pytest.mark.parametrize("mode", MODES)
def test_acknowledgement_is_written_once(mode):
    """ACK: ack = 1, in both modes; writing it clears the flag."""
    bench = Bench(mode=mode)
    message = bench.message()
    bench.up()
    bench.hear(message)
    bench.commit()

    assert told(bench.say()) == only("Ack", bench.id_of(message))
    assert bench.flags(bench.id_of(message)) == Flags(hold=True)
    assert bench.say() == []


@pytest.mark.parametrize("mode", MODES)
def test_request_is_written_once(mode):
    """REQUEST: all of offered(p), in both modes; writing it empties the list."""
    bench = Bench(mode=mode)
    bench.up()
    bench.hear(Offer(ids(3)))

    assert told(bench.say()) == only("Request", *ids(3))
    assert not bench.offered(id_at(0))
    assert bench.say() == []


def test_interactive_offers_what_the_peer_may_lack():
    """OFFER: body there, shared, hold = 0, request = 0, next <= now; it counts as a copy."""
    bench = Bench()
    message_id = bench.added()
    bench.up()

    assert told(bench.say()) == only("Offer", message_id)
    assert bench.flags(message_id) == Flags(count=1, next_ms=1_000)
    assert bench.say() == []


def test_interactive_sends_only_what_was_requested():
    """MESSAGE in interactive mode: request = 1; a requested message is not offered as well."""
    bench = Bench()
    first, second = bench.added(b"1", 1), bench.added(b"2", 2)
    bench.up()
    bench.hear(Request((second,)))

    assert told(bench.say()) == [("Message", b"2"), ("Offer", (first,))]
    assert bench.flags(second) == Flags(count=1, next_ms=1_000)


def test_batch_sends_what_the_peer_may_lack_and_offers_nothing():
    """MESSAGE in batch mode: request = 1 or hold = 0, next <= now."""
    bench = Bench(mode=Mode.BATCH)
    bench.add(b"1", 1)
    held = bench.add(b"2", 2)
    bench.commit()
    bench.hear(Ack((held,)))
    third = bench.added(b"3", 3)
    bench.up()
    bench.hear(Request((third,)))

    assert told(bench.say()) == [("Message", b"1"), ("Message", b"3")]
    assert bench.say() == []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", ["held", "deleted", "unshared", "too early"])
def test_nothing_is_said_about_what_needs_nothing(mode, how):
    """Neither mode offers or sends a message that is held, deleted, not shared, or before its send time."""
    bench = Bench(mode=mode)
    message_id = bench.added(share=how != "unshared")
    bench.up()
    if how == "held":
        bench.hear(Ack((message_id,)))
    elif how == "deleted":
        bench.device.delete(bench.group_id, message_id)
    elif how == "too early":
        bench.say()
        bench.pass_ms(999)

    assert bench.say() == []
    assert not bench.device.is_due(P, bench.now)


def test_records_come_in_the_order_that_loses_least():
    """ACK, REQUEST, MESSAGE, OFFER."""
    bench = Bench()
    requested, offered = bench.added(b"r"), bench.added(b"o")
    bench.up()
    bench.hear(bench.message(b"theirs"), Offer(ids(1)), Request((requested,)))
    bench.commit()

    assert kinds(bench.say()) == ["Ack", "Request", "Message", "Offer"]
    assert bench.flags(offered).count == 1


@pytest.mark.parametrize("mode", MODES)
def test_oldest_message_goes_first(mode):
    """By timestamp, and by identifier among equals, whatever the order in which they came."""
    bench = Bench(mode=mode)
    stamps = [5, 3, 9, 3, 1, 7]
    names = {bench.add(bytes([n]), stamp): stamp for n, stamp in enumerate(stamps)}
    bench.commit()
    bench.up()

    said = bench.say()

    expected = sorted(names, key=lambda name: (names[name], name))
    found = list(said[0].ids) if mode is Mode.INTERACTIVE else [bench.id_of(record) for record in said]
    assert found == expected


def test_oldest_goes_first_also_when_it_waited():
    """A copy whose time has come again goes before a younger message that is new."""
    bench = Bench(mode=Mode.BATCH)
    bench.added(b"old", 1)
    bench.up()
    bench.say()
    bench.pass_ms(1_000)
    bench.added(b"new", 2)

    assert told(bench.say()) == [("Message", b"old"), ("Message", b"new")]


def test_nothing_is_said_without_a_way():
    """To a peer that no way leads to, or that is unknown, there is nothing to say."""
    bench = Bench()
    bench.added()

    assert bench.say() == []
    assert bench.device.send_due(b"x" * 32, bench.now) == []


def test_mode_of_the_way_holds_over_that_of_the_device():
    """A file can only be batch."""
    bench = Bench(mode=Mode.INTERACTIVE)
    bench.added(b"body")
    bench.up(terms=KEPT)

    assert told(bench.say()) == [("Message", b"body")]


# Lists


@pytest.mark.parametrize(("count", "lengths"), [(1, [1]), (1_536, [1_536]), (1_537, [1_536, 1])])
def test_lists_are_split_at_1536_identifiers(count, lengths):
    """No record that is written lists more (BSP-D3)."""
    bench = Bench()
    for number in range(count):
        bench.add(number.to_bytes(4, "big"), 1)
    bench.commit()
    bench.up()

    assert [len(record.ids) for record in bench.say()] == lengths


@pytest.mark.parametrize(("count", "lengths"), [(1_536, [1_536]), (1_537, [1_536, 1])])
def test_acknowledgements_are_split_at_1536_identifiers(count, lengths):
    """As above."""
    bench = Bench()
    bench.hear(*(bench.message(number.to_bytes(4, "big")) for number in range(count)))
    bench.commit()
    bench.up()

    assert [len(record.ids) for record in bench.say()] == lengths


# Budget


def acks_of(bench, count):
    bench.hear(*(bench.message(bytes([n])) for n in range(count)))
    bench.commit()


@pytest.mark.parametrize(
    ("room", "count"), [(0, 0), (35, 0), (36, 1), (37, 1), (67, 1), (68, 2), (69, 2), (100, 3), (200, 3)]
)
@pytest.mark.parametrize("kind", ["Ack", "Request", "Offer"])
def test_lists_fit_the_budget(kind, room, count):
    """As many identifiers as fit with their header, at each border and one byte to either side."""
    bench = Bench()
    bench.up()
    if kind == "Ack":
        acks_of(bench, 3)
    elif kind == "Request":
        bench.hear(Offer(ids(3)))
    else:
        for n in range(3):
            bench.added(bytes([n]))

    said = bench.device.send_due(P, bench.now, room)

    assert sum(map(len, said)) == (4 + 32 * count if count else 0)
    assert bench.device.is_due(P, bench.now) == (count < 3)
    audit(bench.device)
    rest = b"".join(bench.device.send_due(P, bench.now))
    assert len(rest) == (4 + 32 * (3 - count) if count < 3 else 0)


@pytest.mark.parametrize(("room", "count"), [(4 + 1_536 * 32 + 35, 1_536), (4 + 1_536 * 32 + 36, 1_537)])
def test_second_header_fits_the_budget_too(room, count):
    """Where a list is split its second header takes 4 bytes as well."""
    bench = Bench()
    for number in range(1_540):
        bench.add(number.to_bytes(4, "big"))
    bench.commit()
    bench.up()

    said = bench.device.send_due(P, bench.now, room)

    assert sum(map(len, said)) <= room
    assert sum((len(record) - 4) // 32 for record in said) == count


@pytest.mark.parametrize(("room", "count"), [(1_043, 0), (1_044, 1), (1_045, 1), (2_087, 1), (2_088, 2), (2_089, 2)])
def test_messages_fit_the_budget(room, count):
    """A MESSAGE of a body of 1,000 bytes takes 1,044; what does not fit stays due, the oldest first."""
    bench = Bench(mode=Mode.BATCH)
    for number in range(3):
        bench.added(bytes([number]) * 1_000, number)
    bench.up()

    said = told(bench.say(bytes_max=room))

    assert said == [("Message", bytes([n]) * 1_000) for n in range(count)]
    assert told(bench.say()) == [("Message", bytes([n]) * 1_000) for n in range(count, 3)]
    audit(bench.device)


def test_younger_message_does_not_overtake_one_that_does_not_fit():
    """The oldest goes first also where a younger one would still fit."""
    bench = Bench(mode=Mode.BATCH)
    bench.added(bytes(1_000), 1)
    bench.added(b"", 2)
    bench.up()

    assert bench.say(bytes_max=500) == []
    assert bench.device.is_due(P, bench.now)


def test_lists_leave_the_rest_of_the_budget_to_messages():
    """Acknowledgements and requests are counted before messages are chosen."""
    bench = Bench(mode=Mode.BATCH)
    bench.added(bytes(100))
    bench.up()
    acks_of(bench, 2)
    bench.hear(Offer(ids(2)))
    whole = 2 * (4 + 64) + 144

    assert kinds(bench.say(bytes_max=whole - 1)) == ["Ack", "Request"]
    assert kinds(bench.say(bytes_max=144)) == ["Message"]


def test_offers_and_messages_share_one_budget():
    """What an opportunity says never exceeds its budget, whatever is due."""
    bench = Bench()
    for number in range(40):
        bench.add(bytes([number]) * (number * 20), number)
    bench.commit()
    bench.up()
    bench.hear(Request(tuple(vertex.message_id for vertex in bench.device.messages(bench.group_id)[::2])))
    acks_of(bench, 5)
    bench.hear(Offer(ids(30)))

    for room in range(860, 4_000, 97):
        assert sum(map(len, bench.device.send_due(P, bench.now, room))) <= room
    assert not bench.device.is_due(P, bench.now)
    audit(bench.device)


# Mode auto (BSP-D10)


def alone(**how):
    """Return a bench in mode auto whose group has P only."""
    bench = Bench(mode=Mode.AUTO, peers=(P,), **how)
    bench.up(terms=MEASURED)
    return bench


@pytest.mark.parametrize(("size", "kind"), [(63, "Message"), (64, "Offer"), (32_768, "Offer")])
def test_auto_asks_a_peer_that_has_answered_nothing_yet(size, kind):
    """Before the first answer a body is offered, unless an offer is hardly shorter (BSP-ESTIMATE)."""
    bench = alone()
    bench.added(bytes(size))

    assert kinds(bench.say()) == [kind]


@pytest.mark.parametrize("size", [0, 63, 64, 1_000])
def test_auto_offers_to_a_peer_with_other_sources(size):
    """Before the first answer: offered when the group has another audience, however small."""
    bench = Bench(mode=Mode.AUTO)
    bench.added(bytes(size))
    bench.up()

    assert kinds(bench.say()) == ["Offer"]


def learnt(held, lacked, **how):
    """Return a bench whose peer has answered offers: so many by ACK, then so many by REQUEST."""
    bench = Bench(mode=Mode.AUTO, **how)
    bench.up()
    for number in range(held + lacked):
        message_id = bench.added(b"l" * 1_000 + bytes([number]))
        assert ("Offer", (message_id,)) in told(bench.say())
        answer = Ack((message_id,)) if number < held else Request((message_id,))
        bench.hear(answer)
        bench.say()
        bench.hear(Ack((message_id,)))
    bench.commit()
    return bench


def test_auto_sends_once_the_peer_lacks_everything():
    """After one REQUEST d is 0: bodies are sent at once."""
    bench = learnt(0, 1)
    bench.added(bytes(32_768))

    assert kinds(bench.say()) == ["Message"]


@pytest.mark.parametrize(("size", "kind"), [(0, "Offer"), (1_000, "Offer")])
def test_auto_offers_once_the_peer_holds_everything(size, kind):
    """After one ACK of an offer d is 1: 64 < 76 + b always."""
    bench = learnt(1, 0)
    bench.added(bytes(size), 7)

    assert kinds(bench.say()) == [kind]


@pytest.mark.parametrize(
    ("size", "kind"), [(0, "Message"), (1, "Message"), (19, "Message"), (20, "Offer"), (1_000, "Offer")]
)
def test_auto_weighs_size_against_the_estimate(size, kind):
    """Offered where d > 64 / (76 + b): after one ACK and three REQUESTs d is (7/8)^3 = 0.67, so from 20 bytes on."""
    bench = learnt(1, 0)
    state = bench.device._repository.peers[P]
    for _ in range(3):
        state.learn(held=False)
    bench.added(bytes(size), 7)

    assert (0.875**3 * (76 + size) > 64) == (kind == "Offer")
    assert kinds(bench.say()) == [kind]


@pytest.mark.parametrize(("size", "kind"), [(63, "Message"), (64, "Offer")])
def test_auto_sends_small_bodies_to_a_peer_with_no_other_source(size, kind):
    """A body below 64 bytes is not worth an offer there, whatever the estimate."""
    bench = alone()
    bench.device._repository.peers[P].learn(held=True)
    bench.added(bytes(size))

    assert kinds(bench.say()) == [kind]


def test_auto_sends_after_two_offers_without_an_answer():
    """The third copy is the body."""
    bench = Bench(mode=Mode.AUTO)
    bench.added(bytes(1_000))
    bench.up()
    said = []

    for _ in range(16):
        said += kinds(bench.say())
        bench.pass_ms(1_000)

    assert said == ["Offer", "Offer", "Message", "Message", "Message"]


@pytest.mark.parametrize(("ms", "kind"), [(2_000, "Offer"), (2_001, "Message")])
def test_auto_sends_over_slow_ways(ms, kind):
    """A measured round trip above 2 s costs more than the bytes that an offer saves."""
    bench = Bench(mode=Mode.AUTO)
    link = bench.up(terms=LinkTerms("slow", 60_000, measures=True))
    first = bench.added(bytes(1_000))
    bench.say()
    bench.pass_ms(ms)
    bench.hear(Ack((first,)), link=link)

    bench.added(bytes(2_000))

    assert kinds(bench.say()) == [kind]


def test_auto_learns_from_messages_that_the_peer_brings():
    """A message that comes from a peer to which it was not handed over yet counts as held (BSP-ESTIMATE)."""
    bench = alone()
    message = bench.message(bytes(1_000))
    bench.added(message.body)
    bench.hear(message)

    bench.added(bytes(2_000))
    bench.commit()

    assert kinds(bench.say()) == ["Ack", "Offer"]


def test_requested_message_is_sent_in_every_mode():
    """A request is answered by the body, also where auto would offer."""
    bench = Bench(mode=Mode.AUTO)
    message_id = bench.added(bytes(1_000))
    bench.up()
    bench.hear(Request((message_id,)))

    assert kinds(bench.say()) == ["Message"]
