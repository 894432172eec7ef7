"""A minimal blocking BSP peer that may send any bytes, over the standard library's TLS and the project's handshake."""

import hashlib
import os
import select
import socket
import ssl
from typing import Final

from waystation.core.ids import PublicKey
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.messages import Record
from waystation.protocols.bsp.profile import SEED
from waystation.protocols.bsp.refusals import Refusal
from waystation.protocols.bsp.stream.handshake import HELLO_BYTES, VERDICT_BYTES, Dialler, decode_hello, decode_verdict
from waystation.protocols.bsp.wire import RecordReader, encode

TIMEOUT_S: Final = 20.0
READ_BYTES: Final = 262_144


class RawPeer:
    """One connection to a node's bsp+tls listener."""

    def __init__(self, port: int) -> None:
        """Connect, and shake hands as far as TLS goes."""
        bare = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        try:
            self._socket = _context().wrap_socket(bare)
        except OSError:
            bare.close()
            raise
        shown = self._socket.getpeercert(binary_form=True)
        assert shown is not None
        self._certificate = hashlib.sha256(shown).digest()
        self._reader = RecordReader(SEED)
        self._records: list[Record] = []

    def shake_hands(self, key: KeyPair, node: PublicKey) -> Refusal | None:
        """Prove who we are; return why the node does not want us."""
        dialler = Dialler(key, os.urandom(32), node, self._certificate)
        self._socket.sendall(dialler.answer(decode_hello(self._exactly(HELLO_BYTES))))
        return dialler.check_verdict(decode_verdict(self._exactly(VERDICT_BYTES)))

    def send(self, *records: Record) -> None:
        """Write records."""
        self.send_bytes(b"".join(encode(SEED, record) for record in records))

    def send_bytes(self, data: bytes) -> None:
        """Write what was encoded before."""
        self._socket.sendall(data)

    def read(self) -> list[Record]:
        """Return the next records, at least one; ConnectionError when the node has closed."""
        while not self._records:
            self._take(self._socket.recv(READ_BYTES))
        return self._taken()

    def read_ready(self) -> list[Record]:
        """Return the records that are here already."""
        while self._socket.pending() or select.select([self._socket], [], [], 0)[0]:
            self._take(self._socket.recv(READ_BYTES))
        return self._taken()

    def close(self) -> None:
        """Close at once."""
        self._socket.close()

    def _take(self, data: bytes) -> None:
        if not data:
            raise ConnectionResetError("the node has closed")
        self._records += self._reader.feed(data)

    def _taken(self) -> list[Record]:
        taken, self._records = self._records, []
        return taken

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise ConnectionResetError("the node has closed")
            data += more
        return data


def _context() -> ssl.SSLContext:
    """Return what takes any certificate: the handshake is bound to the one that is shown."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["bsp/1"])
    return context
