"""Laws of protocols.strata.canonical."""

import json
import math
import random
from decimal import Decimal
from enum import Enum

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.run import fuzz
from fuzz.strata.canonical import CanonicalTarget, make_value
from tests.protocols.strata.build import refused, text_of, vector
from waystation.core.errors import LocalError
from waystation.protocols.strata.canonical import (
    canonicalise,
    canonicalise_parsed,
    canonicalise_plain,
    document_hash,
    normalise,
    parse,
)
from waystation.protocols.strata.refusals import Code, RefusedError

SCHEMA = Code.INVALID_SCHEMA
UNSAFE = 2**53


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" ",
        b"{",
        b"{}x",
        b"{} {}",
        b"\xef\xbb\xbf{}",
        b"/*c*/{}",
        b"[1,]",
        b"[01]",
        b"[1.]",
        b"[.5]",
        b"[+1]",
        b"[-]",
        b"[tru]",
        b"{a:1}",
        b"{'a':1}",
        b'{"a" 1}',
        b'["\x01"]',
        b'["\x00"]',
        b'["\\x"]',
        b'["\\u12"]',
        b"[NaN]",
        b"[Infinity]",
        b"[-Infinity]",
        b"{}\x00",
    ],
)
def test_what_is_no_json(text):
    """Comments, byte order marks, trailing data and other liberties are refused."""
    with refused(SCHEMA, "bad_json"):
        parse(text)


@pytest.mark.parametrize("text", [b'{"a":1,"a":1}', b'{"a":1,"\\u0061":2}', b'{"b":[{"":1,"x":2,"":3}]}'])
def test_duplicate_keys_are_refused(text):
    """A name stands once in an object, however it is spelled."""
    with refused(SCHEMA, "duplicate_key"):
        parse(text)


@pytest.mark.parametrize("text", [b'["\xff"]', b'{"\xff":1}', b'["\xed\xa0\x80"]', b'["\xc0\x80"]', b"\xff", b'["\xc3'])
def test_bad_utf8_is_refused(text):
    """Bytes that are no UTF-8 have their own detail, whatever else is wrong."""
    with refused(SCHEMA, "bad_utf8"):
        parse(text)


@pytest.mark.parametrize(
    "text", [b'["\\ud800"]', b'["\\ud800 x"]', b'["\\udc00"]', b'["\\ud800\\ud800"]', b'{"\\udfff":1}', b"9" * 4_301]
)
def test_what_i_json_excludes_is_refused_at_once(text):
    """Unpaired surrogates are no text, and numbers have an end."""
    with refused(SCHEMA, "not_ijson"):
        parse(text)


@pytest.mark.parametrize(
    "token",
    [
        "1e400",
        "-1e400",
        "1e99999999999999999999",
        "9007199254740992",
        "-9007199254740992",
        "9007199254740992.0",
        "9.007199254740992e15",
        "9007199254740993",
        "10000000000000001",
        "1" + "0" * 21,
        "1" + "0" * 29,
        "9" * 4_000,
    ],
)
def test_numbers_outside_i_json_are_refused(token):
    """No number is silently rounded: what is no double's own spelling, or no double at all, is refused."""
    value = parse(b"[%s]" % token.encode())

    with refused(SCHEMA, "not_ijson"):
        canonicalise_parsed(value)


@pytest.mark.parametrize(
    ("token", "spelling"),
    [
        ("10000000000000000", "10000000000000000"),
        ("-100000000000000000000", "-100000000000000000000"),
        ("9007199254740994", "9007199254740994"),
        ("9007199254740991", "9007199254740991"),
        ("1.00E+2", "100"),
        ("-0", "0"),
        ("-0.0", "0"),
        ("0e99999999999", "0"),
        ("1e-400", "0"),
        ("1.7e9", "1700000000"),
        ("0.00010", "0.0001"),
        ("0.00001", "0.00001"),
        ("1e-7", "1e-7"),
        ("4.5", "4.5"),
        ("123456789.125", "123456789.125"),
        ("1E16", "10000000000000000"),
        ("1e21", "1e+21"),
        ("333333333.33333329", "333333333.3333333"),
    ],
)
def test_numbers_have_one_spelling(token, spelling):
    """Every accepted token has the ECMAScript spelling of its double, and that spelling is accepted again."""
    written, _ = canonicalise_parsed(parse(b"[%s]" % token.encode()))

    assert written == b"[%s]" % spelling.encode()
    assert canonicalise_parsed(parse(written))[0] == written


