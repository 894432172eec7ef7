"""Laws of protocols.bsp.flags about ways to a peer: which speaks, what is due when one goes, what a restart keeps."""

import pytest

from tests.protocols.bsp.build_device import KEPT, LIVE, SLOW, START, Bench, Flags, P, R, audit, kept_rows, told
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.protocols.bsp.device.links import LinkTerms, Mode, Visibility, stream_terms
from waystation.protocols.bsp.messages import Ack, Request

S = 1_000_000
KEY = PublicKey(bytes(32))


# Ways


def test_way_that_died_makes_its_copies_due_at_once():
    """What went out on a connection that is gone is due on the next (BSP-D11), and its count stays."""
    bench = Bench()
    message_id = bench.added()
    link = bench.up()
    bench.say()
    bench.device.link_down(link, bench.now)
    bench.device.take_dirty()

    bench.up()

    assert bench.flags(message_id) == Flags(count=1)
    assert bench.device.take_dirty() == [P]
    assert told(bench.say()) == [("Offer", (message_id,))]
    assert bench.flags(message_id) == Flags(count=2, next_ms=2_000)


@pytest.mark.parametrize(("terms", "is_due"), [(LIVE, False), (SLOW, False), (LinkTerms("fast", 999), True)])
def test_faster_way_makes_copies_of_slower_ones_due(terms, is_due):
    """A smaller base than that of the last copy's way, which is still up, makes it due at once."""
    bench = Bench()
    message_id = bench.added()
    bench.up(terms=LIVE)
    bench.say()

    bench.up(terms=terms)

    assert bench.device.is_due(P, bench.now) == is_due
    assert bench.flags(message_id).count == 1


def test_copy_that_outlives_its_way_is_not_repeated_over_an_equal_one():
    """What lies in a file still arrives when the file's maker has gone."""
    bench = Bench()
    message_id = bench.added()
    link = bench.up(terms=KEPT)
    bench.say()
    bench.device.link_down(link, bench.now)
    bench.up(terms=KEPT)

    assert bench.say() == []
    bench.up(terms=LIVE)

    assert told(bench.say()) == [("Offer", (message_id,))]


def test_newest_way_speaks_and_the_older_after_it():
    """The newest is spoken over; when it goes, what it took is due over the one before."""
    bench = Bench(mode=Mode.INTERACTIVE)
    bench.added(b"body")
    older = bench.up(terms=KEPT)
    newer = bench.up(terms=LIVE)

    offered = told(bench.say())
    assert bench.device.link_of(P) == newer
    bench.device.link_down(newer, bench.now)

    assert bench.device.link_of(P) == older
    assert [kind for kind, _ in offered] == ["Offer"]
    assert P in bench.device.take_dirty()
    assert told(bench.say()) == [("Message", b"body")]
    bench.device.link_down(older, bench.now)
    bench.device.link_down(older, bench.now)
    assert bench.device.link_of(P) is None


@pytest.mark.parametrize("terms", [LIVE, KEPT])
def test_relay_that_comes_later_does_not_silence_a_connection(terms):
    """A stream is spoken over as long as it stands, whatever slower way comes behind it (BSP-NEWEST)."""
    bench = Bench()
    stream = bench.up(terms=stream_terms("tls"))
    bench.device.take_dirty()
    relay = bench.up(terms=terms)
    assert bench.device.take_dirty() == []
    message_id = bench.added(b"body")

    offered = told(bench.say())
    bench.device.link_down(stream, bench.now)

    assert offered == [("Offer", (message_id,))]
    assert bench.device.link_of(P) == relay
    assert P in bench.device.take_dirty()
    assert bench.device.is_due(P, bench.now)
    audit(bench.device)


def test_newest_connection_of_several_speaks():
    """Among ways of one kind the newest counts."""
    bench = Bench()
    bench.up(terms=stream_terms("tls"))
    relay = bench.up(terms=KEPT)

    newest = bench.up(terms=stream_terms("wss"))

    assert bench.device.link_of(P) == newest
    bench.device.link_down(newest, bench.now)
    assert bench.device.link_of(P) not in {newest, relay}


def test_older_way_that_goes_changes_nothing_for_the_newest():
    """Its copies are due, the newest goes on speaking."""
    bench = Bench(mode=Mode.BATCH)
    bench.added(b"body")
    older = bench.up()
    bench.say()
    newer = bench.up()
    assert bench.say() == []

    bench.device.link_down(older, bench.now)

    assert bench.device.link_of(P) == newer
    assert told(bench.say()) == [("Message", b"body")]
    audit(bench.device)


