"""The least that copying a group costs: the same rows from one SQLite file to another through a bare TLS 1.3 socket.

Both ends are loops without a protocol: no identifier is computed, nothing is looked up, and one byte at the end says
that everything is on disk. The receiver makes as many commits as a device does.
"""

import socket
import ssl
import struct
import sys
import time
from pathlib import Path
from typing import Final

from waystation.core.records import Record
from waystation.store.sqlite import SqliteStore
from waystation.transport.tls import client_context, server_context

TABLE: Final = "bsp_messages"
_PAGE: Final = 256
_ROW: Final = struct.Struct(">II")
_READ_BYTES: Final = 262_144


def receive(path: Path, cert: Path, key: Path, count: int, commits: int) -> None:
    """Take so many rows in so many commits; print the port first, and how long it took at the end."""
    store = SqliteStore(path)
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    bare, _ = listening.accept()
    bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    carrier = server_context(cert, key, only_tls13=True).wrap_socket(bare, server_side=True)
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


def send(path: Path, port: int, count: int) -> None:
    """Send so many rows, wait for the word that they are on disk, and print the seconds that took."""
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
    print(time.perf_counter() - began, flush=True)
    store.close()


def main() -> None:
    """Be one of the two ends."""
    what, *arguments = sys.argv[1:]
    if what == "receive":
        path, cert, key, count, commits = arguments
        receive(Path(path), Path(cert), Path(key), int(count), int(commits))
    else:
        path, port, count = arguments
        send(Path(path), int(port), int(count))


if __name__ == "__main__":
    try:
        main()
    except ssl.SSLError as error:
        sys.exit(str(error))
