"""Laws of a message as programs get it."""

import asyncio

import pytest

from waystation.core.errors import HostError
from waystation.sdk.lprp.message import Message


async def nothing(_message):
    """Note nothing."""


def message(body, on_done=nothing):
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

    async def note(done):
        told.append(done)

    made = message(b"", note)
    before = made.is_done
    for _ in range(2):
        asyncio.run(made.done())

    assert (before, made.is_done) == (False, True)
    assert told == [made]


def test_done_that_the_disk_refuses_is_noted_by_a_later_call():
    """A message whose end could not be noted is not done."""
    refusals = [HostError("full")]

    async def note(_message):
        if refusals:
            raise refusals.pop()

    made = message(b"", note)
    with pytest.raises(HostError, match="full"):
        asyncio.run(made.done())
    before = made.is_done
    asyncio.run(made.done())

    assert (before, made.is_done) == (False, True)
