"""A BSP peer written from the specification alone: bytes by ``struct``, TLS by the standard library, no codec of ours.

Spec: specs/bsp.md 1, 5 and 11.8.
"""

import hashlib
import socket
import ssl
import struct
import time
from urllib.parse import urlsplit

from waystation.crypto.signing import sign, verify

PATIENCE_S = 20.0
PREFIX = b"BSPH\x01\0\0\0"
ACK, MESSAGE, OFFER, REQUEST = range(4)


def joined(*parts):
    """Return each part behind its length in four bytes."""
    return b"".join(struct.pack(">I", len(part)) + part for part in parts)


def proof_bytes(role, server_nonce, client_nonce, server_key, client_key, certificate_sha256):
    """Return what one side of a handshake signs."""
    parts = (server_nonce, client_nonce, server_key, client_key, certificate_sha256)
    return hashlib.blake2b(joined(b"waystation/bsp/auth/1", role, *parts), digest_size=32).digest()


def group_id_of(client_id, descriptor):
    """Return the identifier of a group in the seed's profile."""
    return hashlib.blake2s(joined(b"GROUP_ID", client_id, descriptor)).digest()


def message_id_of(group_id, timestamp, body):
    """Return the identifier of a message in the seed's profile."""
    return hashlib.blake2s(joined(b"MESSAGE_ID", group_id, struct.pack(">Q", timestamp), body)).digest()


def record(kind, payload):
    """Return one record of version 1."""
    return struct.pack(">BBH", 1, kind, len(payload)) + payload


def message(group_id, timestamp, body):
    """Return a MESSAGE."""
    return record(MESSAGE, group_id + struct.pack(">Q", timestamp) + body)


def named(kind, payload):
    """Return the identifiers of the messages that a record is about."""
    if kind == MESSAGE:
        return [message_id_of(payload[:32], int.from_bytes(payload[32:40], "big"), payload[40:])]
    return [payload[at : at + 32] for at in range(0, len(payload), 32)]


def any_certificate():
    """Return a context of a peer: TLS 1.3, whoever has signed what the other side shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


class StandIn:
    """One connection of a peer, on a blocking socket."""

    def __init__(self, url, context=None, alpn=("bsp/1",)):
        """Connect to a ``tls://`` or ``tcp://`` listener."""
        place = urlsplit(url)
        self.certificate = b""
        self._rest = b""
        self.socket = socket.create_connection((place.hostname, place.port), timeout=PATIENCE_S)
        if place.scheme == "tls":
            context = context or any_certificate()
            if alpn:
                context.set_alpn_protocols(list(alpn))
            try:
                self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
            except OSError:
                self.socket.close()
                raise
            self.certificate = hashlib.sha256(self.socket.getpeercert(binary_form=True)).digest()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def shake_hands(self, pair, node_key, *, certificate=None, nonce=b"n" * 32):
        """Prove ``pair`` to the node and check its proof; return the status it gives.

        Args:
            pair: Our key.
            node_key: The one that the node must prove.
            certificate: The hash that our proof covers; that of the certificate we saw when left out.
            nonce: Ours.
        """
        hello = self.exactly(72)
        assert (hello[:8], hello[40:]) == (PREFIX, node_key)
        covered = hello[8:40], nonce, node_key, pair.public, certificate or self.certificate
        self.say(PREFIX + nonce + pair.public + sign(pair, proof_bytes(b"client", *covered)))
        verdict = self.exactly(65)
        if certificate is None:
            assert verify(node_key, proof_bytes(b"server", *covered), verdict[:64])
        return verdict[64]

    def say(self, *records):
        """Send records, or bytes as they are."""
        self.socket.sendall(b"".join(records))

    def exactly(self, size):
        """Return so many bytes; ConnectionError when the connection ends before."""
        while len(self._rest) < size:
            data = self.socket.recv(65_536)
            if not data:
                raise ConnectionResetError(f"the node closed behind {self._rest!r}")
            self._rest += data
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def record(self):
        """Return kind and payload of the next record."""
        version, kind, size = struct.unpack(">BBH", self.exactly(4))
        assert version == 1
        return kind, self.exactly(size)

    def until(self, wanted, message_id):
        """Read on until a record of this kind names a message; return what came before it."""
        before = []
        while True:
            kind, payload = self.record()
            if kind == wanted and message_id in named(kind, payload):
                return before
            before.append((kind, payload))

    def end(self):
        """Return what is still said until the node ends the connection, and after how many seconds it does."""
        began, said = time.monotonic(), self._rest
        self._rest = b""
        try:
            while data := self.socket.recv(65_536):
                said += data
        except (ConnectionError, ssl.SSLError):
            pass
        return said, time.monotonic() - began
