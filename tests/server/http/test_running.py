"""Laws of server.http.running."""

import pytest

from waystation.core.errors import HostError
from waystation.server.home import Home
from waystation.server.http.running import Running, forget_running, read_running, write_running

RUNNING = Running(7, "1.2.3", {"admin": "http://127.0.0.1:1"}, "/somewhere/admin.sock")


def test_what_is_written_is_read(tmp_path):
    """The file is for its owner alone, and gone once forgotten."""
    home = Home(tmp_path)
    write_running(home, RUNNING)
    mode, read = home.running_path.stat().st_mode & 0o777, read_running(home)
    forget_running(home)
    forget_running(home)

    assert (mode, read, read.admin) == (0o600, RUNNING, "http://127.0.0.1:1")
    assert read_running(home) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "7",
        "{}",
        '{"pid": "7", "version": "1", "urls": {}, "socket": ""}',
        '{"pid": 7, "version": 1, "urls": {}, "socket": ""}',
        '{"pid": 7, "version": "1", "urls": [], "socket": ""}',
        '{"pid": 7, "version": "1", "urls": {"admin": 1}, "socket": ""}',
        '{"pid": 7, "version": "1", "urls": {}, "socket": null}',
    ],
)
def test_damaged_file_is_refused_with_a_way_out(tmp_path, text):
    """Whatever stands there, the sentence names the file and what to do."""
    home = Home(tmp_path)
    home.running_path.write_text(text)

    with pytest.raises(HostError, match=r"running.json is damaged; restart the node"):
        read_running(home)


def test_disk_that_refuses_is_named(tmp_path):
    """Writing where there is no folder, and reading what is a folder, name the file."""
    with pytest.raises(HostError, match="cannot write"):
        write_running(Home(tmp_path / "none"), RUNNING)
    home = Home(tmp_path)
    home.running_path.mkdir()

    with pytest.raises(HostError, match="cannot read"):
        read_running(home)
    forget_running(home)
    assert home.running_path.is_dir()
