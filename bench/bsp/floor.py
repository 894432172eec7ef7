"""The baseline of the BSP sync benchmark: copies the same rows between two SQLite files over a bare TLS 1.3 socket.

Neither end runs a protocol, computes identifiers or looks anything up. One final byte reports that all rows are on
disk. The receiver makes as many commits as a BSP device does.
"""

import socket
import struct
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from waystation.core.records import Record
from waystation.store.sqlite import SqliteStore
from waystation.transport.tls import client_context, server_context

TABLE: Final = "bsp_messages"
_PAGE: Final = 256
_ROW: Final = struct.Struct(">II")
_READ_BYTES: Final = 262_144


def receive(pipe: Connection, path: Path, certified: Path, count: int, commits: int) -> None:
    """Send the port, and take so many rows in so many commits."""
    store = SqliteStore(path)
    listening = socket.create_server(("127.0.0.1", 0))
    pipe.send(listening.getsockname()[1])
    bare, _ = listening.accept()
    bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    context = server_context(certified / "bsp-tls.pem", certified / "bsp-tls-key.pem", only_tls13=True)
    carrier = context.wrap_socket(bare, server_side=True)
    per_commit = -(-count // commits)
    taken, group, waiting = 0, [], bytearray()
    while taken < count:
        waiting += carrier.recv(_READ_BYTES)
        offset = 0
        while len(waiting) - offset >= _ROW.size:
            key_size, value_size = _ROW.unpack_from(waiting, offset)
            end = offset + _ROW.size + key_size + value_size
            if end > len(waiting):
                break
            middle = offset + _ROW.size + key_size
            group.append(Record(TABLE, bytes(waiting[offset + _ROW.size : middle]), bytes(waiting[middle:end])))
            taken += 1
            offset = end
            if len(group) == per_commit or taken == count:
                store.commit(group)
                group = []
        del waiting[:offset]
    carrier.sendall(b"!")
    store.close()


def send(pipe: Connection, path: Path, port: int, count: int) -> None:
    """Send so many rows, wait for the word that they are on disk, and report the seconds that took."""
    store = SqliteStore(path)
    context = client_context(verify=False, only_tls13=True)
    carrier = context.wrap_socket(socket.create_connection(("127.0.0.1", port)))
    carrier.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    began = time.perf_counter()
    start, sent = b"", 0
    while sent < count:
        page = list(store.scan(TABLE, start, _PAGE))
        carrier.sendall(b"".join(_ROW.pack(len(key), len(value)) + key + value for key, value in page))
        sent += len(page)
        start = page[-1][0] + b"\x00"
    assert carrier.recv(1) == b"!"
    pipe.send(time.perf_counter() - began)
    store.close()
