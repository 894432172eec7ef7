"""Laws of how lines are read from pipes and files."""

import asyncio
import contextlib
import os

import pytest

from waystation.examples.chat.stdin import LINE_BYTES_MAX, lines_of


@pytest.fixture
def pipe():
    """Both ends of a pipe; what is not closed by a test is closed behind it."""
    ends = os.pipe()
    yield ends
    for end in ends:
        with contextlib.suppress(OSError):
            os.close(end)


async def read_all(descriptor):
    """Return all lines."""
    return [line async for line in lines_of(descriptor)]


def test_lines_are_cut_however_they_arrive(pipe):
    """Pieces of lines become whole lines, an empty one included, and the last one needs no end."""
    reading, writing = pipe

    async def main():
        lines = lines_of(reading)
        os.write(writing, b"one\ntw")
        first = await anext(lines)
        waiting = asyncio.ensure_future(anext(lines))
        await asyncio.sleep(0)
        os.write(writing, b"o\r\n\nlast")
        second = await waiting
        third = await anext(lines)
        os.close(writing)
        return [first, second, third, *[line async for line in lines]]

    assert asyncio.run(main()) == ["one", "two", "", "last"]


def test_loop_goes_on_while_nothing_is_typed(pipe):
    """Waiting for a line holds up nobody, and can be given up, also when one was read just before."""
    reading, writing = pipe

    async def main():
        lines = lines_of(reading)
        os.write(writing, b"one\n")
        first, turns = await anext(lines), 0
        waiting = asyncio.ensure_future(anext(lines))
        for _ in range(20):
            await asyncio.sleep(0)
            turns += 1
        waiting.cancel()
        return first, turns, waiting

    first, turns, _ = asyncio.run(main())

    assert (first, turns) == ("one", 20)
    assert os.get_blocking(reading)


def test_file_is_read_to_its_end(tmp_path):
    """A file of the disk, which no loop can watch, is read as well."""
    path = tmp_path / "lines"
    path.write_bytes(b"one\nbad \xff\n")
    with path.open("rb") as file:
        lines = asyncio.run(read_all(file.fileno()))

    assert lines == ["one", "bad \ufffd"]


def test_endless_line_is_cut(tmp_path):
    """A line that does not end takes no more memory than its bound."""
    path = tmp_path / "lines"
    path.write_bytes(b"x" * 5 * LINE_BYTES_MAX + b"\nnext\n")
    with path.open("rb") as file:
        lines = asyncio.run(read_all(file.fileno()))

    assert [len(line) for line in lines] == [LINE_BYTES_MAX, 4]
