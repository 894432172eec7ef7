"""Laws of sdk.private_file."""

import pytest

from waystation.core.errors import HostError, LocalError
from waystation.sdk.private_file import read_private, read_private_json, write_private


def test_written_text_is_read_back_and_private(tmp_path):
    """Only the owner may read the file; its folder is made."""
    path = tmp_path / "a" / "file"
    write_private(path, "text")

    assert read_private(path, secret=True) == "text"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["file"]


def test_nothing_is_overwritten_unless_asked(tmp_path):
    """Without replace the old file stays, whole; no other file is left behind."""
    path = tmp_path / "file"
    write_private(path, "old")
    with pytest.raises(LocalError, match="not overwritten"):
        write_private(path, "new", replace=False)
    kept = path.read_text()
    write_private(path, "new")

    assert (kept, path.read_text()) == ("old", "new")
    assert len(list(tmp_path.iterdir())) == 1


def test_absent_file_is_none_or_an_empty_object(tmp_path):
    """Nothing yet is no error."""
    assert read_private(tmp_path / "x") is None
    assert read_private_json(tmp_path / "x") == {}


def test_secret_that_others_may_read_is_refused(tmp_path):
    """The sentence says how to mend it."""
    path = tmp_path / "file"
    write_private(path, "secret")
    path.chmod(0o644)

    with pytest.raises(HostError, match="chmod 600"):
        read_private(path, secret=True)
    assert read_private(path) == "secret"


@pytest.mark.parametrize("content", [b"{", b"[1]", b"\xff"])
def test_damaged_file_is_named(tmp_path, content):
    """What is no JSON object is not taken for an empty one."""
    path = tmp_path / "file"
    path.write_bytes(content)

    with pytest.raises(HostError, match="file"):
        read_private_json(path)


def test_folder_that_cannot_be_used_is_told(tmp_path):
    """A file where a folder should be is a sentence with the exit code of permissions."""
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError) as told:
        write_private(tmp_path / "file" / "x", "text")
    with pytest.raises(HostError):
        read_private(tmp_path / "file" / "x")

    assert told.value.exit_code == 4
