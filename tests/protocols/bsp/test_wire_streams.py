"""Laws of protocols.bsp.wire: streams, whatever their chunks are, and what waits of them."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.bsp.wire import read_slowly
from tests.protocols.bsp.build import (
    EVERY_PROFILE,
    LENGTHS_AT_EDGES,
    every_record,
    framed,
    ids,
    message,
    pattern,
    read_in_chunks,
    stream_of,
)
from waystation.protocols.bsp.messages import Ack, Offer, Request
from waystation.protocols.bsp.profile import SEED
from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.wire import RecordReader, encode, read_all

BY_NAME = pytest.mark.parametrize("profile", EVERY_PROFILE, ids=lambda profile: profile.name)


def fed(profile, data):
    """Return a reader that has got these bytes at once."""
    reader = RecordReader(profile)
    reader.feed(data)
    return reader


# Chunks, cuts and lies


@BY_NAME
@pytest.mark.parametrize("sizes", [(1,), (2,), (3,), (5, 1), (7,), (43,), (44,), (45,), (4, 40), (64,), (1, 200)])
def test_any_chunks_give_the_same_records(profile, sizes):
    """The borders of what comes in mean nothing."""
    expected = every_record(profile)
    data = stream_of(profile, *expected)

    records, reader = read_in_chunks(profile, data, *sizes)

    assert records == expected
    assert (reader.refusal, reader.is_inside, reader.waiting, reader.finish()) == (None, False, 0, None)


@BY_NAME
def test_stream_cut_at_every_byte(profile):
    """What is whole before the cut is read, the end is clean at borders only, and the rest goes on from there."""
    expected = every_record(profile)
    data = stream_of(profile, *expected)
    borders = list(itertools.accumulate((len(encode(profile, record)) for record in expected), initial=0))
    for size in range(len(data) + 1):
        reader, ended = RecordReader(profile), fed(profile, data[:size])

        first = reader.feed(data[:size])

        assert first == expected[: sum(border <= size for border in borders) - 1]
        assert ended.finish() is (None if size in borders else Refusal.TRUNCATED)
        assert reader.is_inside == (size not in borders)
        assert first + reader.feed(data[size:]) == expected


@settings(max_examples=40)
@given(st.data())
def test_drawn_chunks_of_drawn_records_give_what_the_slow_reading_gives(data):
    """Legal and bent streams alike, records and reason."""
    profile = data.draw(st.sampled_from(EVERY_PROFILE))
    kinds = st.sampled_from([0, 1, 1, 2, 3, 4, 5, 9])
    sizes = st.sampled_from([0, 1, 10, 16, 32, 40, 41, 64, 70, 96])
    parts = data.draw(st.lists(st.tuples(kinds, sizes, st.sampled_from([0, 0, 0, 0, 1, -1])), max_size=6))
    stream = b"".join(framed(profile, k, pattern(n), length=max(0, n + lie)) for k, n, lie in parts)
    cuts = data.draw(st.lists(st.integers(1, 60), max_size=20))

    records, reader = read_in_chunks(profile, stream, *cuts)
    reader.finish()

    assert (records, reader.refusal) == read_slowly(profile, stream)


@BY_NAME
def test_every_length_of_a_stream_lied_about(profile):
    """Whatever a header says, the reader does what the slow reading does, at once and in pieces."""
    records = every_record(profile)
    for at in range(len(records)):
        front, bent, behind = (stream_of(profile, *part) for part in (records[:at], [records[at]], records[at + 1 :]))
        for length in LENGTHS_AT_EDGES:
            data = front + bent[:2] + length.to_bytes(2, "big") + bent[4:] + behind
            for sizes in ((), (50,)):
                found, reader = read_in_chunks(profile, data, *sizes)
                reader.finish()

                assert (found, reader.refusal) == read_slowly(profile, data)


@BY_NAME
@pytest.mark.parametrize("size", [1, 3, 44, 50, 10_000])
def test_record_that_must_not_be_keeps_those_before_it(profile, size):
    """They stay said; all behind it is ignored, now and later."""
    front = every_record(profile)
    data = stream_of(profile, *front) + framed(profile, 0, b"") + stream_of(profile, *front)

    records, reader = read_in_chunks(profile, data, size)

    assert records == front
    assert reader.feed(stream_of(profile, *front)) == []
    assert reader.finish() is reader.refusal is Refusal.EMPTY_LIST
    assert (reader.is_inside, reader.waiting) == (False, 0)


@BY_NAME
def test_repeated_identifiers_are_read_as_they_stand(profile):
    """They are harmless (BSP-D7), and whose list it is sees them."""
    record = Offer(ids(1) * 3)

    assert read_all(profile, encode(profile, record)) == [record]


@BY_NAME
def test_end_is_told_again(profile):
    """Who asks twice gets the same answer."""
    reader = fed(profile, bytes((profile.version,)))

    assert reader.finish() is reader.finish() is Refusal.TRUNCATED
    assert not reader.is_inside


@BY_NAME
def test_empty_chunk_changes_nothing(profile):
    """Neither between records nor inside one."""
    data = encode(profile, message(profile))
    reader = RecordReader(profile)

    assert reader.feed(b"") == []
    assert not reader.is_inside
    assert reader.feed(data[:9]) == reader.feed(b"") == []
    assert reader.feed(data[9:]) == [message(profile)]


@BY_NAME
def test_what_is_read_is_bytes(profile):
    """Every field can be a key of a map, whichever way it came in."""
    data = encode(profile, message(profile)) + encode(profile, Ack(ids(2)))
    for sizes in ((), (1,), (44,)):
        (found, ack), _ = read_in_chunks(profile, data, *sizes)

        assert {type(part) for part in (found.group_id, found.body, *ack.ids)} == {bytes}


# Types that we do not know, and what is kept


@BY_NAME
def test_largest_unknown_record_is_not_kept(profile):
    """65,535 bytes are read past in pieces, and none waits here."""
    reader = RecordReader(profile)
    reader.feed(framed(profile, 200, b"", length=65_535))
    for _ in range(65):
        reader.feed(bytes(1_000))
        assert (reader.waiting, reader.is_inside) == (0, True)

    assert reader.feed(bytes(534)) == []
    assert reader.is_inside
    assert reader.feed(b"\0" + encode(profile, message(profile))) == [message(profile)]
    assert not reader.is_inside


@BY_NAME
@pytest.mark.parametrize("size", [1, 3, 4, 5, 104, 105, 10_000])
def test_unknown_records_in_a_row_are_read_past(profile, size):
    """Empty ones and long ones, their own borders and those of the chunks."""
    unknown = framed(profile, 6, b"") + framed(profile, 7, bytes(100)) + framed(profile, 8, b"")
    data = unknown + encode(profile, Ack(ids(1))) + unknown

    records, reader = read_in_chunks(profile, data, size)

    assert records == [Ack(ids(1))]
    assert reader.finish() is None


@BY_NAME
def test_end_inside_an_unknown_record_is_not_clean(profile):
    """Its rest is awaited as that of any other."""
    assert fed(profile, framed(profile, 200, b"12", length=3)).finish() is Refusal.TRUNCATED


@pytest.mark.parametrize(("kind", "size"), [(4, 0), (4, 11), (5, 15), (5, 0)])
def test_types_of_briar_are_unknown_to_the_seed(kind, size):
    """It reads past them, however long they are."""
    assert read_all(SEED, framed(SEED, kind, bytes(size)) + encode(SEED, Ack(ids(1)))) == [Ack(ids(1))]


@BY_NAME
def test_one_record_is_kept_and_no_more(profile):
    """Of a chunk with many records only what begins at its end waits, also when a record was open before it."""
    one = encode(profile, message(profile, bytes(1_000)))
    reader = RecordReader(profile)
    reader.feed(one[:3])

    records = reader.feed(one[3:] + one * 500 + one[:100])

    assert (len(records), reader.waiting) == (501, 100)


def test_longest_known_record_is_all_that_ever_waits():
    """2,047 identifiers: 65,508 bytes, of which all but the last were here."""
    data = encode(SEED, Request(ids(2_047)))
    _, reader = read_in_chunks(SEED, data[:-1], 500)

    assert reader.waiting == 65_507
    assert reader.feed(data[-1:]) == [Request(ids(2_047))]
    assert reader.waiting == 0


@BY_NAME
def test_largest_message_in_small_chunks(profile):
    """32 KiB of body."""
    largest = message(profile, pattern(32_768))

    assert read_in_chunks(profile, encode(profile, largest), 997)[0] == [largest]
