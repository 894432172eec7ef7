"""Connections that make a node ask for memory until it gets no more."""

import contextlib
import socket
import ssl
from typing import Final
from urllib.parse import urlsplit

from tools.served import ServedProcess

__all__ = ["Crowd"]

FRAME_BYTES: Final = 4 << 20
"""Of each message of a WebSocket that is begun and never ended; MERK takes 8 MiB."""


class Crowd:
    """Connections to every listener of a node that make it keep as much as it may, until ``close``."""

    def __init__(self, node: ServedProcess, count: int) -> None:
        """Connect so often to each; a connection that the node refuses is none."""
        self._stack = contextlib.ExitStack()
        for _ in range(count):
            self._shake_hands(node.address_of("bhumi"))
            self._shake_hands(node.address_of("bsp"))
            self._begin_frame(node.address_of("merk"))

    def close(self) -> None:
        """End them."""
        self._stack.close()

    def _connect(self, url: str) -> socket.socket:
        place = urlsplit(url)
        made = socket.create_connection((place.hostname, place.port), timeout=2)
        return self._stack.enter_context(contextlib.closing(made))

    def _shake_hands(self, url: str) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with contextlib.suppress(OSError):
            self._stack.enter_context(contextlib.closing(context.wrap_socket(self._connect(url))))

    def _begin_frame(self, url: str) -> None:
        place = urlsplit(url)
        with contextlib.suppress(OSError):
            pipe = self._connect(url)
            head = "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"
            lines = (
                f"GET {place.path or '/'} HTTP/1.1",
                f"Host: {place.netloc}",
                *head,
                f"Sec-WebSocket-Key: {'A' * 22}==",
            )
            pipe.sendall("\r\n".join((*lines, "", "")).encode())
            pipe.recv(4_096)
            pipe.sendall(b"\x82\xff" + (2 * FRAME_BYTES - 1).to_bytes(8, "big") + bytes(4) + bytes(FRAME_BYTES))
