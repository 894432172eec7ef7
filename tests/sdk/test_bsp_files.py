"""Laws of bundles in files."""

import errno
import os
from pathlib import Path

import pytest

from waystation.core.errors import HostError, LocalError
from waystation.protocols.bsp.bundle import BUNDLE_BYTES_MAX
from waystation.sdk.bsp_files import read_bundle_file, write_bundle_file


def names(folder):
    """Return what stands in a folder."""
    return [path.name for path in folder.iterdir()]


def test_file_holds_what_was_written_and_is_private(tmp_path):
    """A file is there whole under its name, for its owner only, and nothing else is left in the folder."""
    path = tmp_path / "to-bob.bsp"
    write_bundle_file(path, b"sealed")

    assert read_bundle_file(path) == b"sealed"
    assert path.stat().st_mode & 0o777 == 0o600
    assert names(tmp_path) == ["to-bob.bsp"]


def test_file_of_the_name_stays_unless_it_may_be_replaced(tmp_path):
    """A file is not overwritten by accident."""
    path = tmp_path / "to-bob.bsp"
    write_bundle_file(path, b"first")
    with pytest.raises(LocalError, match="there already"):
        write_bundle_file(path, b"second")
    kept = read_bundle_file(path)
    write_bundle_file(path, b"third", replace=True)

    assert kept == b"first"
    assert read_bundle_file(path) == b"third"
    assert names(tmp_path) == ["to-bob.bsp"]


def test_disk_without_links_is_written_all_the_same(tmp_path, monkeypatch):
    """A stick whose file system knows no links takes the file, and still overwrites none."""

    def link(source, target):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", link)
    path = tmp_path / "to-bob.bsp"
    write_bundle_file(path, b"first")

    with pytest.raises(LocalError, match="there already"):
        write_bundle_file(path, b"second")
    assert read_bundle_file(path) == b"first"


def test_file_that_could_not_be_synced_is_not_there(tmp_path, monkeypatch):
    """A disk that refuses leaves nothing under the name."""

    def fsync(descriptor):
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "fsync", fsync)

    with pytest.raises(HostError, match="no space"):
        write_bundle_file(tmp_path / "to-bob.bsp", b"sealed")
    assert names(tmp_path) == []


def test_missing_file_and_folder_are_told(tmp_path):
    """What cannot be read or written is said with its name."""
    with pytest.raises(HostError, match=r"cannot read .*gone"):
        read_bundle_file(tmp_path / "gone")
    with pytest.raises(HostError, match=r"cannot write .*gone"):
        write_bundle_file(tmp_path / "gone" / "file", b"")


def test_no_more_is_read_than_shows_that_it_is_too_large(tmp_path):
    """Of a huge file just enough is read to refuse it."""
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.truncate(100 * BUNDLE_BYTES_MAX)

    assert len(read_bundle_file(path)) == BUNDLE_BYTES_MAX + 1


@pytest.mark.parametrize("name", ["", "inner"])
def test_folder_is_no_file_to_write(tmp_path, monkeypatch, name):
    """Whoever names a folder is told, also by a dot."""
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path)

    with pytest.raises(LocalError, match="is a folder"):
        write_bundle_file(Path(name), b"x", replace=True)