@pytest.mark.parametrize(("token", "value"), [("1.0", 1), ("1.7e9", 1_700_000_000), ("-0.0", 0), ("0.5", 0.5)])
def test_integers_are_judged_by_value(token, value):
    """A fraction that has the value of an integer is an integer to everyone who reads the packet."""
    plain = normalise(parse(b"[%s]" % token.encode()))

    assert plain == [value]
    assert type(plain[0]) is type(value)


@pytest.mark.parametrize("nested", [("[", "]"), ('{"a":', "}")])
def test_depth_64_is_the_last(nested):
    """64 levels are taken, 65 refused, and far more do not reach the stack."""
    opening, closing = nested

    def text(depth):
        return (opening * depth + "0" + closing * depth).replace(":0", ":0").encode()

    assert parse(text(64)) is not None
    assert canonicalise(parse(text(64))) == text(64)
    for depth in (65, 190, 500, 100_000):
        with refused(SCHEMA, "too_deep"):
            parse(text(depth))


def test_depth_of_a_frame_may_be_one_more():
    """The limit is the caller's: a packet is one level down in its message."""
    text = b'{"packet":' + b"[" * 64 + b"]" * 64 + b"}"

    assert parse(text, depth_max=65)
    with refused(SCHEMA, "too_deep"):
        parse(text)


def test_many_brackets_are_not_depth():
    """Width costs nothing: only nesting counts."""
    assert len(parse(b"[" + b"{}," * 999 + b"[]]")) == 1_000


def test_canonicalise_refuses_depth_and_circles():
    """A value that a program built too deep, or that holds itself, is refused and not walked for ever."""
    circle = []
    circle.append(circle)
    deep = []
    for _ in range(64):
        deep = [deep]

    assert canonicalise(deep[0]) == b"[" * 64 + b"]" * 64
    for value in (circle, deep):
        with refused(SCHEMA, "too_deep"):
            canonicalise(value)


def test_keys_are_sorted_by_utf16():
    """U+1F600 is D83D DE00 and stands before U+FB33, against the order of code points."""
    value = {"\ufb33": 3, "\U0001f600": 5, "\u20ac": 1, "\r": 2, "1": 4, "\ufe0f": 0}
    order = list(json.loads(canonicalise(value)))

    assert order == ["\r", "1", "\u20ac", "\U0001f600", "\ufb33", "\ufe0f"]
    assert canonicalise_parsed(parse(text_of(value)))[0] == canonicalise(value)


def test_emoji_in_texts_do_not_change_the_order():
    """Values may hold what keys must not for the fast way; the bytes are the same."""
    value = {"b": "\U0001f600 \u2764\ufe0f", "a": ["\ufb33"], "nested": {"z": 1, "y": 2}}

    assert canonicalise_parsed(parse(text_of(value)))[0] == rfc8785.dumps(value)


def test_texts_are_not_normalised():
    """Composed and decomposed letters are two texts."""
    assert canonicalise("\u00e9") != canonicalise("e\u0301")


def test_every_control_character_is_spelled_as_rfc_8785_does():
    """All of ASCII and the usual suspects above it, in values and keys."""
    text = "".join(map(chr, range(0x100))) + "\u2028\u2029\ufeff\uffff\U0010ffff</script>"

    assert canonicalise({text: text}) == rfc8785.dumps({text: text})


@pytest.mark.parametrize(
    "value", [1.0, 0.5, -0.0, 1e16, 1e15, 1e-5, 1e21, 5e-324, 2.0**53, 2**53 - 1, [1.0], {"a": {"b": 3.0}}, (1, 2)]
)
def test_values_of_programs(value):
    """Python's floats and tuples are spelled right although they never were on a wire."""
    assert canonicalise(value) == rfc8785.dumps(value)


def test_decimals_are_numbers():
    """A Decimal is judged as the token it prints."""
    assert canonicalise([Decimal("1.50"), Decimal("1E+2")]) == b"[1.5,100]"


