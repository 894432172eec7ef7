"""Laws of rules.lines: one spelling, exact fields, bounded."""

import pytest

from waystation.core.errors import RemoteError
from waystation.rules.lines import decode_line, encode_line

NAMES = ("a", "b")


def test_line_reads_back():
    """What was written is read as it was, in sorted names without blanks."""
    line = encode_line({"b": "ü", "a": 1})

    assert line == b'{"a":1,"b":"\\u00fc"}'
    assert decode_line(line, NAMES, 100) == {"a": 1, "b": "ü"}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[" * 90, "is not JSON"),
        (b"[]", "is not a JSON object"),
        (b'{"a":1}', "has not the fields"),
        (b'{"a":1,"b":2,"c":3}', "has not the fields"),
        (b'{"a":1, "b":2}', "is not spelled"),
        (b'{"b":2,"a":1}', "is not spelled"),
        (b'{"a":1,"a":1,"b":2}', "is not spelled"),
        (b'{"a":1.00,"b":2}', "is not spelled"),
        (b'{"a":NaN,"b":2}', "is not spelled"),
        (b'{"a":1,"b":"\xc3\xbc"}', "is not spelled"),
        (b'{"a":1,"b":"' + b"x" * 100 + b'"}', "has 114 bytes; at most 100"),
    ],
)
def test_other_spellings_are_refused(line, why):
    """Whatever does not read back byte for byte has no meaning of its own."""
    with pytest.raises(RemoteError, match=why):
        decode_line(line, NAMES, 100)


def test_deep_nesting_is_refused():
    """Brackets without end are a refusal, not a crash."""
    with pytest.raises(RemoteError):
        decode_line(b'{"a":' * 100_000, NAMES, 1_000_000)
