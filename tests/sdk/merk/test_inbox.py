"""Laws of sdk.merk_inbox."""

import asyncio
import hashlib

import pytest

from tests.protocols.merk.build import ALICE
from waystation.protocols.merk.client.events import MessageArrived, MessageDropped
from waystation.protocols.merk.payload.contents import Extended, File, FilePart, Text
from waystation.protocols.merk.payload.sealing import Auth, Mode, Opened
from waystation.protocols.merk.refusals import Refusal
from waystation.sdk.merk import inbox as merk_inbox
from waystation.sdk.merk.download_buffer import FileFailed
from waystation.sdk.merk.inbox import LATE_S, Inbox

A = ALICE.signing.public
NOW_S = 1_700_000_000.0
ID = b"m" * 16


def arrived(content, *, frame_bytes=100, auth=Auth.BOUND):
    """Return what a machine tells of a content."""
    opened = Opened(
        A,
        Mode.SIGNED,
        auth,
        content,
        b"h" * 16,
        (A, b"p" * 32),
        content.message_id if isinstance(content, Extended) else b"i" * 16,
    )
    return MessageArrived(opened, frame_bytes)


def said(content, time_s=NOW_S):
    """Return a content with time and id."""
    return Extended(int(time_s * 1_000), ID, content)


def run(scenario, tmp_path):
    """Run a scenario with an inbox and what it told."""

    async def bounded():
        told = []
        inbox = Inbox(told.append, lambda: NOW_S, tmp_path)
        async with asyncio.timeout(20):
            try:
                return await scenario(inbox), told
            finally:
                await inbox.aclose()

    return asyncio.run(bounded())


async def rest(inbox):
    """End an inbox and return what is in it."""
    inbox.end()
    return [message async for message in inbox.messages()]


def test_message_has_time_and_id_where_the_sender_gave_them(tmp_path):
    """An original client's content has no time; its id is that of the frame."""

    async def scenario(inbox):
        inbox.take(arrived(said(Text("ours"))), "ws://r")
        inbox.take(arrived(Text("theirs")), "ws://r")
        return await rest(inbox)

    (ours, theirs), _ = run(scenario, tmp_path)

    assert (ours.text, ours.time_ms, ours.message_id, ours.relay) == ("ours", int(NOW_S * 1_000), ID, "ws://r")
    assert (theirs.text, theirs.time_ms, theirs.message_id, theirs.late) == ("theirs", None, b"i" * 16, False)


@pytest.mark.parametrize(("off_s", "late"), [(0, False), (LATE_S, False), (-LATE_S - 1, True), (LATE_S + 1, True)])
def test_message_of_another_time_is_late(tmp_path, off_s, late):
    """Beyond the memory for replays the time is what tells them."""

    async def scenario(inbox):
        inbox.take(arrived(said(Text("x"), NOW_S + off_s)), "")
        return await rest(inbox)

    (message,), _ = run(scenario, tmp_path)

    assert message.late is late


def test_whole_file_is_in_memory(tmp_path):
    """A file of one frame is a received file like any other."""

    async def scenario(inbox):
        inbox.take(arrived(File("a.txt", b"data")), "")
        return await rest(inbox)

    (message,), _ = run(scenario, tmp_path)

    assert (message.content.name, message.content.read_bytes()) == ("a.txt", b"data")


def test_parts_become_one_message(tmp_path):
    """Behind the last part there is one message, with the time of the last part and the worst proof."""
    digest = hashlib.sha256(b"abcd").digest()
    parts = [FilePart(b"t" * 16, digest, index, 2, 4, "a", b"abcd"[2 * index : 2 * index + 2]) for index in range(2)]

    async def scenario(inbox):
        inbox.take(arrived(said(parts[0]), auth=Auth.LEGACY), "")
        inbox.take(arrived(said(parts[1])), "")
        message = await anext(inbox.messages())
        return message, message.content.read_bytes()

    (message, data), told = run(scenario, tmp_path)

    assert (data, message.auth) == (b"abcd", Auth.LEGACY)
    assert len(told) == 1


def test_bad_parts_are_told(tmp_path):
    """A file whose digest differs is no message."""
    part = FilePart(b"t" * 16, b"d" * 32, 0, 1, 2, "a", b"ab")

    async def scenario(inbox):
        inbox.take(arrived(said(part)), "")
        await asyncio.gather(*inbox._checking)
        return await rest(inbox)

    messages, told = run(scenario, tmp_path)

    assert messages == []
    assert isinstance(told[0], FileFailed)


def test_count_and_bytes_are_bounded(tmp_path, monkeypatch):
    """What does not fit is dropped and told; one message alone always fits; taking makes room."""
    monkeypatch.setattr(merk_inbox, "INBOX_COUNT_MAX", 3)
    monkeypatch.setattr(merk_inbox, "INBOX_BYTES_MAX", 250)

    async def scenario(inbox):
        inbox.take(arrived(Text("huge"), frame_bytes=1_000), "")
        inbox.take(arrived(Text("more")), "")
        messages = inbox.messages()
        texts = [(await anext(messages)).text]
        for number in range(4):
            inbox.take(arrived(Text(str(number)), frame_bytes=80), "")
        return texts + [message.text for message in await rest(inbox)]

    texts, told = run(scenario, tmp_path)

    assert texts == ["huge", "0", "1", "2"]
    assert told == [MessageDropped(Refusal.QUEUE_FULL, A)] * 2


def test_failure_comes_behind_what_has_arrived(tmp_path):
    """The reason of the end does not swallow messages."""

    async def scenario(inbox):
        inbox.take(arrived(Text("last")), "")
        inbox.end(RuntimeError("over"))
        messages = inbox.messages()
        texts = [(await anext(messages)).text]
        with pytest.raises(RuntimeError, match="over"):
            await anext(messages)
        return texts

    assert run(scenario, tmp_path)[0] == ["last"]
