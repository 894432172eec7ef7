"""Laws of protocols.bsp.flags: flags, rows in the order of their send times, ways, and the estimate."""

import pytest

from tests.protocols.bsp.build_device import LIVE, Bench
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.protocols.bsp.device.flags import ACK, HOLD, Link, PeerState, Row, Sharing
from waystation.protocols.bsp.device.links import FILE_TERMS, LinkTerms, Visibility, stream_terms
from waystation.protocols.bsp.graph.order import Vertex

S = 1_000_000
KEY = PublicKey(bytes(32))


def peer_with(*times, drops_oldest=True):
    """Return a peer with rows of messages of these timestamps, in no heap yet."""
    peer = PeerState(KEY, 1, drops_oldest=drops_oldest)
    sharing = Sharing(b"g" * 32, peer, Visibility.SHARED, {KEY: None})
    rows = []
    for seq, timestamp in enumerate(times):
        vertex = Vertex(bytes([seq]) * 32, timestamp, 10, seq=seq)
        row = peer.rows[vertex.message_id] = Row(sharing, vertex)
        peer.unheld_count += 1
        rows.append(row)
    return peer, rows


# Backoff


@pytest.mark.parametrize(
    ("terms", "count", "seconds"),
    [
        *((LIVE, count, min(64, 2**count)) for count in range(12)),
        (LIVE, 10_000, 64),
        (LinkTerms("x", 500), 6, 32),
        (LinkTerms("x", 1_000, cap_ms=10_000), 3, 8),
        (LinkTerms("x", 1_000, cap_ms=10_000), 4, 10),
        *((FILE_TERMS, count, 86_400 * days) for count, days in ((0, 1), (1, 2), (2, 4), (3, 8), (4, 14), (99, 14))),
    ],
)
def test_interval_doubles_up_to_its_cap(terms, count, seconds):
    """After copy n + 1 it is base x 2^n, 64 times the base or the cap at most (BSP-D11)."""
    assert Link(1, terms).interval_us(count) == seconds * S


def test_copies_go_out_at_the_times_of_the_digest():
    """To a peer that is offline for 100 s: at 0, 1, 3, 7, 15, 31, 63 s, then every 64 s (bsp 10, row 10)."""
    bench = Bench()
    bench.added()
    bench.up()
    times = []

    for second in range(260):
        times += [second] * len(bench.say())
        bench.pass_ms(1_000)

    assert times == [0, 1, 3, 7, 15, 31, 63, 127, 191, 255]


@pytest.mark.parametrize(
    ("round_trips_us", "base_us"),
    [((), S), ((400_000,), S), ((500_000,), S), ((500_001,), 1_000_002), ((3 * S,), 6 * S), ((3 * S, 0), 5_250_000)],
)
def test_base_is_twice_the_measured_round_trip(round_trips_us, base_us):
    """On TCP: 1 s or twice the round trip, smoothed by eighths (BSP-C3)."""
    link = Link(1, stream_terms("tls"))
    for each in round_trips_us:
        link.measure(each)

    assert link.base_us == base_us


def test_way_that_cannot_be_measured_keeps_its_base():
    """A round trip through a file says nothing about files."""
    link = Link(1, FILE_TERMS)

    link.measure(5 * S)

    assert (link.round_trip_us, link.base_us) == (None, 86_400 * S)


# Flags


def test_flags_grow_with_the_messages_and_tell_what_is_new():
    """A place beyond the end is zero; setting says whether something changed, clearing nothing."""
    peer = PeerState(KEY, 1, drops_oldest=True)
    sharing = Sharing(b"g" * 32, peer, Visibility.SHARED, {})
    assert not sharing.has(300, HOLD)
    sharing.clear(300, ACK)

    assert sharing.set(300, HOLD)
    assert not sharing.set(300, HOLD)
    assert sharing.set(300, HOLD | ACK)
    sharing.clear(300, HOLD)

    assert len(sharing.flags) == 301
    assert (sharing.has(300, HOLD), sharing.has(300, ACK), sharing.has(299, HOLD)) == (False, True, False)


# Rows and heaps


def test_rows_come_out_by_the_age_of_their_messages():
    """Oldest timestamp first, the identifier among equals."""
    peer, rows = peer_with(5, 3, 9, 3)
    for row in rows:
        peer.put(row, Instant(0))

    found = [peer.next_due() for _ in range(5)]

    assert found == [rows[1], rows[3], rows[0], rows[2], None]


