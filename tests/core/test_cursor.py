"""Laws of core.cursor."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.core.cursor import Cursor, ShortError


def test_fields_are_big_endian_and_in_order():
    """Each read begins where the last one ended."""
    cursor = Cursor(bytes.fromhex("01 0203 04050607 0809"))

    assert [cursor.take_u8(), cursor.take_u16(), cursor.take_u32(), cursor.take(2)] == [
        0x01,
        0x0203,
        0x04050607,
        b"\x08\x09",
    ]
    assert cursor.left == 0


@pytest.mark.parametrize(("read", "size"), [("take_u8", 1), ("take_u16", 2), ("take_u32", 4)])
def test_short_field_is_refused_and_consumes_nothing(read, size):
    """A field that is one byte too short raises, tells both numbers, and leaves the cursor where it was."""
    cursor = Cursor(b"\xff" * (size - 1))

    with pytest.raises(ShortError) as caught:
        getattr(cursor, read)()
    assert (caught.value.wanted, caught.value.left, cursor.left) == (size, size - 1, size - 1)


def test_take_of_nothing_at_the_end_is_empty():
    """An empty field at the end of a frame is legal."""
    assert Cursor(b"").take(0) == b""


@given(data=st.binary(max_size=64), counts=st.lists(st.integers(0, 70), max_size=8))
def test_never_reads_past_the_end(data, counts):
    """Whatever lengths a peer names, the parts read are a prefix of the data."""
    cursor = Cursor(data)
    parts = []
    for count in counts:
        try:
            parts.append(cursor.take(count))
        except ShortError:
            assert count > cursor.left

    assert data.startswith(b"".join(parts))
    assert cursor.left == len(data) - len(b"".join(parts))
