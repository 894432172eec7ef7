import pytest

from waystation.core.errors import HostError
from waystation.sdk.strata.privacy import METADATA_NOTICE, notice_once


def test_notice_is_given_once_per_folder(tmp_path):
    """And it names everything that RFC-0004 5.3 lists."""
    first, second = notice_once(tmp_path / "a"), notice_once(tmp_path / "a")

    assert (first, second) == (METADATA_NOTICE, None)
    for word in ("address", "subscribe", "author", "type", "large", "when you send", "log in", "limits"):
        assert word in METADATA_NOTICE


def test_folder_that_cannot_be_made_is_said(tmp_path):
    """A file in its place is the host's failure."""
    (tmp_path / "file").write_text("")

    with pytest.raises(HostError):
        notice_once(tmp_path / "file" / "inside")
