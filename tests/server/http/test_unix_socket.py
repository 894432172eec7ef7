"""Laws of server.http.unix_socket."""

import socket

import pytest
from structlog.testing import capture_logs

from waystation.core.errors import HostError, LocalError
from waystation.server.http.unix_socket import PATH_BYTES_MAX, bind_unix, check_path


def test_socket_is_for_its_owner_and_listens(tmp_path):
    """Whatever the umask, only this user may open it; a connection is taken."""
    bound = bind_unix(tmp_path / "s")
    with bound.socket, socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / "s"))
        mode = (tmp_path / "s").stat().st_mode & 0o777
    bound.remove()

    assert mode == 0o600
    assert list(tmp_path.iterdir()) == []


def test_file_of_an_ended_process_is_replaced(tmp_path):
    """A socket that nobody listens at makes place."""
    bind_unix(tmp_path / "s").socket.close()

    again = bind_unix(tmp_path / "s")
    again.socket.close()

    assert again.path.is_socket() and len(list(tmp_path.iterdir())) == 1


def test_socket_of_a_running_process_is_not_taken_away(tmp_path):
    """Who listens keeps it, and the sentence says so."""
    with bind_unix(tmp_path / "s").socket, pytest.raises(HostError, match="another program listens there") as caught:
        bind_unix(tmp_path / "s")

    assert caught.value.exit_code == 4


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_what_is_no_socket_stays(tmp_path, kind):
    """A file, a folder or a link at the path is never removed."""
    path, target = tmp_path / "s", tmp_path / "other"
    {"file": path.touch, "folder": path.mkdir, "link": lambda: path.symlink_to(target)}[kind]()

    with pytest.raises(HostError, match="a file that is no socket is there"):
        bind_unix(path)
    assert path.is_symlink() or path.exists()


def test_removing_leaves_the_socket_of_another(tmp_path):
    """A node that ends does not remove the socket of the one that came after it."""
    first = bind_unix(tmp_path / "s")
    first.socket.close()
    second = bind_unix(tmp_path / "s")
    first.remove()
    stands = (tmp_path / "s").is_socket()
    second.socket.close()
    second.remove()
    second.remove()

    assert stands and not (tmp_path / "s").exists()


def test_file_that_the_disk_keeps_is_logged(tmp_path):
    """The node is ending: what it cannot remove must not stand in the way of the rest."""
    folder = tmp_path / "f"
    folder.mkdir()
    bound = bind_unix(folder / "s")
    bound.socket.close()
    folder.rename(tmp_path / "away")
    folder.touch()
    with capture_logs() as lines:
        bound.remove()

    (line,) = lines
    assert (line["event"], line["log_level"], line["path"]) == ("admin.socket_file", "warning", str(folder / "s"))


def test_length_of_a_path_is_bounded(tmp_path):
    """The longest path works, and one byte more is refused with both numbers."""
    name = "n" * (PATH_BYTES_MAX - len(str(tmp_path)) - 1)
    bound = bind_unix(tmp_path / name)
    bound.socket.close()

    with pytest.raises(LocalError, match=f"has {PATH_BYTES_MAX + 1} bytes.* at most {PATH_BYTES_MAX}"):
        check_path(tmp_path / (name + "n"))


def test_folder_that_is_missing_is_named(tmp_path):
    """The sentence has the path and the system's reason."""
    with pytest.raises(HostError, match=r"none/s: No such file or directory") as caught:
        bind_unix(tmp_path / "none" / "s")

    assert caught.value.exit_code == 4
