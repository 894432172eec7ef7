"""Laws of protocols.merk.contents."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocols.merk.build import CONTENTS, HASHED, ID, KEY, any_content, json_values, outcome_of
from waystation.core.errors import LocalError
from waystation.protocols.merk.payload.contents import (
    FILE_BYTES_MAX,
    ContentType,
    Extended,
    File,
    FilePart,
    Json,
    Raw,
    Text,
    decode_content,
    decode_signed_content,
    encode_content,
    encode_signed_content,
    is_signable,
)
from waystation.protocols.merk.refusals import Refusal

IDS = [f"{number} {type(content).__name__}" for number, (content, _) in enumerate(CONTENTS)]
PART = FilePart(HASHED, KEY, 2, 3, 1_000, "name", b"data")


def extended(content):
    """Return a content with a time and an id around it."""
    return Extended(1, ID, content)


@pytest.mark.parametrize(("content", "written"), CONTENTS, ids=IDS)
def test_layout_is_that_of_the_digest(content, written):
    """Each content has the bytes written by hand after specs/merk.md 3, in both directions."""
    assert encode_content(content).hex() == written
    assert decode_content(bytes.fromhex(written)) == content


@given(any_content)
def test_any_content_survives(content):
    """What is encoded decodes to itself."""
    assert decode_content(encode_content(content)) == content


@given(any_content)
def test_any_signed_content_survives_or_is_not_signed(content):
    """Whatever we sign is understood as what was meant; only some raw bytes are not signed."""
    if isinstance(content, Raw) and not is_signable(content.data):
        content = extended(content)

    assert decode_signed_content(encode_signed_content(content)) == content


def test_type_numbers_are_those_of_the_original():
    """Specs/merk.md 3 fixes 0 to 3; 0x10 is ours and far from them."""
    assert [kind.value for kind in ContentType] == [0, 1, 2, 3, 0x10]


@given(st.binary(max_size=200))
def test_any_bytes_are_a_content_or_refused(data):
    """Nothing but a content or the one refusal comes of arbitrary bytes, and a content has just one spelling."""
    content = outcome_of(decode_content, data)

    assert content is Refusal.BAD_CONTENT or encode_content(content) == data


@pytest.mark.parametrize(("content", "written"), CONTENTS, ids=IDS)
def test_content_cut_anywhere_is_another_or_none(content, written):
    """A content that ends too early never passes for the whole one, and never for one with other numbers."""
    data = bytes.fromhex(written)
    for count in range(len(data)):
        cut = outcome_of(decode_content, data[:count])
        assert cut != content
        assert cut is Refusal.BAD_CONTENT or encode_content(cut) == data[:count]


@pytest.mark.parametrize("kind", [4, 5, 0x0F, 0x11, 0x7F, 0xFF])
def test_unknown_type_is_refused(kind):
    """A type byte that nobody knows says nothing, and a file part stands only inside an extended content."""
    body = encode_content(extended(PART))[26:]

    assert outcome_of(decode_content, bytes([kind]) + body) is Refusal.BAD_CONTENT


@pytest.mark.parametrize("kind", [5, 6, 7, 0x10, 0xFF])
def test_unknown_kind_inside_extended_is_refused(kind):
    """An extended content holds one of seven kinds, whole, and never another extended one."""
    data = encode_content(extended(Text("x")))

    assert outcome_of(decode_content, data[:25] + bytes([kind]) + data[26:]) is Refusal.BAD_CONTENT


def test_empty_content_is_refused():
    """Without a type byte there is no content."""
    assert outcome_of(decode_content, b"") is Refusal.BAD_CONTENT


# Text and JSON


@pytest.mark.parametrize("text", [b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80"])
def test_text_that_is_no_utf8_is_refused(text):
    """Broken, overlong, surrogate and too large code points are refused, nothing is replaced."""
    name = bytes([len(text)]) + text

    for data in (b"\x01" + text, b'\x02"' + text + b'"', b"\x03" + name):
        assert outcome_of(decode_content, data) is Refusal.BAD_CONTENT


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "{]",
        "[1,]",
        "{'a':1}",
        "nul",
        "1 2",
        "NaN",
        "Infinity",
        "-Infinity",
        "[NaN]",
        "01",
        "0x1",
        '"\t"',
        '"\\x"',
        "[" * 100_000,
        "9" * 10_000,
        "\ufeff1",
    ],
    ids=lambda text: repr(text[:12]),
)
def test_json_that_is_none_is_refused(text):
    """What no browser reads as JSON is no content, however deep or long, and is not sent either."""
    assert outcome_of(decode_content, b"\x02" + text.encode()) is Refusal.BAD_CONTENT
    with pytest.raises(LocalError, match="no JSON"):
        encode_content(Json(text))


@given(json_values)
def test_json_says_its_value(value):
    """A value, its JSON and what arrives are the same."""
    arrived = decode_content(encode_content(Json.of(value)))

    assert arrived.value() == value == json.loads(arrived.text)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, b"x"])
def test_value_without_json_is_the_callers_mistake(value):
    """What JSON cannot say is refused when it is said."""
    with pytest.raises(LocalError, match="no JSON"):
        Json.of(value)


def test_json_keeps_its_spelling():
    """A JSON text arrives as it was written, spaces and order with it."""
    text = '{ "b": 1.0, "a": [] }'

    assert decode_content(encode_content(Json(text))) == Json(text)


@pytest.mark.parametrize("content", [Text("\ud800"), Json('"\ud800"'), File("\udfff", b"")])
def test_lone_surrogate_is_the_callers_mistake(content):
    """What has no UTF-8 cannot be sent."""
    with pytest.raises(LocalError, match="surrogate"):
        encode_content(content)


# Files and their parts


def test_name_of_255_bytes_is_the_longest():
    """A u8 tells a name's length in bytes; a longer one, which overflows in the original, is refused."""
    name = "\u00e9" * 127 + "x"

    assert decode_content(encode_content(File(name, b"x"))) == File(name, b"x")
    for content in (File(name + "x", b"x"), extended(replace(PART, name=name + "x"))):
        with pytest.raises(LocalError, match="256"):
            encode_content(content)


