"""Laws of what a chat's messages look like."""

import pytest

from waystation.core.errors import LocalError
from waystation.examples.chat.format import ChatFormat, Line, read_line, write_line
from waystation.sdk.bsp import Context, InvalidMessageError, deps_v1_body

ONE, TWO = bytes(32), b"\x01" * 32


def context(timestamp, seen):
    """Return the context of a message that answers to those that were ``seen``, by identifier."""
    return Context(bytes(32), b"\x09" * 32, timestamp, b"", tuple(seen), seen.get)


def test_line_is_written_and_read_back():
    """What was said is read again, with what it answers to; any language will do."""
    line = Line("zoë", "¿qué tal? 今日は\nsecond line")
    body = write_line(line, [ONE, TWO])

    assert read_line(body) == line
    assert ChatFormat().parse(body) == (ONE, TWO)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"nick": "a"}',
        b'{"nick": "a", "text": "b", "more": 1}',
        b'{"nick": "", "text": "b"}',
        b'{"nick": "a\\u001b", "text": "b"}',
        b'{"nick": 1, "text": "b"}',
        b'{"nick": "a", "text": ""}',
        b'{"nick": "a", "text": ["b"]}',
        b'{"nick": "a", "text": "\\ud800"}',
        b"[" * 100_000,
        b'{"nick":"a","text":"b"}',
        b'{"text": "b", "nick": "a"}',
        b'{"nick": "a", "text": "b"} ',
        b'{"nick": "a", "text": "\\u00e9"}',
        b'{"nick": "a", "text": "c", "text": "b"}',
        b'{"nick": "a", "text": ' + b"[" * 900 + b"]" * 900 + b', "text": "b"}',
    ],
)
def test_other_content_is_invalid(content):
    """A body that says something else is no message of a chat, on every device alike."""
    with pytest.raises(InvalidMessageError):
        ChatFormat().parse(deps_v1_body([], content))


@pytest.mark.parametrize("nick", ["zo\u00eb", "\u4eca\u65e5", "\U0001fae9", "\ue000", "a\u00a0b", "a b"])
def test_nickname_of_any_alphabet_is_valid_whatever_python_knows_of_it(nick):
    """No table of Unicode decides, since these grow: what one device finds valid, each does."""
    assert read_line(write_line(Line(nick, "x"), [])).nick == nick


@pytest.mark.parametrize("nick", ["a\x1b", "a\x7f", "a\x9b", "a\n", "\u202ea", "a\u2028", "\u2066a", "\u200f"])
def test_nickname_steers_no_terminal(nick):
    """Controls and marks of direction are refused by those who write and those who read."""
    with pytest.raises(LocalError):
        write_line(Line(nick, "x"), [])


@pytest.mark.parametrize(
    "line", [Line("", "x"), Line("a" * 33, "x"), Line("a", ""), Line("a", "x" * 4_001), Line("a", "\udcff")]
)
def test_line_out_of_bounds_is_not_written(line):
    """What others would refuse is refused here first."""
    with pytest.raises(LocalError):
        write_line(line, [])


@pytest.mark.parametrize(
    ("timestamp", "seen", "valid"),
    [
        (6, {ONE: (5, b"")}, True),
        (6, {ONE: (5, None), TWO: (1, b"")}, True),
        (5, {ONE: (5, b"")}, False),
        (6, {ONE: (5, b""), TWO: (9, b"")}, False),
        (1, {}, True),
    ],
)
def test_answer_is_later_than_what_it_answers_to(timestamp, seen, valid):
    """A message is valid when it is later than each that it depends on, deleted ones included."""
    assert ChatFormat().validate(context(timestamp, seen)) is valid
