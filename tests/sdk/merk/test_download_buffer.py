"""Laws of sdk.merk.download_buffer."""

import asyncio
import hashlib

import pytest

from tests.protocols.merk.build import ALICE, BOB
from waystation.core.instant import Instant, after_ms
from waystation.protocols.merk.payload.contents import FilePart
from waystation.protocols.merk.payload.sealing import Auth, Mode
from waystation.protocols.merk.payload.transfers import IDLE_MS
from waystation.sdk.merk.download_buffer import DownloadBuffer, Downloaded, FileFailed, FileProgress

NOW = Instant(1_000)
A, B = ALICE.signing.public, BOB.signing.public
ID = b"i" * 16


@pytest.fixture
def spool(tmp_path):
    """A spool in the test's own folder."""
    found = DownloadBuffer(tmp_path)
    yield found
    found.close()


def parts_of(data, size=4, transfer_id=ID, digest=None):
    """Return the parts of a file."""
    count = -(-len(data) // size)
    digest = hashlib.sha256(data).digest() if digest is None else digest
    return [
        FilePart(transfer_id, digest, index, count, len(data), "a.bin", data[index * size : (index + 1) * size])
        for index in range(count)
    ]


def take(spool, part, *, sender=A, mode=Mode.ENCRYPTED, auth=Auth.BOUND, now=NOW):
    """Hand a part over."""
    return spool.take(sender, mode, auth, part, now)


def files(tmp_path):
    """Return what the spool keeps on the disk."""
    return sorted(path for path in tmp_path.rglob("*") if path.is_file())


def test_parts_make_the_file_in_any_order(spool, tmp_path):
    """Progress for all but the last part, which completes; what is handed over is the file, and private."""
    first, second, third = parts_of(b"0123456789")
    told = [take(spool, part) for part in (third, first, second)]
    (path,) = files(tmp_path)
    file = asyncio.run(spool.finish(told[-1]))

    assert told[:2] == [FileProgress(A, ID, "a.bin", 2, 10), FileProgress(A, ID, "a.bin", 6, 10)]
    assert path.stat().st_mode & 0o777 == 0o600
    assert (file.name, file.size_bytes, file.read_bytes()) == ("a.bin", 10, b"0123456789")


def test_wrong_digest_is_refused_and_removed(spool, tmp_path):
    """A file that is not what its sender announced is dropped whole."""
    *_, last = [take(spool, part) for part in parts_of(b"0123456789", digest=b"d" * 32)]
    told = asyncio.run(spool.finish(last))

    assert isinstance(told, FileFailed) and "SHA-256 differs" in told.reason
    assert files(tmp_path) == []


def test_weakest_proof_is_told(spool):
    """A file is as well proved as its worst part."""
    one, two, three = parts_of(b"0123456789")
    take(spool, one)
    take(spool, two, auth=Auth.LEGACY)

    assert take(spool, three).auth is Auth.LEGACY


def test_repeated_part_is_nothing(spool):
    """It was kept the first time."""
    part = parts_of(b"0123456789")[0]
    take(spool, part)

    assert take(spool, part) is None


def test_contradiction_is_told(spool):
    """A part that fits nothing is not kept, and its file goes on."""
    first, second, _ = parts_of(b"0123456789")
    take(spool, first)
    (other, *_) = parts_of(b"012345678")

    assert isinstance(take(spool, other), FileFailed)
    assert isinstance(take(spool, second), FileProgress)


def test_sizes_are_bounded(tmp_path):
    """One file, and all of them together until they are saved."""
    spool = DownloadBuffer(tmp_path, file_bytes_max=10, buffer_bytes_max=12)
    too_big = take(spool, parts_of(b"x" * 11)[0])
    *_, last = [take(spool, part) for part in parts_of(b"0123456789")]
    crowded = take(spool, parts_of(b"0123", transfer_id=b"j" * 16)[0])
    file = asyncio.run(spool.finish(last))
    still = take(spool, parts_of(b"0123", transfer_id=b"k" * 16)[0])
    file.discard()
    room = take(spool, parts_of(b"0123", transfer_id=b"l" * 16)[0])
    spool.close()

    assert [isinstance(each, FileFailed) for each in (too_big, crowded, still)] == [True] * 3
    assert isinstance(room, Downloaded)


def test_begun_and_unsaved_files_count_together(tmp_path):
    """A file that has begun has its room, whatever is finished meanwhile; what does not fit beside it never begins."""
    spool = DownloadBuffer(tmp_path, buffer_bytes_max=20)
    begun = parts_of(b"0123456789", transfer_id=b"j" * 16)
    told = [take(spool, part) for part in (begun[0], *parts_of(b"abcdefgh"))]
    asyncio.run(spool.finish(told[-1]))
    crowded = take(spool, parts_of(b"xyz", transfer_id=b"k" * 16)[0])
    rest = [take(spool, part) for part in begun[1:]]
    kept = len(files(tmp_path))
    spool.close()

    assert isinstance(crowded, FileFailed)
    assert isinstance(rest[-1], Downloaded)
    assert kept == 2


def test_idle_files_are_removed(spool, tmp_path):
    """What its sender gave up makes room when the next part of anything comes."""
    take(spool, parts_of(b"0123456789")[0])
    take(spool, parts_of(b"abcdefghij", transfer_id=b"j" * 16)[0], now=after_ms(NOW, IDLE_MS))

    assert len(files(tmp_path)) == 1


def test_disk_that_refuses_fails_the_file(tmp_path):
    """A spool folder that cannot be made is told, and nothing is half kept."""
    (tmp_path / "file").write_text("")
    spool = DownloadBuffer(tmp_path / "file" / "x")
    told = take(spool, parts_of(b"0123456789")[0])

    assert isinstance(told, FileFailed) and "cannot keep it" in told.reason


def test_file_that_vanished_is_told(spool, tmp_path):
    """Somebody else cleaned up: the file is lost, and so it is said."""
    *_, last = [take(spool, part) for part in parts_of(b"0123456789")]
    files(tmp_path)[0].unlink()

    assert isinstance(asyncio.run(spool.finish(last)), FileFailed)


def test_closing_removes_everything(spool, tmp_path):
    """Nothing that was not saved is left, and a spool that was never used made nothing."""
    take(spool, parts_of(b"0123456789")[0])
    spool.close()
    DownloadBuffer(tmp_path / "never").close()

    assert list(tmp_path.iterdir()) == []
