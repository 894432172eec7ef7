"""Laws of transport.unix_http."""

import socket
import threading

import pytest

from waystation.transport.unix_http import UnixHttpConnection


def test_request_goes_over_the_socket(tmp_path):
    """The host that is asked for is localhost, and the answer comes back."""
    asked = []

    def answer():
        accepted, _ = server.accept()
        with accepted:
            asked.append(accepted.recv(65_536))
            accepted.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes")

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        thread = threading.Thread(target=answer)
        thread.start()
        connection = UnixHttpConnection(str(tmp_path / "s"), timeout_s=8)
        connection.request("GET", "/path")
        with connection.getresponse() as response:
            body = response.read()
        connection.close()
        thread.join()

    assert body == b"yes"
    assert asked[0].startswith(b"GET /path HTTP/1.1\r\nHost: localhost\r\n")


def test_socket_that_is_not_there(tmp_path):
    """The error is the system's."""
    connection = UnixHttpConnection(str(tmp_path / "s"), timeout_s=1)
    with pytest.raises(FileNotFoundError):
        connection.connect()
    connection.close()
