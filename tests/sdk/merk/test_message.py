"""Laws of sdk.merk_message."""

import pytest

from waystation.core.errors import HostError
from waystation.protocols.merk.payload.contents import Json, Raw, Text
from waystation.protocols.merk.payload.sealing import Auth, Mode
from waystation.sdk.merk.message import Message, ReceivedFile


def test_nothing_is_overwritten(tmp_path):
    """A taken name gets a number in front of its ending."""
    files = [ReceivedFile("a.tar.gz", 1, data=bytes([number])) for number in range(3)]
    saved = [file.save(tmp_path) for file in files]

    assert [path.name for path in saved] == ["a.tar.gz", "a.tar-1.gz", "a.tar-2.gz"]
    assert [path.read_bytes() for path in saved] == [b"\x00", b"\x01", b"\x02"]


def test_link_is_not_followed(tmp_path):
    """A link of the file's name that somebody laid out is a taken name."""
    (tmp_path / "a").symlink_to(tmp_path / "elsewhere")
    path = ReceivedFile("a", 1, data=b"x").save(tmp_path)

    assert path.name == "a-1"
    assert not (tmp_path / "elsewhere").exists()


def test_spooled_file_is_saved_once_and_gone_then(tmp_path):
    """Saving empties the spool and says so, once."""
    (tmp_path / "downloaded").write_bytes(b"data")
    gone = []
    file = ReceivedFile("a", 4, path=tmp_path / "downloaded", on_gone=lambda: gone.append(1))
    before = file.read_bytes()
    path = file.save(tmp_path / "inbox")
    file.discard()

    assert (before, path.read_bytes(), gone) == (b"data", b"data", [1])
    assert not (tmp_path / "downloaded").exists()
    with pytest.raises(HostError, match="not kept any more"):
        file.read_bytes()
    with pytest.raises(HostError, match="cannot save"):
        file.save(tmp_path / "inbox")
    assert [each.name for each in (tmp_path / "inbox").iterdir()] == ["a"]


def test_folder_that_cannot_be_used_is_told(tmp_path):
    """A file where the folder should be is a sentence."""
    (tmp_path / "inbox").write_text("")

    with pytest.raises(HostError, match="cannot save a"):
        ReceivedFile("a", 1, data=b"x").save(tmp_path / "inbox")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (Text("hi"), "hi"),
        (Json('{"a":1}'), '{"a":1}'),
        (Raw(b"plain"), "plain"),
        (Raw(b"\xff"), None),
        (ReceivedFile("a", 1, data=b"x"), None),
    ],
)
def test_text_is_whatever_can_be_read(content, text):
    """Text, JSON and readable bytes have a text; files and other bytes have none."""
    assert Message(b"s" * 32, Mode.PLAIN, Auth.NONE, content, None, b"i" * 16, False, "").text == text