@pytest.mark.parametrize(
    "number", [math.nan, math.inf, -math.inf, UNSAFE, UNSAFE + 1, Decimal("NaN"), Decimal("1e400")]
)
def test_numbers_without_a_form_are_refused(number):
    """What I-JSON cannot say is never signed."""
    with refused(SCHEMA, "not_ijson"):
        canonicalise({"a": [number]})


@pytest.mark.parametrize("value", ["\ud800", {"\udfff": 1}, ["a", {"b": "\udc00"}]])
def test_surrogates_of_programs_are_refused(value):
    """A Python text may hold half a character, JSON may not."""
    with refused(SCHEMA, "not_ijson"):
        canonicalise(value)


@pytest.mark.parametrize("value", [b"bytes", {1: 2}, {None: 1}, {"a": {1, 2}}, object(), Enum("E", "A").A, [3 + 1j]])
def test_types_without_a_form_are_the_callers_fault(value):
    """What JSON does not have is a bug of the program, not of a peer."""
    with pytest.raises(LocalError):
        canonicalise(value)


def test_normalise_leaves_its_argument_alone():
    """The plain copy shares nothing that could be changed."""
    value = parse(b'{"a":[1.0,{"b":2.0}]}')
    plain = normalise(value)
    plain["a"][1]["b"] = 9

    assert float(str(value["a"][1]["b"])) == 2.0


def test_parsed_value_without_fractions_is_handed_back():
    """The hot path copies nothing."""
    value = parse(b'{"b":1,"a":[]}')

    assert canonicalise_parsed(value) == (b'{"a":[],"b":1}', value)
    assert canonicalise_parsed(value)[1] is value


def compare(seed, count):
    """Compare all three ways of writing with the JCS library on ``count`` values; returns how many were compared."""
    rng = random.Random(seed)
    for _ in range(count):
        value = make_value(rng)
        expected = rfc8785.dumps(value)
        assert canonicalise(value) == expected
        assert canonicalise_plain(normalise(value)) == expected
        parsed = parse(text_of(value))
        assert canonicalise_parsed(parsed)[0] == expected
        assert canonicalise_parsed(parse(expected))[0] == expected
    return count


def test_canonical_form_equals_the_library():
    """Guarded canonicalisation equals rfc8785 on generated values."""
    assert compare(1, 2_000) == 2_000


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_canonical_form_equals_the_library_a_million_times(seed):
    """The same law, 100,000 values a seed."""
    assert compare(100 + seed, 100_000) == 100_000


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-UNSAFE + 1, UNSAFE - 1)
    | st.text(max_size=8)
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda number: abs(number) != UNSAFE),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=50)
@given(JSON)
def test_canonical_form_is_a_fixed_point(value):
    """What we write parses, and writing it again changes nothing."""
    written = canonicalise(value)

    assert written == rfc8785.dumps(value)
    assert canonicalise_parsed(parse(written))[0] == written


@given(st.binary(max_size=64) | st.text('[]{}":,\\ud80eE+-.0123456789naN \x00é😀', max_size=40).map(str.encode))
def test_any_bytes_parse_or_are_refused(data):
    """Bytes of a peer give a value or one kind of error, in parser and canonicaliser."""
    target = CanonicalTarget()

    assert target.run(data) in {"canonical", "bad_json", "duplicate_key", "not_ijson", "bad_utf8", "too_deep"}


def test_bent_texts_lead_nowhere_else():
    """The fuzz target finds nothing in its first inputs."""
    outcomes, find = fuzz(CanonicalTarget(), 1_000, seed=5)

    assert find is None
    assert set(outcomes) >= {"canonical", "bad_json", "not_ijson", "bad_utf8"}


def test_truncation_at_every_byte_is_refused():
    """No beginning of an object is one."""
    text = text_of(vector("ok-unicode")["packet"])
    for end in range(len(text)):
        with pytest.raises(RefusedError):
            parse(text[:end])


def test_document_hash_of_the_vector():
    """The name of a document is z and base58 of a BLAKE3 multihash."""
    entry = vector("did-doc-hash")

    assert document_hash(entry["document"]) == entry["expect"]["did_doc_hash"]
    assert canonicalise(entry["document"]).decode() == entry["canonical_utf8"]
