"""Laws of sdk.merk_files."""

import asyncio
import hashlib
import io
import os
import random
import threading

import pytest

from tests.protocols.merk.build import ALICE, BOB
from waystation.core.errors import LocalError
from waystation.protocols.merk.messages import FRAME_BYTES_USUAL, DeliveryCode
from waystation.protocols.merk.payload.contents import Extended
from waystation.protocols.merk.payload.sealing import encrypted_frame, signed_frame
from waystation.protocols.merk.payload.transfers import PART_BYTES, OutgoingTransfer
from waystation.sdk.merk.files import FileToSend, send_parts
from waystation.sdk.merk.outcome import Outcome

OK = DeliveryCode.DELIVERED
USUAL = FRAME_BYTES_USUAL


@pytest.fixture
def path(tmp_path):
    """A file of two and a half parts."""
    found = tmp_path / "a.bin"
    found.write_bytes(random.Random(1).randbytes(5 * PART_BYTES // 2))
    return found


def send(deliver, count=3, made=None):
    """Send so many parts; return outcome and progress."""
    progress = []

    def frame_of(index):
        if made is not None:
            made.append(index)
        return bytes([index])

    async def scenario():
        async with asyncio.timeout(20):
            transfer = OutgoingTransfer(count, random.Random(1))
            return await send_parts(transfer, frame_of, deliver, progress.append)

    return asyncio.run(scenario()), progress


def test_file_is_read_in_parts_and_whole(path):
    """The parts are the file; the digest is that of all of it."""
    data = path.read_bytes()
    with FileToSend(path, None, USUAL) as file:
        parts = [file.part(index, b"id", b"digest") for index in range(3)]
        digest = asyncio.run(file.digest())

        assert file.size_bytes == len(data)
        assert [len(part.data) for part in parts] == [PART_BYTES, PART_BYTES, PART_BYTES // 2]
        assert [(part.index, part.count, part.name, part.total_bytes) for part in parts] == [
            (index, 3, "a.bin", len(data)) for index in range(3)
        ]
        assert b"".join(part.data for part in parts) == file.whole().data == data
        assert digest == hashlib.sha256(data).digest()


def test_file_that_shrinks_is_noticed(path):
    """What was announced cannot be sent any more."""
    with FileToSend(path, None, USUAL) as file:
        path.write_bytes(b"short")
        with pytest.raises(LocalError, match="shorter"):
            file.part(1, b"id", b"digest")


def test_bytes_and_streams_are_files_too(tmp_path):
    """Bytes, an open file from where it stands, and a stream that cannot seek are sent whole, under a name."""
    data = random.Random(1).randbytes(2 * PART_BYTES)
    path = tmp_path / "b.bin"
    path.write_bytes(b"head" + data)
    reading, writing = os.pipe()
    threading.Thread(target=lambda: (os.write(writing, b"piped"), os.close(writing))).start()
    with path.open("rb") as opened, os.fdopen(reading, "rb") as piped:
        opened.seek(4)
        sent = []
        for source, name in ((data, "a.bin"), (opened, None), (piped, "p"), (io.BytesIO(b""), "empty")):
            with FileToSend(source, name, USUAL) as file:
                parts = b"".join(file.part(index, b"id", b"digest").data for index in range(file.parts_count))
                sent.append((file.name, parts, asyncio.run(file.digest())))

        assert [(name, parts) for name, parts, _ in sent] == [
            ("a.bin", data),
            ("b.bin", data),
            ("p", b"piped"),
            ("empty", b""),
        ]
        assert all(digest == hashlib.sha256(parts).digest() for _, parts, digest in sent)
        assert not opened.closed


def test_bytes_without_a_name_are_no_file():
    """A file has a name."""
    with pytest.raises(LocalError, match="name="):
        FileToSend(b"x", None, USUAL)


@pytest.mark.parametrize("frame_bytes_max", [65_536, 8_388_608, 2_048])
def test_parts_fit_the_relay(path, frame_bytes_max):
    """Whatever the relay takes, a part with everything around it is smaller."""
    with FileToSend(path, "n" * 255, frame_bytes_max) as file:
        part = file.part(0, b"t" * 16, b"d" * 32)
        content = Extended(0, b"i" * 16, part)
        frames = [
            signed_frame(ALICE.signing, BOB.signing.public, content),
            encrypted_frame(
                ALICE.signing,
                BOB.signing.public,
                BOB.agreement_public,
                content,
                ephemeral_secret=b"\x0e" * 32,
                nonce=bytes(12),
            ),
        ]

        assert max(map(len, frames)) <= frame_bytes_max
        assert len(part.data) <= PART_BYTES


def test_what_cannot_be_read_is_the_callers_mistake(tmp_path):
    """An absent file and a folder are refused when they are opened."""
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(LocalError, match="cannot read"):
            FileToSend(path, None, USUAL)


def test_each_part_is_made_once_and_sent_until_delivered():
    """A refused part goes again as the very same frame."""
    sent, made = [], []

    async def deliver(frame):
        sent.append(frame)
        return DeliveryCode.RATE if len(sent) == 2 else OK

    outcome, progress = send(deliver, made=made)

    assert outcome is Outcome.DELIVERED
    assert made == [0, 1, 2]
    assert sorted(sent) == sorted([b"\x00", b"\x01", b"\x02", sent[1]])
    assert progress == [1, 2, 3]


@pytest.mark.parametrize(("code", "outcome"), [(DeliveryCode.TOO_LARGE, Outcome.TOO_LARGE)])
def test_final_refusal_ends_it(code, outcome):
    """What no relay takes is not tried again."""

    async def deliver(_frame):
        return code

    assert send(deliver) == (outcome, [])


def test_failure_of_one_part_takes_the_others_back():
    """When a part cannot be sent at all, no task is left behind."""
    cancelled = []

    async def deliver(frame):
        if frame == b"\x00":
            return OK
        if frame == b"\x01":
            raise LocalError("the file became shorter")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(frame)
            raise

    with pytest.raises(LocalError, match="shorter"):
        send(deliver)

    assert cancelled == [b"\x02"]
