"""Fuzz target: Strata's strict JSON parser and canonicaliser, compared with a JCS (RFC 8785) library.

``make_value`` draws JSON values near the limits: the largest safe integers, numbers whose notation changes, and keys
around the surrogate range.
"""

import json
import random
from typing import Any, Final

import rfc8785

from fuzz.target import expect
from waystation.protocols.strata.canonical import canonicalise, canonicalise_parsed, parse
from waystation.protocols.strata.refusals import Code, RefusedError

_ALPHABETS: Final = (
    "abcxyz019_",
    "ab\u00e9\u017c\u20ac\ud7ff",
    "a\ue000\ufb33\ufe0f\uffff",
    "a\U0001f600\U00010000\U0010ffff",
    "\ue000\ufb33\U0001f600\U000f0000",
    '\x00\x08\t\n\x0b\x0c\r\x1f "\\/\x7f\x80\u2028',
)
_EDGES: Final = (
    *(0.0, -0.0, 1e-4, 9.999e-5, 1e-5, 1e-6, 1e-7, 1e15, 1e16, 1e17, 1e20, 1e21, 1e22),
    *(5e-324, 1e307, 0.1),
)
_INTEGER_MAX: Final = 2**53 - 1
_DEPTH: Final = 5
_DETAILS: Final = frozenset({"bad_json", "duplicate_key", "not_ijson", "bad_utf8", "too_deep"})
_PIECES: Final = (
    *(b"{", b"}", b"[", b"]", b'"', b":", b",", b"1e400", b"\\ud800", b"\xff", b"-0", b"NaN", b"0.1", b"null"),
)


def make_value(rng: random.Random, depth: int = 0) -> Any:
    """Return a value that has a canonical form."""
    kind = rng.randrange(10 if depth < _DEPTH else 6)
    if kind < 2:
        return _text(rng)
    if kind < 4:
        return _number(rng)
    if kind < 6:
        return rng.choice((None, True, False, rng.randrange(100)))
    if kind < 8:
        return [make_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {_text(rng): make_value(rng, depth + 1) for _ in range(rng.randrange(5))}


def _text(rng: random.Random) -> str:
    return "".join(rng.choices(rng.choice(_ALPHABETS), k=rng.randrange(5)))


def _number(rng: random.Random) -> float:
    kind = rng.randrange(5)
    if kind == 0:
        return rng.randint(-_INTEGER_MAX, _INTEGER_MAX)
    if kind == 1:
        return rng.choice((_INTEGER_MAX, -_INTEGER_MAX, _INTEGER_MAX - 1))
    if kind == 2:
        return rng.choice(_EDGES) * rng.choice((1, -1, 1.5, 3))
    if kind == 3:
        return rng.uniform(-1, 1) * 10.0 ** rng.randrange(-12, 25)
    return round(rng.uniform(-1000, 1000), rng.randrange(4))


class CanonicalTarget:
    """Any bytes are refused with a known detail, or have a canonical form that is a fixed point."""

    name = "strata_canonical"

    def make(self, rng: random.Random) -> bytes:
        """Return the text of a value, half of the time mutated."""
        text = json.dumps(make_value(rng), ensure_ascii=rng.random() < 0.5).encode()
        for _ in range(rng.choice((0, 0, 1, 2))):
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice(_PIECES) + text[at + rng.randrange(3) :]
        return text

    def run(self, data: bytes) -> str:
        """Parse, write, and write again."""
        try:
            value = parse(data)
            written, plain = canonicalise_parsed(value)
        except RefusedError as error:
            expect(error.refusal.code is Code.INVALID_SCHEMA, "refused with another code")
            expect(error.refusal.detail in _DETAILS, f"unknown detail {error.refusal.detail}")
            return error.refusal.detail
        expect(written == rfc8785.dumps(plain), "not the library's bytes")  # type: ignore[arg-type]
        expect(written == canonicalise(value), "two functions, two results")
        expect(canonicalise_parsed(parse(written))[0] == written, "not a fixed point")
        return "canonical"