@pytest.mark.parametrize("length", [5, 100, 255])
def test_name_that_reaches_past_the_end_is_refused(length):
    """A name's length is held against what is there."""
    assert outcome_of(decode_content, bytes([3, length]) + b"name") is Refusal.BAD_CONTENT
    cut = encode_content(extended(replace(PART, data=b"")))
    assert outcome_of(decode_content, cut[:-5] + bytes([length]) + b"name") is Refusal.BAD_CONTENT


SENSELESS = [
    replace(PART, count=0, index=0),
    replace(PART, index=3),
    replace(PART, index=2**32 - 1),
    replace(PART, total_bytes=FILE_BYTES_MAX + 1),
    replace(PART, total_bytes=2**64 - 1),
    replace(PART, total_bytes=3),
]


@pytest.mark.parametrize("part", SENSELESS)
def test_senseless_part_is_refused(part):
    """A part has its place among the parts, and is no larger than its file, nor that than a tebibyte."""
    good = encode_content(extended(PART))
    numbers = part.index.to_bytes(4, "big") + part.count.to_bytes(4, "big") + part.total_bytes.to_bytes(8, "big")

    assert outcome_of(decode_content, good[:74] + numbers + good[90:]) is Refusal.BAD_CONTENT
    with pytest.raises(LocalError, match="no part"):
        encode_content(extended(part))


@pytest.mark.parametrize("part", [replace(PART, count=2**32, index=0), replace(PART, index=-1)])
def test_part_that_its_fields_cannot_hold_is_the_callers_mistake(part):
    """Index and count are u32."""
    with pytest.raises(LocalError, match="no part"):
        encode_content(extended(part))


@pytest.mark.parametrize("part", [replace(PART, total_bytes=FILE_BYTES_MAX), replace(PART, total_bytes=4, name="")])
def test_part_at_the_border_passes(part):
    """The largest file and the smallest name are allowed."""
    assert decode_content(encode_content(extended(part))) == extended(part)


def test_empty_file_is_one_empty_part():
    """A file without a byte can go in parts too."""
    part = FilePart(HASHED, KEY, 0, 1, 0, "empty", b"")

    assert decode_content(encode_content(extended(part))) == extended(part)


@pytest.mark.parametrize("time_ms", [-1, 2**64])
def test_time_beyond_its_field_is_the_callers_mistake(time_ms):
    """A time has eight bytes."""
    with pytest.raises(LocalError, match="time"):
        encode_content(Extended(time_ms, ID, Raw(b"")))


# What is signed


@pytest.mark.parametrize(
    "data",
    [b"\x01", b"\x02x", b"\x03", b"\x10", bytes([0x10]) * 40, b"x" * 32, b"\xff" * 32, b"merk-", b"merk-keys/1x"],
)
def test_raw_bytes_that_mean_something_else_are_not_signed(data):
    """Neither a typed content, nor 32 bytes that a server may ask for, nor one of our other statements (MERK-RAW)."""
    assert not is_signable(data)
    with pytest.raises(LocalError, match="Extended"):
        encode_signed_content(Raw(data))


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x04", b"\x0f", b"\x11", b"x" * 31, b"x" * 33, b"merk", b" merk-"])
def test_other_raw_bytes_are_signed_as_they_are(data):
    """The original has no type byte for raw bytes that are signed."""
    assert is_signable(data)
    assert encode_signed_content(Raw(data)) == data
    assert decode_signed_content(data) == Raw(data)


def test_typed_contents_are_signed_with_their_type():
    """Only raw bytes go without."""
    for content, written in CONTENTS:
        if not isinstance(content, Raw):
            assert encode_signed_content(content).hex() == written
            assert decode_signed_content(bytes.fromhex(written)) == content


@pytest.mark.parametrize("data", [b"\x01\xff", b"\x02{", b"\x03\x05abc", b"\x03"])
def test_signed_bytes_with_the_type_of_another_content_are_refused(data):
    """Who begins with a type byte and is not of that type is refused, as the original would misread it."""
    assert outcome_of(decode_signed_content, data) is Refusal.BAD_CONTENT


@pytest.mark.parametrize("data", [b"\x10", b"\x10" + b"x" * 100, encode_content(extended(Text("x")))[:25]])
def test_signed_bytes_that_only_begin_like_extended_are_raw(data):
    """A client of the original knows no type 0x10 and may sign such bytes as raw ones."""
    assert decode_signed_content(data) == Raw(data)
    assert outcome_of(decode_content, data) is Refusal.BAD_CONTENT
