"""Laws of a message as programs get it."""

import asyncio

from waystation.sdk.lprp.message import Message


def message(body, on_done=lambda _: None):
    """Return a message with a body."""
    return Message(b"s" * 32, b"i" * 16, body, True, 11, 12, 7, on_done)


def test_facts_of_the_row():
    """A message tells what its row holds."""
    made = message(b"hello")

    assert (made.sender, made.id, made.data, made.sealed) == (b"s" * 32, b"i" * 16, b"hello", True)
    assert (made.sent_ms, made.received_ms, made.position) == (11, 12, 7)


def test_text_is_utf8_or_nothing():
    """Bytes that are no text are not made one."""
    assert message("你好".encode()).text == "你好"
    assert message(b"\xff").text is None


def test_done_is_noted_once():
    """A message is finished the first time, and can be told twice."""
    told = []
    made = message(b"", told.append)
    before = made.is_done
    for _ in range(2):
        asyncio.run(made.done())

    assert (before, made.is_done) == (False, True)
    assert told == [made]
