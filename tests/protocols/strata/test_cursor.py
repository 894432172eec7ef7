"""Laws of protocols.strata.cursor."""

import base64
import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocols.strata.build import refused
from waystation.protocols.strata.cursor import FILTER_HASH_BYTES, Cursor, decode_cursor, encode_cursor, filter_hash
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.refusals import Code, RefusedError
from waystation.protocols.strata.wire import CURSOR_CHARS_MAX

EPOCH, FILTERS = b"e" * 8, b"f" * 8
COUNT = st.integers(0, 2**63 - 1)
CURSORS = st.builds(Cursor, st.none() | st.tuples(COUNT, COUNT), COUNT, COUNT)
PLACE = Cursor((1_767_225_600, 7), 9, 8)


def text_of(cursor=PLACE, epoch=EPOCH, filters=FILTERS, *, descending=False):
    """Return the text of a cursor."""
    return encode_cursor(cursor, epoch, filters, descending=descending).decode()


def sealed(body):
    """Return a cursor text around any body, with a right checksum."""
    raw = msgspec.msgpack.encode(body)
    return base64.urlsafe_b64encode(raw + zlib.crc32(raw).to_bytes(4, "big")).decode().rstrip("=")


@given(CURSORS, st.booleans())
def test_round_trip(cursor, descending):
    """What is written is read, it needs no escaping, and it is short enough to come back."""
    text = text_of(cursor, descending=descending)

    assert decode_cursor(text, EPOCH, FILTERS, descending=descending) == cursor
    assert len(text) <= CURSOR_CHARS_MAX
    assert text.replace("-", "a").replace("_", "a").isalnum()


@given(st.text() | st.text("ABCabc019-_+/="))
def test_any_text_is_a_place_or_refused(text):
    """Whatever a client sends, nothing but a refusal comes of it."""
    with pytest.raises(RefusedError) as caught:
        decode_cursor(text, EPOCH, FILTERS, descending=False)

    assert caught.value.refusal.code is Code.INVALID_CURSOR


def test_a_changed_character_is_noticed():
    """Each character of the text is covered by its checksum."""
    text = text_of()
    changed = [text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :] for at in range(len(text))]

    for each in changed:
        with pytest.raises(RefusedError):
            decode_cursor(each, EPOCH, FILTERS, descending=False)


def test_a_cut_text_is_noticed():
    """No beginning of a cursor is a cursor."""
    text = text_of()

    for count in range(len(text)):
        with pytest.raises(RefusedError):
            decode_cursor(text[:count], EPOCH, FILTERS, descending=False)


@pytest.mark.parametrize(
    ("epoch", "filters", "descending", "detail"),
    [
        (b"x" * 8, FILTERS, False, "other_store"),
        (EPOCH, b"x" * 8, False, "other_filter"),
        (EPOCH, FILTERS, True, "other_filter"),
    ],
)
def test_cursors_from_elsewhere(epoch, filters, descending, detail):
    """A cursor of another store, filter or order is refused and not believed."""
    with refused(Code.INVALID_CURSOR, detail):
        decode_cursor(text_of(), epoch, filters, descending=descending)


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        [2, EPOCH, FILTERS, False, [], 1, 1],
        [1, EPOCH, FILTERS, False, [1], 1, 1],
        [1, EPOCH, FILTERS, False, [1, 2, 3], 1, 1],
        [1, EPOCH, FILTERS, False, [], -1, 1],
        [1, EPOCH, FILTERS, False, [-1, 1], 1, 1],
        [1, EPOCH, FILTERS, False, [], 1, 2**63],
        [1, EPOCH, FILTERS, False, ["a", "b"], 1, 1],
        [1, "text", FILTERS, False, [], 1, 1],
        [1, EPOCH, FILTERS, False, None, 1, 1],
        [1, EPOCH, FILTERS, False, [], 1],
    ],
)
def test_forged_bodies(body):
    """A right checksum makes no right cursor: every field is checked."""
    with pytest.raises(RefusedError):
        decode_cursor(sealed(body), EPOCH, FILTERS, descending=False)


def test_the_checksum_is_what_sealed_makes():
    """The forgeries above fail for their bodies: a good body sealed the same way is read."""
    good = sealed([1, EPOCH, FILTERS, False, [1, 2], 3, 4])

    assert decode_cursor(good, EPOCH, FILTERS, descending=False) == Cursor((1, 2), 3, 4)


def test_filter_hashes():
    """A filter's name depends on what it lets through, and on neither order nor limit."""
    various = [
        Filters(),
        Filters(authors=("a",)),
        Filters(types=("a",)),
        Filters(since=1),
        Filters(until=1),
        Filters(authors=("a", "b")),
        Filters(authors=("ab",)),
        Filters(authors=("a",), types=("b",)),
        Filters(since=0),
    ]

    names = {filter_hash(each) for each in various}
    assert len(names) == len(various)
    assert {len(name) for name in names} == {FILTER_HASH_BYTES}
    assert filter_hash(Filters(descending=True)) == filter_hash(Filters())