def test_poll_answers_are_not_repeated_at_each_poll():
    """Drafts on the same terms without a way are one way: what the last took waits its interval."""
    bench = Bench(mode=Mode.BATCH)
    bench.added(b"body")
    device = bench.device
    first = device.draft(P, LIVE, bench.now)
    device.sent(first, bench.now)

    assert device.draft(P, LIVE, bench.now).records == []
    bench.pass_ms(1_000)
    assert len(device.draft(P, LIVE, bench.now).records) == 1


def test_alarm_rings_when_a_copy_is_due_again():
    """The peer is stirred exactly at its send time, also after an alarm for a copy that was answered."""
    bench = Bench()
    first, second = bench.added(b"1", 1), bench.added(b"2", 2)
    bench.up()
    bench.say()
    bench.pass_ms(300)
    bench.hear(Request((second,)), Ack((first,)))
    bench.say()
    bench.device.take_dirty()
    bench.commit()
    rings = []

    while (due := bench.device.deadline()) is not None and len(rings) < 3:
        bench.now = max(bench.now, due)
        bench.device.wake(bench.now)
        if P in bench.device.take_dirty() and bench.say():
            rings.append((bench.now - START) // 1_000)
        bench.commit()

    assert rings == [1_300, 3_300, 7_300]


# Copies that leave late, or by a slower way


def test_intervals_begin_when_a_write_has_left():
    """What waited in our own buffers for 30 s is not repeated before another base interval (BSP-LEFT)."""
    bench = Bench(mode=Mode.BATCH)
    names = [bench.added(bytes([n]), n) for n in range(3)]
    link = bench.up(terms=stream_terms("tls"))
    bench.say()
    bench.pass_ms(30_000)
    bench.hear(Ack((names[0],)))

    bench.device.drained(P, bench.now)

    assert [bench.flags(name) for name in names] == [Flags(hold=True, count=1), *[Flags(count=1, next_ms=1_000)] * 2]
    assert bench.say() == []
    audit(bench.device)
    bench.pass_ms(100)
    bench.hear(Ack((names[1],)), link=link)
    bench.pass_ms(900)
    assert told(bench.say()) == [("Message", b"\x02")]
    assert bench.flags(names[2]) == Flags(count=2, next_ms=2_000)
    audit(bench.device)


def test_second_copy_that_leaves_late_waits_its_longer_interval():
    """The interval that begins is that of the copy's number."""
    bench = Bench(mode=Mode.BATCH)
    message_id = bench.added()
    bench.up()
    bench.say()
    bench.pass_ms(1_000)
    bench.say()
    bench.pass_ms(1_900)

    bench.device.drained(P, bench.now)
    bench.device.drained(P, Instant(bench.now + 9 * S))

    assert bench.flags(message_id) == Flags(count=2, next_ms=2_000)


@pytest.mark.parametrize(("ms", "next_ms"), [(0, 1_000), (249, 751), (250, 1_000)])
def test_write_that_leaves_at_once_moves_nothing(ms, next_ms):
    """Below a quarter of the base interval the rows keep their places."""
    bench = Bench()
    message_id = bench.added()
    bench.up()
    bench.say()
    bench.pass_ms(ms)

    bench.device.drained(P, bench.now)
    bench.device.drained(R, bench.now)

    assert bench.flags(message_id) == Flags(count=1, next_ms=next_ms)


@pytest.mark.parametrize("how", ["requested", "deleted", "parted"])
def test_copy_that_is_over_when_it_has_left_stays_over(how):
    """What was answered, deleted or forgotten meanwhile is not moved."""
    bench = Bench()
    message_id = bench.added()
    bench.up()
    bench.say()
    bench.pass_ms(5_000)
    if how == "requested":
        bench.hear(Request((message_id,)))
    elif how == "deleted":
        bench.device.delete(bench.group_id, message_id)
    else:
        bench.device.part(P)
        bench.device.meet(P)
        bench.device.share(bench.group_id, P, bench.now)

    bench.device.drained(P, bench.now)

    assert bench.flags(message_id) == Flags(request=how == "requested")
    audit(bench.device)


def test_file_beside_a_faster_way_counts_as_no_copy():
    """A file that is made while a stream is up leaves the stream's times alone, and what it held is due there."""
    bench = Bench(mode=Mode.BATCH)
    first = bench.added(b"1", 1)
    bench.up()
    bench.say()
    second = bench.added(b"2", 2)
    bench.device.take_dirty()

    draft = bench.device.draft(P, KEPT, bench.now)
    assert bench.say() == []
    bench.device.sent(draft, bench.now)

    assert len(draft.records) == 1
    assert (bench.flags(first), bench.flags(second)) == (Flags(count=1, next_ms=1_000), Flags())
    assert bench.device.take_dirty() == [P]
    assert told(bench.say()) == [("Message", b"2")]
    audit(bench.device)


def test_stream_that_comes_up_while_a_file_is_written_gets_what_it_holds():
    """Rows that a draft held back when the stream looked are due there once it is sent or abandoned."""
    for end in ("sent", "abandon"):
        bench = Bench(mode=Mode.BATCH)
        bench.added(b"body")
        draft = bench.device.draft(P, KEPT, bench.now)
        bench.up()
        assert bench.say() == []
        bench.device.take_dirty()

        getattr(bench.device, end)(draft, bench.now)

        assert bench.device.take_dirty() == [P]
        assert told(bench.say()) == [("Message", b"body")]


def test_request_over_a_stream_does_not_wait_for_a_file():
    """Whether a request comes too early is judged by the faster of both ways."""
    bench = Bench(mode=Mode.INTERACTIVE)
    message_id = bench.added(b"body")
    bench.up(terms=KEPT)
    bench.say()
    bench.up(terms=LIVE)
    bench.pass_ms(999)
    bench.hear(Request((message_id,)))
    early = bench.flags(message_id)
    bench.pass_ms(1)

    bench.hear(Request((message_id,)))

    assert (early, bench.flags(message_id)) == (Flags(request=True, count=1), Flags(request=True))


# What survives in the store


def test_copies_of_lasting_ways_keep_count_and_time_over_a_restart():
    """A file's copies are not repeated because the device was restarted; a faster way makes them due all the same."""
    bench = Bench(mode=Mode.BATCH)
    message_id = bench.added(b"body")
    bench.up(terms=KEPT)
    bench.say()
    bench.pass_ms(8_000)
    bench.say()
    bench.commit()

    bench.pass_ms(1_000)
    bench.restart()

    assert bench.flags(message_id) == Flags(count=2, next_ms=15_000)
    bench.up(terms=KEPT)
    assert bench.device.deadline() == bench.now + 15 * S
    assert bench.say() == []
    bench.up(terms=LIVE)
    assert told(bench.say()) == [("Message", b"body")]
    audit(bench.device)


def test_copies_of_streams_are_due_after_a_restart():
    """A new connection makes everything due anyway."""
    bench = Bench()
    message_id = bench.added()
    bench.up()
    bench.say()
    bench.pass_ms(2_000)
    bench.commit()

    bench.restart()

    assert bench.flags(message_id) == Flags()


@pytest.mark.parametrize("restarts", [False, True])
def test_copy_on_another_way_leaves_what_is_kept_of_a_lasting_one(restarts):
    """What lies at a relay is not laid there again because a connection came and went (BSP-KEPT)."""
    bench = Bench(mode=Mode.BATCH)
    bench.added()
    kept = bench.up(terms=KEPT)
    first = bench.say()
    bench.commit()
    live = bench.up(terms=LIVE)
    second = bench.say()
    bench.pass_ms(2_000)
    bench.commit()
    if restarts:
        bench.restart()
        bench.up(terms=KEPT)
    else:
        bench.device.link_down(live, bench.now)
        assert bench.device.link_of(P) == kept
    again = bench.say()
    bench.up(terms=LIVE)

    assert len(first) == len(second) == 1
    assert again == []
    assert len(bench.say()) == 1


@pytest.mark.parametrize("restarts", [False, True])
def test_lasting_way_goes_on_at_its_own_interval_whatever_else_is_tried(restarts):
    """Three connections that come, take a copy and are lost bring the relay's next copy no nearer (BSP-KEPT)."""
    bench = Bench(mode=Mode.BATCH)
    bench.added()
    bench.up(terms=KEPT)
    bench.say()
    bench.commit()
    tried, lasting = [], []

    for _ in range(3):
        if restarts:
            bench.pass_ms(2_000)
            bench.commit()
            bench.restart()
            bench.up(terms=KEPT)
        link = bench.up(terms=LIVE)
        tried += bench.say()
        bench.device.link_down(link, bench.now)
        lasting += bench.say()
    bench.pass_ms(8_000)

    assert len(tried) == 3
    assert lasting == []
    assert told(bench.say()) == [("Message", b"hello")]
    audit(bench.device)


def test_group_that_is_shared_anew_starts_without_old_copies():
    """What a peer was told before its sharing ended does not hold back the next."""
    bench = Bench(mode=Mode.BATCH)
    message_id = bench.added()
    bench.up(terms=KEPT)
    bench.say()
    bench.commit()
    assert len(kept_rows(bench.store, "bsp_flags")) == 1

    bench.device.share(bench.group_id, P, bench.now, Visibility.INVISIBLE)
    bench.commit()
    rows = kept_rows(bench.store, "bsp_flags")
    bench.device.share(bench.group_id, P, bench.now)

    assert rows == {}
    assert bench.flags(message_id) == Flags()
