"""The fingerprint of a run."""

import hashlib
from enum import Enum
from typing import NamedTuple

from waystation.core.instant import Instant
from waystation.sim.trace import Named, Trace, canonical


class Word(Enum):
    ONE = "one"


class Thing(NamedTuple):
    data: bytes
    word: Word
    sizes: dict
    many: tuple
    number: int | None


def test_hash_is_sha256_over_the_lines():
    """The hash is that of the lines, each with its newline, whatever the batches."""
    lines = []
    trace = Trace(lines.append)
    for number in range(1_300):
        trace.note(Instant(number * 1_000_001), f"thing {number}")
        if number == 700:
            trace.hash_hex()

    text = "".join(line + "\n" for line in lines)

    assert lines[1] == "1.000001 thing 1"
    assert trace.hash_hex() == hashlib.sha256(text.encode()).hexdigest()
    assert trace.last_lines() == tuple(lines[-40:])


def test_another_line_is_another_hash():
    """One changed byte changes the hash."""
    first, second = Trace(), Trace()

    first.note(Instant(1), "a")
    second.note(Instant(1), "b")

    assert first.hash_hex() != second.hash_hex()


def test_canonical_line_shows_every_field():
    """Long bytes are cut but still told apart; dictionaries are sorted."""
    one = Thing(b"12345678" + bytes(9), Word.ONE, {"b": 2, "a": {"x": 1}}, (b"ab", b"c"), None)
    other = one._replace(data=b"12345678" + bytes(8) + b"\x01")

    assert canonical(one) == "Thing 3132333435363738..17/f594a075 ONE {a={x=1} b=2} 2*616263 None"
    assert canonical(one) != canonical(other)


def test_named_part_begins_its_lines_with_its_name():
    """Two nodes can write into one trace and be told apart."""
    lines = []

    Named(Trace(lines.append), "r1").note(Instant(1), "crash")

    assert lines == ["0.000001 r1 crash"]
