"""One HTTP connection over a unix socket, for blocking clients.

Commands such as ``waystation status`` reach the admin port of a node on this machine with it, through ``admin.sock`` in
the home: file permissions protect that socket.
"""

import http.client
import socket

__all__ = ["UnixHttpConnection"]


class UnixHttpConnection(http.client.HTTPConnection):
    """As ``http.client.HTTPConnection``; requests ask for the host "localhost"."""

    def __init__(self, path: str, *, timeout_s: float) -> None:
        """Prepare; the first request connects.

        Args:
            path: Of the socket.
            timeout_s: For each step.
        """
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Connect.

        Raises:
            OSError: Nobody listens there, or this user may not open it.
        """
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