def test_row_that_waits_comes_when_its_time_has():
    """Not a microsecond earlier."""
    peer, (row,) = peer_with(1)
    row.count, row.next_at = 1, Instant(100)
    peer.put(row, Instant(0))

    assert (peer.next_at(), peer.has_due(Instant(99)), peer.has_due(Instant(100))) == (100, False, True)
    peer.promote_due(Instant(99))
    assert peer.next_due() is None
    peer.promote_due(Instant(100))
    assert peer.next_due() is row


def test_place_that_a_row_had_is_void():
    """Put twice, a row comes out once, at its last time."""
    peer, (row,) = peer_with(1)
    peer.put(row, Instant(0))
    row.count, row.next_at = 1, Instant(100)
    peer.put(row, Instant(0))
    row.next_at = Instant(50)
    peer.put(row, Instant(0))

    assert peer.next_at() == 50
    peer.promote_due(Instant(200))
    assert (peer.next_due(), peer.next_due()) == (row, None)


def test_dropped_row_comes_out_no_more():
    """Neither from the heaps nor from the table, and it is counted once."""
    peer, (first, second) = peer_with(1, 2)
    peer.put(first, Instant(0))
    second.count, second.next_at = 1, Instant(5)
    peer.put(second, Instant(0))

    for row in (first, second, first):
        peer.drop(row)

    assert (peer.unheld_count, peer.rows) == (0, {})
    assert not peer.has_due(Instant(9))
    assert (peer.next_at(), peer.next_due()) == (None, None)


def test_row_that_is_held_and_not_asked_for_is_forgotten_when_its_time_comes():
    """It has become needless; one that is asked for has not."""
    peer, (needless, asked) = peer_with(1, 2)
    for row in (needless, asked):
        row.sharing.set(row.vertex.seq, HOLD)
        peer.unheld_count -= 1
        row.count, row.next_at = 1, Instant(5)
        peer.put(row, Instant(0))
    asked.request = True

    peer.promote_due(Instant(5))

    assert list(peer.rows.values()) == [asked]
    assert (peer.next_due(), peer.unheld_count) == (asked, 0)


def test_void_places_are_forgotten():
    """However often rows change their place, there are no more than twice as many places and 1,024."""
    peer, rows = peer_with(*range(10))
    for turn in range(5_000):
        row = rows[turn % 10]
        row.count, row.next_at = turn % 3, Instant(turn)
        peer.put(row, Instant(100))

        assert len(peer._due) + len(peer._waiting) <= 2 * 10 + 1_024

    peer.promote_due(Instant(10_000))
    assert [peer.next_due() for _ in range(11)] == [*rows, None]


def test_rows_that_stand_outlive_the_clearing_of_void_places():
    """Those that are due, and those that wait, come out when their time has come."""
    peer, rows = peer_with(*range(5))
    restless, due, waiting = rows[0], rows[1:3], rows[3:]
    for row in waiting:
        row.count, row.next_at = 1, Instant(50)
    for row in rows:
        peer.put(row, Instant(0))
    for _ in range(2_000):
        peer.put(restless, Instant(0))

    peer.promote_due(Instant(50))

    assert [peer.next_due() for _ in range(6)] == [restless, *due, *waiting, None]


def test_copy_counts_and_tells_its_way():
    """Offers and bodies both count; only bodies are remembered as such; a request is over."""
    _, (row,) = peer_with(1)
    link = Link(7, LIVE)
    row.request = True

    row.went_out(link, Instant(10), body=False)
    offered = (row.request, row.count, row.next_at, row.offered_last, row.message_at)
    row.went_out(link, Instant(S + 10), body=True)

    assert offered == (False, 1, S + 10, True, None)
    assert (row.count, row.next_at, row.offered_last, row.message_at, row.link) == (2, 3 * S + 10, False, S + 10, link)


# The estimate


def test_estimate_is_a_moving_mean_that_begins_with_the_first_answer():
    """Without answers an offer asks; then eighths."""
    peer = PeerState(KEY, 1, drops_oldest=True)
    assert peer.probably_holds(0)

    peer.learn(held=True)
    high = peer.probably_holds(0)
    for _ in range(100):
        peer.learn(held=False)

    assert high
    assert not peer.probably_holds(32_768)
    peer.learn(held=True)
    assert (peer.probably_holds(430), peer.probably_holds(440)) == (False, True)
